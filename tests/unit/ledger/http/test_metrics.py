"""Prometheus' text format, read back by Prometheus' own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from ledger.audit_lines import Refusals
from ledger.http.metrics import MetricsPage


def samples(page: MetricsPage) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(page.page().body.decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def test_every_kind_is_read_back_as_it_was_given() -> None:
    page = MetricsPage()
    page.gauge("a_gauge", "It goes up and down.", 0.25, folder='a "b"\\c')
    page.counter("a_total", "It goes up.", 12_345_678_901)
    page.summary("a_summary", "Some.", 3, 4.5, success="true")
    page.summary("a_summary", "Some.", 1, success="false")
    found = samples(page)
    assert found["a_gauge", (("folder", 'a "b"\\c'),)] == 0.25
    assert found["a_total", ()] == 12_345_678_901
    assert found["a_summary_count", (("success", "true"),)] == 3
    assert found["a_summary_sum", (("success", "true"),)] == 4.5
    assert found["a_summary_count", (("success", "false"),)] == 1
    assert page.page().body.decode().count("# TYPE a_summary summary") == 1


def test_buckets_of_a_histogram_add_up() -> None:
    page = MetricsPage()
    page.histogram("sizes", "Sizes.", (1, 4), (2, 0, 5), 99.0)
    found = samples(page)
    assert [found["sizes_bucket", (("le", bound),)] for bound in ("1", "4", "+Inf")] == [2, 2, 7]
    assert (found["sizes_count", ()], found["sizes_sum", ()]) == (7, 99.0)


def test_the_process_and_its_refusals_are_told() -> None:
    refusals = Refusals()
    said = {"principal": "", "role": "", "source": "x", "action": "GET /", "target": "HTTP", "outcome": "refused"}
    refusals.add(said, 0.0, reason="no-right")
    page = MetricsPage()
    page.process()
    page.refusals(refusals, "http")
    found = samples(page)
    assert found["process_resident_memory_bytes", ()] > 1 << 20
    assert found["process_open_fds", ()] > 2
    assert found["rsm_refusals_total", (("port", "http"), ("reason", "no-right"))] == 1
