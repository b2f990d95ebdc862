"""The last act: workers of the two airlines on Spark; one is killed, and a statement runs among the tasks."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import signal
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from broker.client.client import AsyncBrokerClient
from broker.client.shapes import WorkerSummary
from broker.client.task import NewTask
from broker.pool.statement_tasks import SPARK_SQL
from rsm_demo.airline_work import AIRLINES, TASK_TYPE, AirlineWork, account, airline_work, runs_noted
from rsm_demo.child import Child, ChildFailedError
from rsm_demo.flights import airline_flights, data_file
from rsm_demo.screen import Screen
from rsm_demo.shares import assignments, share_ratio
from rsm_demo.stack import TASK_LOG, Stack
from rsm_demo.tenant_counts import TICK_S, TenantCounts
from rsm_spark.errors import RsmError

_ACT_S_MAX = 300.0
_SPARK_START_S_MAX = 300.0
_DRAIN_S_MAX = 90.0
_READERS = 8
_TASKS_EACH = 1_200
_WORKERS_MAX = 3
_THREADS = 4
_WEIGHTS = {AIRLINES[0]: 1.0, AIRLINES[1]: 3.0}
_KILL_AT = 0.4
"""Shares are judged up to there: both airlines have tasks that wait, and nothing but those."""
_SHARE_TOLERANCE = 0.25
_JOB = Path(__file__).resolve().parent.parent / "jobs" / "worker_pool.py"


class PoolOutcome(msgspec.Struct):
    """Part of the last JSON line about the pool.

    Attributes:
        ok: Everything below is as it has to be.
        tasks: Submitted, and finished.
        seconds: From the first worker's start to the last end.
        workers_max: Workers at once at most; the pool began with one.
        ratio: Tasks of the second airline, of weight 3, for each of the first, of weight 1.
        killed: Worker whose process was killed.
        again_s: From that until Spark had it working again.
        never_ran: Tasks that no run has noted.
        ran_twice: Tasks that ran again: their run was killed, or their worker stood still for longer than its lease.
        results_equal: The results add up to what the CSV says, for both airlines.
        statement: Flights of each airline, as a statement has counted them; None = not what the CSV says.
        drained: Every worker ended what it ran and left.

    """

    ok: bool
    tasks: int
    seconds: float
    workers_max: int
    ratio: float
    killed: str
    again_s: float
    never_ran: int
    ran_twice: int
    results_equal: bool
    statement: list[Any] | None
    drained: bool


class PoolAct:
    """One run of it.

    Args:
        stack: The processes; brokers run. Its own workers leave.
        screen: Where to show it.
        tell: Called with what happened.

    """

    def __init__(self, stack: Stack, screen: Screen, tell: Callable[[str], None]) -> None:
        self._stack = stack
        self._tell = tell
        self._runs = stack.work_dir / "pool-runs"
        self._counts = TenantCounts(screen)

    async def run(self) -> PoolOutcome:
        """Run to the end; the brokers are left to the caller."""
        if not _JOB.exists():
            raise RsmError(f"{_JOB} is missing: the demonstration runs from a checkout of rsm-spark")
        workers, self._stack.workers[:] = list(self._stack.workers), []
        await asyncio.gather(*(worker.stop() for worker in workers))
        self._tell("the plain workers have left; a Spark application takes their place")
        client = await self._client("")  # The administrator's view: of all tenants.
        airlines = {airline: await self._client(airline) for airline in AIRLINES}
        try:
            return await self._play(client, airlines)
        finally:
            await asyncio.gather(client.close(), *(one.close() for one in airlines.values()))

    async def _client(self, tenant: str) -> AsyncBrokerClient:
        return await AsyncBrokerClient.connect(metadata_uri=self._stack.metadata_uri, log=TASK_LOG, tenant=tenant)

    async def _start_pool(self) -> Child:
        self._runs.mkdir(exist_ok=True)
        command = [sys.executable, str(_JOB), "--pool", "spark", "--log", TASK_LOG, "--tasks", "rsm_demo.airline_tasks"]
        command += ["--metadata-uri", self._stack.metadata_uri, "--executor", "asyncio", "--threads", str(_THREADS)]
        command += ["--min", "1", "--max", str(_WORKERS_MAX), "--idle-s", "30", "--drain-s", "10", "--sql-threads", "1"]
        environment = {
            # A slot for each worker and one for the statement; a task may fail often, as executors may be killed.
            "MASTER": f"local[{_WORKERS_MAX + 1},100]",
            "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell",
            "RSM_DEMO_RUNS": str(self._runs),
        }
        return await Child.start("worker-pool", command, log_dir=self._stack.log_dir, environment=environment)

    async def _play(self, client: AsyncBrokerClient, airlines: dict[str, AsyncBrokerClient]) -> PoolOutcome:
        for airline, weight in _WEIGHTS.items():
            await client.change_tenant(airline, weight=weight)
        self._counts.before = {airline: await self._finished(one) for airline, one in airlines.items()}
        work = {airline: await asyncio.to_thread(_some_work, airline) for airline in AIRLINES}
        # Before there is a worker: whose tasks were there first would count otherwise.
        ids = {airline: await _submit(one, work[airline]) for airline, one in airlines.items()}
        weights = " and ".join(f"{airline} {weight:g}" for airline, weight in _WEIGHTS.items())
        self._tell(f"{sum(map(len, ids.values())):,} tasks wait for a worker on Spark; weights: {weights}")
        pool = await self._start_pool()
        try:
            await pool.until(lambda said: said.get("serving"), timeout_s=_SPARK_START_S_MAX, what="a first worker")
            return await self._share(pool, client, airlines, work, ids)
        finally:
            await pool.stop()

    async def _share(
        self,
        pool: Child,
        client: AsyncBrokerClient,
        airlines: dict[str, AsyncBrokerClient],
        work: dict[str, list[AirlineWork]],
        ids: dict[str, list[int]],
    ) -> PoolOutcome:
        """See the tasks done; kill a worker among them."""
        began = time.monotonic()
        total = sum(map(len, ids.values()))
        self._tell(f"one worker on Spark works, with {_THREADS} threads")
        text = json.dumps(await asyncio.to_thread(_statement, self._stack.work_dir))
        await self._until(client, pool, _KILL_AT, total)
        statement = await airlines[AIRLINES[0]].submit(SPARK_SQL, text)
        killed, again_s = await self._kill_worker(client, pool)
        await self._until(client, pool, 1.0, total)
        seconds = time.monotonic() - began
        self._tell(f"all {total:,} tasks have finished")
        answer = json.loads(await airlines[AIRLINES[0]].result(statement))["rows"]
        self._tell(f"beside them {AIRLINES[0]} had Spark count the flights in the CSV, in SQL: {answer}")
        results_equal = all([await _is_equal(airlines[name], ids[name], work[name]) for name in AIRLINES])
        drained = await self._drain(pool)
        runs = await asyncio.to_thread(runs_noted, self._runs)
        given, judged = await assignments(airlines, ids), round(_KILL_AT * total)
        outcome = PoolOutcome(
            ok=False,
            tasks=total,
            seconds=round(seconds, 2),
            workers_max=pool.said.get("serving_max", 0),
            ratio=round(share_ratio(given, airlines=AIRLINES[::-1], after=0, up_to=given[judged - 1][0]), 2),
            killed=killed,
            again_s=round(again_s, 2),
            never_ran=sum(not runs[task_id] for some in ids.values() for task_id in some),
            ran_twice=sum(count > 1 for count in runs.values()),
            results_equal=results_equal,
            statement=answer if answer == await asyncio.to_thread(_flights) else None,
            drained=drained,
        )
        outcome.ok = _is_ok(outcome)
        return outcome

    async def _drain(self, pool: Child) -> bool:
        """End the pool; return whether every worker left in good order."""
        self._tell("SIGTERM: the pool drains")
        os.kill(pool.pid, signal.SIGTERM)  # The driver alone: Spark's JVM, in the same group, would end at once.
        try:
            async with asyncio.timeout(_DRAIN_S_MAX):
                code = await pool.wait()
        except TimeoutError:
            raise ChildFailedError(f"the pool did not drain within {_DRAIN_S_MAX:.0f} s") from None
        self._tell(
            f"{pool.said.get('ended', 0):,} tasks ran on Spark, on {pool.said.get('serving_max')} workers at most"
        )
        return code == 0 and not pool.said.get("cancelled")

    async def _finished(self, client: AsyncBrokerClient) -> int:
        overview = await client.overview()
        return next((one.by_status.get("finished", 0) for one in overview.types if one.type == TASK_TYPE), 0)

    async def _until(self, client: AsyncBrokerClient, pool: Child, share: float, total: int) -> None:
        """Look on until so many tasks have ended."""
        deadline = time.monotonic() + _ACT_S_MAX
        serving = pool.said.get("serving", 0)
        while self._counts.ended < share * total:
            if time.monotonic() > deadline or not pool.is_running:
                raise ChildFailedError(f"the pool did not do its tasks: see {self._stack.log_dir}")
            await asyncio.sleep(TICK_S)
            await self._counts.look(client)
            if pool.said.get("serving", 0) > serving:
                serving = pool.said["serving"]
                self._tell(f"the pool has grown: {serving} workers on Spark")

    async def _serving(self, client: AsyncBrokerClient, pool: Child) -> WorkerSummary:
        """Wait for a worker on Spark that is connected: on a busy machine one may just be finding its broker again."""
        deadline = time.monotonic() + _ACT_S_MAX
        while True:
            for one in await client.workers():
                if one.status == "connected" and one.worker_id != "spark-sql":
                    return one
            if time.monotonic() > deadline or not pool.is_running:
                raise ChildFailedError(f"no worker on Spark is connected to the broker: see {self._stack.log_dir}")
            await asyncio.sleep(TICK_S)

    async def _kill_worker(self, client: AsyncBrokerClient, pool: Child) -> tuple[str, float]:
        """Kill the process of a worker; return its name, and the seconds until it works again."""
        victim = await self._serving(client, pool)
        os.kill(int(victim.location.rpartition(":")[2]), signal.SIGKILL)
        began = time.monotonic()
        self._tell(f"kill -9 of {victim.worker_id}, a Python process of Spark's with {_THREADS} tasks in its hands")
        while True:
            now = next((one for one in await client.workers() if one.worker_id == victim.worker_id), None)
            if now is not None and now.status == "connected" and now.incarnation != victim.incarnation:
                break
            if time.monotonic() - began > _ACT_S_MAX or not pool.is_running:
                raise ChildFailedError(f"{victim.worker_id} did not come again: see {self._stack.log_dir}")
            await asyncio.sleep(TICK_S)
        seconds = time.monotonic() - began
        self._tell(f"Spark has run it again: {victim.worker_id} works after {seconds:.2f} s")
        return victim.worker_id, seconds


def _some_work(airline: str) -> list[AirlineWork]:
    return airline_work(airline)[:_TASKS_EACH]


async def _submit(client: AsyncBrokerClient, work: list[AirlineWork]) -> list[int]:
    submitted = await client.submit_many(NewTask(TASK_TYPE, one.payload()) for one in work)
    return list(submitted.task_ids)


def _statement(folder: Path) -> dict[str, Any]:
    """Return a statement that counts the airlines' flights in the CSV, which is unpacked into a folder for Spark."""
    with zipfile.ZipFile(data_file()) as archive:
        path = archive.extract("flights.csv", folder)
    with Path(path).open(encoding="utf-8") as file:
        carrier = f"_c{next(csv.reader(file)).index('carrier')}"
    text = f"SELECT {carrier}, count(*) FROM csv.`{path}` WHERE {carrier} IN (:one, :other) GROUP BY 1 ORDER BY 1"  # noqa: S608 - our own names
    return {"sql": text, "args": {"one": AIRLINES[0], "other": AIRLINES[1]}}


def _flights() -> list[list[Any]]:
    counts = Counter(airline for airline, *_ in airline_flights(AIRLINES))
    return [[airline, counts[airline]] for airline in sorted(counts)]


async def _is_equal(client: AsyncBrokerClient, ids: list[int], work: list[AirlineWork]) -> bool:
    """Return whether the tasks' results add up to the CSV."""
    room = asyncio.Semaphore(_READERS)

    async def result(task_id: int) -> bytes:
        async with room:
            return await client.result(task_id)

    results = await asyncio.gather(*(result(task_id) for task_id in ids))
    wanted = Counter(work)
    delays = await asyncio.to_thread(
        lambda: [delay for *one, delay in airline_flights((work[0].airline,)) if AirlineWork(*one) in wanted]
    )
    return account(results) == (len(delays), sum(delays))


def _is_ok(outcome: PoolOutcome) -> bool:
    wanted = _WEIGHTS[AIRLINES[1]] / _WEIGHTS[AIRLINES[0]]
    return (
        abs(outcome.ratio / wanted - 1) <= _SHARE_TOLERANCE
        and outcome.workers_max > 1
        and not outcome.never_ran
        and outcome.results_equal
        and outcome.statement is not None
        and outcome.drained
    )
