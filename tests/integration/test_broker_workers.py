"""A broker and its workers over real streams, ZooKeeper and bookies."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import grpc
import pytest

from broker.machine.commands import CancelTasks, DeployCode, EndedRun, TaskSpec
from broker.machine.policies import WorkerOffer
from broker.machine.queries import GetTask, ListWorkers
from broker.machine.replies import Changed, Done
from broker.machine.statuses import Outcome, TaskStatus, WorkerStatus
from broker.machine.views import TaskView, Workers
from broker.server.service import BrokerService
from broker.wire.worker_codec import WORK_METHOD
from broker.worker.stream import WorkerStream
from ledger.dev import DevCluster
from rsm_spark.errors import AccessDeniedError, RsmError
from rsm_spark.transport.security import Security, open_channel
from tests.integration.broker_hands import FRAMED, Hands, broker_settings, leading, submit, until
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("transport")]
_CONNECTS = 5

MEBIBYTE = 1024 * 1024


async def task_of(broker: BrokerService, task_id: int) -> TaskView:
    found, _ = await broker.query(GetTask("t", task_id))
    assert isinstance(found, TaskView)
    return found


async def worker_status(broker: BrokerService, worker_id: str = "w") -> WorkerStatus | None:
    found, _ = await broker.query(ListWorkers())
    assert isinstance(found, Workers)
    return next((WorkerStatus(one.status) for one in found.workers if one.worker_id == worker_id), None)


async def become(broker: BrokerService, task_id: int, status: TaskStatus) -> TaskView:
    async with asyncio.timeout(60):
        while (shown := await task_of(broker, task_id)).status != status:
            await asyncio.sleep(0.02)
    return shown


async def test_a_task_is_given_to_a_worker_and_its_result_comes_back(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        hands = Hands()
        await hands.serve(broker.address)
        (task_id,) = await submit(broker, TaskSpec("mail", b"hello", resources={"db": 2}, slot="s", key="k"))
        (run,) = await hands.take(1)
        assert (run.task_id, run.tenant, run.type, run.payload, run.attempt) == (task_id, "t", "mail", b"hello", 1)
        assert (run.resources, run.slot, run.key) == ({"db": 2}, "s", "k")
        waiting = asyncio.create_task(broker.wait_task("t", task_id, 20))
        await hands.progress(run, 0.5)
        await hands.end(run, result=b"sent")
        shown = await waiting
        assert isinstance(shown, TaskView)
        assert (shown.status, shown.result) == (TaskStatus.FINISHED, b"sent")
        await until(lambda: hands.acknowledged == [run.assignment_id])
        assert hands.epoch == broker.replica.leader_epoch > 0
        await hands.leave()


async def test_a_running_task_is_cancelled_by_its_worker_and_a_waiting_one_at_once(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        hands = Hands(offer=WorkerOffer(1))
        await hands.serve(broker.address)
        running, waiting = await submit(broker, TaskSpec("mail"), TaskSpec("mail"))
        (run,) = await hands.take(1)
        assert await broker.execute(CancelTasks("t", [running, waiting])) == Changed(1, 1, 0)
        assert (await task_of(broker, waiting)).status == TaskStatus.CANCELLED
        await until(lambda: hands.cancels)
        assert hands.cancels[0].assignment_id == run.assignment_id
        # A worker that was away when it was asked is asked again.
        hands.cancels.clear()
        await hands.serve(broker.address)
        await until(lambda: hands.cancels)
        assert (await task_of(broker, running)).status == TaskStatus.RUNNING
        await hands.end(run, status=TaskStatus.CANCELLED)
        await become(broker, running, TaskStatus.CANCELLED)
        await hands.leave()


async def test_a_worker_that_comes_back_keeps_what_it_has_and_is_given_what_it_never_got(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        hands = Hands(offer=WorkerOffer(3))
        await hands.serve(broker.address)
        kept, told = await submit(broker, TaskSpec("mail"), TaskSpec("mail", at_most_once=True))
        runs = await hands.take(2)
        await hands.leave()
        async with asyncio.timeout(60):
            while await worker_status(broker) is not WorkerStatus.DISCONNECTED:
                await asyncio.sleep(0.02)
        # Ended while nobody could be told.
        by_task = {run.task_id: run for run in runs}
        run = by_task[told]
        hands.held.pop(run.assignment_id)
        hands.ended[run.assignment_id] = EndedRun(
            told, run.assignment_id, int(TaskStatus.FINISHED), result=b"told late"
        )
        (late,) = await submit(broker, TaskSpec("mail"))
        assert (await task_of(broker, late)).status == TaskStatus.WAITING
        await hands.serve(broker.address)
        assert (await become(broker, told, TaskStatus.FINISHED)).result == b"told late"
        await until(lambda: run.assignment_id in hands.acknowledged)
        await hands.take(2)
        assert (await task_of(broker, late)).attempts == 1
        assert (await task_of(broker, kept)).assignment_id == by_task[kept].assignment_id
        await hands.leave()


async def test_a_worker_is_dead_when_its_lease_is_over_and_its_tasks_end_as_they_promised(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    settings = broker_settings(unique_name, tmp_path, worker_lease_s=2.0, worker_ping_s=2.0)
    async with leading(cluster.metadata_uri, settings) as broker:
        hands = Hands()
        await hands.serve(broker.address)
        once, often = await submit(broker, TaskSpec("mail", at_most_once=True), TaskSpec("mail"))
        await hands.take(2)
        await hands.leave()
        shown = await become(broker, once, TaskStatus.ERROR)
        assert shown.outcome == Outcome.OUTCOME_UNKNOWN
        assert await worker_status(broker) is WorkerStatus.DEAD
        other = Hands("v")
        await other.serve(broker.address)
        (run,) = await other.take(1)
        assert (run.task_id, run.attempt) == (often, 2)
        await other.say(is_leaving=True)
        await other.leave()
        async with asyncio.timeout(60):
            while await worker_status(broker, "v") is not WorkerStatus.DEAD:
                await asyncio.sleep(0.02)


async def test_another_process_of_the_same_name_takes_over_and_the_former_is_told(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        first, second = Hands(), Hands()
        await first.serve(broker.address)
        (task_id,) = await submit(broker, TaskSpec("mail"))
        await first.take(1)
        await second.serve(broker.address)
        await until(lambda: first.refused)
        assert "another process works as 'w'" in first.refused
        assert first.is_replaced
        (run,) = await second.take(1)
        assert (run.task_id, run.attempt) == (task_id, 2)
        # The former is not let in again.
        await first.connect(broker.address)
        await until(lambda: first.refused)
        await first.leave()
        await second.leave()


async def test_a_worker_that_says_nothing_is_cut_off_and_one_that_pings_is_not(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    settings = broker_settings(unique_name, tmp_path, worker_ping_s=0.4)
    async with leading(cluster.metadata_uri, settings) as broker:
        silent, loud = Hands("silent"), Hands("loud")
        await silent.serve(broker.address)
        await loud.serve(broker.address)
        number = 0
        async with asyncio.timeout(60):
            while silent.lost is None:
                number += 1
                await loud.say(ping=number)
                await asyncio.sleep(0.1)
        assert loud.lost is None
        await until(lambda: any(message.pong == number for message in loud.received))
        await silent.leave()
        await loud.leave()


async def test_a_worker_that_does_not_read_is_cut_off_and_costs_a_bounded_queue(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        deaf = Hands("deaf", WorkerOffer(1_000))
        await deaf.serve(broker.address)
        deaf.stop_reading()
        for _ in range(45):
            await submit(broker, *[TaskSpec("mail", bytes(MEBIBYTE - 1000))] * 2)
        async with asyncio.timeout(60):
            while await worker_status(broker, "deaf") is not WorkerStatus.DISCONNECTED:
                await asyncio.sleep(0.05)
        await deaf.leave()


async def test_results_of_a_mebibyte_each_are_taken_in_one_message(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        hands = Hands()
        await hands.serve(broker.address)
        ids = await submit(broker, *[TaskSpec("mail")] * 6)
        runs = await hands.take(6)
        await hands.end(*runs, result=bytes(MEBIBYTE))
        for task_id in ids:
            assert len((await become(broker, task_id, TaskStatus.FINISHED)).result) == MEBIBYTE
        await until(lambda: len(hands.acknowledged) == 6)
        await hands.leave()


@pytest.mark.parametrize("text", [b"\xff\xff\xff", b"", b"\x12\x02\x18\x01"])
async def test_a_first_message_that_is_no_hello_ends_the_stream_and_nothing_else(
    cluster: DevCluster, unique_name: str, tmp_path: Path, text: bytes
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        good = Hands("good")
        await good.serve(broker.address)
        channel = open_channel(broker.address, Security())
        stream = channel.stream_stream(WORK_METHOD)()
        await stream.write(text)
        assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        await channel.close()
        await submit(broker, TaskSpec("mail"))
        await good.take(1)
        await good.leave()


async def test_a_later_message_that_is_none_ends_its_stream_and_nothing_else(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        bad, good = Hands("bad"), Hands("good")
        await bad.serve(broker.address)
        await good.serve(broker.address)
        await bad.say_bytes(b"\xff\xff\xff")
        await until(lambda: bad.lost is not None)
        assert "invalid_argument" in str(bad.lost)
        (task_id,) = await submit(broker, TaskSpec("mail"))
        (run,) = await good.take(1)
        await good.end(run)
        await become(broker, task_id, TaskStatus.FINISHED)
        await bad.leave()
        await good.leave()


async def test_code_is_downloaded_from_any_offset(
    cluster: DevCluster, unique_name: str, tmp_path: Path, transport: str
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        archive = bytes(range(256)) * 4_000
        sha256 = hashlib.sha256(archive).hexdigest()
        assert isinstance(await broker.execute(DeployCode("mailer", archive, sha256)), Done)
        stream = WorkerStream(broker.address, Security(), FRAMED[broker.address] if transport == "framed" else "")
        try:
            pieces = [piece async for piece in stream.download("mailer", 0)]
            assert b"".join(piece.data for piece in pieces) == archive
            assert {(piece.total_bytes, piece.sha256) for piece in pieces} == {(len(archive), sha256)}
            assert b"".join([piece.data async for piece in stream.download("mailer", 700_001)]) == archive[700_001:]
            assert [piece.data async for piece in stream.download("mailer", len(archive))] == [b""]
            for code, offset in (("nothing", 0), ("mailer", len(archive) + 1)):
                with pytest.raises(RsmError):
                    _ = [piece async for piece in stream.download(code, offset)]
        finally:
            await stream.close()


async def test_only_a_worker_with_certificate_and_token_is_served(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "authority")
    cert = authority.sign("broker")
    token, other = tmp_path / "token", tmp_path / "other"
    token.write_text("correct-horse-battery-staple\n")
    other.write_text("battery-staple-correct-horse\n")
    security = Security(tls_cert=cert["cert"], tls_key=cert["key"], tls_ca=authority.ca, token_file=str(token))
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path, security=security)) as broker:
        for strange in (Security(tls_ca=authority.ca), Security(tls_ca=authority.ca, token_file=str(other))):
            for _ in range(_CONNECTS):  # On a busy machine a handshake may take longer than it may.
                hands = Hands(security=strange)
                await hands.connect(broker.address)
                await until(lambda hands=hands: hands.lost is not None)
                await hands.leave()
                if isinstance(hands.lost, AccessDeniedError):
                    break
            assert isinstance(hands.lost, AccessDeniedError)
        plain = Hands()
        await plain.connect(broker.address)
        await until(lambda: plain.lost is not None)
        await plain.leave()
        assert await worker_status(broker) is None
        hands = Hands(security=Security(tls_ca=authority.ca, token_file=str(token)))
        await hands.serve(broker.address)
        (task_id,) = await submit(broker, TaskSpec("mail"))
        await hands.end(*(await hands.take(1)))
        await become(broker, task_id, TaskStatus.FINISHED)
        await hands.leave()
