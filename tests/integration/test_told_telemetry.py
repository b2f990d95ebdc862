"""Metrics and log lines of real processes, as a collector gets them, beside what their own pages say."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from tests.integration.broker_processes import brokers
from tests.integration.consoles import console
from tests.integration.file_stores import SERVE
from tests.integration.gateways import GatewayProcess
from tests.integration.otlp_receiver import OtlpReceiver, ReceivedPoint
from tests.integration.store_processes import StoreProcess, stores
from tests.integration.test_auto_recovery import auto_recovery
from tests.integration.worker_processes import TASKS, WorkerProcess

pytestmark = pytest.mark.asyncio

_OF_EACH = frozenset({"rsm_clock_timestamp_seconds", "rsm_otlp_metric_pages_total", "rsm_trace_spans_total"})


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    running = OtlpReceiver()
    monkeypatch.setenv("RSM_OTLP_URL", running.url)
    monkeypatch.setenv("RSM_OTLP_METRICS_S", "0.2")
    monkeypatch.setenv("RSM_OTLP_LOGS", "1")
    yield running
    running.close()


def _names(points: list[ReceivedPoint], service: str, instance: str = "") -> set[str]:
    return {one.name for one in points if one.service == service and instance in ("", one.instance)}


async def _page_names(url: str) -> set[str]:
    def fetch() -> str:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:  # noqa: S310 - our own
            return str(answer.read().decode())

    lines = (await asyncio.to_thread(fetch)).splitlines()
    families = {line.split(" ")[2] for line in lines if line.startswith("# TYPE ")}
    samples = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    # What has a name and no samples yet is no point.
    return {name for name in families if any(sample.startswith(name) for sample in samples)}


async def test_a_store_and_its_bookies_push_what_their_pages_say(
    receiver: OtlpReceiver, unique_name: str, tmp_path: Path
) -> None:
    with DevCluster(tmp_path / "dev") as cluster, stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        # One has a port for Prometheus, the other has none; both are told of.
        one = replicas.start("a", "--http-port", "0")
        replicas.start("b")
        async with await MapClient.connect(unique_name, cluster.metadata_uri) as client:
            for number in range(7):
                await client.put(b"a", b"%d" % number)

        def records(instance: str) -> float:
            return max(
                (
                    point.value for point in receiver.points
                    if (point.name, point.instance) == ("rsm_records_total", f"{unique_name}/{instance}")
                ),
                default=0.0,
            )  # fmt: skip

        await asyncio.to_thread(receiver.until_points, lambda _: records("a") >= 7 and records("b") >= 7)
        expected = await _page_names(f"http://{one.ready['http_address']}")
        assert _OF_EACH <= expected
        await asyncio.to_thread(
            receiver.until_points, lambda points: expected <= _names(points, "rsm-replica", f"{unique_name}/a")
        )
        await asyncio.to_thread(
            receiver.until_points,
            lambda points: {"bookkeeper_server_ADD_ENTRY_REQUEST", *_OF_EACH} <= _names(points, "rsm-bookie"),
        )
        bookies = {point.instance for point in receiver.points if point.service == "rsm-bookie"}
        assert len(bookies) == len(cluster.state.bookies)
        roles = await asyncio.to_thread(
            receiver.until_lines,
            lambda lines: [
                line for line in lines
                if line.attributes.get("rsm.log") == unique_name and line.message == "role: leader"
            ],
        )  # fmt: skip
        assert (roles[0].service, roles[0].level, roles[0].severity) == ("rsm-replica", "info", 9)
        assert roles[0].attributes["rsm.replica"] in {"a", "b"}
        await asyncio.to_thread(receiver.until_lines, lambda lines: {one.service for one in lines} >= {"rsm-bookie"})


async def test_every_other_process_pushes_its_metrics_too(
    receiver: OtlpReceiver, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    where = ("--log", unique_name, "--metadata-uri", uri)
    gateway = await GatewayProcess.start(uri)
    worker = files = None
    try:
        with (
            auto_recovery(uri, tmp_path / "auto-recovery.log"),
            console(uri),
            brokers(tmp_path, "a", options=(*where, "--http-port", "0")) as (broker,),
        ):
            worker = WorkerProcess(tmp_path, "w1", *where, "--tasks", TASKS)
            files = StoreProcess(uri, f"{unique_name}-files", tmp_path, "f1", "--http-port", "0", command=SERVE)
            wanted = {
                "rsm-gateway": "rsm_gateway_connections",
                "rsm-autorecovery": "rsm_auditor",
                "rsm-console": "rsm_console_looks_total",
                "rsm-worker": "rsm_worker_connected",
            }
            for service, name in wanted.items():
                await asyncio.to_thread(
                    receiver.until_points,
                    lambda points, service=service, name=name: {name, *_OF_EACH} <= _names(points, service),
                )
            for instance, names in (
                (f"{unique_name}/a", {"rsm_broker_tasks", "broker_http_connections", "rsm_entries_total"}),
                (f"{unique_name}-files/f1", {"rsm_files_files", "rsm_entries_total"}),
            ):
                await asyncio.to_thread(
                    receiver.until_points,
                    lambda points, instance=instance, names=names: (
                        names | _OF_EACH <= _names(points, "rsm-replica", instance)
                    ),
                )
            assert await _page_names(broker.url) >= {"broker_http_connections"}
    finally:
        await gateway.kill()
        for process in (worker, files):
            if process is not None:
                process.kill()
