"""A writer's bookies are replaced under it: nothing fails, the metadata name who has what."""

from __future__ import annotations

import asyncio

import pytest

from ledger.client.write_handle import WriteHandle
from ledger.core.metadata import LedgerState
from ledger.errors import QuorumLostError
from ledger.wire.codes import Status
from tests.unit.ledger.client.fake_cluster import FakeCluster, check_copies, run


@pytest.mark.parametrize("status", [Status.EIO, Status.EREADONLY, Status.ENOLEDGER, Status.EUNKNOWNLEDGERSTATE])
def test_a_bookie_that_refuses_is_replaced_and_no_append_fails(status: Status) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append_many([b"x"] * 10)
        old = writer.metadata.segments[-1].bookies
        cluster[old[1]].status = status
        futures = [writer.append_many([b"y"] * 5) for _ in range(20)]
        assert await futures[-1] == 109
        while len(await cluster.segments(writer.ledger_id)) == 1:
            await asyncio.sleep(0.01)
        assert await writer.append(b"z") == 110
        (first, second) = await cluster.segments(writer.ledger_id)
        assert first == (0, old)
        assert 10 <= second[0] <= 110
        assert (second[1][0], second[1][2]) == (old[0], old[2])
        assert second[1][1] not in old
        assert [segment.bookies for segment in writer.metadata.segments] == [old, second[1]]
        await check_copies(cluster, writer, range(second[0], 111))
        assert await writer.close() == 110
        metadata, _ = await cluster.other.read(writer.ledger_id, sync=True)
        assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 110, 111)
        assert len(metadata.segments) == 2

    run(scenario)


def test_overload_changes_no_ensemble() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        bookie = cluster[writer.metadata.segments[-1].bookies[0]]
        bookie.status = Status.ETOOMANYREQUESTS
        append = writer.append(b"x")
        await asyncio.sleep(3)
        bookie.status = Status.EOK
        assert await append == 0
        assert len(await cluster.segments(writer.ledger_id)) == 1

    run(scenario)


def test_a_dead_bookie_that_the_quorum_needs_is_replaced_at_once() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        old = writer.metadata.segments[-1].bookies
        cluster.kill(old[0])
        started = asyncio.get_running_loop().time()
        assert await writer.append_many([b"y"] * 50) == 50
        assert asyncio.get_running_loop().time() - started < 1.0
        assert (await cluster.segments(writer.ledger_id))[-1][0] == 1
        await check_copies(cluster, writer, range(1, 51))

    run(scenario)


def test_a_bookie_that_restarts_quickly_keeps_its_place_while_the_quorum_holds() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append(b"x")
        old = writer.metadata.segments[-1].bookies
        cluster.kill(old[0])
        await writer.append_many([b"y"] * 50)
        await asyncio.sleep(0.3)
        cluster.start(old[0])
        await asyncio.sleep(0.4)
        for _ in range(20):
            await writer.append(b"z")
            await asyncio.sleep(0.2)
        assert await cluster.segments(writer.ledger_id) == [(0, old)]
        await check_copies(cluster, writer, range(71))  # those too that were confirmed while it was away

    run(scenario)


def test_a_bookie_that_is_away_for_a_moment_gets_what_was_confirmed_meanwhile_with_the_same_bytes() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=4, write_quorum=3, ack_quorum=2)
        await writer.append_many([b"x"] * 20)
        host = cluster.simulation.host(writer.metadata.segments[-1].bookies[1].partition(":")[0])
        host.pause()
        for number in range(20):
            await writer.append(b"%d" % number)
        host.resume()
        await asyncio.sleep(0.3)
        await check_copies(cluster, writer, range(40))
        cluster.kill(host.name)
        for number in range(20):
            await writer.append(b"%d" % number)
        cluster.start(host.name)
        await asyncio.sleep(0.5)
        assert len(await cluster.segments(writer.ledger_id)) == 1
        await check_copies(cluster, writer, range(60))

    run(scenario)


def test_a_bookie_that_stays_away_is_replaced_after_a_while() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append(b"x")
        cluster.kill(writer.metadata.segments[-1].bookies[0])
        for _ in range(20):
            await writer.append(b"z")
            await asyncio.sleep(0.2)
        assert len(await cluster.segments(writer.ledger_id)) == 2

    run(scenario)


def test_a_bookie_that_is_silent_is_replaced() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        cluster[writer.metadata.segments[-1].bookies[1]].status = None
        assert await writer.append(b"x") == 0
        assert len(await cluster.segments(writer.ledger_id)) == 1  # replaced: nothing was confirmed in it
        await check_copies(cluster, writer, [0])

    run(scenario)


def test_a_bookie_that_is_silent_is_replaced_before_its_requests_time_out() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        victim = writer.metadata.segments[-1].bookies[1]
        cluster[victim].status = None
        started = asyncio.get_running_loop().time()
        assert await writer.append(b"y") == 1
        assert asyncio.get_running_loop().time() - started < cluster.client.settings.request_timeout_s
        assert victim not in writer.metadata.segments[-1].bookies
        await check_copies(cluster, writer, [1])

    run(scenario)


def test_bookies_that_are_all_silent_are_waited_for() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        bookies = [cluster[bookie_id] for bookie_id in writer.metadata.segments[-1].bookies]
        for bookie in bookies:
            bookie.hold = True
        added = writer.append(b"y")
        await asyncio.sleep(1.8)
        for bookie in bookies:
            bookie.release()
        assert await added == 1
        assert len(await cluster.segments(writer.ledger_id)) == 1

    run(scenario)


def test_a_ledger_that_is_rolled_ends_early_when_a_bookie_is_silent_and_the_next_does_without_it() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        async def create() -> WriteHandle:
            return await cluster.client.create(ensemble_size=3, write_quorum=2, ensemble_min=2, rolls=True)

        writer = await create()
        victim = writer.metadata.segments[-1].bookies[0]
        cluster[victim].status = None
        started = asyncio.get_running_loop().time()
        with pytest.raises(QuorumLostError, match="while others have"):
            await writer.append_many([b"x"] * 3)
        assert asyncio.get_running_loop().time() - started < cluster.client.settings.request_timeout_s
        await writer.close()
        writer = await create()
        assert writer.metadata.quorum.ensemble_size == 2
        assert victim not in writer.metadata.segments[-1].bookies
        assert await writer.append(b"x") == 0
        assert await cluster.client.count_bookies() == 2
        cluster[victim].status = Status.EOK
        await asyncio.sleep(cluster.client.settings.quarantine_s + 1)
        assert await cluster.client.count_bookies() == 3

    run(scenario, bookie_count=3)


def test_a_ledger_that_nobody_rolls_waits_for_a_silent_bookie() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        bookie = cluster[writer.metadata.segments[-1].bookies[0]]
        bookie.hold = True
        added = writer.append(b"y")
        await asyncio.sleep(1.8)
        bookie.release()
        assert await added == 1

    run(scenario, bookie_count=2)


def test_bookies_that_die_together_are_replaced_in_one_change() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append(b"x")
        old = writer.metadata.segments[-1].bookies
        for bookie_id in old[:2]:
            cluster[bookie_id].status = Status.EIO
        assert await writer.append_many([b"y"] * 50) == 50
        (_, (first, bookies)) = await cluster.segments(writer.ledger_id)
        assert first == 1
        assert set(bookies).isdisjoint(old[:2])
        await check_copies(cluster, writer, range(1, 51))

    run(scenario, bookie_count=5)


def test_one_after_the_other_all_bookies_may_die_when_the_killed_come_back() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        appended = 0
        for turn in range(8):
            bookie_id = writer.metadata.segments[-1].bookies[turn % 2]
            cluster.kill(bookie_id)
            for _ in range(10):
                appended = await writer.append_many([b"x"] * 3) + 1
            cluster.start(bookie_id)
            await asyncio.sleep(0.5)
        assert await writer.close() == appended - 1
        firsts = [first for first, _ in await cluster.segments(writer.ledger_id)]
        assert len(firsts) == 8
        assert firsts == sorted(set(firsts))
        await check_copies(cluster, writer, range(firsts[-1], appended))

    run(scenario, bookie_count=3)


def test_a_striped_ledger_sends_the_new_bookie_its_share_only() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=4, write_quorum=2, ack_quorum=2)
        await writer.append_many([b"x"] * 8)
        old = writer.metadata.segments[-1].bookies
        cluster.kill(old[2])
        assert await writer.append_many([b"y"] * 40) == 47
        first, bookies = (await cluster.segments(writer.ledger_id))[-1]
        assert first <= 9
        await check_copies(cluster, writer, range(first, 48))
        share = {entry_id for _, entry_id in cluster[bookies[2]].entries}
        assert share == {entry_id for entry_id in range(first, 48) if entry_id % 4 in (1, 2)}

    run(scenario, bookie_count=5)


def test_what_a_replaced_bookie_still_answers_does_not_count() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        old = writer.metadata.segments[-1].bookies
        await writer.append(b"x")
        late, sick, well = (cluster[bookie_id] for bookie_id in old)
        late.hold = well.hold = True
        sick.status = Status.EIO
        append = writer.append(b"y")
        while len(await cluster.segments(writer.ledger_id)) == 1:
            await asyncio.sleep(0.01)
        # Now only the spare has answered for entry 1. A late answer of the replaced one must not complete it.
        sick.status = Status.EOK
        await asyncio.sleep(1)
        assert not append.done()
        well.release()
        assert await append == 1

    run(scenario)


def test_without_a_spare_the_writer_goes_on_while_the_quorum_holds() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        old = writer.metadata.segments[-1].bookies
        cluster[old[0]].status = Status.EIO
        for _ in range(20):
            await writer.append(b"x")
            await asyncio.sleep(0.1)
        assert len(await cluster.segments(writer.ledger_id)) == 1
        cluster.simulation.host("b3")
        cluster.start("b3:3181")
        await cluster.register("b3:3181")
        for _ in range(60):
            await writer.append(b"x")
            await asyncio.sleep(0.1)
        assert (await cluster.segments(writer.ledger_id))[-1][1] == ("b3:3181", *old[1:])

    async def with_late_spare(cluster: FakeCluster) -> None:
        cluster.kill("b3:3181")
        await cluster.deregister("b3:3181")
        await scenario(cluster)

    run(with_late_spare, bookie_count=4)


def test_without_a_spare_that_the_quorum_needs_there_is_one_clear_error_soon() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        cluster.kill(writer.metadata.segments[-1].bookies[0])
        started = asyncio.get_running_loop().time()
        with pytest.raises(QuorumLostError, match="no bookie to take a failed one's place: all other writable"):
            await writer.append(b"y")
        assert asyncio.get_running_loop().time() - started < 3.0
        assert await writer.close() == 0

    run(scenario, bookie_count=2)


def test_a_spare_that_does_not_answer_is_not_used() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        for name in ("b2", "b3", "b4"):
            await cluster.deregister(f"{name}:3181")
        writer = await cluster.client.create()
        for name in ("b2", "b3", "b4"):
            await cluster.register(f"{name}:3181")
        await writer.append(b"x")
        for name in ("b2", "b3"):
            cluster.kill(f"{name}:3181")
        cluster.kill(writer.metadata.segments[-1].bookies[0])
        assert await writer.append(b"y") == 1
        assert "b4:3181" in writer.metadata.segments[-1].bookies
        assert len(writer.metadata.segments) == 2

    run(scenario, bookie_count=5)


def test_a_writer_told_never_to_change_its_ensemble_fails() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        cluster[writer.metadata.segments[-1].bookies[0]].status = Status.EIO
        with pytest.raises(QuorumLostError):
            await writer.append(b"y")

    run(scenario, ensemble_change_after_s=None)
