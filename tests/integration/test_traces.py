"""Traces of real processes, sent to a collector of the test: who belongs to whom, and what a bad collector costs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger.dev import DevCluster
from ledger.telemetry import (
    SpanKind,
    TelemetrySettings,
    TraceContext,
    begin_span,
    start_telemetry,
    stop_telemetry,
    use_context,
)
from rsm_spark.map.client.client import MapClient
from rsm_spark.transport.stream_factory import Transport
from tests.integration.otlp_receiver import OtlpReceiver, ReceivedSpan
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    running = OtlpReceiver()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Leave this process as it was."""
    yield
    stop_telemetry()


def _tree(spans: list[ReceivedSpan], root: ReceivedSpan) -> list[tuple[int, ReceivedSpan]]:
    """Return the spans below one, each with its depth, in the order of their beginnings."""

    def below(parent: ReceivedSpan, depth: int) -> Iterator[tuple[int, ReceivedSpan]]:
        yield depth, parent
        for span in sorted(spans, key=lambda span: span.start_ns):
            if (span.trace_id, span.parent_id) == (parent.trace_id, parent.span_id):
                yield from below(span, depth + 1)

    return list(below(root, 0))


def put_trees(spans: list[ReceivedSpan], name: str) -> list[list[tuple[int, ReceivedSpan]]]:
    trees = [_tree(spans, span) for span in spans if span.name == name and not span.parent_id]
    return [tree for tree in trees if sum(span.name == "store entry" for _, span in tree) == 3]


async def _metrics(address: str) -> dict[str, float]:
    def fetch() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    families = {one.name: one for one in text_string_to_metric_families(await asyncio.to_thread(fetch))}
    found = families.get("rsm_trace_spans")
    return {} if found is None else {sample.labels["outcome"]: sample.value for sample in found.samples}


def check_tree(tree: list[tuple[int, ReceivedSpan]], log: str) -> None:
    assert [(depth, span.name) for depth, span in tree] == [
        (0, "order"), (1, "command"), (2, "serve"), (3, "append entry"), *[(4, "store entry")] * 3,
    ]  # fmt: skip
    services = ["shop", "shop", "rsm-replica", "rsm-replica", *["rsm-bookie"] * 3]
    assert [span.service for _, span in tree] == services
    entry, stores_ = tree[3][1], [span for _, span in tree[4:]]
    assert entry.attributes["rsm.log"] == log
    assert {span.instance for span in stores_} >= {told["rsm.bookie"] for _, told in entry.events}
    assert len(entry.events) >= 2  # An ack quorum.
    for name in ("rsm.ledger", "rsm.entry"):
        assert {span.attributes[name] for span in stores_} == {entry.attributes[name]}
    assert not any(span.error for _, span in tree)


async def put_order(client: MapClient, value: bytes) -> None:
    order = begin_span("order", SpanKind.SERVER)
    assert order is not None
    with use_context(order.context):
        await client.put(b"a", value)
    order.end()


async def test_a_put_is_one_trace_from_the_client_to_three_bookies(
    receiver: OtlpReceiver, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of servers and commands; a share of 0: what is traced is what a client wants to be.
    monkeypatch.setenv("RSM_OTLP_URL", receiver.url)
    monkeypatch.setenv("RSM_TRACE_RATE", "0")
    transports: list[Transport] = ["framed", "grpc"]
    with DevCluster(tmp_path / "dev") as cluster, stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        uri = cluster.metadata_uri
        http_address = replicas.start("a", "--bookies", "3/3/2", "--http-port", "0").ready["http_address"]
        start_telemetry(TelemetrySettings(otlp_url=receiver.url, trace_rate=1.0), "shop")
        for transport in transports:
            async with await MapClient.connect(unique_name, uri, transport=transport) as client:
                await put_order(client, transport.encode())
        trees = await asyncio.to_thread(
            receiver.until, lambda spans: len(found := put_trees(spans, "order")) == len(transports) and found
        )
        for tree in trees:
            check_tree(tree, unique_name)
        # What nobody wants to have traced is not.
        with use_context(TraceContext(1, 1, is_sampled=False)):
            async with await MapClient.connect(unique_name, uri) as client:
                await client.put(b"b", b"1")
        stop_telemetry()
        async with await MapClient.connect(unique_name, uri) as client:
            await client.put(b"c", b"1")  # A client that traces nothing: the replica decides, by its share of 0.
        count = len(receiver.spans)
        _put_by_command(uri, unique_name)
        await asyncio.to_thread(receiver.until, lambda spans: put_trees(spans[count:], "command"))
        told = receiver.spans[count:]
        assert {span.trace_id for span in told} == {span.trace_id for span in told if span.service == "rsm"}
        metrics = await _metrics(http_address)
        assert metrics["sent"] >= 6
        assert (metrics["dropped"], metrics["failed"]) == (0, 0)
        receiver.close()
        await _put_without_collector(uri, unique_name, http_address, receiver.url)


def _put_by_command(uri: str, log: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "rsm_spark", "map", "put", "d", "1", "--log", log, "--metadata-uri", uri],
        check=True,
        env={**os.environ, "RSM_TRACE_RATE": "1"},
        cwd=Path(__file__).parents[2],
    )


async def _put_without_collector(uri: str, log: str, http_address: str, url: str) -> None:
    """Check that a collector that is gone costs spans, nothing else."""
    start_telemetry(TelemetrySettings(otlp_url=url, trace_rate=1.0), "shop")
    async with await MapClient.connect(log, uri) as client:
        for number in range(50):
            await client.put(b"e/%d" % number, b"1")
        async with asyncio.timeout(60):
            while not (await _metrics(http_address))["failed"]:
                await client.put(b"e", b"1")
                await asyncio.sleep(0.1)
        assert len([row async for row in client.scan(prefix=b"e/")]) == 50
