"""Locks, elections and barriers of the map in virtual time: clients die, are slow, lose leases; with planted bugs.

* `alone`     two never hold a lock at once, as the clock of the map tells it: a holder whose lease has ended is none
* `all-here`  a round of a barrier begins only when all its parties are there
* `turn`      who waits gets its turn
* `leads`     an election has one leader at a time, the one that all are told of; who has resigned leads no more
* `told`      who watches an election is told of each leader in order, and of the last one in any case
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ledger.testing.loop import SimLoop, SimulationDeadlockError, SimulationTimeoutError
from rsm_spark.core.operation import Ending, Operation
from rsm_spark.map import messages as m
from rsm_spark.map.client.barriers import MapBarriers
from rsm_spark.map.client.locks import LockHolder, MapLocks
from rsm_spark.map.client.results import LeaseLostError
from rsm_spark.map.client.watch import MapChange
from rsm_spark.map.records import DELETED, EXPIRED, PUT
from tests.unit.rsm_spark.map.driven_map import DrivenMap

_PARTIES = 3
_TTL_MS = 2_000
_ROUNDS = 5


class _Broken(Exception):
    """A promise that was not kept."""


class _World:
    """A map whose time is the loop's, and who is where."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.map = DrivenMap()
        self.holders: dict[int, int] = {}
        self.moved = asyncio.Event()
        self.rounds: set[int] = set()
        self.leaders: dict[int, int] = {}
        self.told: dict[int, int | None] = {}

    def catch_up(self) -> None:
        now_ms = 1_000 + int(asyncio.get_running_loop().time() * 1000)
        if now_ms > self.map.now_ms:
            self.map.pass_time(now_ms - self.map.now_ms)
        self.moved.set()
        self.moved = asyncio.Event()

    async def clock(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.catch_up()

    def is_live(self, lease: int) -> bool:
        self.catch_up()
        return isinstance(self.map.ask(m.ShowLease(lease)), m.LeaseShown)


class _Client(MapBarriers):
    """A client whose messages take their time."""

    def __init__(self, world: _World) -> None:
        self._timeout_s = 30.0
        self._world = world
        self._log = "sim"
        self._codec = None
        self._spreads_reads = False

    async def _way(self) -> None:
        await asyncio.sleep(self._world.rng.uniform(0.001, 0.1))

    async def _sent(self, command: Any, timeout_s: float | None) -> Operation:  # type: ignore[override]
        await self._way()
        self._world.catch_up()
        reply = self._world.map.run(command)
        self._world.catch_up()
        revision = self._world.map.revision
        await self._way()
        return _answered(reply, revision)

    async def _asked(self, query: Any, timeout_s: float | None, read: Any) -> Operation:  # type: ignore[override]
        await self._way()
        self._world.catch_up()
        result, revision = self._world.map.ask(query), self._world.map.revision
        await self._way()
        return _answered(result, revision)

    async def watch(self, **asked: Any) -> AsyncIterator[MapChange]:  # type: ignore[override]
        prefix, start, end = asked.get("prefix", b""), asked.get("start"), asked.get("end")
        at = asked["from_revision"]
        while True:
            await self._way()
            log = self._world.map.log
            for revision in range(at, len(log) + 1):
                kind, fields = log[revision - 1]
                is_inside = kind in (PUT, DELETED, EXPIRED) and fields[0].startswith(prefix)
                if is_inside and (start is None or start <= fields[0] < end):
                    value = fields[1] if kind == PUT else None
                    yield MapChange(fields[0], value, revision, "put" if kind == PUT else "deleted", 0)
            at = len(log) + 1
            await self._world.moved.wait()


def _answered(said: Any, revision: int) -> Operation:
    return Operation(m.encode(said), 0.0, None, outcome=Ending.ANSWERED, revision=revision)


async def _use_lock(world: _World) -> None:
    client = _Client(world)
    for _ in range(3):
        with contextlib.suppress(LeaseLostError):
            async with client.holding_lock(b"lock", _TTL_MS) as lock:
                if any(world.is_live(lease) for lease in world.holders):
                    raise _Broken("alone: two hold the lock")
                world.holders[lock.lease] = lock.token
                if world.rng.random() < 0.2:
                    await client.revoke_lease(lock.lease)  # As if it had been silent.
                await asyncio.sleep(world.rng.uniform(0, 0.5))
                world.holders.pop(lock.lease, None)


async def _lead(world: _World, name: bytes) -> None:
    client = _Client(world)
    for _ in range(3):
        token = 0
        with contextlib.suppress(LeaseLostError):
            async with client.holding_lock(b"lead", _TTL_MS, value=name) as lock:
                token = lock.token
                if any(world.is_live(lease) for lease in world.leaders):
                    raise _Broken("leads: two lead at once")
                world.leaders[lock.lease] = token
                if world.rng.random() < 0.2:
                    await client.revoke_lease(lock.lease)
                shown = await client.lock_holder(b"lead")
                if world.is_live(lock.lease) and (shown is None or (shown.value, shown.token) != (name, token)):
                    raise _Broken(f"leads: {name!r} does, the map shows {shown}")
                await asyncio.sleep(world.rng.uniform(0, 0.5))
                world.leaders.pop(lock.lease, None)
        shown = await client.lock_holder(b"lead")
        if token and shown is not None and shown.token == token:
            raise _Broken("leads: one that has resigned still does")


async def _watch_leaders(world: _World, number: int) -> None:
    last = 0
    async for holder in _Client(world).watch_lock_holder(b"lead"):
        world.told[number] = None if holder is None else holder.token
        if holder is not None and holder.token < last:
            raise _Broken("told: of an earlier leader behind a later one")
        last = max(last, world.told[number] or 0)


async def _meet(world: _World) -> None:
    client = _Client(world)
    while True:
        with contextlib.suppress(LeaseLostError):
            async with client.barrier(b"meet", _PARTIES, _TTL_MS) as one:
                began = next(fields for kind, fields in world.map.log[one.token - 1 :] if kind == PUT)[1]
                leases = {int(began[at : at + 16], 16) for at in range(0, len(began), 16)}
                there = {
                    int(fields[0][-16:], 16)
                    for revision, (kind, fields) in enumerate(world.map.log[: one.token - 1], start=1)
                    if kind == PUT and b"/party/" in fields[0] and not _is_gone(world, fields[0], revision, one.token)
                }
                if len(leases) != _PARTIES or not leases <= there:
                    raise _Broken("all-here: it opened early")
                if world.rng.random() < 0.1:
                    await client.revoke_lease(one.lease)
                world.rounds.add(one.token)
                await asyncio.sleep(world.rng.uniform(0, 0.3))


def _is_gone(world: _World, key: bytes, after: int, before: int) -> bool:
    records = world.map.log[after : before - 1]
    return any(kind in (DELETED, EXPIRED) and fields[0] == key for kind, fields in records)


async def _die_waiting(world: _World) -> None:
    """Parties and waiters of locks that come and are cancelled without a word, all the time."""
    while True:
        client = _Client(world)
        lease = await client.grant_lease(300)
        name = world.rng.choice((b"lock/", b"meet/party/"))
        await client.put(name + b"%016x" % lease, b"", lease=lease)
        await asyncio.sleep(world.rng.uniform(0.2, 2))


def _run(seed: int) -> str:
    """Run one seed; return what is broken, or ""."""
    loop = SimLoop(seed)  # type: ignore[abstract]

    async def main() -> None:
        world = _World(random.Random(seed))
        async with asyncio.TaskGroup() as group:
            ending = [group.create_task(_use_lock(world)) for _ in range(4)]
            ending += [group.create_task(_lead(world, b"candidate %d" % number)) for number in range(3)]
            others = [group.create_task(_meet(world)) for _ in range(_PARTIES)]
            others += [group.create_task(world.clock()), group.create_task(_die_waiting(world))]
            others += [group.create_task(_watch_leaders(world, number)) for number in range(2)]
            await asyncio.wait(ending)
            await asyncio.sleep(5)
            if world.told != {0: None, 1: None}:
                raise _Broken("told: nobody leads any more, and who watches does not hear of it")
            while len(world.rounds) < _ROUNDS:
                await asyncio.sleep(0.1)
            for task in others:
                task.cancel()

    try:
        loop.run(main(), limit_s=120)
    except (SimulationDeadlockError, SimulationTimeoutError):
        return "turn: somebody waits for ever"
    except BaseExceptionGroup as group:
        found, _ = group.split(_Broken)
        if found is None:
            raise
        return str(found.exceptions[0])
    return ""


@pytest.mark.parametrize("seed", range(12))
def test_locks_and_barriers_keep_their_promises(seed: int) -> None:
    assert _run(seed) == ""


def _takes_its_turn_at_once(patch: pytest.MonkeyPatch) -> None:
    async def _wait_turn(self: MapLocks, prefix: bytes, token: int) -> None:
        return

    patch.setattr(MapLocks, "_wait_turn", _wait_turn)


def _watches_too_late(patch: pytest.MonkeyPatch) -> None:
    """What changes between the look and the watch is missed."""
    watch = _Client.watch

    def late(self: _Client, **asked: Any) -> Any:
        return watch(self, **asked | {"from_revision": self._world.map.revision + 1})

    patch.setattr(_Client, "watch", late)


def _counts_the_dead(patch: pytest.MonkeyPatch) -> None:
    """A round begins with what was seen, whoever has gone meanwhile."""
    transact = _Client.transact

    def unchecked(self: _Client, compares: Any = (), **more: Any) -> Any:
        return transact(self, compares[:1], **more)

    patch.setattr(_Client, "transact", unchecked)


def _two_lead(patch: pytest.MonkeyPatch) -> None:
    """A candidate leads at once, whoever stood before."""
    wait = MapLocks._wait_turn

    async def _wait_turn(self: MapLocks, prefix: bytes, token: int) -> None:
        if prefix != b"lead/":
            await wait(self, prefix, token)

    patch.setattr(MapLocks, "_wait_turn", _wait_turn)


def _still_leads_after_it_has_resigned(patch: pytest.MonkeyPatch) -> None:
    """Whoever resigns leaves its key to its lease."""

    async def revoke_lease(_self: Any, _lease: int, **_: Any) -> None:
        return

    patch.setattr(_Client, "revoke_lease", revoke_lease)


def _the_last_one_stands_first(patch: pytest.MonkeyPatch) -> None:
    """The newest key is taken for that of the leader."""

    async def _first_of(self: MapLocks, prefix: bytes) -> tuple[LockHolder | None, int]:
        page = await anext(self.scan_pages(prefix=prefix))
        rows = [LockHolder(row.value, row.revision) for row in page.rows]
        return max(rows, key=lambda row: row.token, default=None), page.revision

    patch.setattr(MapLocks, "_first_of", _first_of)


def _misses_the_end_of_a_leader(patch: pytest.MonkeyPatch) -> None:
    """What changes between the look and the watch is missed, by whoever watches an election alone."""
    watch = _Client.watch

    def late(self: _Client, **asked: Any) -> Any:
        more = {"from_revision": self._world.map.revision + 1} if asked.get("prefix") == b"lead/" else {}
        return watch(self, **asked | more)

    patch.setattr(_Client, "watch", late)


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (_takes_its_turn_at_once, "alone"),
        (_watches_too_late, "turn"),
        (_counts_the_dead, "all-here"),
        (_two_lead, "leads: two"),
        (_still_leads_after_it_has_resigned, "leads: one that has resigned"),
        (_the_last_one_stands_first, "leads"),
        (_misses_the_end_of_a_leader, "told"),
    ],
)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(_run(seed).startswith(name) for seed in range(40))
