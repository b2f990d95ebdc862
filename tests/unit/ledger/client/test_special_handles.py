"""Explicit entry ids and deferred sync, over a network."""

from __future__ import annotations

import asyncio

import pytest

from ledger.core.metadata import LedgerState
from ledger.errors import LedgerClosedError, QuorumLostError, UsageError
from ledger.wire.codes import WRITE_FLAG_DEFERRED_SYNC, Status
from ledger.wire.packets import ForceRequest
from tests.unit.ledger.client.fake_cluster import FakeCluster, run
from tests.unit.ledger.entry_header import entry_header

# --- explicit ids


def test_entries_given_in_any_order_are_confirmed_in_order() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create_adv()
        done: list[int] = []
        futures = {entry_id: writer.append_at(entry_id, b"%d" % entry_id) for entry_id in (4, 1, 3, 0)}
        for future in futures.values():
            future.add_done_callback(lambda future: done.append(future.result()))
        assert await futures[1] == 1
        await asyncio.sleep(1)
        assert done == [0, 1]
        writer.append_at(2, b"2")
        await writer.flush()
        await asyncio.gather(*futures.values())
        assert done == [0, 1, 3, 4]
        assert await writer.close() == 4
        metadata, _ = await cluster.other.read(writer.ledger_id, sync=True)
        assert (metadata.last_entry_id, metadata.length) == (4, 5)
        bookie = cluster[metadata.segments[0].bookies[0]]
        lengths = [entry_header(body).length for _, _, body in bookie.received]
        assert [entry_id for _, entry_id, _ in bookie.received] == [4, 1, 3, 0, 2]
        assert lengths == [1, 2, 3, 4, 5]

    run(scenario)


def test_an_id_given_twice_is_refused_and_changes_nothing() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create_adv()
        queued = writer.append_at(0, b"x")
        with pytest.raises(UsageError, match="given once"):
            writer.append_at(0, b"y")
        await queued
        with pytest.raises(UsageError, match="given once"):
            writer.append_at(0, b"y")
        with pytest.raises(UsageError, match="append_at"):
            writer.append(b"z")
        with pytest.raises(UsageError, match="append_at"):
            writer.append_many([b"z"])
        assert await writer.append_at(1, b"z") == 1

    run(scenario)


def test_closing_ends_the_ledger_below_the_first_gap() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create_adv()
        below = writer.append_at(0, b"abc")
        above = writer.append_at(2, b"defg")
        assert await writer.close() == 0
        assert below.result() == 0
        with pytest.raises(LedgerClosedError):
            await above
        metadata, _ = await cluster.other.read(writer.ledger_id, sync=True)
        assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 0, 3)

    run(scenario)


def test_a_gap_is_waited_for_without_a_time_limit() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create_adv()
        late = writer.append_at(1, b"x")
        await asyncio.sleep(60)
        assert await writer.append_at(0, b"x") == 0
        assert await late == 1

    run(scenario)


def test_a_replaced_bookie_is_sent_what_was_given_around_a_gap() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create_adv()
        await writer.append_at(0, b"x")
        later = [writer.append_at(entry_id, b"y") for entry_id in (5, 3, 2)]
        await asyncio.sleep(0.5)
        cluster.kill(writer.metadata.segments[-1].bookies[0])
        last = [writer.append_at(entry_id, b"z") for entry_id in (6, 1, 4)]
        assert await asyncio.gather(*later, *last) == [5, 3, 2, 6, 1, 4]
        spare = cluster[writer.metadata.segments[-1].bookies[0]]
        assert sorted({entry_id for _, entry_id in spare.entries}) == [1, 2, 3, 4, 5, 6]

    run(scenario)


@pytest.mark.parametrize("ledger_id", [7, 2**40 + 3])
def test_a_ledgers_own_id_may_be_chosen_once(ledger_id: int) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create_adv(ledger_id=ledger_id)
        assert writer.ledger_id == ledger_id
        await writer.append_at(0, b"x")
        with pytest.raises(UsageError, match=f"cannot create ledger {ledger_id}: it exists"):
            await cluster.client.create_adv(ledger_id=ledger_id)
        assert await writer.append_at(1, b"x") == 1
        for bad in (-1, 2**63):
            with pytest.raises(UsageError, match="ledger id"):
                await cluster.client.create_adv(ledger_id=bad)

    run(scenario)


# --- deferred sync


def test_with_deferred_sync_only_a_force_moves_the_lac() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(deferred_sync=True)
        assert await writer.append_many([b"abc"] * 3) == 2
        assert writer.last_add_confirmed == -1
        assert await writer.force() == 2
        assert writer.last_add_confirmed == 2
        await writer.append(b"x")
        bookie = cluster[writer.metadata.segments[-1].bookies[0]]
        assert set(bookie.write_flags) == {WRITE_FLAG_DEFERRED_SYNC}
        assert entry_header(bookie.received[-1][2]).last_add_confirmed == 2
        assert await writer.close() == 3
        metadata, _ = await cluster.other.read(writer.ledger_id, sync=True)
        assert (metadata.last_entry_id, metadata.length) == (3, 10)
        for bookie_id in metadata.segments[-1].bookies:
            assert sum(isinstance(request, ForceRequest) for request in cluster[bookie_id].requests) == 2

    run(scenario)


def test_a_force_covers_what_was_appended_before_it() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(deferred_sync=True)
        append = writer.append(b"x")
        assert await writer.force() == 0
        assert append.result() == 0

    run(scenario)


def test_with_deferred_sync_a_bookie_that_restarts_ends_the_writer_and_no_ensemble_changes() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, deferred_sync=True)
        await writer.append(b"forced")
        await writer.force()
        await writer.append(b"not forced")
        victim = writer.metadata.segments[-1].bookies[1]
        cluster.kill(victim)
        cluster.start(victim)
        await asyncio.sleep(1)
        with pytest.raises(QuorumLostError, match="may have lost"):
            await writer.append(b"late")
        with pytest.raises(QuorumLostError, match="may have lost"):
            await writer.force()
        assert await writer.close() == 0
        assert len(await cluster.segments(writer.ledger_id)) == 1

    run(scenario)


def test_with_deferred_sync_a_bookie_may_restart_while_all_is_forced() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(deferred_sync=True)
        await writer.append(b"x")
        await writer.force()
        victim = writer.metadata.segments[-1].bookies[1]
        cluster.kill(victim)
        cluster.start(victim)
        await asyncio.sleep(3)
        assert await writer.append(b"y") == 1
        assert await writer.force() == 1

    run(scenario)


def test_a_force_that_a_bookie_refuses_ends_the_writer() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(deferred_sync=True)
        await writer.append(b"x")
        cluster[writer.metadata.segments[-1].bookies[1]].status = Status.EIO
        with pytest.raises(QuorumLostError, match="EIO"):
            await writer.force()
        assert await writer.close() == -1

    run(scenario)


def test_without_deferred_sync_a_force_has_nothing_to_do() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        writer.append(b"x")
        assert await writer.force() == 0
        for bookie in cluster.bookies.values():
            assert not any(isinstance(request, ForceRequest) for request in bookie.requests)

    run(scenario)
