"""Brokers and workers killed and frozen at random under load: every task ends as its kind promises.

What ran is counted from files that the runs themselves write, not from what the broker says.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from broker.client import AsyncBrokerClient, NewTask
from broker.client.errors import BrokerClientError
from broker.client.task import Task
from ledger.dev import DevCluster
from tests.integration.store_processes import Stores, stores
from tests.integration.torture_tasks import RUNS_VARIABLE
from tests.integration.worker_processes import WorkerProcess

pytestmark = pytest.mark.asyncio

_BROKERS = ("a", "b", "c")
_LEASE_S = 4.0
_OPTIONS = (
    "--bookies", "3/3/2", "--worker-lease-s", str(_LEASE_S), "--worker-ping-s", "1", "--session-timeout-ms", "2000",
    "--snapshot-s", "15", "--http-port", "0",
)  # fmt: skip
_TENANTS = ("red", "green", "blue")
_BLOWS = ("kill broker", "pause broker", "kill worker", "pause worker", "kill worker")
_END_S = 180.0
_STARTED_AT_ONCE = 4
_FAIL_ATTEMPTS = 3


class Submitted(msgspec.Struct):
    """What was asked of a task that the broker has accepted."""

    tenant: str
    type: str
    at_most_once: bool


class Site:
    """Three brokers and their workers, as processes."""

    def __init__(self, brokers: Stores, folder: Path, runs: Path, worker_count: int, rng: random.Random) -> None:
        self._brokers = brokers
        self._folder = folder
        self._runs = runs
        self._rng = rng
        self._names = [f"w{number:02}" for number in range(worker_count)]
        self.workers: dict[str, WorkerProcess] = {}
        self.blows: dict[str, int] = defaultdict(int)

    async def start(self) -> None:
        for name in _BROKERS:
            await self._start_broker(name)
        os.environ[RUNS_VARIABLE] = str(self._runs)
        for first in range(0, len(self._names), _STARTED_AT_ONCE):
            some = self._names[first : first + _STARTED_AT_ONCE]
            for name in some:
                self._start_worker(name)
            for name in some:
                await self.workers[name].wait_ready()

    async def _start_broker(self, name: str) -> None:
        await asyncio.to_thread(lambda: self._brokers.start(name, *_OPTIONS, command=("broker", "run")))

    def _start_worker(self, name: str) -> None:
        self.workers[name] = WorkerProcess(
            self._folder, name, "--tasks", "tests.integration.torture_tasks", "--threads", "4",
            "--metadata-uri", self._brokers.metadata_uri, "--log", self._brokers.log,
        )  # fmt: skip

    async def strike(self, blow: str) -> None:
        """Do one thing to one process, and undo it."""
        rng = self._rng
        what, whom = blow.split()
        self.blows[blow] += 1
        if whom == "broker":
            name = rng.choice(_BROKERS)
            if what == "kill":
                self._brokers.gone(name).kill()
                await asyncio.sleep(rng.uniform(0.2, 1.5))
                await self._start_broker(name)
            else:
                process = self._brokers.alive[name]
                process.pause()
                await asyncio.sleep(rng.uniform(0.5, 5.0))
                process.resume()
        elif what == "kill":
            name = rng.choice(self._names)
            self.workers[name].kill()
            await asyncio.sleep(rng.uniform(0.0, 2 * _LEASE_S))
            self._start_worker(name)
        else:
            worker = self.workers[rng.choice(self._names)]
            worker.pause()
            await asyncio.sleep(rng.uniform(0.5, 2 * _LEASE_S))
            worker.resume()

    def end(self) -> None:
        for worker in self.workers.values():
            if worker.process.poll() is None:
                os.kill(worker.process.pid, signal.SIGCONT)
                worker.kill()


@contextmanager
def _site(cluster: DevCluster, log: str, folder: Path, worker_count: int, rng: random.Random) -> Iterator[Site]:
    runs = folder / "runs"
    runs.mkdir()
    with stores(cluster.metadata_uri, log, folder) as brokers:
        site = Site(brokers, folder, runs, worker_count, rng)
        try:
            yield site
        finally:
            site.end()


async def _load(
    client: AsyncBrokerClient, tenant: str, rng: random.Random, enough: asyncio.Event
) -> dict[int, Submitted]:
    """Submit batches until told to stop; return what was accepted."""
    accepted: dict[int, Submitted] = {}
    while not enough.is_set():
        tasks = [_new_task(rng) for _ in range(rng.randint(1, 30))]
        submitted = await client.submit_many(tasks)
        assert submitted.refused == []
        for task_id, task in zip(submitted.task_ids, tasks, strict=True):
            assert task_id not in accepted
            accepted[task_id] = Submitted(tenant, task.type, task.at_most_once)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
    return accepted


def _new_task(rng: random.Random) -> NewTask:
    if rng.random() < 0.05:
        return NewTask("fail", b"as it should", max_attempts=_FAIL_ATTEMPTS)
    return NewTask("work", b"%d" % rng.choice((1, 5, 20, 200)), at_most_once=rng.random() < 0.5)


async def _all_ended(client: AsyncBrokerClient) -> list[Task]:
    """Wait until no task is under way; return all."""
    deadline = time.monotonic() + _END_S
    while True:
        try:
            by_status = (await client.overview()).by_status
            if not {"waiting", "running", "delayed", "prepared"} & set(by_status):
                return [task async for task in client.tasks()]
        except BrokerClientError as error:
            by_status = {str(error): 0}
        assert time.monotonic() < deadline, by_status
        await asyncio.sleep(0.3)


def _runs_of(folder: Path) -> dict[int, list[tuple[int, str]]]:
    """Return (assignment, "begin" or "end") of each task, as the runs have noted them."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for path in sorted(folder.glob("*.runs")):
        for line in path.read_text().splitlines():
            task_id, assignment_id, what = line.split()
            found[int(task_id)].append((int(assignment_id), what))
    return found


def _check(task: Task, asked: Submitted, runs: list[tuple[int, str]]) -> None:
    begun = [assignment for assignment, what in runs if what == "begin"]
    assert len(begun) == len(set(begun)), f"an assignment was run twice: {task} {runs}"
    assert (task.tenant, task.type, task.at_most_once) == (asked.tenant, asked.type, asked.at_most_once)
    if task.type == "fail":
        # Attempts that a lost worker has cost are attempts too, whether they began or not.
        assert (task.status, task.attempts) == ("error", _FAIL_ATTEMPTS), (task, runs)
        return
    if asked.at_most_once:
        assert len(begun) <= 1, f"an at-most-once task ran twice: {task} {runs}"
        assert task.status == "finished" or (task.status, task.outcome) == ("error", "outcome_unknown"), (task, runs)
    else:
        assert task.status == "finished", (task, runs)
    if task.status == "finished":
        assert (task.assignment_id, "end") in runs, f"what finished did not run: {task} {runs}"


async def _torture(
    cluster: DevCluster, log: str, folder: Path, *, seed: int, worker_count: int, blows: Iterator[str]
) -> None:
    rng = random.Random(seed)
    with _site(cluster, log, folder, worker_count, rng) as site:
        await site.start()
        clients = {
            tenant: await AsyncBrokerClient.connect(
                metadata_uri=cluster.metadata_uri, log=log, tenant=tenant, timeout_s=120
            )
            for tenant in _TENANTS
        }
        enough = asyncio.Event()
        loads = [
            asyncio.create_task(_load(client, tenant, random.Random(f"{seed}-{tenant}"), enough))
            for tenant, client in clients.items()
        ]
        for blow in blows:
            await site.strike(blow)
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            for load in loads:
                if load.done():
                    load.result()
        enough.set()
        accepted: dict[int, Submitted] = {}
        for load in loads:
            accepted |= await load
        tasks = {task.task_id: task for client in clients.values() for task in await _all_ended(client)}
        for client in clients.values():
            await client.close()
        assert set(tasks) == set(accepted), "tasks were lost, or made up"
        runs = _runs_of(folder / "runs")
        assert set(runs) <= set(accepted)
        for task_id, task in tasks.items():
            _check(task, accepted[task_id], runs[task_id])
        unknown = sum(task.outcome == "outcome_unknown" for task in tasks.values())
        again = sum(len({assignment for assignment, _ in some}) > 1 for some in runs.values())
        print(f"{len(tasks)} tasks, {unknown} of unknown outcome, {again} run again; {dict(site.blows)}")


async def test_every_task_ends_as_promised_when_brokers_and_workers_are_killed_and_frozen_once_each(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    await _torture(cluster, unique_name, tmp_path, seed=1, worker_count=4, blows=iter(_BLOWS[:4]))


def _for_minutes(minutes: float, rng: random.Random) -> Iterator[str]:
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        yield rng.choice(_BLOWS)


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_every_task_ends_as_promised_after_five_minutes_of_kills_and_freezes_with_twenty_workers(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    await _torture(cluster, unique_name, tmp_path, seed=2, worker_count=20, blows=_for_minutes(5.0, random.Random(2)))
