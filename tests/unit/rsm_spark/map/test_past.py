"""The map at a revision, from snapshots and what is left of the log, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rsm_spark.core.commands import AnswerStatus, Command
from rsm_spark.errors import MissingLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.past import rows_at
from rsm_spark.testing.cluster import LOG
from tests.unit.rsm_spark.runtime.log_world import SESSION, LogWorld, run


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def _run(work: Any, *arguments: Any) -> Any:
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", _run)


class MapWorld:
    """A map of leaders in virtual time, and what it held at every revision."""

    def __init__(self, world: LogWorld) -> None:
        self.world = world
        self.sequence = 0
        self.model: dict[bytes, tuple[bytes, int]] = {}
        self.past: dict[int, dict[bytes, tuple[bytes, int]]] = {}

    async def do(self, command: m.MapCommand) -> m.MapReply:
        self.sequence += 1
        one = Command(SESSION, self.sequence, self.sequence - 1, m.encode(command))
        (answer,) = await self.world.leader.submit([one])
        assert answer.status is AnswerStatus.OK
        reply = m.decode_reply(answer.payload)
        if isinstance(command, m.Put) and isinstance(reply, m.Written):
            self.model[command.key] = (command.value, reply.revision)
        elif isinstance(command, m.Delete):
            self.model.pop(command.key, None)
        self.past[answer.revision] = dict(self.model)
        return reply

    async def some(self, count: int) -> None:
        for n in range(count):
            key = b"k/%d" % (n % 9)
            await self.do(m.Delete(key) if n % 4 == 3 else m.Put(key, b"v%d" % n * 20))

    async def check(self, revision: int, *, stores: list[Any]) -> None:
        context = self.world.leader._context
        found = await rows_at(context.client, LOG, revision, b"k/", b"k0", stores=stores)
        assert {row.key: (row.value, row.revision) for row in found} == self.past[revision]


def test_any_revision_is_read_from_the_log_alone_or_from_a_snapshot_below_it() -> None:
    async def scenario(w: LogWorld) -> None:
        maps = MapWorld(w)
        await maps.some(40)
        await w.leader.snapshot()
        middle = max(maps.past)
        await maps.some(40)
        store = w.cluster.snapshots[w.leader_host.name]
        for revision in [*sorted(maps.past)[::7], middle, max(maps.past)]:
            for stores in ([], [store]):
                await maps.check(revision, stores=stores)

    run(scenario, machine=MapMachine, seed=11, roll_bytes=4_000)


def test_what_no_snapshot_and_no_log_holds_is_refused_with_what_is_missing() -> None:
    async def scenario(w: LogWorld) -> None:
        maps = MapWorld(w)
        await maps.some(5)
        early = max(maps.past)
        await maps.some(60)
        await w.leader.snapshot()
        at = max(maps.past)
        await maps.some(60)
        chain = await w.chain()
        trimmed = [one for one in chain.ledgers if one.closed is not None and one.closed.last_revision < at]
        assert trimmed, "the log has to be rolled for this test to mean anything"
        first = chain.ledgers[len(trimmed)].first_revision
        store = w.cluster.snapshots[w.leader_host.name]

        real = ChainStore.read

        async def _read(self: ChainStore, **options: Any) -> Any:
            found, version = await real(self, **options)
            return msgspec.structs.replace(found, ledgers=found.ledgers[len(trimmed) :]), version

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ChainStore, "read", _read)
            await maps.check(max(maps.past), stores=[store])
            for stores in ([], [store]):
                with pytest.raises(MissingLogError, match=f"begins with revision {first} now"):
                    await rows_at(w.leader._context.client, LOG, early, stores=stores)

    run(scenario, machine=MapMachine, seed=12, roll_bytes=4_000)
