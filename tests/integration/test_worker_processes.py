"""Real worker processes and a real broker, ZooKeeper and bookies."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from broker.machine.commands import CancelTasks, DeployCode, TaskSpec
from broker.machine.queries import GetTask, ListWorkers
from broker.machine.replies import Done
from broker.machine.statuses import ENDED, Outcome, TaskStatus, WorkerStatus
from broker.machine.views import TaskView, Workers
from broker.server.service import BrokerService
from ledger.dev import DevCluster
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.transport.security import Security
from tests.integration.broker_hands import broker_settings, leading, running, submit, until
from tests.integration.worker_processes import TASKS, is_alive, lines, started
from tests.unit.broker.worker.archives import pool

pytestmark = pytest.mark.asyncio


async def task_of(broker: BrokerService, task_id: int) -> TaskView:
    found, _ = await broker.query(GetTask("t", task_id))
    assert isinstance(found, TaskView)
    return found


async def ended(broker: BrokerService, task_id: int, timeout_s: float = 60) -> TaskView:
    """Wait until a task has ended."""
    async with asyncio.timeout(timeout_s):
        while (shown := await task_of(broker, task_id)).status not in ENDED:
            await asyncio.sleep(0.02)
    return shown


async def status_of(broker: BrokerService, worker_id: str) -> WorkerStatus | None:
    found, _ = await broker.query(ListWorkers())
    assert isinstance(found, Workers)
    return next((WorkerStatus(one.status) for one in found.workers if one.worker_id == worker_id), None)


async def becomes(broker: BrokerService, worker_id: str, status: WorkerStatus) -> None:
    async with asyncio.timeout(60):
        while await status_of(broker, worker_id) is not status:
            await asyncio.sleep(0.05)


def pids(path: Path) -> list[int]:
    return [int(line.split()[3]) for line in lines(path)]


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_tasks_are_run_by_a_worker_that_was_given_a_broker(
    executor: str, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        options = ("--brokers", broker.address, "--tasks", TASKS, "--executor", executor)
        with started(tmp_path, "w", *options) as worker:
            file = tmp_path / "file"
            task_ids = await submit(broker, *(TaskSpec("note", str(file).encode()) for _ in range(20)))
            for task_id in task_ids:
                shown = await ended(broker, task_id)
                assert (shown.status, shown.attempts) == (TaskStatus.FINISHED, 1)
                assert shown.result.startswith(b"done by ")
            assert sorted(int(line.split()[0]) for line in lines(file)) == task_ids
            assert (worker.process.pid in pids(file)) == (executor == "thread")
            assert (await worker.wait_ready())["broker"] == broker.address
            worker.terminate()
            assert await worker.wait_ended() == 0
            await becomes(broker, "w", WorkerStatus.DEAD)


async def test_a_worker_finds_the_leader_through_zookeeper(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        options = ("--metadata-uri", cluster.metadata_uri, "--log", unique_name, "--tasks", TASKS)
        with started(tmp_path, "w", *options):
            (task_id,) = await submit(broker, TaskSpec("note", str(tmp_path / "file").encode()))
            assert (await ended(broker, task_id)).status == TaskStatus.FINISHED


async def test_commands_are_run_for_tasks(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        options = (
            "--brokers",
            broker.address,
            "--executor",
            "subprocess",
            "--command",
            "sh -c 'tr a-z A-Z; exit $RSM_KEY'",
        )
        with started(tmp_path, "w", *options):
            well, badly = await submit(broker, TaskSpec("x", b"hello", key="0"), TaskSpec("x", key="3", max_attempts=1))
            assert (await ended(broker, well)).result == b"HELLO"
            shown = await ended(broker, badly)
            assert (shown.status, shown.outcome, shown.error) == (TaskStatus.ERROR, Outcome.FAILED, "ExitCode: 3")


@pytest.mark.parametrize("executor", [pytest.param("thread", marks=pytest.mark.slow), "process"])
async def test_a_running_task_is_cancelled(
    executor: str, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        with started(tmp_path, "w", "--brokers", broker.address, "--tasks", TASKS, "--executor", executor):
            file = tmp_path / "file"
            (task_id,) = await submit(broker, TaskSpec("wait", str(file).encode()))
            await until(lambda: lines(file))
            await broker.execute(CancelTasks("t", [task_id]))
            assert (await ended(broker, task_id)).status == TaskStatus.CANCELLED
            assert len(lines(file)) == 1


@pytest.mark.parametrize("executor", [pytest.param("thread", marks=pytest.mark.slow), "process"])
async def test_a_task_over_its_time_limit_is_an_error_and_its_process_is_gone(
    executor: str, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        with started(tmp_path, "w", "--brokers", broker.address, "--tasks", TASKS, "--executor", executor):
            file = tmp_path / "file"
            (task_id,) = await submit(broker, TaskSpec("hang", str(file).encode(), timeout_ms=1_000, max_attempts=1))
            shown = await ended(broker, task_id)
            assert (shown.status, shown.outcome) == (TaskStatus.ERROR, Outcome.TIMED_OUT)
            if executor == "process":
                (pid,) = pids(file)
                await until(lambda: not is_alive(pid))


async def test_a_drained_worker_ends_what_it_runs_and_takes_nothing_more(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        with started(tmp_path, "w", "--brokers", broker.address, "--tasks", TASKS, "--threads", "4") as worker:
            file, other = tmp_path / "file", tmp_path / "other"
            (task_id,) = await submit(broker, TaskSpec("wait", str(file).encode()))
            await until(lambda: lines(file))
            worker.terminate()
            await becomes(broker, "w", WorkerStatus.DRAINING)
            (later,) = await submit(broker, TaskSpec("note", str(other).encode()))
            assert (await task_of(broker, later)).status == TaskStatus.WAITING
            file.with_suffix(".go").touch()
            assert (await ended(broker, task_id)).status == TaskStatus.FINISHED
            assert await worker.wait_ended() == 0
            await becomes(broker, "w", WorkerStatus.DEAD)
            assert not lines(other)


@pytest.mark.slow
async def test_a_second_signal_ends_a_draining_worker_at_once_and_its_processes_with_it(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        options = ("--brokers", broker.address, "--tasks", TASKS, "--executor", "process")
        with started(tmp_path, "w", *options) as worker:
            file = tmp_path / "file"
            await submit(broker, TaskSpec("hang", str(file).encode()))
            await until(lambda: lines(file))
            worker.terminate()
            await becomes(broker, "w", WorkerStatus.DRAINING)
            worker.terminate()
            assert await worker.wait_ended() == 0
            (pid,) = pids(file)
            await until(lambda: not is_alive(pid))


@pytest.mark.slow
async def test_a_worker_that_drains_too_long_kills_what_it_can_and_tells(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        options = ("--brokers", broker.address, "--tasks", TASKS, "--executor", "process", "--drain-s", "0.5")
        with started(tmp_path, "w", *options) as worker:
            file = tmp_path / "file"
            (task_id,) = await submit(broker, TaskSpec("hang", str(file).encode(), max_attempts=1))
            await until(lambda: lines(file))
            worker.terminate()
            assert await worker.wait_ended() == 0
            shown = await ended(broker, task_id)
            assert (shown.status, shown.outcome) == (TaskStatus.ERROR, Outcome.WORKER_DIED)


@pytest.mark.slow
async def test_processes_of_a_killed_worker_end_with_it(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        options = ("--brokers", broker.address, "--tasks", TASKS, "--executor", "process")
        with started(tmp_path, "w", *options) as worker:
            file = tmp_path / "file"
            await submit(broker, TaskSpec("hang", str(file).encode()))
            await until(lambda: lines(file))
            worker.kill()
            (pid,) = pids(file)
            await until(lambda: not is_alive(pid))


async def test_code_pools_are_fetched_over_the_stream_and_two_versions_run_side_by_side(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        for version in ("1", "2"):
            source = f"def f(context, payload): return b'v{version} ' + payload"
            made = pool({"pool.py": source, "filler": b"\1" * 10_000}, "pool:f")
            command = DeployCode(f"pool-{version}", made, hashlib.sha256(made).hexdigest())
            assert isinstance(await broker.execute(command), Done)
        with started(tmp_path, "w", "--brokers", broker.address, "--code-dir", str(tmp_path / "code")) as worker:
            specs = [TaskSpec("x", b"%d" % n, code=f"pool-{1 + n % 2}", mode="pool:f") for n in range(6)]
            task_ids = await submit(broker, *specs)
            for number, task_id in enumerate(task_ids):
                assert (await ended(broker, task_id)).result == b"v%d %d" % (1 + number % 2, number)
            worker.terminate()
            assert await worker.wait_ended() == 0
            assert not list((tmp_path / "code").iterdir())


async def test_a_worker_follows_the_leader_when_its_broker_is_gone(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    """The run that was begun under the first leader is ended once, and told to the second."""
    file = tmp_path / "file"
    first = leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path, "a"))
    broker = await first.__aenter__()
    is_over = False
    try:
        async with running(cluster.metadata_uri, broker_settings(unique_name, tmp_path, "b")) as other:
            brokers = f"{other.address},{broker.address}"
            with started(tmp_path, "w", "--brokers", brokers, "--tasks", TASKS) as worker:
                assert (await worker.wait_ready())["broker"] == broker.address
                (task_id,) = await submit(broker, TaskSpec("wait", str(file).encode(), at_most_once=True))
                await until(lambda: lines(file))
                is_over = True
                await first.__aexit__(None, None, None)
                file.with_suffix(".go").touch()
                await until(lambda: other.replica.role is ReplicaRole.LEADER)
                shown = await ended(other, task_id)
                assert (shown.status, shown.result, shown.attempts) == (TaskStatus.FINISHED, b"went", 1)
                (later,) = await submit(other, TaskSpec("note", str(file).encode()))
                assert (await ended(other, later)).status == TaskStatus.FINISHED
                assert len(lines(file)) == 2
    finally:
        if not is_over:
            await first.__aexit__(None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_a_worker_paused_beyond_its_lease_never_runs_an_at_most_once_task_twice(
    executor: str, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    settings = broker_settings(unique_name, tmp_path, worker_lease_s=2.0, worker_ping_s=0.5)
    once, often = tmp_path / "once", tmp_path / "often"
    async with leading(cluster.metadata_uri, settings) as broker:
        options = ("--brokers", broker.address, "--tasks", TASKS, "--executor", executor)
        with started(tmp_path, "paused", *options) as worker:
            task_once, task_often = await submit(
                broker,
                TaskSpec("wait", str(once).encode(), at_most_once=True),
                TaskSpec("wait", str(often).encode()),
            )
            await until(lambda: lines(once) and lines(often))
            worker.pause()
            await becomes(broker, "paused", WorkerStatus.DEAD)
            shown = await ended(broker, task_once)
            assert (shown.status, shown.outcome) == (TaskStatus.ERROR, Outcome.OUTCOME_UNKNOWN)
            with started(tmp_path, "second", *options) as second:
                await second.wait_ready()
                await until(lambda: len(lines(often)) == 2)
                worker.resume()
                await becomes(broker, "paused", WorkerStatus.CONNECTED)
                for file in (once, often):
                    file.with_suffix(".go").touch()
                assert (await ended(broker, task_often)).status == TaskStatus.FINISHED
                # The worker that came back does what it is given now, and nothing of what it had before.
                ids = await submit(broker, *(TaskSpec("note", str(tmp_path / "after").encode()) for _ in range(8)))
                for task_id in ids:
                    await ended(broker, task_id)
            assert len(lines(once)) == 1
            assert len(lines(often)) == 2
            assert (await task_of(broker, task_once)).outcome == Outcome.OUTCOME_UNKNOWN


@pytest.mark.slow
async def test_of_two_workers_of_one_name_the_newer_one_works_and_the_older_one_says_why_it_ends(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        options = ("--brokers", broker.address, "--tasks", TASKS)
        with started(tmp_path, "same", *options) as older:
            await older.wait_ready()
            with started(tmp_path, "same", *options) as newer:
                await newer.wait_ready()
                assert await older.wait_ended() == 2
                assert "another process works as 'same' now" in older.errors()
                (task_id,) = await submit(broker, TaskSpec("note", str(tmp_path / "file").encode()))
                assert (await ended(broker, task_id)).status == TaskStatus.FINISHED


@pytest.mark.slow
async def test_a_worker_shows_the_token_and_without_it_says_what_is_missing(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    settings = broker_settings(unique_name, tmp_path, security=Security(token_file=str(token)))
    async with leading(cluster.metadata_uri, settings) as broker:
        options = ("--brokers", broker.address, "--tasks", TASKS)
        with started(tmp_path, "stranger", *options) as stranger:
            await until(lambda: "A worker shows who it is by --token-file" in stranger.errors())
        with started(tmp_path, "w", *options, "--token-file", str(token)) as worker:
            (task_id,) = await submit(broker, TaskSpec("note", str(tmp_path / "file").encode()))
            assert (await ended(broker, task_id)).status == TaskStatus.FINISHED
            for one in (worker, stranger):
                assert "0123456789abcdef" not in one.errors()


@pytest.mark.slow
async def test_a_worker_paused_for_less_than_its_lease_keeps_what_it_runs(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        with started(tmp_path, "w", "--brokers", broker.address, "--tasks", TASKS, "--executor", "process") as worker:
            file = tmp_path / "file"
            (task_id,) = await submit(
                broker, TaskSpec("wait", str(file).encode(), at_most_once=True, heartbeat_ms=9_000)
            )
            await until(lambda: lines(file))
            async with asyncio.timeout(60):
                while (await task_of(broker, task_id)).progress != 0.5:
                    await asyncio.sleep(0.02)
            # Shorter than the lease: nothing of it is lost.
            worker.pause()
            await asyncio.sleep(1)
            worker.resume()
            file.with_suffix(".go").touch()
            shown = await ended(broker, task_id)
            assert (shown.status, shown.attempts, shown.result) == (TaskStatus.FINISHED, 1, b"went")
