"""Pools on a cluster of two executor processes: what is killed, and what comes of the tasks."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.client import BrokerClient, NewTask
from broker.client.errors import SlotTakenError
from broker.client.task import Task
from ledger.dev import DevCluster
from tests.integration.broker_processes import BrokerProcess, brokers
from tests.integration.test_worker_failover import leader
from tests.spark.pool_processes import TASKS, PoolProcess, Runs, executors, pool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MASTER = "local-cluster[2,1,1024]"
WORK = ("--py-files", str(TASKS), "--tasks", "pool_tasks")


class Stand:
    """Two brokers, a client, and a folder for what runs note."""

    def __init__(self, folder: Path, found: tuple[str, ...], processes: list[BrokerProcess]) -> None:
        self.folder = folder
        self.found = found
        self.processes = processes
        self.runs_folder = folder / "runs"
        self.runs_folder.mkdir()

    def client(self, tenant: str = "") -> BrokerClient:
        return BrokerClient.connect([one.url for one in self.processes], tenant=tenant, timeout_s=60)

    def payload(self, ms: int) -> str:
        return json.dumps({"folder": str(self.runs_folder), "ms": ms})

    @property
    def runs(self) -> Runs:
        return Runs(self.runs_folder)

    def pool(self, *options: str, master: str = MASTER, conf: str = "") -> Any:
        return pool(self.folder, master, *self.found, *WORK, *options, conf=conf)


@pytest.fixture
def stand(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[Stand]:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    with brokers(tmp_path, "a", "b", options=(*found, "--bookies", "3/3/2")) as processes:
        yield Stand(tmp_path, found, processes)


def until(condition: Callable[[], Any], process: PoolProcess, timeout_s: float = 240) -> Any:
    return process.until(condition, timeout_s)


def ended(client: BrokerClient, ids: list[int], process: PoolProcess) -> list[Task]:
    """Wait until all tasks have ended; return them."""
    until(lambda: not (client.overview().by_status.keys() & {"waiting", "running", "delayed"}), process, 180)
    return [client.get(task_id) for task_id in ids]


def test_an_executor_that_is_killed_costs_no_task_and_runs_none_twice_that_must_not(stand: Stand) -> None:
    with stand.client("acme") as client, stand.pool("--min", "2", "--threads", "4", "--pool", "crew") as process:
        process.wait_serving(2)
        payload = stand.payload(300)
        once = list(client.submit_many(NewTask("work", payload, at_most_once=True) for _ in range(60)).task_ids)
        sure = list(client.submit_many(NewTask("work", payload) for _ in range(60)).task_ids)
        until(lambda: len(stand.runs.ended) >= 10, process)
        os.kill(executors(process)[0], signal.SIGKILL)
        tasks = ended(client, once, process)
        unknown = [task for task in tasks if task.status != "finished"]
        assert {task.outcome for task in unknown} <= {"outcome_unknown"}
        assert len(unknown) <= 4
        assert {task.status for task in ended(client, sure, process)} == {"finished"}
        runs = stand.runs
        assert max(runs.begun[task_id] for task_id in once) == 1
        assert all(runs.ended[task.task_id] == 1 for task in tasks if task.status == "finished")
        assert all(runs.ended[task_id] >= 1 for task_id in sure)
        process.wait_serving(2)
        assert {one.worker_id for one in client.workers() if one.status == "connected"} == {"crew-0", "crew-1"}
        process.terminate()
        assert process.wait_ended() == 0, process.errors()
        assert process.lines[-1]["lost"] >= 1


def test_a_pool_goes_on_with_the_next_leader_and_runs_each_task_once(stand: Stand) -> None:
    with stand.client("acme") as client, httpx.Client(timeout=60) as http:
        payload = stand.payload(200)
        ids = list(client.submit_many(NewTask("work", payload, at_most_once=True) for _ in range(120)).task_ids)
        with stand.pool("--min", "2", "--threads", "4", "--until-idle", "1") as process:
            until(lambda: len(stand.runs.ended) >= 20, process)
            leader(stand.processes, http).kill()
            assert process.wait_ended(240) == 0, process.errors()
        assert stand.runs.ended == dict.fromkeys(ids, 1)
        assert stand.runs.begun == dict.fromkeys(ids, 1)


def test_tenants_of_weights_three_and_one_get_three_and_one_of_a_pools_service(stand: Stand) -> None:
    measured = 600
    with stand.client() as client, stand.client("big") as big, stand.client("small") as small:
        client.change_tenant("big", weight=3.0)
        payload = stand.payload(20)
        for one in (big, small):
            one.submit_many(NewTask("work", payload) for _ in range(measured))
        with stand.pool("--min", "2", "--threads", "3") as process:
            until(lambda: client.overview().by_status.get("finished", 0) >= measured, process)
            tasks = [task for task in client.tasks(status=("finished", "running")) if task.assignment_id]
            first = sorted(tasks, key=lambda task: task.assignment_id)[: measured - 20]
            count = Counter(task.tenant for task in first)
            assert 2.7 <= count["big"] / count["small"] <= 3.3, count
            process.terminate()
            assert process.wait_ended() == 0, process.errors()


def test_limits_slots_and_deadlines_hold_on_executors(stand: Stand) -> None:
    work = ("--min", "2", "--threads", "4", "--executor", "process")
    with stand.client("acme") as acme, stand.client("bolt") as bolt, stand.pool(*work, master="local[2]") as process:
        process.wait_serving(2)
        acme.change_tenant("acme", running_max=2)
        bolt.limit("licence", 1)
        short, long = stand.payload(150), stand.payload(60_000)
        capped = acme.submit_many(NewTask("work", short) for _ in range(12)).task_ids
        licensed = bolt.submit_many(NewTask("work", short, resources={"licence": 1}) for _ in range(8)).task_ids
        nightly = bolt.submit("work", stand.payload(3_000), slot="nightly")
        with pytest.raises(SlotTakenError) as caught:
            bolt.submit("work", short, slot="nightly")
        assert caught.value.slot_task_id == nightly
        too_long = bolt.submit("work", long, timeout_s=2, max_attempts=1)
        too_late = bolt.submit("work", long, ttl_s=4)
        ids = [*capped, *licensed, nightly]
        tasks = [*ended(acme, list(capped), process), *ended(bolt, [*licensed, nightly, too_long, too_late], process)]
        runs = stand.runs
        assert runs.begun == dict.fromkeys([*ids, too_long, too_late], 1)
        assert runs.ended == dict.fromkeys(ids, 1), "what was cut off did not go on"
        assert runs.at_once_max(capped) == 2
        assert runs.at_once_max(licensed) == 1
        assert runs.at_once_max(ids) > 2, "the others' limits are not everybody's"
        assert {task.status for task in tasks[:-2]} == {"finished"}
        assert [(task.status, task.outcome) for task in tasks[-2:]] == [
            ("error", "timed_out"),
            ("error", "deadline_expired"),
        ]
        again = bolt.submit("work", short, slot="nightly")
        assert bolt.wait(again, timeout_s=60).status == "finished"
        process.terminate()
        assert process.wait_ended() == 0, process.errors()


def test_a_pool_grows_with_the_backlog_shrinks_after_it_and_loses_nothing(stand: Stand) -> None:
    options = ("--min", "1", "--max", "3", "--threads", "2", "--idle-s", "2")
    with stand.client("acme") as client, stand.pool(*options, master="local[4]") as process:
        process.wait_serving(1)
        payload = stand.payload(150)
        ids = list(client.submit_many(NewTask("work", payload, at_most_once=True) for _ in range(150)).task_ids)
        process.wait_serving(3)
        assert {task.status for task in ended(client, ids, process)} == {"finished"}
        process.wait_serving(1)
        slow = stand.payload(1500)
        last = list(client.submit_many(NewTask("work", slow, at_most_once=True) for _ in range(20)).task_ids)
        until(lambda: len(stand.runs.begun) >= len(ids) + 2, process)
        process.terminate()
        assert process.wait_ended() == 0, process.errors()
        assert process.lines[-1]["serving_max"] == 3
        assert process.lines[-1]["cancelled"] == 0
        runs = stand.runs
        assert runs.begun == runs.ended
        assert max(runs.begun.values()) == 1
        for task_id in last:
            task = client.get(task_id)
            assert task.status == ("finished" if runs.ended[task_id] else "waiting"), task


def test_a_second_signal_does_not_wait_for_what_runs(stand: Stand) -> None:
    with stand.client("acme") as client, stand.pool("--min", "1", master="local[2]") as process:
        process.wait_serving(1)
        task_id = client.submit("work", stand.payload(600_000), at_most_once=True)
        until(lambda: stand.runs.begun[task_id], process)
        process.terminate()
        until(lambda: process.shape.get("leaving") == 1, process)
        process.terminate()
        assert process.wait_ended() == 1, process.errors()
        assert process.lines[-1]["cancelled"] == 1


def test_a_driver_that_is_killed_takes_its_workers_with_it(stand: Stand) -> None:
    with stand.client("acme") as client, stand.pool("--min", "2", "--threads", "1", "--pool", "gone") as process:
        process.wait_serving(2)
        task_id = client.submit("work", stand.payload(60_000))
        until(lambda: stand.runs.begun[task_id], process)
        os.kill(process.process.pid, signal.SIGKILL)
        deadline_s = time.monotonic() + 90
        while any(one.status in {"connected", "draining"} for one in client.workers()):
            assert time.monotonic() < deadline_s, client.workers()
            time.sleep(0.2)


def test_speculation_is_refused_in_words(tmp_path: Path) -> None:
    with pool(tmp_path, "local[2]", conf="--conf spark.speculation=true") as process:
        assert process.wait_ended() == 2
        assert "worker_pool: spark.speculation is on: " in process.errors()


def test_tasks_that_cannot_be_imported_on_executors_end_the_pool_with_the_reason(stand: Stand) -> None:
    with pool(stand.folder, "local[2]", *stand.found, "--tasks", "no_such_module") as process:
        assert process.wait_ended() == 1
        assert "there is no module 'no_such_module'" in process.lines[-1]["error"]
