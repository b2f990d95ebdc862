"""A whole worker in this process; brokers that do as a test says, over real streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from broker.machine.policies import WorkerOffer
from broker.machine.statuses import TaskStatus
from broker.machine.worker_messages import FromBroker, FromWorker, WorkerWelcome
from broker.wire.worker_codec import WORKERS_SERVICE, decode_from_worker, encode_from_broker
from broker.worker import Registry, TaskContext, ThreadExecutor, Worker, WorkerSettings
from broker.worker.core.protocol_limits import ProtocolLimits
from ledger.errors import UsageError
from rsm_spark.errors import RsmError
from rsm_spark.transport.security import Security
from tests.unit.broker.worker import sample_tasks
from tests.unit.broker.worker.listening import WAIT_S, run

WELCOME = WorkerWelcome(10_000, 30_000, "b")


class Stream:
    """The broker's end of one stream."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def heard(self) -> FromWorker | None:
        text = await self._context.read()
        return None if text is grpc.aio.EOF else decode_from_worker(text)

    async def say(self, **fields: Any) -> None:
        await self._context.write(encode_from_broker(FromBroker(**{"leader_epoch": 1, **fields})))

    async def until(self, condition: Callable[[FromWorker], Any]) -> FromWorker:
        while (said := await self.heard()) is not None:
            if condition(said):
                return said
        raise AssertionError("the worker has ended the stream")


Behaviour = Callable[[Stream], Awaitable[None]]


@asynccontextmanager
async def broker(behaviour: Behaviour) -> AsyncIterator[str]:
    """Serve workers by a function that is called for each stream; yield the address."""

    async def work(_requests: Any, context: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            await behaviour(Stream(context))

    server = grpc.aio.server()
    handler: Any = grpc.stream_stream_rpc_method_handler(work)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(WORKERS_SERVICE, {"Work": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def working(*brokers: str, registry: Registry = sample_tasks.plain, **fields: Any) -> AsyncIterator[Worker]:
    settings = WorkerSettings(worker_id="w", **fields)
    async with Worker(settings, ThreadExecutor(registry), brokers=brokers, security=Security()) as worker:
        yield worker


@pytest.mark.asyncio
async def test_runs_are_done_and_their_ends_told_in_few_messages() -> None:
    told: list[FromWorker] = []

    async def serve(stream: Stream) -> None:
        await stream.heard()
        await stream.say(welcome=WELCOME, assignments=[run(number, "echo", b"%d" % number) for number in range(1, 201)])
        while sum(len(said.ended) for said in told) < 200:
            said = await stream.heard()
            assert said is not None
            told.append(said)
        done.set()
        await stream.heard()

    done = asyncio.Event()
    async with broker(serve) as address, working(address):
        await asyncio.wait_for(done.wait(), WAIT_S)
    ends = {end.assignment_id: end for said in told for end in said.ended}
    assert all(ends[number].result == b"%d" % number for number in range(1, 201))
    assert len(told) < 100


@pytest.mark.asyncio
async def test_a_leader_that_is_named_is_followed() -> None:
    async def lead(stream: Stream) -> None:
        await stream.heard()
        await stream.say(welcome=WELCOME)
        await stream.heard()

    async with broker(lead) as leader:

        async def name(stream: Stream) -> None:
            await stream.heard()
            await stream.say(leader=leader)

        async with broker(name) as follower, working(follower) as worker:
            assert await asyncio.wait_for(worker.wait_connected(), WAIT_S) == leader
            assert worker.is_connected
            assert not worker.trouble


@pytest.mark.asyncio
async def test_a_broker_that_does_not_welcome_is_left_for_the_next_one() -> None:
    async def hang(stream: Stream) -> None:
        await asyncio.Event().wait()

    async def lead(stream: Stream) -> None:
        await stream.heard()
        await stream.say(welcome=WELCOME)
        await stream.heard()

    limits = ProtocolLimits(welcome_ms_max=200)
    async with broker(hang) as silent, broker(lead) as leader, working(silent, leader, limits=limits) as worker:
        assert await asyncio.wait_for(worker.wait_connected(), WAIT_S) == leader


@pytest.mark.asyncio
async def test_a_worker_that_comes_back_says_what_it_received_holds_and_has_ended() -> None:
    hellos: list[FromWorker] = []
    over = asyncio.Event()

    async def serve(stream: Stream) -> None:
        said = await stream.heard()
        assert said is not None
        hellos.append(said)
        if len(hellos) == 1:
            await stream.say(welcome=WELCOME, assignments=[run(5, "obedient"), run(6, "echo", b"told again")])
            await stream.until(lambda said: said.ended)
            return  # The stream ends, nothing was acknowledged.
        over.set()

    async with broker(serve) as address, working(address) as worker:
        await asyncio.wait_for(over.wait(), WAIT_S)
        assert worker.running == 1
    first, second = hellos[0].hello, hellos[1].hello
    assert first is not None
    assert second is not None
    assert first.incarnation == second.incarnation == worker.incarnation
    assert (first.delivered_up_to, second.delivered_up_to) == (0, 6)
    assert [held.assignment_id for held in second.held] == [5]
    assert [(end.assignment_id, end.result) for end in second.ended] == [(6, b"told again")]
    assert second.leader_epoch == 1
    assert second.stream > first.stream


@pytest.mark.asyncio
async def test_a_deposed_leader_is_left() -> None:
    hellos = 0

    async def serve(stream: Stream) -> None:
        nonlocal hellos
        await stream.heard()
        hellos += 1
        if hellos == 1:
            await stream.say(leader_epoch=7, welcome=WELCOME)
            await stream.say(leader_epoch=6, assignments=[run(5, "echo")])
            await stream.heard()
            return
        await stream.say(leader_epoch=8, welcome=WELCOME)
        await stream.heard()

    async with broker(serve) as address, working(address) as worker:
        async with asyncio.timeout(WAIT_S):
            while hellos < 2:
                await asyncio.sleep(0.01)
        await worker.wait_connected()
        assert worker.running == 0


@pytest.mark.asyncio
async def test_a_worker_that_was_replaced_ends_with_the_reason() -> None:
    async def serve(stream: Stream) -> None:
        await stream.heard()
        await stream.say(welcome=WELCOME)
        await stream.say(refused="another process works as 'w' now: give each its own id")

    async with broker(serve) as address, working(address) as worker:
        with pytest.raises(UsageError, match="another process works as 'w' now"):
            await asyncio.wait_for(worker.wait_left(), WAIT_S)


@pytest.mark.asyncio
async def test_a_drained_worker_says_goodbye_when_all_is_acknowledged() -> None:
    order: list[str] = []
    begun = asyncio.Event()

    async def serve(stream: Stream) -> None:
        await stream.heard()
        await stream.say(welcome=WELCOME, assignments=[run(5, "note")])
        await stream.until(lambda said: said.is_draining)
        order.append("draining")
        go.set()
        await stream.until(lambda said: said.ended)
        order.append("ended")
        await stream.say(acknowledged=[5])
        await stream.until(lambda said: said.is_leaving)
        order.append("leaving")

    registry = Registry()
    go = asyncio.Event()

    @registry.task("*")
    def note(context: TaskContext, payload: bytes) -> str:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(WAIT_S)
        return "done"

    loop = asyncio.get_running_loop()
    async with broker(serve) as address, working(address, registry=registry) as worker:
        await asyncio.wait_for(begun.wait(), WAIT_S)
        worker.drain()
        await asyncio.wait_for(worker.wait_left(), WAIT_S)
    assert order == ["draining", "ended", "leaving"]


@pytest.mark.asyncio
async def test_an_operator_can_have_a_worker_leave() -> None:
    async def serve(stream: Stream) -> None:
        await stream.heard()
        await stream.say(welcome=WELCOME, is_stop=True)
        await stream.until(lambda said: said.is_leaving)

    async with broker(serve) as address, working(address) as worker:
        await asyncio.wait_for(worker.wait_left(), WAIT_S)
        assert worker.is_draining


@pytest.mark.asyncio
async def test_a_worker_that_drains_without_a_broker_and_without_runs_leaves_at_once() -> None:
    async with working("127.0.0.1:1") as worker:
        async with asyncio.timeout(WAIT_S):
            while "127.0.0.1:1" not in worker.trouble:
                await asyncio.sleep(0.01)
        worker.drain()
        await asyncio.wait_for(worker.wait_left(), WAIT_S)


@pytest.mark.asyncio
async def test_an_executor_that_is_exhausted_has_the_worker_drain() -> None:
    left: list[int] = []

    async def serve(stream: Stream) -> None:
        await stream.heard()
        await stream.say(welcome=WELCOME, assignments=[run(5, "hang", timeout_ms=50)])
        said = await stream.until(lambda said: said.ended)
        left.append(said.ended[0].status)
        await stream.say(acknowledged=[5])
        await stream.until(lambda said: said.is_leaving)

    settings = WorkerSettings(worker_id="w")
    executor = ThreadExecutor(sample_tasks.plain, written_off_max=1)
    async with broker(serve) as address:
        async with Worker(settings, executor, brokers=[address], security=Security()) as worker:
            with pytest.raises(RsmError, match="has drained itself: 1 runs .* Use the process executor"):
                await asyncio.wait_for(worker.wait_left(), WAIT_S)
    assert left == [TaskStatus.ERROR]


@pytest.mark.asyncio
async def test_an_offer_can_be_changed_while_the_worker_is_connected() -> None:
    offers: list[WorkerOffer] = []
    told = asyncio.Event()

    async def serve(stream: Stream) -> None:
        await stream.heard()
        await stream.say(welcome=WELCOME)
        said = await stream.until(lambda said: said.offer is not None)
        assert said.offer is not None
        offers.append(said.offer)
        told.set()
        await stream.heard()

    async with broker(serve) as address, working(address, threads=4) as worker:
        await worker.wait_connected()
        worker.change_offer(WorkerOffer(2, groups=(5,)))
        await asyncio.wait_for(told.wait(), WAIT_S)
        with pytest.raises(UsageError, match="5 threads cannot be offered, it has 4"):
            worker.change_offer(WorkerOffer(5))
    assert offers == [WorkerOffer(2, groups=(5,))]
