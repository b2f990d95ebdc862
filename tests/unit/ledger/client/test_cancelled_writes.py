"""Giving up waiting gives up nothing else: order, ids and other callers' appends stay as they are."""

from __future__ import annotations

import asyncio

import pytest

from ledger.errors import LedgerClosedError
from ledger.wire.codes import Status
from ledger.wire.packets import WriteLacRequest
from tests.unit.ledger.client.fake_cluster import FakeCluster, run


async def give_up(task: asyncio.Task[int] | asyncio.Task[None], after_s: float = 0.01) -> None:
    await asyncio.sleep(after_s)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_append_keeps_its_id_and_its_place() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        futures = [writer.append(b"%d" % number) for number in range(10)]
        futures[0].cancel()  # before it has an id
        await asyncio.sleep(0)
        futures[9].cancel()  # on its way
        assert await asyncio.gather(*futures[1:9]) == list(range(1, 9))
        await writer.flush()
        assert await writer.append(b"x") == 10
        assert await writer.close() == 10
        bookie = cluster[writer.metadata.segments[0].bookies[0]]
        assert [body[-1:] for _, _, body in bookie.received[:10]] == [b"%d" % number for number in range(10)]

    run(scenario)


def test_a_cancelled_task_that_awaits_its_append_loses_no_other() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        bookies = [cluster[bookie_id] for bookie_id in writer.metadata.segments[-1].bookies]
        for bookie in bookies:
            bookie.hold = True

        async def append() -> int:
            return await writer.append(b"x")

        tasks = [asyncio.create_task(append()) for _ in range(5)]
        await give_up(tasks[2])
        for bookie in bookies:
            bookie.release()
        assert await asyncio.gather(*tasks[:2], *tasks[3:]) == [0, 1, 3, 4]

    run(scenario)


@pytest.mark.parametrize("wait", ["flush", "drain", "force", "close"])
def test_a_cancelled_wait_leaves_the_writer_as_it_was(wait: str) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        bookies = [cluster[bookie_id] for bookie_id in writer.metadata.segments[-1].bookies]
        for bookie in bookies:
            bookie.hold = True
        futures = [writer.append(bytes(600)) for _ in range(4)]
        await give_up(asyncio.create_task(getattr(writer, wait)()))
        assert not any(future.done() for future in futures)
        for bookie in bookies:
            bookie.release()
        assert await asyncio.gather(*futures) == [0, 1, 2, 3]
        await writer.drain() if wait != "close" else None
        assert await writer.close() == 3

    run(scenario)


def test_a_force_that_is_cancelled_can_be_called_again() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create(deferred_sync=True)
        await writer.append(b"x")
        bookie = cluster[writer.metadata.segments[-1].bookies[0]]
        bookie.status = None
        await give_up(asyncio.create_task(writer.force()), 0.1)
        bookie.status = Status.EOK
        assert await writer.force() == 0

    run(scenario)


def test_an_explicit_lac_that_is_cancelled_is_written_the_next_time() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        await give_up(asyncio.create_task(writer.write_lac()), 0)
        await writer.write_lac()
        bookie = cluster[writer.metadata.segments[-1].bookies[0]]
        sent = [request for request in bookie.requests if isinstance(request, WriteLacRequest)]
        assert sent[-1].last_add_confirmed == 0

    run(scenario)


def test_a_creation_that_is_cancelled_leaves_the_client_usable() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        for delay_s in (0, 0.001, 0.002, 0.004):
            await give_up(asyncio.create_task(cluster.client.create()), delay_s)  # type: ignore[arg-type]
        writer = await cluster.client.create()
        assert await writer.append(b"x") == 0

    run(scenario)


def test_closing_the_client_fails_what_is_pending() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        for bookie_id in writer.metadata.segments[-1].bookies:
            cluster[bookie_id].hold = True
        append = writer.append(b"x")
        await asyncio.sleep(0.1)
        await cluster.client.close()
        with pytest.raises(LedgerClosedError):
            await append
        with pytest.raises(LedgerClosedError):
            await writer.append(b"y")

    run(scenario)


# --- explicit LAC at an interval


def lacs_of(cluster: FakeCluster, bookie_id: str) -> list[int]:
    return [r.last_add_confirmed for r in cluster[bookie_id].requests if isinstance(r, WriteLacRequest)]


def test_the_lac_is_told_at_an_interval_and_only_when_it_has_moved() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await asyncio.sleep(3)
        await writer.append_many([b"x"] * 3)
        await asyncio.sleep(3)
        await writer.append(b"y")
        await asyncio.sleep(3)
        for bookie_id in writer.metadata.segments[-1].bookies:
            assert lacs_of(cluster, bookie_id) == [2, 3]
        await writer.close()
        await asyncio.sleep(3)
        assert lacs_of(cluster, writer.metadata.segments[-1].bookies[0]) == [2, 3]

    run(scenario, explicit_lac_interval_s=0.25)


def test_without_an_interval_the_lac_is_not_told() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        await asyncio.sleep(10)
        assert lacs_of(cluster, writer.metadata.segments[-1].bookies[0]) == []

    run(scenario)


def test_a_lac_that_could_not_be_told_is_told_later_to_the_bookies_that_are_there_then() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        await writer.append(b"x")
        old = writer.metadata.segments[-1].bookies
        cluster.kill(old[0])
        await asyncio.sleep(3)
        assert await writer.append(b"y") == 1
        await asyncio.sleep(3)
        for bookie_id in writer.metadata.segments[-1].bookies:
            assert lacs_of(cluster, bookie_id)[-1] == 1

    run(scenario, explicit_lac_interval_s=0.25)
