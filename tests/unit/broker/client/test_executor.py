"""Futures of tasks: resolved by events, cancelled, failed, never left behind."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, wait

import pytest

from broker.client.blocking import BrokerClient
from broker.client.errors import NotAllowedError, SlotTakenError, TaskFailedError
from broker.client.executor import BrokerExecutor, BrokerFuture
from broker.client.functions import function_runner, name_of
from ledger.errors import UsageError
from tests.unit.broker.client.served import ServedBroker
from tests.unit.broker.client.stand_in import Asked, Said, problem


@pytest.fixture
def served() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        yield served


@pytest.fixture
def client(served: ServedBroker) -> Iterator[BrokerClient]:
    with BrokerClient.connect([served.url]) as client:
        yield client


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_futures_are_resolved_by_events_and_tasks_are_read_once(served: ServedBroker, client: BrokerClient) -> None:
    with BrokerExecutor(client, priority=4) as executor:
        futures = [executor.submit("mail", f"{number}") for number in range(20)]
        _until(lambda: all(future.task_id for future in futures))
        for future in futures:
            served.run(served.broker.finish(future.task_id, result=f"done {future.task_id}"))
        assert [future.result(60) for future in futures] == [f"done {f.task_id}".encode() for f in futures]
    reads = [
        asked for asked in served.server.asked if asked.path.startswith("/api/v1/tasks/") and asked.method == "GET"
    ]
    batches = [asked for asked in served.server.asked if asked.path.endswith("/batch")]
    assert len(reads) == 20
    assert len(batches) < 20
    assert json.loads(batches[0].body)["tasks"][0]["priority"] == 4


def test_a_task_that_ends_before_its_submit_is_answered_is_heard_too() -> None:
    with ServedBroker() as served:

        async def end_at_once(asked: Asked) -> Said:
            said = await served.broker.answer(asked)
            if asked.path.endswith("/batch"):
                await served.broker.finish(said.body["task_ids"][0], result="quick")
            return said

        served.server.answering = end_at_once
        with BrokerClient.connect([served.url]) as client, BrokerExecutor(client) as executor:
            assert executor.submit("mail").result(60) == b"quick"


def test_a_function_is_called_by_name_with_msgpack(served: ServedBroker, client: BrokerClient) -> None:
    run = function_runner("math")
    with BrokerExecutor(client) as executor:
        results = executor.map(math.hypot, [3, 6], [4, 8])
        _until(lambda: len(served.broker.tasks) == 2)
        for task_id in served.broker.tasks:
            payload = client.get(task_id).payload_bytes
            served.run(served.broker.finish(task_id, result_base64=_base64(run(None, payload))))
        assert list(results) == [5.0, 10.0]


def _base64(content: bytes) -> str:
    import base64

    return base64.b64encode(content).decode()


def test_only_functions_of_the_named_modules_are_called() -> None:
    from broker.client.functions import encode_call

    call = encode_call(math.hypot, (3, 4), {})
    with pytest.raises(UsageError, match="functions of os.path only"):
        function_runner("os.path")(None, call)
    with pytest.raises(UsageError, match="no name at the top of a module"):
        name_of(lambda: None)
    with pytest.raises(UsageError, match="cannot travel"):
        encode_call(math.hypot, (object(),), {})


def test_a_task_that_failed_fails_its_future(served: ServedBroker, client: BrokerClient) -> None:
    with BrokerExecutor(client) as executor:
        future = executor.submit("mail")
        _until(lambda: future.task_id)
        served.run(served.broker.finish(future.task_id, status="error", outcome="failed", error="ValueError: no"))
        assert isinstance(future.exception(60), TaskFailedError)


def test_a_waiting_task_is_cancelled_and_one_that_runs_is_asked(served: ServedBroker, client: BrokerClient) -> None:
    with BrokerExecutor(client) as executor:
        waiting, running = executor.submit("mail"), executor.submit("mail")
        _until(lambda: waiting.task_id and running.task_id)
        served.broker.tasks[running.task_id]["status"] = "running"
        assert waiting.cancel()
        assert not running.cancel()
        with pytest.raises(CancelledError):
            waiting.result(60)
        served.run(served.broker.finish(running.task_id, status="cancelled"))
        wait([running], 60)
        assert running.cancelled()


def test_a_future_that_is_cancelled_on_its_way_cancels_its_task(served: ServedBroker, client: BrokerClient) -> None:
    futures: list[BrokerFuture] = []

    async def cancel_meanwhile(asked: Asked) -> Said:
        if asked.path.endswith("/batch"):
            while not futures:
                await asyncio.sleep(0.001)
            futures[0].cancel()
        return await served.broker.answer(asked)

    with BrokerExecutor(client) as executor:
        _until(lambda: any(asked.path.endswith("/events") for asked in served.server.asked))
        served.server.answering = cancel_meanwhile
        futures.append(executor.submit("mail"))
        wait(futures, 60)
    assert futures[0].cancelled()
    assert [task["status"] for task in served.broker.tasks.values()] == ["cancelled"]


def test_a_taken_slot_fails_its_future_alone(served: ServedBroker, client: BrokerClient) -> None:
    with BrokerExecutor(client, slot="nightly") as executor:
        first, second = executor.submit("mail"), executor.submit("mail")
        assert isinstance(second.exception(60), SlotTakenError)
        served.run(served.broker.finish(first.task_id, result="ok"))
        assert first.result(60) == b"ok"


def test_shutting_down_can_cancel_what_has_not_begun(served: ServedBroker, client: BrokerClient) -> None:
    executor = BrokerExecutor(client)
    futures = [executor.submit("mail") for _ in range(3)]
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit("mail")


def test_futures_fail_when_the_broker_does_not_let_this_client_listen() -> None:
    with ServedBroker() as served:

        async def forbid(asked: Asked) -> Said:
            return problem(403, "forbidden", "a viewer's token")

        served.server.answering = forbid
        with BrokerClient.connect([served.url]) as client, BrokerExecutor(client) as executor:
            assert isinstance(executor.submit("mail").exception(60), NotAllowedError)


def test_results_are_found_after_the_events_were_lost(served: ServedBroker, client: BrokerClient) -> None:
    streams = 0

    async def forgetful(asked: Asked) -> Said:
        nonlocal streams
        if asked.path.endswith("/events"):
            streams += 1
            if streams == 1:
                return (await served.broker.answer(asked))._replace(pieces=_nothing())
            if "from_revision" in asked.query:
                return problem(410, "gone", "trimmed")
        return await served.broker.answer(asked)

    async def _nothing():  # type: ignore[no-untyped-def]
        yield b": hello\n\n"

    served.server.answering = forgetful
    with BrokerExecutor(client) as executor:
        future = executor.submit("mail")
        _until(lambda: future.task_id)
        served.broker.tasks[future.task_id].update(status="finished", result="late")
        assert future.result(60) == b"late"


def test_futures_end_with_their_client(served: ServedBroker) -> None:
    with BrokerClient.connect([served.url]) as client:
        executor = BrokerExecutor(client)
        future = executor.submit("mail")
        _until(lambda: future.task_id)
    assert "client was closed" in str(future.exception(60))
    executor.shutdown()
