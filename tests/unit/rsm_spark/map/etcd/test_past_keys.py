"""What keys held before an event, by the history of the map and from before it: both tell the same; in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from rsm_spark.map import messages as m
from rsm_spark.map.etcd.events import EventCache
from rsm_spark.map.etcd.past_keys import PastKeys
from rsm_spark.map.etcd.requests import Span
from rsm_spark.map.key_history import KeyHistory
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.rows import value_of
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.past_rows import PastRows
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run
from tests.unit.rsm_spark.runtime.test_past_rows import _roll, ask

EVERY: Span = (b"\0", None)


class Shown(NamedTuple):
    """An event and what was before: values (None = no key), and the leases."""

    key: bytes
    value: bytes | None
    lease: int
    before: bytes | None
    before_lease: int
    revision: int


class WatchedMap:
    """The leader's map with a history, and its feed, which holds little."""

    def __init__(self, world: LogWorld, folder: Path, **more: Any) -> None:
        machine = world.leader._context.machine
        assert isinstance(machine, MapMachine)
        self.world = world
        self.history = machine.history = KeyHistory()
        self.history.begin(world.leader.revision)
        self.feed = ChangeFeed(world.leader._context, ring_bytes=500)
        self.past = PastRows(self.feed.context, folder, **more)

    def forget(self) -> None:
        """Begin the history anew, as a replica that is started again does."""
        self.history.clear()
        self.history.begin(self.world.leader.revision)

    async def told(self, from_revision: int, span: Span = EVERY, past: PastRows | None = None) -> list[Shown]:
        """Return what a watch is told up to the present."""
        olds = PastKeys(EventCache(lambda: self.history), past or self.past, span, "me")
        cursor, seen = self.feed.cursor(from_revision), []
        last = self.world.leader.revision
        try:
            while cursor.next_revision <= last:
                entries = await cursor.read(1.0)
                if not entries:
                    continue
                async for part in olds.told(entries):
                    for event, before in part:
                        seen.append(
                            Shown(
                                event.key,
                                None if event.entry is None else value_of(event.entry.row),
                                event.lease,
                                None if before is None else before.value,
                                0 if before is None else before.lease,
                                event.revision,
                            )
                        )
        finally:
            olds.close()
            await cursor.close()
        return [one for one in seen if one.revision >= from_revision]


async def _write(world: LogWorld) -> None:
    """Keys with and without leases, written, kept, removed, several in a command; a lease that ends."""
    await ask(world, m.GrantLease(900_000, 7), m.GrantLease(900_000, 8))
    for number in range(12):
        key = b"k%d" % (number % 4)
        await ask(
            world,
            m.Branch([], [m.WriteKey(key, b"%d" % number, 7 if number % 3 == 0 else 0)], []),
            m.Put(b"other", b"%d" % number),
        )
    await ask(world, m.Branch([], [m.WriteKey(b"k1", b"kept", None), m.WriteKey(b"k0", b"eight", 8)], []))
    await ask(world, m.MapTransaction([], [m.Delete(b"k1"), m.Put(b"k1", b"new"), m.Put(b"k2", b"2")], []))
    await ask(world, m.Delete(b"k2"), m.RevokeLease(8))


def test_a_history_that_began_late_tells_what_one_from_the_beginning_told(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        watched = WatchedMap(world, tmp_path)
        begun = world.leader.revision + 1
        await _write(world)
        expected = await watched.told(begun)
        assert watched.past.opened_count == 0
        assert {one.before_lease for one in expected} == {0, 7, 8}
        assert [one for one in expected if one.value == b"kept"][0].lease == 7
        watched.forget()
        assert await watched.told(begun) == expected
        assert watched.past.opened_count == 1
        middle = expected[len(expected) // 2].revision
        assert await watched.told(middle) == [one for one in expected if one.revision >= middle]
        narrow = await watched.told(begun, (b"k1", b"k2"))
        assert narrow == [one for one in expected if one.key == b"k1"]
        # From what is remembered on nothing is open.
        late = world.leader.revision + 1
        await ask(world, m.Put(b"k9", b"1"), m.Put(b"k9", b"2"))
        opened = watched.past.opened_count
        assert [one.before for one in await watched.told(late)] == [None, b"1"]
        assert watched.past.opened_count == opened
        assert await watched.told(begun) == [*expected, *await watched.told(late)]
        assert watched.past.open_count == 0

    run(scenario, replica_count=1, machine=MapMachine)


def test_where_nothing_leads_there_nothing_is_told_of_what_was_before(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        watched = WatchedMap(world, tmp_path)
        await ask(world, m.Put(b"k1", b"oldest"))
        await _roll(world, 2)
        names = sorted(world.cluster.replicas)
        snapshot = await world.verify(*names[:2])
        async with asyncio.timeout(600):
            while (await world.chain()).ledgers[0].first_revision == 1:
                await asyncio.sleep(0.5)
        first = (await world.chain()).ledgers[0].first_revision
        await ask(world, m.Put(b"k1", b"new"), m.Put(b"k1", b"newer"))
        watched.forget()
        seen = await watched.told(first)
        assert all(one.before is None for one in seen if one.revision <= snapshot)
        assert [one.before for one in seen if one.key == b"k1"] == [b"oldest", b"new"]
        assert watched.past.open_count == 0

    run(
        scenario, machine=MapMachine, roll_bytes=4_000, retention_ms=1_000, trim_s=0.5, checkpoint_records=1,
        snapshot_s=0, limit_s=3_000.0,
    )  # fmt: skip


def test_watches_of_one_caller_wait_for_their_turn(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        watched = WatchedMap(world, tmp_path, open_max=2)
        begun = world.leader.revision + 1
        await _write(world)
        watched.forget()
        all_told = await asyncio.gather(*(watched.told(begun) for _ in range(5)))
        assert all(one == all_told[0] for one in all_told)
        assert (watched.past.opened_count, watched.past.open_count) == (5, 0)

    run(scenario, replica_count=1, machine=MapMachine)
