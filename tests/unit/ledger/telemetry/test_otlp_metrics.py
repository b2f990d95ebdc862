"""Pages of metrics as OTLP: what each process says, read by Prometheus' own library and by OTLP's own messages."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.parser import text_string_to_metric_families

from ledger.http.metrics import MetricsPage
from ledger.telemetry.otlp_metrics import TimedPage, encode_metrics, rejected_pages
from tests.integration.otlp_receiver import ReceivedPoint, points_of
from tests.unit.rsm_spark.monitoring.exported_metrics import exported_pages

RESOURCE: dict[str, Any] = {"service.name": "rsm-replica", "service.instance.id": "orders/a"}
NAMES = st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True).filter(lambda name: name not in {"name", "text", "value"})


def told(*pages: str) -> list[ReceivedPoint]:
    found = [TimedPage(page, 2_000 + number, 1_000) for number, page in enumerate(pages)]
    return list(points_of(ExportMetricsServiceRequest.FromString(encode_metrics(found, RESOURCE))))


def page_of(writer: MetricsPage) -> str:
    return writer.page().body.decode()


def test_a_page_of_each_kind_of_metric() -> None:
    page = MetricsPage()
    page.gauge("rsm_lag_seconds", 'How "old"\\n.', 0.25, log="orders")
    page.counter("rsm_entries_total", "Entries.", 7, log="orders", place='a "b"\\c\n')
    page.counter("bookie_WRITE_BYTES", "As BookKeeper has it.", 9)
    page.histogram("rsm_wait_seconds", "Waits.", (0.5, 1.0), (3, 0, 2), 4.5)
    page.summary("rsm_reads", "Reads.", 4, 0.5, by="lease")
    page.summary("rsm_writes", "Writes.", 5)
    assert [(one.name, one.kind, one.labels, one.value) for one in told(page_of(page))] == [
        ("rsm_lag_seconds", "gauge", {"log": "orders"}, 0.25),
        ("rsm_entries_total", "sum", {"log": "orders", "place": 'a "b"\\c\n'}, 7),
        ("bookie_WRITE_BYTES", "sum", {}, 9),
        ("rsm_wait_seconds", "histogram", {}, (5, 4.5, [0.5, 1.0], [3, 0, 2])),
        ("rsm_reads", "summary", {"by": "lease"}, (4, 0.5)),
        ("rsm_writes", "summary", {}, (5, 0.0)),
    ]


def test_points_say_whose_they_are_and_since_when_they_count() -> None:
    page = MetricsPage()
    page.gauge("a", "A.", 1)
    page.counter("b_total", "B.", 2)
    first = page_of(page)
    points = told(first, first)
    assert {(one.service, one.instance) for one in points} == {("rsm-replica", "orders/a")}
    assert [(one.name, one.start_ns, one.time_ns) for one in points] == [
        ("a", 0, 2_000), ("b_total", 1_000, 2_000), ("a", 0, 2_001), ("b_total", 1_000, 2_001),
    ]  # fmt: skip


def test_a_line_that_is_none_is_refused_with_the_line() -> None:
    with pytest.raises(ValueError, match="no metric at all"):
        told("no metric at all, sorry\n")


def test_a_kind_that_nobody_has_said_is_a_gauge() -> None:
    assert [(one.name, one.kind, one.value) for one in told("up 1\n# EOF\n")] == [("up", "gauge", 1.0)]


@given(
    st.lists(
        st.tuples(NAMES, st.dictionaries(NAMES, st.text(max_size=20), max_size=3), st.floats(allow_nan=False)),
        unique_by=lambda one: one[0],
        max_size=10,
    )
)
def test_any_label_and_any_value_arrives_as_it_is(samples: list[tuple[str, dict[str, str], float]]) -> None:
    page = MetricsPage()
    for name, labels, value in samples:
        page.gauge(name, "Text.", value, **labels)
    found = [(one.name, one.labels, one.value) for one in told(page_of(page))]
    assert found == [(name, labels, float(f"{value:.15g}")) for name, labels, value in samples]


def test_what_each_process_says_arrives_whole() -> None:
    """Prometheus' own parser of the same page is the oracle."""
    for kind, page in exported_pages().items():
        told_points: dict[tuple[str, tuple[tuple[str, str], ...]], ReceivedPoint] = {}
        for one in told(page):
            key = (one.name, tuple(sorted(one.labels.items())))
            assert key not in told_points, (kind, key)
            told_points[key] = one
        expected = _expected(page)
        assert set(told_points) == set(expected), kind
        for key, values in expected.items():
            _check(told_points[key], values)


def _expected(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, float]]:
    types = dict(line.split(" ")[2:4] for line in page.splitlines() if line.startswith("# TYPE "))
    found: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, float]] = defaultdict(dict)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name, part = sample.name, ""
            if family.type in {"histogram", "summary"}:
                name, part = family.name, sample.name.removeprefix(family.name)
            elif family.type == "counter" and name not in types:
                name = name.removesuffix("_total")  # The parser adds what BookKeeper's names have not.
            labels = {key: value for key, value in sample.labels.items() if key != "le"}
            found[name, tuple(sorted(labels.items()))][part + sample.labels.get("le", "")] = sample.value
    return found


def _check(point: ReceivedPoint, values: dict[str, float]) -> None:
    if point.kind == "summary":
        assert point.value == (values["_count"], values.get("_sum", 0.0))
    elif point.kind == "histogram":
        count, total, bounds, counts = point.value
        assert (count, total) == (values["_count"], values["_sum"])
        below = 0
        for bound, one in zip([*bounds, float("inf")], counts, strict=True):
            below += one
            assert [value for key, value in values.items() if key.startswith("_bucket") and
                    float(key.removeprefix("_bucket")) == bound] == [below]  # fmt: skip
    else:
        assert values == {"": point.value}


def test_a_collector_that_takes_a_part_of_a_page_has_not_taken_it() -> None:
    answer = ExportMetricsServiceResponse()
    assert rejected_pages(answer.SerializeToString()) == 0
    answer.partial_success.rejected_data_points = 17
    assert rejected_pages(answer.SerializeToString()) == 1
    assert rejected_pages(b"\xffno protobuf") == 0
