"""Followers that are told confirmed entries by their leader: what they take, and when they read the bookies instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rsm_spark.core.confirmed_tail import ConfirmedEntry, TailStatus, ToldEntries
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import ConnectionLostError
from rsm_spark.runtime.replica import Replica
from rsm_spark.testing.tails import SimTails
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run


def _followers(world: LogWorld) -> list[Replica]:
    return [one for one in world.cluster.replicas.values() if one is not world.leader]


async def _until_level(world: LogWorld) -> None:
    await world.until(lambda: all(one.revision == world.leader.revision for one in _followers(world)))


def _told(world: LogWorld) -> list[int]:
    return [one.status().entries_told for one in _followers(world)]


def _reads(world: LogWorld) -> list[int]:
    return [one.status().entries_read for one in _followers(world)]


def test_followers_are_told_what_is_confirmed_over_rolls_too() -> None:
    async def scenario(world: LogWorld) -> None:
        await _until_level(world)
        for _ in range(3):
            await world.roll()
            for _ in range(20):
                await world.add()
            await _until_level(world)
        assert min(_told(world)) > 20, _told(world)  # Some messages are late, and some are lost.
        await world.until(lambda: len({one.prefix_hash for one in world.cluster.replicas.values()}) == 1)

    run(scenario, roll_records=60)


def test_followers_that_reach_no_bookie_are_told_all_the_same() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        await _until_level(world)
        await world.until(lambda: min(_told(world)) > 0)
        for name, replica in world.cluster.replicas.items():
            if replica is not world.leader:
                world.cluster.clients[name].is_cut_off = True
        for _ in range(10):
            await world.add()
            await _until_level(world)

    run(scenario, trim_s=1e6)


def test_it_can_be_switched_off() -> None:
    async def scenario(world: LogWorld) -> None:
        for _ in range(10):
            await world.add()
        await _until_level(world)
        assert _told(world) == [0, 0]
        assert min(_reads(world)) > 0

    run(scenario, told_entries=False)


def test_a_leader_that_tells_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: object) -> ToldEntries:
        await asyncio.sleep(1e6)
        raise AssertionError

    async def gone(*_: object) -> ToldEntries:
        raise ConnectionLostError("gone")

    async def scenario(world: LogWorld) -> None:
        for answer in (silent, gone):
            monkeypatch.setattr(SimTails, "entries_after", answer)
            for _ in range(3):
                await world.add()
                await _until_level(world)

    run(scenario)


def test_another_leader_is_asked_once_it_leads() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        await _until_level(world)
        old = world.leader_host
        old.kill()
        await world.until(lambda: world.cluster.leader not in (None, old.name))
        before = _told(world)
        revision = world.leader.revision
        await world.until(lambda: world.leader.revision > revision or sum(_told(world)) > sum(before))
        await world.until(lambda: len(world.cluster.replicas) == 3)
        await world.until(lambda: min(_told(world)) > 0)

    run(scenario)


def _changed(entry: ConfirmedEntry, at: int) -> ConfirmedEntry:
    payload = bytearray(entry.payload)
    payload[at] ^= 1
    return entry._replace(payload=bytes(payload))


_HASH_AT, _REVISION_AT, _LOG_AT = HEADER_BYTES - 1, 39, 8
_FORGERIES: dict[str, Callable[[ToldEntries], ToldEntries]] = {
    "another history": lambda told: told._replace(entries=(_changed(told.entries[0], _HASH_AT),)),
    "another revision": lambda told: told._replace(entries=(_changed(told.entries[0], _REVISION_AT),)),
    "another log": lambda told: told._replace(entries=(_changed(told.entries[0], _LOG_AT),)),
    "no entry": lambda told: told._replace(entries=(told.entries[0]._replace(payload=b"x"),)),
    "a gap": lambda told: told._replace(entries=told.entries[1:]),
    "another ledger": lambda told: told._replace(
        entries=(told.entries[0]._replace(position=LogPosition(99, told.entries[0].position.entry_id)),)
    ),
    "another epoch": lambda told: told._replace(leader_epoch=told.leader_epoch + 1),
}


@pytest.mark.parametrize("forgery", _FORGERIES)
def test_what_does_not_follow_is_not_taken_and_the_log_is_read(forgery: str) -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        await _until_level(world)
        follower = _followers(world)[0]
        reader = follower._context.reader()
        await reader.read()
        at, tip = reader.position, follower._context.tip
        assert at is not None
        for _ in range(3):
            await world.add()
        told = await world.leader.tell_entries(at)
        assert told.status is TailStatus.TOLD
        assert len(told.entries) >= 3
        refused = await reader.take_told(_FORGERIES[forgery](told), tip)
        assert refused.entries == []
        assert refused.fault
        assert reader.position == at
        taken = await reader.take_told(told, tip)
        assert (taken.fault, len(taken.entries)) == ("", len(told.entries))
        assert reader.position == told.entries[-1].position
        again = await reader.take_told(told, tip)
        assert again == ([], "")  # The caller has them.
        await reader.close()

    run(scenario, told_entries=False, idle_entry_s=60.0)


def test_an_entry_that_bookies_hold_otherwise_is_not_taken() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        await _until_level(world)
        follower = _followers(world)[0]
        reader = follower._context.reader()
        await reader.read()
        at, tip = reader.position, follower._context.tip
        assert at is not None
        await world.add()
        told = await world.leader.tell_entries(at)
        (entry, *_) = told.entries
        held = reader._judge(entry.position, entry.payload)
        reader._unexposed.append(held)
        other = told._replace(entries=(_changed(entry, len(entry.payload) - 1),))
        assert "another entry" in (await reader.take_told(other, tip)).fault
        assert (await reader.take_told(told, tip)).fault == ""
        await reader.close()

    run(scenario, told_entries=False, idle_entry_s=60.0)


def test_a_follower_tells_nothing_and_a_leader_says_what_it_does_not_know() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        somewhere = LogPosition(99, 0)
        assert (await _followers(world)[0].tell_entries(somewhere)).status is TailStatus.NOT_LEADER
        assert (await world.leader.tell_entries(somewhere)).status is TailStatus.NOT_HELD

    run(scenario)
