"""The feed of a replica: each record from any retained revision on, once, in order; on replicas in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rsm_spark.errors import MissingLogError
from rsm_spark.runtime.change_feed import ChangeFeed, FeedCursor
from rsm_spark.runtime.log_places import reader_at
from rsm_spark.runtime.replica import Replica
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run


async def take(cursor: FeedCursor, upto: int) -> list[tuple[int, int]]:
    """Return (revision, type) of what a cursor gives up to a revision."""
    seen: list[tuple[int, int]] = []
    while not seen or seen[-1][0] < upto:
        first = cursor.next_revision
        for entry in await cursor.read(1.0):
            revisions = range(entry.first_revision, entry.last_revision + 1)
            seen += [(r, one.type) for r, one in zip(revisions, entry.records(), strict=True) if r >= first]
    return seen


def feed_of(replica: Replica, **options: Any) -> ChangeFeed:
    return ChangeFeed(replica._context, **options)


def world(scenario: Callable[[LogWorld], Any], **options: Any) -> None:
    run(scenario, **options)


def test_every_cursor_gets_every_revision_once_whether_from_the_ring_or_the_log() -> None:
    async def scenario(w: LogWorld) -> None:
        for _ in range(20):
            await w.add()
        for replica in w.cluster.replicas.values():
            feed = feed_of(replica, ring_bytes=2_000)
            fast, old = feed.cursor(w.leader.revision + 1), feed.cursor(1)
            start = fast.next_revision
            reading = asyncio.get_running_loop().create_task(take(fast, start + 40))
            for _ in range(50):
                last = await w.add()
            await w.until(lambda r=replica, n=last: r.revision >= n)
            got = await reading
            assert [revision for revision, _ in got] == list(range(start, got[-1][0] + 1))
            assert feed.log_reads == 0, "a fast reader needs no ledger"
            got = await take(old, last)
            assert [revision for revision, _ in got] == list(range(1, got[-1][0] + 1))
            assert feed.log_reads > 0
            assert feed._bytes <= 2_000
            sizes = [len(entry.payload) for entry in feed._entries]
            assert sum(sizes) <= 2_000 + 2_000 // 8 + max(sizes), "what has left the ring leaves the memory"
            await fast.close()
            await old.close()
            assert feed.reader_count == 0

    world(scenario, seed=3, told_entries=False)  # A message that is late brings more at once than this ring holds.


def test_a_reader_begins_at_the_entry_of_its_revision_in_whatever_ledger_that_is() -> None:
    async def scenario(w: LogWorld) -> None:
        for _ in range(3):
            await w.roll()
        context = w.leader._context
        last = w.leader.revision
        for revision in range(1, last + 1, 7):
            reader = await reader_at(context.client, context.chains, revision)
            entries: list[Any] = []
            while not entries:
                entries = await reader.read()
            first = next(entry for entry in entries if entry.envelope.record_count)
            assert first.envelope.first_revision <= revision <= first.envelope.last_revision
            await reader.close()

    world(scenario, seed=4, roll_bytes=4_000)


def test_what_has_left_the_log_is_refused_with_the_first_revision_that_is_there() -> None:
    async def scenario(w: LogWorld) -> None:
        await w.roll()
        await w.roll()
        names = sorted(w.cluster.replicas)
        feed = feed_of(w.leader)
        await w.verify(*names[:2])

        async def trimmed() -> int:
            chain = await w.chain()
            return chain.ledgers[0].first_revision

        while await trimmed() == 1:
            await asyncio.sleep(0.5)
        first = await trimmed()
        cursor = feed.cursor(1)
        with pytest.raises(MissingLogError, match=f"first that is there is {first}") as raised:
            await cursor.read(1.0)
        assert raised.value.last_revision == first - 1
        there = feed.cursor(first)
        got = await take(there, w.leader.revision)
        assert got[0][0] == first
        await cursor.close()
        await there.close()

    world(scenario, seed=5, roll_bytes=4_000, retention_ms=1_000, trim_s=0.5)


def test_a_feed_goes_on_when_its_replica_is_deposed_and_built_anew() -> None:
    async def scenario(w: LogWorld) -> None:
        feeds = {name: feed_of(replica) for name, replica in w.cluster.replicas.items()}
        cursors = {name: feed.cursor(1) for name, feed in feeds.items()}
        seen: dict[str, list[int]] = {name: [] for name in feeds}

        async def follow(name: str) -> None:
            while True:
                first = cursors[name].next_revision
                for entry in await cursors[name].read(0.5):
                    seen[name] += [r for r in range(entry.first_revision, entry.last_revision + 1) if r >= first]

        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(follow(name)) for name in feeds]
        for _ in range(3):
            for _ in range(10):
                last = await w.add()
            before = w.leader
            before._driver.resign("a test")  # type: ignore[union-attr]
            await w.until(lambda b=before: w.cluster.leader is not None and w.leader is not b)
        last = await w.add()
        await w.until(lambda: all(one and one[-1] >= last for one in seen.values()))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for revisions in seen.values():
            assert revisions == list(range(1, revisions[-1] + 1))

    world(scenario, seed=6)


def test_a_replica_that_hears_nothing_is_not_fresh_and_readers_leave_when_it_stops() -> None:
    async def scenario(w: LogWorld) -> None:
        feed = feed_of(w.leader)
        assert not feed.is_fresh
        await w.add()
        assert feed.is_fresh
        await asyncio.sleep(20)
        assert feed.is_fresh, "an idle leader writes"
        cursor = feed.cursor(10_000)
        reading = asyncio.get_running_loop().create_task(cursor.read(1_000))
        await asyncio.sleep(0)
        feed.close()
        assert await reading == []

    world(scenario, seed=7)
