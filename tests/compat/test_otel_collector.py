"""The OpenTelemetry Collector takes what real processes tell, and shows it as they mean it."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.wire.task_context import task_context
from ledger.dev import DevCluster
from ledger.telemetry import SpanKind, TelemetrySettings, begin_span, start_telemetry, stop_telemetry, use_context
from ledger.telemetry.start import telemetry_counts
from rsm_spark.map.client.client import MapClient
from tests.compat.go_programs import GoMissingError, build_go
from tests.compat.otel_collector import STRATEGIES, OtelCollector, otel_collector
from tests.integration.broker_processes import brokers
from tests.integration.store_processes import stores
from tests.integration.test_task_traces import submit, task_spans
from tests.integration.test_traces import check_tree, put_order, put_trees
from tests.integration.worker_processes import TASKS, WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800), pytest.mark.asyncio]

_SERVICES = {"shop", "rsm-replica", "rsm-bookie", "rsm-worker"}
_ADDED = ("job", "instance", "otel_scope_name", "otel_scope_version", "otel_scope_schema_url")
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Series = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build_go("otel", "collector", tmp_path_factory.mktemp("go-otel"))
    except GoMissingError as error:
        pytest.skip(f"the OpenTelemetry Collector cannot be built: {error}")


@pytest.fixture
def collector(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtelCollector]:
    """The Collector, told of everything by each process that begins from now on."""
    with otel_collector(program, tmp_path / "collector") as running:
        monkeypatch.setenv("RSM_OTLP_URL", running.url)
        monkeypatch.setenv("RSM_TRACE_RATE", "1")
        monkeypatch.setenv("RSM_OTLP_METRICS_S", "0.5")
        monkeypatch.setenv("RSM_OTLP_LOGS", "1")
        yield running
        stop_telemetry()


def _kinds(page: str) -> dict[str, str]:
    """Return the kinds of metrics of a page, by name, of those that have samples."""
    kinds = {line.split(" ")[2]: line.split(" ")[3] for line in page.splitlines() if line.startswith("# TYPE ")}
    names = {re.split("[{ ]", line)[0] for line in page.splitlines() if not line.startswith("#")}
    parts = ("", "_bucket", "_sum", "_count")
    return {name: kind for name, kind in kinds.items() if any(f"{name}{part}" in names for part in parts)}


def _series(page: str, job: str = "", instance: str = "") -> dict[Series, float]:
    """Return the samples of a page, those of one process without what the Collector adds to its labels."""
    found: dict[Series, float] = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, line
        labels = dict(_LABEL.findall(sample[2] or ""))
        if (labels.get("job", ""), labels.get("instance", "")) == (job, instance):
            if "le" in labels:  # Each writes bounds of buckets in its own way: 1, 1.0.
                labels["le"] = str(float(labels["le"]))
            own = frozenset((name, value) for name, value in labels.items() if name not in _ADDED)
            found[sample[1], own] = float(sample[3])
    return found


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own
        return str(answer.read().decode())


def _told_pages(url: str, outcome: str) -> float:
    return _series(_fetch(url))["rsm_otlp_metric_pages_total", frozenset({("outcome", outcome)})]


def _until_shown(collector: OtelCollector, url: str, job: str, instance: str) -> None:
    """Wait until the Collector shows Prometheus each series that a process shows, and check kinds and names."""
    page = _fetch(url)
    # What a process tells of its telling begins when it has told once.
    collector.until(
        lambda: _series(page).keys() <= _series(collector.page("as told"), job, instance).keys(),
        lambda: _series(page).keys() - _series(collector.page("as told"), job, instance).keys(),
    )
    for names in STRATEGIES:
        kinds = _kinds(collector.page(names))
        told = _kinds(page)
        assert {name: kinds.get(name) for name in told} == told, names


async def _put_and_log(client: MapClient, receiver: OtelCollector, log: str) -> None:
    """Check that a put is one trace over all processes, as the Collector has it, and a line that belongs to it."""
    await put_order(client, b"1")
    (tree,) = await asyncio.to_thread(receiver.until, lambda: put_trees(receiver.spans(), "order"))
    check_tree(tree, log)
    assert len({span.trace_id for _, span in tree}) == 1
    assert all(len(span.trace_id) == 32 and len(span.span_id) == 16 for _, span in tree)
    kinds = [SpanKind.SERVER, SpanKind.CLIENT, SpanKind.SERVER, SpanKind.CLIENT, *[SpanKind.SERVER] * 3]
    assert [span.kind for _, span in tree] == kinds
    order = begin_span("order")
    assert order is not None
    with use_context(order.context):
        logging.getLogger("shop.orders").warning("sold %s", "one", extra={"log": log})
    order.end()
    (line,) = await asyncio.to_thread(
        receiver.until, lambda: [one for one in receiver.lines() if one.logger == "shop.orders"]
    )
    assert (line.service, line.severity, line.level, line.message) == ("shop", 13, "warning", "sold one")
    assert (int(line.trace_id, 16), int(line.span_id, 16)) == (order.context.trace_id, order.context.span_id)
    (role,) = [one for one in receiver.lines() if (one.message, one.attributes.get("rsm.log")) == ("role: leader", log)]
    assert (role.service, role.instance, role.severity) == ("rsm-replica", f"{log}/a", 9)


async def _run_task(url: str, log: str, receiver: OtelCollector) -> None:
    """Check that a task is one trace over broker and worker."""
    task_id = await asyncio.to_thread(submit, url, {"type": "noop", "tenant": "acme"})
    root, run = await asyncio.to_thread(receiver.until, lambda: task_spans(receiver.spans(), task_id, 1))
    assert (root.service, run.service, root.error, run.error) == ("rsm-replica", "rsm-worker", "", "")
    assert int(root.trace_id, 16) == task_context(log, task_id, 1.0).trace_id
    assert (run.trace_id, run.parent_id) == (root.trace_id, root.span_id)


def _check_bookies(collector: OtelCollector, bookies: list[str]) -> None:
    """Check that names are those of BookKeeper, and what the Collector does to them without being told not to."""
    collector.until(
        lambda: {one.instance for one in collector.points() if one.service == "rsm-bookie"} == set(bookies),
        lambda: bookies,
    )
    told, usual = (collector.page(names) for names in STRATEGIES)
    for bookie in bookies:
        series = {name for name, _ in _series(told, "rsm-bookie", bookie)}
        assert {"bookkeeper_server_ADD_ENTRY_REQUEST_count", "bookie_SERVER_STATUS"} <= series
    of_bookie = {one.name: one.kind for one in collector.points() if one.service == "rsm-bookie"}
    renamed = {name for name, kind in of_bookie.items() if kind == "sum" and not name.endswith("_total")}
    assert renamed
    assert of_bookie.keys() <= _kinds(told).keys()
    expected = {f"{name}_total" if name in renamed else name for name in of_bookie}
    assert {re.sub("_+", "_", name) for name in expected} <= _kinds(usual).keys()


async def test_the_configuration_of_the_document_is_one(program: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
    config = tmp_path / "collector.yml"
    config.write_text(text.split("```yaml\n")[1].split("```")[0])
    done = subprocess.run([program, "validate", "--config", config], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


async def test_the_collector_shows_what_processes_tell(
    collector: OtelCollector, unique_name: str, tmp_path: Path
) -> None:
    with DevCluster(tmp_path / "dev") as cluster, stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        uri, tasks = cluster.metadata_uri, f"{unique_name}-tasks"
        where = ("--log", tasks, "--metadata-uri", uri)
        replica = replicas.start("a", "--bookies", "3/3/2", "--http-port", "0")
        settings = TelemetrySettings(otlp_url=collector.url, trace_rate=1.0, otlp_logs=True)
        start_telemetry(settings, "shop", "till 1")
        async with await MapClient.connect(unique_name, uri) as client:
            await _put_and_log(client, collector, unique_name)
        with brokers(tmp_path, "b", options=(*where, "--http-port", "0")) as (broker,):
            worker = WorkerProcess(tmp_path, "w1", *where, "--tasks", TASKS)
            try:
                await worker.wait_ready()
                await _run_task(broker.url, tasks, collector)
            finally:
                worker.kill()
            for url, instance in (
                (f"http://{replica.ready['http_address']}", f"{unique_name}/a"),
                (broker.url, f"{tasks}/b"),
            ):
                await asyncio.to_thread(_until_shown, collector, f"{url}/metrics", "rsm-replica", instance)
        await asyncio.to_thread(_check_bookies, collector, [one.address for one in cluster.state.bookies])
        page = f"http://{replica.ready['http_address']}/metrics"
        records = ("rsm_records_total", frozenset({("log", unique_name)}))
        await asyncio.to_thread(
            collector.until,
            lambda: (
                _series(collector.page("as told"), "rsm-replica", f"{unique_name}/a")[records]
                == _series(_fetch(page))[records]
            ),
        )
        units = collector.units()
        wanted = {
            "rsm_lag_seconds": "s",
            "rsm_entry_bytes_total": "By",
            "process_cpu_seconds_total": "s",
            "rsm_rows": "",
        }
        assert {name: units[name] for name in wanted} == wanted
        # The Collector ends connections that wait, and nothing is lost by it.
        await asyncio.to_thread(collector.until, lambda: _told_pages(page, "sent") - _told_pages(page, "failed") > 3)
        assert telemetry_counts()["spans"]["dropped"] == 0
    for kind, resources in collector.resources().items():
        assert all(
            {"service.name", "service.instance.id", "host.name", "process.pid"} == one.keys() for one in resources
        ), kind
    said = collector.said()
    assert not re.findall(r"^.*(?:\t(?:warn|error)\t|conflict).*$", said, re.MULTILINE)
