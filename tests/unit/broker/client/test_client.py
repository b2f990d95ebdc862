"""Calls of the asyncio client against the API's routes and JSON."""

from __future__ import annotations

import asyncio

import pytest

from broker.client.client import AsyncBrokerClient
from broker.client.errors import TaskCancelledError, TaskFailedError, TransactionOverError, WaitTimeoutError
from broker.client.event_stream import EventParser
from broker.client.shapes import Event
from broker.client.task import NewTask, chunks_of
from broker.machine.policies import RetryPolicy, TenantPolicy
from ledger.errors import UsageError
from tests.unit.broker.client.stand_in import Asked, HttpStandIn, MemoryBroker, Said

pytestmark = pytest.mark.asyncio


async def test_a_task_is_sent_with_what_was_said_of_it_and_nothing_else() -> None:
    async with HttpStandIn(MemoryBroker().answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        await client.submit("mail", "grüße", priority=3, resources={"gpu": 1}, delay_s=1.5)
        await client.submit("mail", b"\xff", retry=RetryPolicy(backoff_ms=10))
    first, second = (asked.json for asked in server.asked)
    assert first == {"type": "mail", "payload": "grüße", "priority": 3, "resources": {"gpu": 1}, "delay_s": 1.5}
    assert second["payload_base64"] == "/w=="
    assert '"backoff_ms":10' in second["retry"]


async def test_many_tasks_go_in_batches_and_refusals_keep_their_places() -> None:
    async with HttpStandIn(MemoryBroker().answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        tasks = [NewTask("mail", slot="s" if number in {2, 5} else "") for number in range(7)]
        done = await client.submit_many(tasks, batch=3)
        assert [bool(task_id) for task_id in done.task_ids] == [True] * 5 + [False, True]
        assert [(item.index, item.slot_task_id) for item in done.refused] == [(5, done.task_ids[2])]
    keys = [asked.headers["idempotency-key"] for asked in server.asked]
    assert len(set(keys)) == len(keys) == 3


async def test_batches_are_cut_by_size_too() -> None:
    assert [len(chunk) for chunk in chunks_of([NewTask("t", b"x" * 900_000)] * 5, 1000)] == [2, 2, 1]


async def test_too_large_a_payload_is_refused_before_it_is_sent() -> None:
    async with HttpStandIn(MemoryBroker().answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(UsageError, match="keep large data elsewhere"):
            await client.submit("mail", b"x" * (1024 * 1024 + 1))
        assert not server.asked


async def test_a_transaction_is_committed_at_the_end_of_its_block() -> None:
    broker = MemoryBroker()
    async with HttpStandIn(broker.answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        async with client.transaction() as transaction:
            await transaction.submit("bill", b"1")
            await transaction.submit_many([NewTask("bill"), NewTask("bill")])
            assert {task["status"] for task in broker.tasks.values()} == {"prepared"}
        assert {task["status"] for task in broker.tasks.values()} == {"waiting"}
        assert transaction.task_count == 3


async def test_a_transaction_is_rolled_back_when_its_block_raises() -> None:
    broker = MemoryBroker()
    async with HttpStandIn(broker.answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(UsageError, match="no change was given"):
            async with client.transaction() as transaction:
                await client.change(await transaction.submit("bill", b"1"))
    assert not broker.tasks
    assert not broker.transactions


async def test_a_transaction_that_has_expired_says_so_when_it_is_committed() -> None:
    broker = MemoryBroker()
    async with HttpStandIn(broker.answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        with pytest.raises(TransactionOverError):
            async with client.transaction():
                broker.transactions.clear()


async def test_a_result_is_waited_for_and_returned() -> None:
    broker = MemoryBroker()
    async with HttpStandIn(broker.answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        task_id = await client.submit("mail")
        waiting = asyncio.create_task(client.result(task_id))
        while len(server.asked) < 2:
            await asyncio.sleep(0)
        await broker.finish(task_id, result="done")
        assert await waiting == b"done"


async def test_a_task_that_failed_or_was_cancelled_is_raised_with_what_it_ended_in() -> None:
    broker = MemoryBroker()
    async with HttpStandIn(broker.answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        failed, cancelled = await client.submit("mail"), await client.submit("mail")
        await broker.finish(failed, status="error", outcome="failed", error="ValueError: no", attempts=3)
        await client.cancel(cancelled)
        with pytest.raises(TaskFailedError, match="failed after 3 attempts: ValueError: no") as caught:
            await client.result(failed)
        assert caught.value.task.outcome == "failed"
        with pytest.raises(TaskCancelledError):
            await client.result(cancelled)


async def test_waiting_ends_at_its_limit_and_the_task_goes_on() -> None:
    async with HttpStandIn(MemoryBroker().answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        task_id = await client.submit("mail")
        with pytest.raises(WaitTimeoutError, match="is waiting after 0.05 s"):
            await client.wait(task_id, timeout_s=0.05)


async def test_tasks_are_listed_page_after_page() -> None:
    broker = MemoryBroker()
    async with HttpStandIn(broker.answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        await client.submit_many([NewTask("a"), NewTask("b")] * 600)
        assert len([task async for task in client.tasks(type="a")]) == 600
        newest = [task.task_id async for task in client.tasks(count=3, order="newest")]
        assert newest == sorted(broker.tasks, reverse=True)[:3]


async def test_one_field_of_a_policy_is_changed_and_the_rest_stays() -> None:
    broker = MemoryBroker()
    async with HttpStandIn(broker.answer) as server, await AsyncBrokerClient.connect([server.url]) as client:
        await client.set_tenant("acme", TenantPolicy(weight=2, running_max=9))
        assert (await client.change_tenant("acme", weight=5)).running_max == 9
        assert (await client.tenant("acme")).policy.weight == 5
        with pytest.raises(UsageError, match="policy of tenant acme"):
            await client.change_tenant("acme", wieght=5)


async def test_events_come_once_and_in_order_though_the_stream_breaks() -> None:
    broker = MemoryBroker()
    streams = 0

    async def break_first(asked: Asked) -> Said:
        nonlocal streams
        said = await broker.answer(asked)
        if said.pieces is None:
            return said
        streams += 1
        return said._replace(pieces=_first(said.pieces, 3)) if streams == 1 else said

    async def _first(pieces, count):  # type: ignore[no-untyped-def]
        async for piece in pieces:
            yield piece
            count -= 1
            if not count:
                return

    async with HttpStandIn(break_first) as server, await AsyncBrokerClient.connect([server.url]) as client:
        ids = (await client.submit_many([NewTask("a") for _ in range(6)])).task_ids
        seen: list[int] = []
        async for event in client.events(from_revision=1):
            seen.append(event.revision)
            if len(seen) == 6:
                break
    assert seen == ids
    assert streams == 2


async def test_events_are_put_together_wherever_they_are_cut() -> None:
    text = b': hello\n\nid: 4\nevent: a\ndata: {"x": 1}\n\nid: 5\r\nevent: b\r\ndata: {"y":\r\ndata: 2}\r\n\r\n'
    whole = [Event(4, "a", {"x": 1}), Event(5, "b", {"y": 2})]
    for cut in range(len(text)):
        parser = EventParser()
        assert [*parser.feed(text[:cut]), *parser.feed(text[cut:])] == whole, cut
