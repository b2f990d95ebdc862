"""The client on our bookies, as processes, with a real ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest

from ledger import LedgerClient
from ledger.dev import DevCluster
from ledger.errors import FencedError, QuorumLostError
from tests.integration.ledger_suite import LedgerSuite, on_cluster


class TestOurBookies(LedgerSuite):
    @pytest.fixture
    def metadata_uri(self, cluster: DevCluster) -> str:
        return cluster.metadata_uri


def test_appends_go_on_while_one_bookie_of_three_is_killed_and_comes_back(whole_cluster: DevCluster) -> None:
    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        sent = 0

        async def write(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                sent = await writer.append_many([b"%07d" % (sent + 1 + i) for i in range(50)])

        await writer.append(b"%07d" % 0)
        await write(20)
        writing = asyncio.create_task(write(200))
        await loop.run_in_executor(None, whole_cluster.kill_bookie, 0)
        await writing
        writing = asyncio.create_task(write(200))
        await loop.run_in_executor(None, whole_cluster.start_bookie, 0)
        await writing
        last = await writer.close()
        assert last == sent == 50 * 420
        entries = await (await client.open(writer.ledger_id)).read(0, last)
        assert [int(entry.payload) for entry in entries] == list(range(last + 1))

    on_cluster(whole_cluster.metadata_uri, scenario, timeout_s=120)


def test_a_lost_quorum_names_the_bookie_and_closing_keeps_what_was_acknowledged(whole_cluster: DevCluster) -> None:
    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
        acked = await writer.append_many([b"x"] * 10)
        await loop.run_in_executor(None, whole_cluster.kill_bookie, 1)

        async def append_for_ever() -> None:
            nonlocal acked
            while True:
                acked = await writer.append(b"y")

        with pytest.raises(QuorumLostError, match=whole_cluster.bookies[1]):
            await append_for_ever()
        last = await writer.close()
        assert last >= acked
        assert (await client.metadata(writer.ledger_id, sync=True)).last_entry_id == last
        follower = await client.create(ensemble_size=2)  # at once, though the dead one may still be registered
        assert await follower.append(b"z") == 0
        reader = await client.open(writer.ledger_id)
        assert len(await reader.read(0, last)) == last + 1

    on_cluster(whole_cluster.metadata_uri, scenario, timeout_s=120)


def test_a_ledger_is_recovered_while_one_of_its_two_bookies_is_dead(whole_cluster: DevCluster) -> None:
    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        writer = await client.create()
        await writer.append_many([b"x"] * 100)
        writer.abandon()
        dead = writer.metadata.segments[0].bookies[0]
        await loop.run_in_executor(None, whole_cluster.kill_bookie, whole_cluster.bookies.index(dead))
        async with await LedgerClient.connect(whole_cluster.metadata_uri) as other:
            reader = await other.open(writer.ledger_id)
            assert reader.last_add_confirmed == 99
            assert dead not in reader.metadata.segments[-1].bookies
            assert len(await reader.read(0, 99)) == 100

    on_cluster(whole_cluster.metadata_uri, scenario, timeout_s=120)


def test_a_fence_survives_kill_9(whole_cluster: DevCluster) -> None:
    """The bookies that were fenced refuse the old writer after a restart, though they saw nothing but the fence."""

    async def scenario(client: LedgerClient) -> None:
        loop = asyncio.get_running_loop()
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append(b"x")
        async with await LedgerClient.connect(whole_cluster.metadata_uri) as other:
            assert (await other.open(writer.ledger_id)).last_add_confirmed == 0
        for number in range(3):
            await loop.run_in_executor(None, whole_cluster.kill_bookie, number)
        for number in range(3):
            await loop.run_in_executor(None, whole_cluster.start_bookie, number)
        async with await LedgerClient.connect(whole_cluster.metadata_uri) as other:
            reader = await other.open_no_recovery(writer.ledger_id)
            assert [entry.payload for entry in await reader.read(0, 0)] == [b"x"]
        with pytest.raises((QuorumLostError, FencedError)):
            await writer.append(b"late")
        assert await writer.close() == 0

    on_cluster(whole_cluster.metadata_uri, scenario, timeout_s=120)
