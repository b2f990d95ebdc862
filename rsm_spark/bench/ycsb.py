"""YCSB's two phases on the replicated map: load the records, then run a workload on them.

Each thread of YCSB's is a task here that has one operation outstanding at a time; tasks share at most as many clients
(connections) as are asked for. Every figure is taken where the caller is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from rsm_spark.bench.distributions import RecordNumbers
from rsm_spark.bench.latencies import Latencies, LatencySummary
from rsm_spark.bench.workloads import RECORD_BYTES, Step, StepKind, Workload, key_of, value_of
from rsm_spark.errors import RsmError
from rsm_spark.map.client.results import MapValue

_PROGRESS_S = 1.0


class RecordStore(Protocol):
    """Store under load."""

    def put(self, key: bytes, value: bytes) -> Awaitable[object]: ...

    def get(self, key: bytes) -> Awaitable[MapValue | None]:
        """Read a record, linearizably."""
        ...


class YcsbSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a load.

    Attributes:
        workload: What the run phase does.
        record_count: Records that the load phase inserts.
        operation_count: Operations of the run phase.
        thread_count: Operations outstanding at once.
        record_bytes: Of each value.
        seed: Of all that is drawn: the same operations for the same seed and one thread.

    """

    workload: Workload
    record_count: int
    operation_count: int
    thread_count: int
    record_bytes: int = RECORD_BYTES
    seed: int = 0


class PhaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """One phase, measured.

    Attributes:
        bench: "ycsb".
        workload: Its letter.
        phase: "load" or "run".
        threads: Operations outstanding at once.
        records: Records at the begin of the run.
        seconds: Duration.
        ops_per_s: Operations that succeeded, by second.
        missing: Records read that were not there, though their insert had been acknowledged, or of the wrong size.
        operations: Latencies by kind of operation.
        first_failure: Why the first operation that failed did; "" = none failed.

    """

    bench: str
    workload: str
    phase: str
    threads: int
    records: int
    seconds: float
    ops_per_s: float
    missing: int
    operations: dict[str, LatencySummary]
    first_failure: str

    @property
    def is_good(self) -> bool:
        """True if every operation succeeded and every read found its record."""
        return not self.missing and not any(one.failed for one in self.operations.values())


class YcsbLoad:
    """One load on one store.

    Args:
        settings: Sizes.
        stores: Clients; thread n uses client n modulo their number.
        on_progress: Told about once a second: phase, operations done, operations in all, operations/s.

    """

    def __init__(
        self,
        settings: YcsbSettings,
        stores: Sequence[RecordStore],
        on_progress: Callable[[str, int, int, float], None] = lambda *_: None,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._on_progress = on_progress
        self._values = [value_of(self._rng("values", n), settings.record_bytes) for n in range(64)]
        self._latencies: dict[StepKind, Latencies] = {}
        self._missing = 0
        self._first_failure = ""

    async def load(self) -> PhaseReport:
        numbers = RecordNumbers(0)

        def _next_step(_: random.Random) -> Step:
            return Step(StepKind.INSERT, numbers.take())

        return await self._phase("load", _next_step, numbers, self._settings.record_count)

    async def run(self) -> PhaseReport:
        """Run the workload on records that are loaded."""
        settings = self._settings
        numbers = RecordNumbers(settings.record_count)
        chooser = settings.workload.chooser(numbers, settings.operation_count)

        def _next_step(rng: random.Random) -> Step:
            return settings.workload.next_step(rng, chooser, numbers)

        return await self._phase("run", _next_step, numbers, settings.operation_count)

    async def _phase(
        self, phase: str, next_step: Callable[[random.Random], Step], numbers: RecordNumbers, count: int
    ) -> PhaseReport:
        settings = self._settings
        self._latencies = {}
        self._missing, self._first_failure = 0, ""
        left = iter(range(count))

        async def _work(number: int) -> None:
            rng, store = self._rng(phase, number), self._stores[number % len(self._stores)]
            for _ in left:
                await self._carry_out(store, next_step(rng), rng, numbers)

        record_count = numbers.inserted_count
        began = time.perf_counter()
        tasks = [asyncio.create_task(_work(number)) for number in range(min(settings.thread_count, count))]
        try:
            while not all(task.done() for task in tasks):
                await asyncio.wait(tasks, timeout=_PROGRESS_S, return_when=asyncio.FIRST_EXCEPTION)
                done_count = self._done_count()
                self._on_progress(phase, done_count, count, done_count / (time.perf_counter() - began))
                for task in tasks:
                    if task.done():
                        task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        seconds = time.perf_counter() - began
        succeeded = sum(len(one) for one in self._latencies.values())
        return PhaseReport(
            bench="ycsb",
            workload=settings.workload.name,
            phase=phase,
            threads=settings.thread_count,
            records=record_count,
            seconds=round(seconds, 3),
            ops_per_s=round(succeeded / seconds, 1),
            missing=self._missing,
            operations={kind.value: self._latencies[kind].summary() for kind in sorted(self._latencies)},
            first_failure=self._first_failure,
        )

    async def _carry_out(self, store: RecordStore, step: Step, rng: random.Random, numbers: RecordNumbers) -> None:
        latencies = self._latencies.setdefault(step.kind, Latencies())
        key = key_of(step.number)
        began = time.perf_counter()
        try:
            if step.kind is StepKind.READ:
                found = await store.get(key)
                self._missing += found is None or len(found.value) != self._settings.record_bytes
            else:
                await store.put(key, rng.choice(self._values))
        except RsmError as error:
            latencies.failed += 1
            self._first_failure = self._first_failure or str(error)
            return
        latencies.add(time.perf_counter() - began)
        if step.kind is StepKind.INSERT:
            numbers.acknowledge(step.number)

    def _rng(self, what: str, number: int) -> random.Random:
        return random.Random(f"{self._settings.seed}/{what}/{number}")  # noqa: S311 - load, nothing secret

    def _done_count(self) -> int:
        return sum(len(one) + one.failed for one in self._latencies.values())
