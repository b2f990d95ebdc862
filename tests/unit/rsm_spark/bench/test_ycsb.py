"""The two phases on a store in memory: what is asked of it, what is counted, what a failure looks like."""

from __future__ import annotations

import asyncio

import pytest

from rsm_spark.bench.latencies import Latencies
from rsm_spark.bench.workloads import WORKLOADS
from rsm_spark.bench.ycsb import YcsbLoad, YcsbSettings
from rsm_spark.errors import NoLeaderError
from rsm_spark.map.client.results import MapValue

pytestmark = pytest.mark.asyncio


class Rows:
    """A map in memory; knows how many calls were outstanding at once."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.calls = 0
        self.outstanding = self.outstanding_max = 0
        self.fails_every = 0

    async def put(self, key: bytes, value: bytes) -> int:
        await self._call()
        self.rows[key] = value
        return len(self.rows)

    async def get(self, key: bytes) -> MapValue | None:
        await self._call()
        return MapValue(self.rows[key], 1) if key in self.rows else None

    async def _call(self) -> None:
        self.calls += 1
        if self.fails_every and not self.calls % self.fails_every:
            raise NoLeaderError("nobody leads")
        self.outstanding += 1
        self.outstanding_max = max(self.outstanding, self.outstanding_max)
        await asyncio.sleep(0)
        self.outstanding -= 1


def load_on(*stores: Rows, letter: str = "a", records: int = 100, operations: int = 500, threads: int = 4) -> YcsbLoad:
    settings = YcsbSettings(
        workload=WORKLOADS[letter], record_count=records, operation_count=operations, thread_count=threads
    )
    return YcsbLoad(settings, stores)


@pytest.mark.parametrize("letter", WORKLOADS)
async def test_a_workload_finds_every_record_that_was_loaded(letter: str) -> None:
    rows = Rows()
    load = load_on(rows, letter=letter)
    loaded = await load.load()
    assert (loaded.phase, loaded.operations["insert"].count, len(rows.rows)) == ("load", 100, 100)
    assert {len(value) for value in rows.rows.values()} == {1_000}
    ran = await load.run()
    assert ran.is_good
    assert (ran.records, ran.missing, ran.first_failure) == (100, 0, "")
    assert sum(one.count for one in ran.operations.values()) == 500
    assert len(rows.rows) == 100 + (ran.operations["insert"].count if letter == "d" else 0)


async def test_as_many_operations_are_outstanding_as_there_are_threads_on_all_clients() -> None:
    one, other = Rows(), Rows()
    other.rows = one.rows
    load = load_on(one, other, threads=6)
    await load.load()
    await load.run()
    assert (one.outstanding_max, other.outstanding_max) == (3, 3)


async def test_records_that_are_not_there_are_counted() -> None:
    ran = await load_on(Rows(), letter="c", operations=50).run()
    assert not ran.is_good
    assert (ran.missing, ran.operations["read"].count) == (50, 50)


async def test_failed_operations_are_counted_apart() -> None:
    rows = Rows()
    load = load_on(rows, letter="b")
    await load.load()
    rows.fails_every = 10
    ran = await load.run()
    assert not ran.is_good
    assert sum(one.failed for one in ran.operations.values()) == 50
    assert sum(one.count for one in ran.operations.values()) == 450
    assert ran.first_failure == "nobody leads"


async def test_one_thread_asks_the_same_again_for_the_same_seed() -> None:
    histories = []
    for _ in range(2):
        rows = Rows()
        load = load_on(rows, threads=1, letter="d")
        await load.load()
        await load.run()
        histories.append(list(rows.rows.items()))
    assert histories[0] == histories[1]


async def test_percentiles_are_latencies_that_were_measured() -> None:
    latencies = Latencies()
    for ms in range(100, 0, -1):
        latencies.add(ms / 1000)
    said = latencies.summary()
    assert (said.p50_ms, said.p95_ms, said.p99_ms, said.p999_ms, said.max_ms) == (50, 95, 99, 100, 100)
    assert said.mean_ms == 50.5
    assert Latencies().summary().max_ms == 0
