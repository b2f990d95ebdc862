"""Ensemble changes while the metadata store loses replies, is away, or is written by somebody else."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from ledger.core.metadata import LedgerState
from ledger.errors import FencedError, MetadataUnavailableError, NoSuchLedgerError
from ledger.wire.codes import Status
from tests.unit.ledger.client.fake_cluster import FakeCluster, check_copies, run


@pytest.mark.parametrize("losses", [[True], [False], [False, True], [True, True], [False, False, True]])
def test_lost_replies_of_the_metadata_store_change_the_ensemble_once(losses: list[bool]) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append_many([b"x"] * 5)
        cluster[writer.metadata.segments[-1].bookies[0]].status = Status.EIO
        cluster.store.losses = list(losses)
        last = 4
        while len(writer.metadata.segments) == 1:
            last = await writer.append(b"y")
        last = await writer.append_many([b"z"] * 5)
        segments = await cluster.segments(writer.ledger_id)
        assert len(segments) == 2
        await check_copies(cluster, writer, range(segments[-1][0], last + 1))
        assert await writer.close() == last

    run(scenario)


def test_the_writer_goes_on_while_the_metadata_store_is_away_and_changes_the_ensemble_later() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append_many([b"x"] * 5)
        cluster.store.gate = asyncio.Event()
        cluster[writer.metadata.segments[-1].bookies[0]].status = Status.EIO
        for number in range(100):
            assert await writer.append(b"y") == 5 + number
            await asyncio.sleep(0.2)
        assert len(await cluster.segments(writer.ledger_id)) == 1
        cluster.store.gate.set()
        while len(writer.metadata.segments) == 1:
            await asyncio.sleep(0.1)
        segments = await cluster.segments(writer.ledger_id)
        assert [first for first, _ in segments] == [0, 105]  # the boundary has moved with the LAC
        await writer.append_many([b"z"] * 5)
        await check_copies(cluster, writer, range(105, 110))

    run(scenario)


def test_a_lost_quorum_is_waited_for_while_the_metadata_store_is_away() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        old = writer.metadata.segments[-1].bookies
        cluster.store.is_away = True
        cluster.kill(old[0])
        append = writer.append(b"y")
        await asyncio.sleep(4)
        assert not append.done()
        cluster.start(old[0])
        assert await append == 1
        await asyncio.sleep(4)
        cluster.store.is_away = False
        assert await writer.append(b"z") == 2
        assert await cluster.segments(writer.ledger_id) == [(0, old)]

    run(scenario)


def test_a_lost_quorum_is_mended_when_the_metadata_store_is_back() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        cluster.store.is_away = True
        cluster.kill(writer.metadata.segments[-1].bookies[0])
        append = writer.append(b"y")
        await asyncio.sleep(4)
        cluster.store.is_away = False
        assert await append == 1
        assert len(await cluster.segments(writer.ledger_id)) == 2

    run(scenario)


@pytest.mark.parametrize("state", [LedgerState.IN_RECOVERY, LedgerState.CLOSED])
def test_a_recovery_that_comes_first_ends_the_writer(state: LedgerState) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")

        async def recover() -> None:
            metadata, version = await cluster.other.read(writer.ledger_id, sync=True)
            taken = msgspec.structs.replace(metadata, state=state, last_entry_id=0, length=1)
            await cluster.other.write(writer.ledger_id, taken, version)

        cluster.store.before_write = recover
        cluster[writer.metadata.segments[-1].bookies[0]].status = Status.EIO
        with pytest.raises(FencedError, match="by another client"):
            await writer.append(b"y")
        assert len(await cluster.segments(writer.ledger_id)) == 1

    run(scenario)


def test_a_ledger_that_was_deleted_meanwhile_ends_the_writer() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        cluster.store.before_write = lambda: cluster.other.delete(writer.ledger_id, 0)
        cluster[writer.metadata.segments[-1].bookies[0]].status = Status.EIO
        with pytest.raises(NoSuchLedgerError):
            await writer.append(b"y")

    run(scenario)


def test_closing_waits_for_a_change_that_is_under_way() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        cluster.store.gate = asyncio.Event()
        cluster[writer.metadata.segments[-1].bookies[0]].status = Status.EIO
        append = writer.append(b"y")
        await asyncio.sleep(1)
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(1)
        assert not closing.done()
        cluster.store.gate.set()
        assert await closing == 1
        assert append.result() == 1
        assert len(await cluster.segments(writer.ledger_id)) == 2

    run(scenario)


@pytest.mark.parametrize("is_applied", [True, False])
def test_closing_while_a_change_is_unsettled_ends_the_ledger_at_what_was_confirmed(is_applied: bool) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append_many([b"x"] * 5)
        cluster.store.losses = [is_applied]
        cluster.store.reads_fail = True
        cluster[writer.metadata.segments[-1].bookies[0]].status = Status.EIO
        for number in range(50):
            assert await writer.append(b"y") == 5 + number
            await asyncio.sleep(0.02)
        if is_applied:
            with pytest.raises(MetadataUnavailableError):
                await writer.close()
            cluster.store.reads_fail = False
        assert await writer.close() == 54
        metadata, _ = await cluster.other.read(writer.ledger_id, sync=True)
        assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 54, 55)
        assert len(metadata.segments) == (2 if is_applied else 1)
        for entry_id in range(55):
            ensemble = metadata.ensemble_at(entry_id)
            assert sum((writer.ledger_id, entry_id) in cluster[bookie].entries for bookie in ensemble) >= 2

    run(scenario)
