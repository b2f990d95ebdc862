"""Brokers as processes and in this one: killed, paused, cut off from their referee, restarted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from kazoo.client import KazooClient

from broker.api.settings import HttpSettings
from broker.machine.commands import (
    BeginTransaction,
    DeployCode,
    LimitResource,
    SetHold,
    SetTenant,
    SubmitTasks,
    TaskSpec,
)
from broker.machine.policies import TenantPolicy
from broker.machine.queries import GetTask, ListCodes, ListLimits, ListSlots, ListTasks, ListTenants, ListTransactions
from broker.machine.replies import Begun
from broker.machine.statuses import TaskStatus
from broker.machine.views import BrokerResult, TaskView
from broker.server.service import BrokerService
from ledger.dev import DevCluster
from rsm_spark.errors import NotLeaderError, OutcomeUnknownError
from rsm_spark.runtime.status import ReplicaRole
from tests.integration.broker_hands import Hands, broker_settings, leading, running, submit, until
from tests.integration.store_processes import StoreProcess, Stores, stores
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = pytest.mark.asyncio

_OPTIONS = ("--bookies", "3/3/2", "--worker-lease-s", "20", "--snapshot-s", "0")


@asynccontextmanager
async def http_client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60) as client:
        yield client


def start(brokers: Stores, name: str) -> StoreProcess:
    return brokers.start(name, *_OPTIONS, command=("broker", "run"))


async def submit_over_http(client: httpx.AsyncClient, broker: StoreProcess, count: int, key: str) -> list[int]:
    answer = await client.post(
        f"http://{broker.ready['http_address']}/api/v1/tasks/batch",
        json={"tasks": [{"type": "mail", "payload": f"{key}/{number}"} for number in range(count)]},
        headers={"Idempotency-Key": key},
    )
    assert answer.status_code == 200, answer.text
    ids: list[int] = answer.json()["task_ids"]
    return ids


async def ended_over_http(client: httpx.AsyncClient, broker: StoreProcess, task_id: int) -> dict[str, Any]:
    answer = await client.get(f"http://{broker.ready['http_address']}/api/v1/tasks/{task_id}?wait_s=30")
    assert answer.status_code == 200, answer.text
    task: dict[str, Any] = answer.json()
    return task


async def follow(hands: Hands, brokers: Stores) -> StoreProcess:
    """Have a worker find the leader among the brokers, as workers do."""
    async with asyncio.timeout(60):
        while True:
            for broker in list(brokers.alive.values()):
                await hands.connect(broker.address)
                await until(lambda: hands.is_welcome or hands.leader or hands.refused or hands.lost is not None)
                if hands.is_welcome:
                    return broker
            await asyncio.sleep(0.1)


async def test_runs_go_on_and_nothing_is_lost_or_doubled_when_the_leader_is_killed(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    hands = Hands()
    with stores(cluster.metadata_uri, unique_name, tmp_path) as brokers:
        for name in "abc":
            start(brokers, name)
        async with http_client() as client:
            leader = await follow(hands, brokers)
            ids = await submit_over_http(client, leader, 50, "first")
            runs = await hands.take(50)
            await hands.end(*runs[:20])
            leader.kill()
            brokers.gone(leader.replica_id)
            later = await follow(hands, brokers)
            assert later.replica_id != leader.replica_id
            # Sent again with its key, whatever became of the first attempt.
            assert await submit_over_http(client, later, 50, "first") == ids
            ids += await submit_over_http(client, later, 10, "second")
            await until(lambda: len(hands.assigned) == 60)
            await hands.end(*(hands.assigned[one] for one in list(hands.held)))
            ended = [await ended_over_http(client, later, task_id) for task_id in ids]
        assert {(one["status"], one["attempts"]) for one in ended} == {("finished", 1)}
        assert sorted(run.task_id for run in hands.assigned.values()) == sorted(ids)
        await until(lambda: not hands.ended)
        await hands.leave()


@pytest.mark.slow
async def test_what_a_deposed_leader_says_late_carries_an_epoch_that_workers_drop(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    late, hands = Hands("w"), Hands("w")
    with stores(cluster.metadata_uri, unique_name, tmp_path) as brokers:
        for name in "ab":
            start(brokers, name)
        async with http_client() as client:
            leader = await follow(late, brokers)
            pending = [
                asyncio.create_task(submit_over_http(client, leader, 20, f"batch/{number}")) for number in range(20)
            ]
            await until(lambda: late.assigned)
            leader.pause()
            brokers.gone(leader.replica_id)
            try:
                # The same process on its new stream; the old one stays open, as in a network that is slow.
                hands.incarnation = late.incarnation
                hands.assigned, hands.held, hands.epoch = dict(late.assigned), dict(late.held), late.epoch
                later = await follow(hands, brokers)
                again = [await submit_over_http(client, later, 20, f"batch/{number}") for number in range(20)]
                ids = [task_id for batch in again for task_id in batch]
                heard = len(late.received)
            finally:
                leader.resume()
            await until(lambda: late.lost is not None or late.leader)
            epoch = hands.epoch
            assert all(message.leader_epoch < epoch for message in late.received[heard:] if message.assignments)
            done: set[int] = set()
            async with asyncio.timeout(60):
                while len(done) < len(ids):
                    runs = [hands.assigned[one] for one in list(hands.held)]
                    done |= {run.task_id for run in runs}
                    await hands.end(*runs)
                    await asyncio.sleep(0.02)
            ended = [await ended_over_http(client, later, task_id) for task_id in ids]
            assert {(one["status"], one["attempts"]) for one in ended} == {("finished", 1)}
            await asyncio.gather(*pending, return_exceptions=True)
        leader.kill()
        await late.leave()
        await hands.leave()


async def test_a_follower_answers_reads_and_names_the_leader(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    http = HttpSettings()
    async with (
        leading(uri, broker_settings(unique_name, tmp_path, "a", http=http)) as leader,
        running(uri, broker_settings(unique_name, tmp_path, "b", http=http)) as follower,
    ):
        (task_id,) = await submit(leader, TaskSpec("mail", b"x"), tenant="default")
        await until(lambda: follower.replica.revision >= leader.replica.revision and follower.leader_http())
        found, revision = await follower.query(GetTask("default", task_id))
        assert isinstance(found, TaskView)
        assert revision >= task_id
        with pytest.raises(NotLeaderError) as refused:
            await submit(follower, TaskSpec("mail"))
        assert refused.value.leader == leader.address
        hands = Hands()
        await hands.connect(follower.address)
        await until(lambda: hands.leader)
        assert hands.leader == leader.address
        await hands.leave()
        async with http_client() as client:
            answer = await client.get(f"http://{follower.http_address}/api/v1/tasks/{task_id}")
            assert (answer.status_code, answer.json()["status"]) == (200, "waiting")
            answer = await client.post(f"http://{follower.http_address}/api/v1/tasks", json={"type": "mail"})
            assert answer.status_code == 307
            assert answer.headers["location"] == f"http://{leader.http_address}/api/v1/tasks"
        waiting = asyncio.create_task(follower.wait_task("default", task_id, 30))
        hands = Hands()
        await hands.serve(leader.address)
        (run,) = await hands.take(1)
        await hands.end(run, result=b"read here")
        shown = await waiting
        assert isinstance(shown, TaskView)
        assert shown.result == b"read here"
        await hands.leave()


async def test_a_leader_that_stops_names_its_successor_and_keeps_nobody_waiting(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    hands = Hands()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(AsyncExitStack())
        http = HttpSettings()
        leader = await first.enter_async_context(leading(uri, broker_settings(unique_name, tmp_path, "a", http=http)))
        cert = Authority(tmp_path, "ca").sign("b")
        encrypted = HttpSettings(tls_cert=cert["cert"], tls_key=cert["key"])
        follower = await stack.enter_async_context(
            running(uri, broker_settings(unique_name, tmp_path, "b", http=encrypted))
        )
        await hands.serve(leader.address)
        (task_id,) = await submit(leader, TaskSpec("mail"))
        (run,) = await hands.take(1)
        waiting = asyncio.create_task(leader.wait_task("t", task_id, 60))
        await until(lambda: follower.leader_http() is not None)
        assert follower.leader_http() == f"http://{leader.http_address}", "as the leader says of itself"
        await until(lambda: follower.replica.revision >= run.assignment_id)
        await first.aclose()
        shown = await waiting
        assert leader.leader_http() == f"https://{follower.http_address}"
        assert isinstance(shown, TaskView)
        assert shown.status == TaskStatus.RUNNING
        await until(lambda: hands.lost is not None)
        assert hands.leader == follower.address
        await hands.serve(hands.leader)
        await hands.end(run)
        found = await follower.wait_task("t", task_id, 20)
        assert isinstance(found, TaskView)
        assert (found.status, found.attempts) == (TaskStatus.FINISHED, 1)
        assert b'status="finished"} 1.0' in await follower.metrics()
        await hands.leave()


async def everything(broker: BrokerService) -> list[BrokerResult]:
    """Return all that the broker shows of its state."""
    queries = (
        ListTasks("", limit=1000),
        ListTenants(""),
        ListLimits(""),
        ListSlots(""),
        ListTransactions(""),
        ListCodes(),
    )
    shown = [(await broker.query(query))[0] for query in queries]
    tasks = (await broker.query(ListTasks("", limit=1000)))[0].tasks  # type: ignore[union-attr]
    return shown + [(await broker.query(GetTask("", task.task_id)))[0] for task in tasks]


async def test_a_snapshot_and_a_restart_keep_everything(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, settings = cluster.metadata_uri, broker_settings(unique_name, tmp_path)
    archive = b"PK" + bytes(5_000)
    async with leading(uri, settings) as broker:
        hands = Hands()
        await hands.serve(broker.address)
        await broker.execute(DeployCode("mailer", archive, hashlib.sha256(archive).hexdigest()))
        await broker.execute(SetTenant("t", TenantPolicy(weight=3.0, running_max=7, running_max_by_type={"mail": 5})))
        await broker.execute(LimitResource("db", 10))
        await broker.execute(SetHold("t", "held", until_ms=4_000_000_000_000, reason="closed"))
        begun = await broker.execute(BeginTransaction("t"))
        assert isinstance(begun, Begun)
        await submit(broker, TaskSpec("mail"), transaction=begun.transaction)
        first, second = await submit(broker, TaskSpec("mail", slot="one", resources={"db": 1}), TaskSpec("mail"))
        await hands.take(2)
        by_task = {run.task_id: run for run in hands.assigned.values()}
        await hands.end(by_task[first], result=b"a result")
        await broker.wait_task("t", first, 20)
        await broker.execute(SubmitTasks("t", [TaskSpec("held", code="mailer", mode="file:main", slot="two")], "key"))
        assert await broker.replica.snapshot() is not None
        # Some of it is in the snapshot, some only in the log.
        (held,) = await submit(broker, TaskSpec("held", code="mailer", mode="object:Mailer", key="k"))
        await hands.leave()
        await until(lambda: broker.workers.registry.served_count == 0)
        await asyncio.sleep(0)
    async with leading(uri, settings) as broker:
        shown, _ = await broker.query(GetTask("t", held))
        assert isinstance(shown, TaskView)
        assert (shown.code, shown.mode, shown.key, shown.status) == ("mailer", "object:Mailer", "k", TaskStatus.WAITING)
        before = await everything(broker)
        broker.machine.validate()
        assert await broker.replica.snapshot() is not None
        digest = broker.replica.digest
        assert digest
    async with leading(uri, settings) as broker:
        assert await everything(broker) == before
        broker.machine.validate()
        # The one that ran goes on where it was: its worker still has it.
        await hands.serve(broker.address)
        assert (await submit(broker, TaskSpec("mail"), request_key="once"))[0] == (
            await submit(broker, TaskSpec("mail"), request_key="once")
        )[0]
        await hands.end(by_task[second])
        found = await broker.wait_task("t", second, 20)
        assert isinstance(found, TaskView)
        assert (found.status, found.attempts) == (TaskStatus.FINISHED, 1)
        await hands.leave()


def lose_session(broker: BrokerService, hosts: str) -> None:
    """End the broker's session with ZooKeeper, as its server does when nothing is heard of it for too long."""
    store: Any = broker.replica._context.client.store
    own = store._link.client
    thief = KazooClient(hosts, client_id=own.client_id)
    thief.start()
    thief.stop()
    thief.close()


async def test_a_broker_that_lost_its_session_follows_in_the_same_process_and_leads_again(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    async with leading(uri, broker_settings(unique_name, tmp_path)) as broker:
        hands = Hands()
        await hands.serve(broker.address)
        ids = await submit(broker, *[TaskSpec("mail")] * 5)
        await hands.take(5)
        roles: list[ReplicaRole] = []
        broker.replica.on_role(roles.append)
        epoch = broker.replica.leader_epoch
        await asyncio.to_thread(lose_session, broker, cluster.zookeeper)
        await until(lambda: roles[-1:] == [ReplicaRole.LEADER])
        assert ReplicaRole.FOLLOWER in roles
        assert broker.replica.leader_epoch > epoch
        await until(lambda: hands.lost is not None)
        await hands.serve(broker.address)
        ids += await submit(broker, *[TaskSpec("mail")] * 5)
        runs = await hands.take(10)
        await hands.end(*runs)
        for task_id in ids:
            found = await broker.wait_task("t", task_id, 20)
            assert isinstance(found, TaskView)
            assert (found.status, found.attempts) == (TaskStatus.FINISHED, 1)
        broker.machine.validate()
        await hands.leave()


async def test_a_command_on_its_way_when_its_leader_lost_its_session_is_applied_once_or_never(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    async with leading(uri, broker_settings(unique_name, tmp_path)) as broker:
        accepted: list[int] = []
        stop = asyncio.Event()

        async def keep_submitting() -> None:
            while not stop.is_set():
                try:
                    accepted.extend(await submit(broker, TaskSpec("mail")))
                except NotLeaderError:
                    await asyncio.sleep(0.01)

        writers = [asyncio.create_task(keep_submitting()) for _ in range(8)]
        await until(lambda: len(accepted) > 50)
        epoch = broker.replica.leader_epoch
        await asyncio.to_thread(lose_session, broker, cluster.zookeeper)
        await until(lambda: broker.replica.role is ReplicaRole.LEADER and broker.replica.leader_epoch > epoch)
        count = len(accepted)
        await until(lambda: len(accepted) > count + 50)
        stop.set()
        try:
            await asyncio.gather(*writers)
        except OutcomeUnknownError as error:  # pragma: no cover - said, should it ever come to it
            raise AssertionError("the log tells what became of every command") from error
        page, _ = await broker.query(ListTasks("t", limit=1000))
        known = [task.task_id for task in page.tasks]  # type: ignore[union-attr]
        assert sorted(accepted) == sorted(set(accepted))
        assert known == sorted(accepted)[: len(known)]
