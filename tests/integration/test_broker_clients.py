"""The clients on real brokers and workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import BrokerClient, BrokerExecutor, NewTask
from broker.client.errors import NotFoundError, SlotTakenError, TaskFailedError
from ledger.dev import DevCluster
from ledger.errors import UsageError
from tests.integration import function_tasks
from tests.integration.broker_processes import BrokerProcess, brokers
from tests.integration.worker_processes import started


@pytest.fixture(scope="module")
def broker(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("clients")
    options = ("--metadata-uri", cluster.metadata_uri, "--log", "clients")
    tasks = ("--tasks", "tests.integration.function_tasks", "--threads", "4", "--types", "function,echo")
    with brokers(folder, "c1", options=options) as (process,), started(folder, "cw", *options, *tasks):
        yield process


@pytest.fixture
def client(broker: BrokerProcess, cluster: DevCluster) -> Iterator[BrokerClient]:
    """Return a client that finds the broker through ZooKeeper."""
    with BrokerClient.connect(metadata_uri=cluster.metadata_uri, log="clients", tenant="acme") as client:
        yield client


def test_a_task_is_submitted_and_its_result_comes_back(client: BrokerClient, broker: BrokerProcess) -> None:
    assert client.result(client.submit("echo", b"\xff\x00"), timeout_s=60) == b"\xff\x00 1"
    assert client.url == broker.url


def test_functions_are_called_in_the_workers_process(client: BrokerClient) -> None:
    with BrokerExecutor(client, max_attempts=1) as executor:
        results = list(executor.map(function_tasks.total, range(50), range(50)))
        assert [result["sum"] for result in results] == [2 * number for number in range(50)]
        assert results[0]["pid"] != os.getpid()
        assert executor.submit(function_tasks.total, 1, 2, times=10).result(60)["sum"] == 30
        assert executor.submit("echo", "text").result(60) == b"text 1"
        error = executor.submit(function_tasks.fail, "as asked").exception(60)
    assert isinstance(error, TaskFailedError)
    assert "ValueError: as asked" in str(error)


def test_a_waiting_future_is_cancelled(client: BrokerClient) -> None:
    with BrokerExecutor(client, delay_s=600) as executor:
        future = executor.submit("echo")
        while not future.task_id:
            time.sleep(0.005)
        assert future.cancel()
    assert client.get(future.task_id).status == "cancelled"


def test_a_transaction_is_all_or_nothing(client: BrokerClient) -> None:
    with client.transaction() as transaction:
        ids = [transaction.submit("echo", str(number)) for number in range(3)]
        ids += transaction.submit_many([NewTask("echo", "many")] * 3).task_ids
        assert {client.get(task_id).status for task_id in ids} == {"prepared"}
    assert transaction.task_count == 6
    assert [client.result(task_id, timeout_s=60) for task_id in ids[:2]] == [b"0 1", b"1 1"]
    with pytest.raises(UsageError, match="no change was given"), client.transaction() as transaction:
        client.change(transaction.submit("rolled back"))
    assert list(client.tasks(type="rolled back")) == []


def test_a_slot_has_one_task(client: BrokerClient) -> None:
    holder = client.submit("echo", slot="nightly", delay_s=600)
    with pytest.raises(SlotTakenError) as caught:
        client.submit("echo", slot="nightly")
    assert caught.value.slot_task_id == holder
    done = client.submit_many([NewTask("echo"), NewTask("echo", slot="nightly"), NewTask("echo")])
    assert [bool(task_id) for task_id in done.task_ids] == [True, False, True]
    assert (done.refused[0].index, done.refused[0].slot_task_id) == (1, holder)
    assert client.cancel(holder).count == 1


def test_what_is_shown_changed_and_explained(client: BrokerClient) -> None:
    task_id = client.submit("unknown type", "x", priority=1, resources={"gpu": 1})
    client.change(task_id, priority=9)
    assert client.get(task_id).priority == 9
    assert client.explain(task_id).reason == "no-worker"
    assert task_id in [task.task_id for task in client.tasks(status="waiting", type="unknown type")]
    assert client.overview().by_status["waiting"] >= 1
    assert client.status().role == "leader"
    assert [worker.worker_id for worker in client.workers()] == ["cw"]
    client.hold(type="echo", reason="test")
    assert [(hold.tenant, hold.type, hold.is_paused) for hold in client.limits().holds] == [("acme", "echo", True)]
    client.release(type="echo")
    client.limit("gpu", 3)
    assert [(one.resource, one.amount_max) for one in client.limits().resources] == [("gpu", 3)]
    client.limit("gpu", None)
    assert client.change_tenant("globex", weight=4).weight == 4
    assert client.tenant("globex").policy.weight == 4
    client.cancel(task_id)


def test_a_dead_letter_is_replayed_and_deleted(client: BrokerClient) -> None:
    task_id = client.submit("function", b"no call", max_attempts=1)
    assert client.wait(task_id, timeout_s=60).status == "error"
    assert client.replay_dead(task_id).count == 1
    assert client.wait(task_id, timeout_s=60).attempts == 1
    done = client.delete_dead(task_id, 4711)
    assert (done.count, done.passed_over) == (1, 1)
    with pytest.raises(NotFoundError):
        client.get(task_id)


def test_code_is_deployed_once_and_comes_back_as_it_was(client: BrokerClient, tmp_path: Path) -> None:
    (tmp_path / "Jobs.py").write_text("def run(): ...")
    name = client.deploy_code(tmp_path / "Jobs.py", entries=["Jobs:run"])
    assert client.deploy_code(tmp_path / "Jobs.py", entries=["Jobs:run"]) == name
    assert [code.code for code in client.codes()] == [name]
    client.remove_code(name)
    assert client.codes() == []


def test_events_tell_what_became_of_a_task(client: BrokerClient) -> None:
    begin = client.status().revision + 1
    task_id = client.submit("echo")
    names: list[str] = []
    for event in client.events(from_revision=begin):
        if event.fields.get("task_id") == task_id:
            names.append(event.name)
            if event.name == "task_ended":
                break
    assert names == ["task_submitted", "task_assigned", "task_ended"]


@pytest.mark.slow
def test_nothing_is_submitted_twice_when_the_leader_dies(cluster: DevCluster, tmp_path: Path) -> None:
    options = ("--metadata-uri", cluster.metadata_uri, "--log", "clients-failover")
    with brokers(tmp_path, "f1", "f2", options=options) as processes:
        urls = [process.url for process in processes]
        with BrokerClient.connect(urls, tenant="acme", timeout_s=90) as client:
            ids = [client.submit("idle", "first")]
            leader = next(process for process in processes if process.url == client.url)
            killer = threading.Timer(0.5, leader.kill)
            killer.start()
            while killer.is_alive() or len(ids) < 300:
                ids += client.submit_many([NewTask("idle")] * 20).task_ids
                ids.append(client.submit("idle", "single"))
            killer.join()
            assert client.url != leader.url
            assert sorted(task.task_id for task in client.tasks(type="idle")) == sorted(ids)


@pytest.mark.slow
def test_all_futures_are_resolved_though_the_leader_dies(cluster: DevCluster, tmp_path: Path) -> None:
    options = ("--metadata-uri", cluster.metadata_uri, "--log", "clients-futures")
    tasks = ("--tasks", "tests.integration.function_tasks", "--threads", "4", "--types", "echo")
    with (
        brokers(tmp_path, "x1", "x2", options=options) as processes,
        started(tmp_path, "xw", *options, *tasks),
        BrokerClient.connect([process.url for process in processes], tenant="acme", timeout_s=90) as client,
        BrokerExecutor(client) as executor,
    ):
        futures = [executor.submit("echo", str(number)) for number in range(200)]
        assert futures[0].result(60).startswith(b"0 ")
        next(process for process in processes if process.url == client.url).kill()
        futures += [executor.submit("echo", str(number)) for number in range(200, 400)]
        results = [future.result(120) for future in futures]
    assert [int(result.split()[0]) for result in results] == list(range(400))
    assert len({future.task_id for future in futures}) == 400
