"""Runs the demonstration: load, break things, wait for everybody, compare."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from rsm_demo.child import Child, ChildFailedError
from rsm_demo.flights import data_file
from rsm_demo.fork_act import ForkAct, ForkedState
from rsm_demo.lake_act import LakeAct, LakeOutcome
from rsm_demo.pool_act import PoolAct, PoolOutcome
from rsm_demo.schedule import Blow, Schedule
from rsm_demo.screen import Screen
from rsm_demo.sql_answer import SqlAnswer, from_sql
from rsm_demo.stack import LOG, SQL_LOG, Stack
from rsm_demo.task_act import TaskAct, TaskOutcome
from rsm_demo.totals_act import TotalsAct, TotalsOutcome
from rsm_demo.upgrade_act import UpgradeAct, UpgradeOutcome
from rsm_demo.verdict import Answers, RowDifference, compare

_TICK_S = 0.2
# A machine that is busy with other work is slow: these only end what hangs.
_READ_S_MAX = 300.0
_LOAD_S_MAX = 600.0
_FAILOVER_S_MAX = 300.0
_SPARK_START_S_MAX = 300.0
_CATCH_UP_S_MAX = 300.0
_RATE_WINDOW_S = 2.0
_KILLED_BOOKIE = 2


class Act(StrEnum):
    """Acts of the demonstration, in their order: each needs what the ones before it have left."""

    LOAD = "load"
    TOTALS = "totals"
    LAKE = "lake"
    UPGRADE = "upgrade"
    FORK = "fork"
    TASKS = "tasks"
    POOL = "pool"


class DemoOutcome(msgspec.Struct):
    """Last JSON line of the demonstration; `ok` only if everything that was checked holds."""

    ok: bool
    records: int
    keys: int
    clients: int
    seconds: float
    records_per_s: float
    failover_s: list[float]
    acked_lost: int
    applied_twice: int
    delta_rows: int
    digests_equal: bool
    answers_equal: bool
    catch_up_s: dict[str, float]
    differences: list[str]
    events: list[str]
    sql_load_s: float
    totals: TotalsOutcome | None = None
    lake: LakeOutcome | None = None
    upgrade: UpgradeOutcome | None = None
    fork: ForkedState | None = None
    tasks: TaskOutcome | None = None
    pool: PoolOutcome | None = None


class Conductor:
    """One run.

    Args:
        stack: The processes.
        screen: Where to show it.
        client_count: Clients that load side by side.
        limit: Only the first flights.
        sabotage: "delta-row" changes one row of the Delta table before the comparison, which must find it.
        last_act: The acts behind it are left out.

    """

    def __init__(
        self,
        stack: Stack,
        screen: Screen,
        *,
        client_count: int,
        limit: int | None,
        sabotage: str | None,
        last_act: Act = Act.POOL,
    ) -> None:
        self._stack = stack
        self._screen = screen
        self._client_count = client_count
        self._limit = limit
        self._sabotage = sabotage
        self._last_act = last_act
        self._events: list[str] = []
        self._rates: list[tuple[float, int]] = []
        self._repairs: list[asyncio.Task[None]] = []
        self.answers: Answers | None = None
        # Of the sources that keep the airlines of an aircraft.
        self._accounts: dict[str, dict[str, Any]] = {}

    async def run(self) -> DemoOutcome:
        """Run to the end; the processes are left to the caller."""
        self._tell("starting ZooKeeper, bookies and three replicas" if self._stack.cluster else "starting replicas")
        await self._stack.start()
        follower = await self._stack.start_follower()
        spark = await self._stack.start_materializer()
        loader = await self._stack.start_loader(client_count=self._client_count, limit=self._limit)
        self._tell("starting Spark")
        await loader.until(lambda said: said.get("ready"), timeout_s=_READ_S_MAX, what="reading the flights")
        await spark.until(lambda said: "revision" in said, timeout_s=_SPARK_START_S_MAX, what="starting Spark")
        self._screen.view.total_count = loader.said["total"]

        self._tell(f"{self._client_count} clients begin to load {loader.said['total']:,} flights")
        began = time.monotonic()
        await self._load(loader, follower, spark)
        seconds = time.monotonic() - began
        catch_up_s = await self._catch_up(follower, spark, loader.said["revision"])
        outcome = await self._judge(loader, follower, seconds, catch_up_s)
        await self._stack.stop_readers()  # Spark would take the cores that the others are to share.
        if self._reaches(Act.TOTALS):
            outcome.totals = await TotalsAct(self._stack, self._tell).run(self._accounts)
        if self._reaches(Act.LAKE):
            outcome.lake = await LakeAct(self._stack, self._tell).run(loader.said["revision"])
        if self._reaches(Act.UPGRADE):
            outcome.upgrade = await UpgradeAct(self._stack, self._tell).run()
        if self._reaches(Act.FORK):
            outcome.fork = await ForkAct(self._stack, self._tell).run(loader.said["revision"])
        if self._reaches(Act.TASKS):
            outcome.tasks = await TaskAct(self._stack, self._screen, self._tell).run()
        if self._reaches(Act.POOL):
            outcome.pool = await PoolAct(self._stack, self._screen, self._tell).run()
        acts = (outcome.totals, outcome.lake, outcome.upgrade, outcome.fork, outcome.tasks, outcome.pool)
        outcome.ok = outcome.ok and all(act is None or act.ok for act in acts)
        return outcome

    def _reaches(self, act: Act) -> bool:
        acts = list(Act)
        return acts.index(act) <= acts.index(self._last_act)

    async def _load(self, loader: Child, follower: Child, spark: Child) -> None:
        schedule = Schedule(with_bookies=self._stack.cluster is not None)
        deadline = time.monotonic() + _LOAD_S_MAX
        await self._allow(schedule, loader)
        while not loader.said.get("done"):
            if not loader.is_running or time.monotonic() > deadline:
                await loader.until(lambda said: said.get("done"), timeout_s=1, what="loading")
            for child in (follower, spark):
                if not child.is_running:
                    raise ChildFailedError(f"{child.name} ended during the load: see {self._stack.log_dir}")
            self._look(loader, follower, spark)
            blow = schedule.due(loader.said.get("acked", 0) / max(1, loader.said["total"]), self._has_leader(loader))
            if blow is not None:
                await self._strike(blow, loader)
                await self._allow(schedule, loader)
            await asyncio.sleep(_TICK_S)
        self._look(loader, follower, spark)
        await asyncio.gather(*self._repairs)
        self._tell(f"all {loader.said['acked']:,} flights are acknowledged")
        if schedule.left:
            raise ChildFailedError(f"the load ended before {schedule.left}: nothing was proven")

    def _has_leader(self, loader: Child) -> bool:
        """Return whether one leads that can be killed: a second kill too early would hide the first fail-over."""
        return all(_is_done(repair) for repair in self._repairs) and bool(loader.said.get("leader"))

    async def _allow(self, schedule: Schedule, loader: Child) -> None:
        """Let the load run up to the next strike, and a bit beyond: each strike shall meet a load."""
        await loader.tell({"up_to": schedule.ceiling * loader.said["total"]})

    async def _strike(self, blow: Blow, loader: Child) -> None:
        cluster = self._stack.cluster
        if blow is Blow.KILL_LEADER:
            name = loader.said.get("leader", "")
            child = self._stack.replicas[name]
            child.kill()
            await loader.tell({"killed_at": time.monotonic()})
            self._tell(f"kill -9 of the leader, {name}")
            self._repairs.append(asyncio.get_running_loop().create_task(self._bring_back(name, loader)))
        elif blow is Blow.KILL_BOOKIE and cluster is not None:
            cluster.kill_bookie(_KILLED_BOOKIE)
            self._tell(f"kill -9 of bookie {cluster.bookies[_KILLED_BOOKIE]}")
        elif blow is Blow.RETURN_BOOKIE and cluster is not None:
            await asyncio.to_thread(cluster.start_bookie, _KILLED_BOOKIE)
            self._tell(f"bookie {cluster.bookies[_KILLED_BOOKIE]} is back")

    async def _bring_back(self, name: str, loader: Child) -> None:
        """Start the killed replica again once somebody else leads."""
        failovers = len(loader.said.get("failover_s", ()))
        await loader.until(
            lambda said: len(said.get("failover_s", ())) > failovers, timeout_s=_FAILOVER_S_MAX, what="a new leader"
        )
        self._tell(f"{loader.said['leader']} leads after {loader.said['failover_s'][-1]:.2f} s")
        await self._stack.replicas[name].stop()
        await self._stack.start_replica(name)
        self._tell(f"{name} is back, as a follower")

    async def _catch_up(self, follower: Child, spark: Child, revision: int) -> dict[str, float]:
        began = time.monotonic()
        self._tell(f"waiting for the followers to reach revision {revision:,}")
        await follower.tell({"until": revision})
        await follower.until(lambda said: "rows" in said, timeout_s=_CATCH_UP_S_MAX, what=f"revision {revision}")
        follower_s = time.monotonic() - began
        await spark.until(
            lambda said: said.get("revision", 0) >= revision, timeout_s=_CATCH_UP_S_MAX, what=f"revision {revision}"
        )
        return {"follower": round(follower_s, 2), "delta": round(time.monotonic() - began, 2)}

    async def _judge(self, loader: Child, follower: Child, seconds: float, catch_up_s: dict[str, float]) -> DemoOutcome:
        from rsm_demo import answers  # noqa: PLC0415  (pyarrow and deltalake are only needed at the end)

        tables = await self._from_tables()
        self._tell("asking the leader, the follower, the Delta table, the SQL table and the CSV")
        if self._sabotage == "delta-row":
            self._tell(f"sabotage: row {await asyncio.to_thread(answers.damage_a_row, self._stack.table)} of the table")
        leader = await answers.from_leader(self._stack.metadata_uri, LOG)
        delta = await asyncio.to_thread(answers.from_delta, self._stack.table)
        plain = await self._plain_count()
        self._accounts = {"map": leader.rows, "Delta": delta.rows, "CSV": plain}
        self.answers = Answers.of(
            {
                "leader": leader.rows,
                "follower": follower.said["rows"],
                "Delta": delta.rows,
                "SQL": tables.rows,
                "CSV": plain,
            }
        )
        differences = compare(self.answers)
        digests = {leader.map_digest, follower.said["map_digest"], delta.map_digest}
        acked_lost = _acked_lost(loader.said["acked_by_tail"], leader.rows)
        applied_twice = follower.said["applied_twice"]
        return DemoOutcome(
            ok=not differences and len(digests) == 1 and acked_lost == 0 and applied_twice == 0,
            records=loader.said["acked"],
            keys=len(plain),
            clients=self._client_count,
            seconds=round(seconds, 2),
            records_per_s=round(loader.said["acked"] / seconds, 1),
            failover_s=[round(value, 2) for value in loader.said.get("failover_s", ())],
            acked_lost=acked_lost,
            applied_twice=applied_twice,
            delta_rows=len(delta.rows),
            digests_equal=len(digests) == 1,
            answers_equal=not differences,
            catch_up_s=catch_up_s,
            differences=_shown(differences),
            events=self._events,
            sql_load_s=tables.seconds,
        )

    async def _from_tables(self) -> SqlAnswer:
        """Load the flights into an SQL table over PostgreSQL's port, and ask it."""
        self._tell("loading the flights into an SQL table, over PostgreSQL's port")
        places = await self._stack.start_tables()
        try:
            found = await from_sql(places, SQL_LOG, self._limit)
        finally:
            await self._stack.stop_tables()
        self._tell(f"{found.loaded:,} rows are in the SQL table after {found.seconds:.1f} s; the other replica answers")
        return found

    async def _plain_count(self) -> dict[str, Any]:
        script = Path(__file__).with_name("plain_count.py")
        arguments = [str(data_file()), *([str(self._limit)] if self._limit else [])]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(script), *arguments, stdout=asyncio.subprocess.PIPE
        )
        text, _ = await process.communicate()
        if process.returncode:
            raise ChildFailedError(f"the plain count of {data_file()} failed with exit code {process.returncode}")
        return json.loads(text)  # type: ignore[no-any-return]

    def _look(self, loader: Child, follower: Child, spark: Child) -> None:
        view, said, now = self._screen.view, loader.said, time.monotonic()
        self._rates.append((now, said.get("acked", 0)))
        while len(self._rates) > 1 and now - self._rates[0][0] > _RATE_WINDOW_S:
            self._rates.pop(0)
        (first_s, first_count), (last_s, last_count) = self._rates[0], self._rates[-1]
        view.puts_per_s = (last_count - first_count) / max(last_s - first_s, _TICK_S)
        view.acked_count = said.get("acked", 0)
        view.leader, view.leader_epoch = said.get("leader"), said.get("epoch", 0)
        view.revision = said.get("revision", 0)
        view.follower_lag = max(0, view.revision - follower.said.get("revision", 0))
        view.spark_lag = max(0, view.revision - spark.said.get("read_revision", 0))
        view.delta_lag = max(0, view.revision - spark.said.get("revision", 0))
        if self._stack.cluster is not None:
            running = self._stack.cluster.pids()
            view.bookies = {
                address: f"bookie-{number + 1}" in running for number, address in enumerate(self._stack.cluster.bookies)
            }
        self._screen.refresh()

    def _tell(self, text: str) -> None:
        self._events.append(f"{self._screen.elapsed_s:.1f} s: {text}")
        self._screen.event(text)


def _is_done(repair: asyncio.Task[None]) -> bool:
    """Return whether a repair has ended; what it raised is raised here."""
    return repair.done() and repair.result() is None


def _acked_lost(acked_by_tail: dict[str, int], rows: dict[str, Any]) -> int:
    """Return how many acknowledged flights the leader's accounts lack."""
    return sum(max(0, count - (rows[tail][1] if tail in rows else 0)) for tail, count in acked_by_tail.items())


def _shown(differences: list[RowDifference]) -> list[str]:
    most = 5
    shown = [str(difference) for difference in differences[:most]]
    return shown + ([f"and {len(differences) - most} more"] if len(differences) > most else [])
