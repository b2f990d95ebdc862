"""A partitioned log that ends for ever while many batches end: each of them is shown by all partitions, or by none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from ledger.testing.simulation import Simulation
from rsm_spark.core.plain_log import LogEndedError
from rsm_spark.core.writer_marks import MarkKind, WriterMark
from rsm_spark.logs import Logs, PartitionedLogWriter
from rsm_spark.logs.partitioned_marking import PartitionedMarking
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld
from tests.sets import examples
from tests.sim.ledger_seeds import first_seed
from tests.sim.partition_plants import ends_the_log_and_waits_for_no_batch

_WRITERS = 5
_LOGS = 12


class _Ended(NamedTuple):
    """What came of one log: batches whose end was acknowledged, and of each batch its rows and those that are shown."""

    acknowledged: set[str]
    rows: dict[str, set[bytes]]
    shown: dict[str, set[bytes]]

    @property
    def fault(self) -> str:
        for writer, rows in self.rows.items():
            shown = self.shown.get(writer, set())
            if shown not in (set(), rows):
                return f"of the batch of {writer} {len(shown)} rows of {len(rows)} are shown, for ever"
            if writer in self.acknowledged and not shown:
                return f"the end of the batch of {writer} was acknowledged, no row of it is shown"
        return ""


async def _write_batch(writer: PartitionedLogWriter, name: str, rows: list[bytes], rng: random.Random) -> bool:
    """Write a batch in two chunks; return whether its end was acknowledged before the log ended."""

    async def send(mark: WriterMark, payloads: list[bytes]) -> None:
        await writer.write_marked(mark, payloads, keys=payloads)
        await asyncio.sleep(rng.choice((0.0, rng.uniform(0.0, 0.01))))

    try:
        await send(WriterMark(name, MarkKind.CHUNK, "checkpoint", "run", 1), rows[::2])
        await send(WriterMark(name, MarkKind.CHUNK, "checkpoint", "run", 1, chunk=1), rows[1::2])
        await send(WriterMark(name, MarkKind.END, "checkpoint", "run", 1, parts=((0, 2),)), [])
    except LogEndedError:
        return False
    return True


async def _end_amid_batches(logs: Logs, log: str, rng: random.Random) -> _Ended:
    await logs.create(log, partitions=4)
    writer = await logs.open_partitioned_writer(log, producers=True)
    rows = {f"w{number}": {b"w%d %d" % (number, row) for row in range(8)} for number in range(_WRITERS)}
    batches: dict[str, Awaitable[bool]] = {
        name: asyncio.create_task(_write_batch(writer, name, sorted(some), random.Random(rng.random())))
        for name, some in rows.items()
    }
    await asyncio.sleep(rng.uniform(0.0, 0.05))
    marked = await asyncio.gather(writer.mark_end(), writer.mark_end(), return_exceptions=True)
    assert isinstance(marked[0], tuple)
    assert isinstance(marked[1], LogEndedError)
    acknowledged = {name for name, batch in batches.items() if await batch}
    await writer.close()
    shown: dict[str, set[bytes]] = {}
    reader = await logs.partitioned_reader(log, finished_batches=True)
    async for record in reader:
        shown.setdefault(record.payload.split()[0].decode(), set()).add(record.payload)
    assert reader.has_ended
    await reader.close()
    return _Ended(acknowledged, rows, shown)


def _play(seed: int) -> list[_Ended]:
    simulation = Simulation(seed)
    rng = simulation.random("test")

    async def main() -> list[_Ended]:
        client: Any = TwinClient(LedgerWorld(simulation.random("ledgers")), await simulation.metadata.connect())
        clock_ms = simulation.host("writer").clock_ms
        logs = Logs(client, ReplicaSettings(), name="writer", rng=rng, clock_ms=clock_ms)
        return [await _end_amid_batches(logs, f"clicks-{number}", rng) for number in range(_LOGS)]

    return simulation.run(main(), limit_s=600.0)


def _fault(seed: int) -> str:
    return next((one.fault for one in _play(seed) if one.fault), "")


def test_a_log_that_ends_shows_each_batch_whole_or_not_at_all() -> None:
    count, cut_off = 0, 0
    for number in range(examples(3)):
        for ended in _play(first_seed() + number):
            assert not ended.fault, f"seed {first_seed() + number}: {ended.fault}"
            count += len(ended.acknowledged)
            cut_off += len(ended.rows.keys() - ended.acknowledged)
    assert min(count, cut_off) >= _LOGS, "too few batches had ended, or had not, for this to mean anything"


def _writers_are_waited_for_one_by_one_and_go_on(patch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def one_by_one(self: PartitionedMarking) -> AsyncIterator[None]:
        await self.tell_ends()
        yield

    patch.setattr(PartitionedMarking, "settled", one_by_one)


@pytest.mark.parametrize("plant", [ends_the_log_and_waits_for_no_batch, _writers_are_waited_for_one_by_one_and_go_on])
def test_a_planted_bug_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(_fault(seed) for seed in range(10))
