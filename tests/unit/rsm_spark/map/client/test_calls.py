"""Transactions, leases and long scans through the clients, against real gRPC servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rsm_spark.client.leader_finder import FixedReplica
from rsm_spark.core.freshness import STALE
from rsm_spark.errors import InvalidCommandError, NoLeaderError
from rsm_spark.map import messages as m
from rsm_spark.map.client.blocking import BlockingMapClient
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.client.locks import LockHolder
from rsm_spark.map.client.results import LeaseLostError, MapValue, ScanExpiredError
from rsm_spark.map.commands import Compare, Delete, Increment, Put, Read
from tests.unit.rsm_spark.client.replica_double import Finder, Group, ReplicaDouble, serve

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def one() -> AsyncIterator[tuple[Group, MapClient]]:
    group = Group()
    server = await serve(ReplicaDouble(group))
    client = MapClient(Finder(server.address), "orders", timeout_s=60)
    try:
        yield group, client
    finally:
        await client.close()
        await server.stop(0)


async def test_a_transaction_moves_money_or_leaves_it() -> None:
    async with one() as (_, client):
        created = await client.put_many([(b"a", b"10"), (b"b", b"0")])
        move: Any = [Compare(b"a", "value", "=", b"10")], [Increment(b"a", -10), Increment(b"b", 10), Read(b"a")]
        result = await client.transact(*move, orelse=[Read(b"a")])
        assert result.succeeded
        assert [type(one) for one in result.results] == [m.Incremented, m.Incremented, m.Seen]
        seen = m.Seen(b"0", result.revision, created[0], 2)
        assert result.results[2] == seen
        again = await client.transact(*move, orelse=[Read(b"a")])
        assert (again.succeeded, again.results) == (False, [seen])
        assert await client.get(b"b") == MapValue(b"10", result.revision, created[1], 2)
        with pytest.raises(InvalidCommandError, match="no integer"):
            await client.transact(then=[Put(b"a", b"x"), Increment(b"a")])
        assert (await client.get(b"a")).value == b"0"  # type: ignore[union-attr]


async def test_increments_made_together_count_each() -> None:
    async with one() as (_, client):
        results = await asyncio.gather(*(client.increment(b"n", 2) for _ in range(50)))
        assert sorted(one.value for one in results) == list(range(2, 102, 2))


async def test_a_range_is_deleted_at_once_and_never_by_mistake() -> None:
    async with one() as (group, client):
        await client.put_many((b"k/%d" % n, b"") for n in range(5))
        await client.put(b"l", b"")
        removed = await client.delete_range(prefix=b"k/")
        assert (removed.key_count, removed.revision) == (5, group.revision)
        with pytest.raises(InvalidCommandError, match="needs a range"):
            await client.delete_range()
        assert (await client.delete_range(start=b"")).key_count == 1


async def test_a_lease_holds_its_keys_until_it_is_revoked() -> None:
    async with one() as (_, client):
        async with client.holding_lease(60_000) as lease:
            await client.put(b"worker", b"1", lease=lease)
            state = await client.lease(lease)
            assert state is not None
            assert (state.lease, state.ttl_ms, state.key_count) == (lease, 60_000, 1)
            assert await client.leases() == [state]
            assert (await client.expiry(b"worker")).lease == lease  # type: ignore[union-attr]
            assert await client.keep_lease(lease)
        assert await client.get(b"worker") is None
        assert await client.lease(lease) is None
        assert not await client.keep_lease(lease)
        assert await client.revoke_lease(lease) is None
        assert await client.expiry(b"worker") is None
        with pytest.raises(InvalidCommandError, match="no lease"):
            await client.put(b"worker", b"1", lease=lease)


async def test_who_holds_a_lease_that_ends_is_stopped_with_the_reason() -> None:
    async with one() as (_, client):

        async def _work() -> None:
            async with client.holding_lease(30) as lease:
                await client.revoke_lease(lease)
                await asyncio.sleep(60)

        with pytest.raises(LeaseLostError, match="although it was held"):
            await _work()


async def test_who_hears_nothing_holds_a_lock_no_longer_than_its_lease_may_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with one() as (_, client):

        async def unheard(*_: object, **__: object) -> bool:
            raise NoLeaderError("nobody answers")

        monkeypatch.setattr(client, "keep_lease", unheard)

        async def work() -> None:
            async with client.holding_lock(b"locks/a", 60) as lock:
                assert await client.lock_holder(b"locks/a") == LockHolder(b"", lock.token)
                await asyncio.sleep(60)

        with pytest.raises(LeaseLostError, match="no keep-alive was answered for 60 ms"):
            await work()


async def test_a_key_says_how_long_it_lives() -> None:
    async with one() as (_, client):
        await client.put(b"a", b"", ttl_ms=5_000)
        await client.put(b"b", b"")
        expiry = await client.expiry(b"a")
        assert expiry is not None
        assert (expiry.ttl_ms, expiry.lease) == (5_000, 0)
        assert await client.expiry(b"b") == m.ExpiryShown(0, 0, 0)


async def test_a_long_scan_shows_one_revision_although_writes_go_on() -> None:
    async with one() as (_, client):
        await client.put_many((b"%06d" % n, b"old") for n in range(25_000))
        seen: list[Any] = []
        async for row in client.scan():
            if len(seen) % 5_000 == 0:
                await client.put(b"%06d" % (24_999 - len(seen)), b"new")
                await client.delete(b"%06d" % (20_000 + len(seen) // 5_000))
                await client.put(b"%06d+" % (len(seen) + 3), b"new")
            seen.append(row)
        # What was written after the first page was read (at the first row) does not show.
        assert [row.key for row in seen] == [b"%06d" % n for n in range(25_000)]
        assert {row.value for row in seen} == {b"old"}
        assert len([row async for row in client.scan(limit=12_000)]) == 12_000


async def test_a_scan_that_is_not_remembered_says_where_it_stopped() -> None:
    async with one() as (group, client):
        await client.put_many((b"%06d" % n, b"") for n in range(20_001))
        pages = client.scan_pages()
        first = await anext(pages)
        restored = type(group.machine)()
        restored.restore(group.machine.rows())
        group.machine = restored  # Another leader: it has the rows, not who is reading them.
        with pytest.raises(ScanExpiredError, match="Scan again") as raised:
            await anext(pages)
        assert (raised.value.revision, raised.value.next_start) == (first.revision, first.next_start)


async def test_finished_scans_leave_nothing_remembered() -> None:
    async with one() as (group, client):
        await client.put_many((b"%06d" % n, b"") for n in range(20_001))
        for limit in (None, 15_000, 10_001, 5):
            assert len([row async for row in client.scan(limit=limit)]) == (limit or 20_001)
            assert group.machine._rows.pinned == ()
        await client.scan_page(limit=10)
        assert group.machine._rows.pinned == ()


async def test_reads_may_be_stale_when_the_caller_says_so() -> None:
    async with one() as (_, client):
        await client.put(b"a", b"1")
        assert (await client.get(b"a", read=STALE)).value == b"1"  # type: ignore[union-attr]
        assert [row.key async for row in client.scan(read=STALE)] == [b"a"]


async def test_the_blocking_client_does_the_same() -> None:
    group = Group()
    server = await serve(ReplicaDouble(group))

    async def _make() -> MapClient:
        return MapClient(FixedReplica(server.address), "orders", timeout_s=60)

    def _work() -> None:
        client = BlockingMapClient(_make)
        try:
            assert client.increment(b"n", 3).value == 3
            assert client.transact([Compare(b"n", "exists", "=", True)], [Delete(b"n")]).succeeded
            client.put_many((b"%05d" % n, b"") for n in range(12_000))
            assert sum(1 for _ in client.scan()) == 12_000
            assert next(client.scan()).key == b"00000"
            with client.holding_lease(60_000) as lease:
                client.put(b"w", b"", lease=lease)
                assert [one.lease for one in client.leases()] == [lease]
            assert client.get(b"w") is None
            client.put(b"t", b"", ttl_ms=1_000)
            assert client.expiry(b"t").ttl_ms == 1_000  # type: ignore[union-attr]
            assert client.delete_range(prefix=b"0").key_count == 10_000
            number = client.grant_lease(1_000)
            assert client.keep_lease(number)
            assert client.lease(number) is not None
            assert client.revoke_lease(number) == 0
            with pytest.raises(LeaseLostError), client.holding_lease(30) as lease:
                client.revoke_lease(lease)
        finally:
            client.close()

    try:
        await asyncio.to_thread(_work)
    finally:
        await server.stop(0)
