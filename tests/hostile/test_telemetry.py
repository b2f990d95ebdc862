"""Who has everything traced, with contexts that are forged, huge or none, beside collectors that do what they please.

The victim is a client that puts, and knows nothing of traces. The replica tells a collector all there is to tell.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger.dev import DevCluster
from ledger.dev.ports import choose_port
from ledger.telemetry import TraceContext
from rsm_spark.core.operation import Message, Operation
from rsm_spark.map import MapClient
from rsm_spark.map import messages as m
from rsm_spark.transport.call_frames import FrameKind, encode_frame
from rsm_spark.transport.packed_codec import PACKED_EXCHANGE
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.integration.store_processes import StoreProcess
from tests.integration.test_watched_bookies import ask, metrics, until
from tests.unit.rsm_spark.transport.framed_caller import FramedCaller, calling

_PUTS, _UNITS = 40, 400
_ATTACKERS = 3
_MIB = 1 << 20
_ADDRESS = "127.0.0.1"

Traces = Callable[[int], Any]
_FORGED: dict[str, Traces] = {
    "a trace of each": lambda number: [TraceContext(number + 1, number + 1).traceparent],
    "sixteen of each": lambda number: [TraceContext(16 * number + n + 1, n + 1).traceparent for n in range(16)],
    "the same for ever": lambda _: [TraceContext(7, 8).traceparent] * 16,
    "thousands": lambda number: [TraceContext(number + 1, n + 1).traceparent for n in range(10_000)],
    "long ones": lambda _: [f"00-{'a' * 100_000}"] * 16,
    "none at all": lambda number: [None, 7, {"a": number}, [[[]]], "", f"00-{'0' * 32}-{'0' * 16}-01", "\x00"],
    "a million of nothing": lambda _: [{}] * _MIB,
}


def _hangs(receiver: OtlpReceiver) -> None:
    receiver.hangs.set()


def _answers_slowly(receiver: OtlpReceiver) -> None:
    receiver.dribbles.set()


def _answers_garbage(receiver: OtlpReceiver) -> None:
    receiver.garbage = os.urandom(_MIB)


def _refuses(receiver: OtlpReceiver) -> None:
    receiver.status = 503


def _is_gone(receiver: OtlpReceiver) -> None:
    receiver.close()


_TOLD = {"rsm_trace_spans_total", "rsm_otlp_log_lines_total", "rsm_otlp_metric_pages_total"}
_COLLECTORS = {
    "never": _hangs, "slowly": _answers_slowly, "garbage": _answers_garbage, "refuses": _refuses, "gone": _is_gone,
}  # fmt: skip


class Attacker:
    """One session that puts as fast as it is answered, and wants all of it traced."""

    def __init__(self, log: str, traces: Sequence[Traces], work: Work) -> None:
        self._log = log
        self._traces = itertools.cycle(traces)
        self._work = work
        self._session = os.urandom(16)

    async def run(self, address: str) -> None:
        async with calling(address) as caller:
            await caller.begin()
            await caller.ask(Message(1, self._session, True, 0, [], []), self._log)
            for number in itertools.count(2):
                await self._put(caller, number)
                self._work.add()

    async def _put(self, caller: FramedCaller, number: int) -> None:
        put = Operation(m.encode(m.Put(b"attack", b"%d" % number)), 0, None, sequence=number - 1)
        plain = PACKED_EXCHANGE.encode_requests(
            Message(number, self._session, False, number - 2, [put], [], traces=()), self._log, number
        )
        forged = msgspec.msgpack.encode([*msgspec.msgpack.decode(plain)[:-1], next(self._traces)(number)])
        await caller.say(encode_frame(FrameKind.MESSAGE, PACKED_EXCHANGE.join([forged])))
        heard = await caller.hear()
        assert heard is not None, "the replica has hung up"
        assert heard[0] is FrameKind.MESSAGE, heard


def _failing(address: str) -> set[str]:
    """Return which counters of what is told say that some of it failed."""
    families = text_string_to_metric_families(ask(address, "/metrics")[1])
    samples = [sample for family in families for sample in family.samples]
    return {sample.name for sample in samples if sample.labels.get("outcome") == "failed" and sample.value}


@contextmanager
def _replica(
    cluster: DevCluster, log: str, folder: Path, receiver: OtlpReceiver, framed: int
) -> Iterator[StoreProcess]:
    told = {
        "RSM_OTLP_URL": receiver.url, "RSM_TRACE_RATE": "1", "RSM_OTLP_METRICS_S": "0.05", "RSM_OTLP_LOGS": "1",
    }  # fmt: skip
    replica = StoreProcess(
        cluster.metadata_uri, log, folder, "a", "--framed-port", str(framed), "--http-port", "0",
        environment={**os.environ, **told},
    )  # fmt: skip
    try:
        yield replica
    finally:
        replica.kill()


async def _attacked(replica: StoreProcess, uri: str, framed: str, traces: Sequence[Traces]) -> None:
    """Put beside attackers, and check that it is as before, and that nothing was lost but what is told."""
    pid = replica.process.pid
    async with await MapClient.connect(replica.log, uri) as client:
        numbers = itertools.count(1)
        latest = 0

        async def put() -> None:
            nonlocal latest
            number = next(numbers)
            await client.put(b"victim/%d" % number, b"1")
            latest = number

        victim, work = Victim(put, servers=[pid]), Work()
        quiet = await victim.run(_PUTS)
        tasks = [asyncio.create_task(Attacker(replica.log, traces, work).run(framed)) for _ in range(_ATTACKERS)]
        for task in tasks:
            work.ends_with(task)
        attacked = await victim.run(_PUTS, beside=work, units=_UNITS)
        grown = resident_mib(pid)
        for task in tasks:
            assert not task.done(), task
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        attacked.assert_goes_on_like(quiet, units_per_call=20 * _ATTACKERS, cpu=100.0)
        assert grown < 500, f"{grown:.0f} MiB"
        assert len([row async for row in client.scan(prefix=b"victim/")]) == latest


@pytest.mark.timeout(600)
@pytest.mark.parametrize("traces", _FORGED)
def test_puts_go_on_beside_who_has_everything_traced(
    cluster: DevCluster, unique_name: str, tmp_path: Path, traces: str
) -> None:
    framed = choose_port(taken=())
    with otlp_receiver() as receiver, _replica(cluster, unique_name, tmp_path, receiver, framed) as replica:
        asyncio.run(_attacked(replica, cluster.metadata_uri, f"{_ADDRESS}:{framed}", [_FORGED[traces]]))
        # The collector is told of what it can be told of.
        receiver.until(lambda spans: [span for span in spans if span.name == "serve"])
        assert "Traceback" not in replica.errors()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("collector", _COLLECTORS)
def test_puts_go_on_whatever_the_collector_does(
    cluster: DevCluster, unique_name: str, tmp_path: Path, collector: str
) -> None:
    framed = choose_port(taken=())
    with otlp_receiver() as receiver, _replica(cluster, unique_name, tmp_path, receiver, framed) as replica:
        _COLLECTORS[collector](receiver)
        all_of_them = [_FORGED["sixteen of each"], _FORGED["thousands"]]
        asyncio.run(_attacked(replica, cluster.metadata_uri, f"{_ADDRESS}:{framed}", all_of_them))
        told = metrics(replica.ready["http_address"])
        if collector == "garbage":
            assert told["rsm_trace_spans_total"] > 0
        else:  # No thread is held, however slowly it is answered: each gives up, and tries again.
            until(lambda: _failing(replica.ready["http_address"]) >= _TOLD, f"what failed is counted: {collector}")
        errors = replica.errors()
        assert "Traceback" not in errors
        assert errors.count("the collector does not take") <= 3, "once for each kind of what is told"
