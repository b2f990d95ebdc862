"""The trace of a task over broker, worker and a broker that takes over; and of the call that submitted it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.wire.task_context import task_context
from ledger.dev import DevCluster
from ledger.telemetry import SpanKind, TraceContext
from tests.integration.broker_processes import brokers
from tests.integration.otlp_receiver import ReceivedSpan, otlp_receiver
from tests.integration.worker_processes import TASKS, WorkerProcess

pytestmark = pytest.mark.asyncio

CALLER = TraceContext(0xABC << 64 | 7, 8)


def submit(url: str, body: Mapping[str, object]) -> int:
    headers = {"Content-Type": "application/json", "traceparent": CALLER.traceparent}
    request = urllib.request.Request(f"{url}/api/v1/tasks", json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return int(json.loads(answer.read())["task_id"])


def _calls(spans: list[ReceivedSpan], task_id: int) -> list[ReceivedSpan]:
    """Return the spans of the calls that have submitted a task."""
    return [span for span in spans if span.attributes.get("rsm.task") == task_id and span.kind == SpanKind.SERVER]


def task_spans(spans: list[ReceivedSpan], task_id: int, run_count: int) -> list[ReceivedSpan]:
    """Return the spans of a task's trace, its root first, when they are all there."""
    found = [span for span in spans if span.attributes.get("rsm.task") == task_id and span.name in {"task", "run"}]
    roots, runs = ([span for span in found if span.name == name] for name in ("task", "run"))
    return [*roots, *sorted(runs, key=lambda span: span.start_ns)] if len(roots) == 1 and len(runs) == run_count else []


async def test_a_task_is_one_trace_and_its_submit_belongs_to_the_caller(
    cluster: DevCluster, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with otlp_receiver() as receiver:
        monkeypatch.setenv("RSM_OTLP_URL", receiver.url)
        monkeypatch.setenv("RSM_TRACE_RATE", "1")
        uri = cluster.metadata_uri
        options = ("--log", unique_name, "--metadata-uri", uri, "--http-port", "0")
        work = ("--log", unique_name, "--metadata-uri", uri, "--tasks", TASKS)
        with brokers(tmp_path, "a", options=options) as (broker,):
            worker = WorkerProcess(tmp_path, "w1", *work)
            try:
                await worker.wait_ready()
                well = await asyncio.to_thread(submit, broker.url, {"type": "noop", "tenant": "acme"})
                body = {"type": "noop", "tenant": "acme", "payload": "x"}
                many = [await asyncio.to_thread(submit, broker.url, body) for _ in range(3)]
                for task_id in (well, *many):
                    root, run = await asyncio.to_thread(
                        receiver.until, lambda spans, task_id=task_id: task_spans(spans, task_id, 1)
                    )
                    context = task_context(unique_name, task_id, 1.0)
                    assert (root.trace_id, root.span_id, root.parent_id) == (
                        f"{context.trace_id:032x}", f"{context.span_id:016x}", "",
                    )  # fmt: skip
                    assert (run.trace_id, run.parent_id) == (root.trace_id, root.span_id)
                    assert (root.service, run.service) == ("rsm-replica", "rsm-worker")
                    assert (root.attributes["rsm.tenant"], run.attributes["rsm.worker"]) == ("acme", "w1")
                    assert root.attributes["rsm.log"] == unique_name
                    assert [name for name, _ in root.events] == ["assigned"]
                    assert (root.error, run.error) == ("", "")
            finally:
                worker.kill()
            call = await asyncio.to_thread(
                receiver.until,
                lambda spans: _calls(spans, well),
            )
            assert (call[0].name, int(call[0].trace_id, 16)) == ("POST /api/v1/tasks", CALLER.trace_id)
            entries = await asyncio.to_thread(
                receiver.until,
                lambda spans: [one for one in spans if one.name == "append entry" and one.parent_id == call[0].span_id],
            )
            assert entries[0].trace_id == call[0].trace_id


async def test_a_task_keeps_its_trace_when_another_broker_takes_over(
    cluster: DevCluster, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with otlp_receiver() as receiver:
        monkeypatch.setenv("RSM_OTLP_URL", receiver.url)
        monkeypatch.setenv("RSM_TRACE_RATE", "1")
        where = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
        with brokers(tmp_path, "a", "b", options=(*where, "--http-port", "0")) as both:
            task_id, turns = 0, itertools.cycle(both)
            async with asyncio.timeout(60):
                while not task_id:  # One of them leads, or will soon.
                    broker = next(turns)
                    await asyncio.sleep(0.05)
                    with contextlib.suppress(urllib.error.HTTPError):
                        task_id = await asyncio.to_thread(submit, broker.url, {"type": "noop", "tenant": "acme"})
            (call,) = await asyncio.to_thread(receiver.until, lambda spans: _calls(spans, task_id))
            broker.kill()
            worker = WorkerProcess(tmp_path, "w1", *where, "--tasks", TASKS)
            try:
                await worker.wait_ready()
                root, run = await asyncio.to_thread(receiver.until, lambda spans: task_spans(spans, task_id, 1))
            finally:
                worker.kill()
            assert (run.trace_id, run.parent_id) == (root.trace_id, root.span_id)
            assert call.instance != root.instance
            assert root.start_ns <= call.end_ns <= root.end_ns
