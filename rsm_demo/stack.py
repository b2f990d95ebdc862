"""The processes of the demonstration: bookies, replicas, loader, follower, materializer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from rsm_spark.errors import RsmError
from rsm_spark.log.key_file import new_key, write_key_file

LOG = "flights"
TASK_LOG = "airline-tasks"
PASSENGER_LOG = "passengers"
SQL_LOG = "flights-sql"
FORKED_LOG = "flights-forked"
BROKERS = ("b1", "b2")
WORKERS = ("w1", "w2", "w3")
WORKER_THREADS = 4
_REPLICAS = ("r1", "r2", "r3")
_READY_S = 300.0
_MATERIALIZE = Path(__file__).resolve().parent.parent / "jobs" / "materialize.py"


class Stack:
    """Everything that runs. A killed replica or bookie is started again on its own data.

    Args:
        work_dir: Data and logs; made by the caller.
        metadata_uri: An existing cluster, which is left alone; None starts one of three bookies.

    """

    def __init__(self, work_dir: Path, *, metadata_uri: str | None) -> None:
        self.work_dir = work_dir
        self.log_dir = work_dir / "logs"
        self.table = work_dir / "delta" / LOG
        self.replicas: dict[str, Child] = {}
        self.brokers: dict[str, Child] = {}
        self.passengers: dict[str, Child] = {}
        self.forked: list[Child] = []
        self.tables: list[Child] = []
        self.workers: list[Child] = []
        self.runs = work_dir / "runs"
        self.cluster: DevCluster | None = None if metadata_uri else DevCluster(work_dir / "cluster")
        self._metadata_uri = metadata_uri
        self._others: list[Child] = []
        self._log_key = work_dir / "keys" / "log.key"

    @property
    def metadata_uri(self) -> str:
        """Address of the metadata store."""
        if self._metadata_uri is not None:
            return self._metadata_uri
        assert self.cluster is not None
        return self.cluster.metadata_uri

    async def start(self) -> None:
        """Start bookies (unless they exist) and replicas; return when a replica can be asked."""
        self.log_dir.mkdir(parents=True, exist_ok=True)
        if not self._log_key.exists():
            write_key_file(self._log_key, [new_key()], replace=False)
        if self.cluster is not None:
            await asyncio.to_thread(self.cluster.start)
        await asyncio.gather(*(self.start_replica(name) for name in _REPLICAS))

    async def start_replica(self, name: str) -> None:
        """Start a replica on its own data; return when it serves."""
        self.replicas[name] = await self._start_replica_of(LOG, name, ["store", "run"], "replicas")

    async def start_passengers(self, name: str, release: str) -> None:
        """Start a replica of a service of one's own, of this release, on its own data; return when it serves."""
        serve = ["serve", f"rsm_demo.passengers:{release}"]
        self.passengers[name] = await self._start_replica_of(PASSENGER_LOG, name, serve, "passengers")

    async def stop_passengers(self) -> None:
        """End those replicas; their data stay."""
        ended, self.passengers = self.passengers, {}
        await asyncio.gather(*(child.stop() for child in ended.values()))

    async def fork(self, revision: int) -> dict[str, Any]:
        """Fork the flights' log at a revision; return what the command says.

        Raises:
            ChildFailedError: It failed.

        """
        command = [sys.executable, "-P", "-m", "rsm_spark", "log", "fork", LOG, "--as", FORKED_LOG, "--json"]
        command += ["--metadata-uri", self.metadata_uri, "--log-key", str(self._log_key), "--bookies", "3/3/2"]
        child = await Child.start("fork", [*command, "--at-revision", str(revision)], log_dir=self.log_dir)
        try:
            await child.until(lambda said: "revision" in said, timeout_s=_READY_S, what="forking the log")
        finally:
            await child.stop()
        return child.said

    async def start_forked(self) -> None:
        """Start a replica of the fork; return when it serves."""
        self.forked.append(await self._start_replica_of(FORKED_LOG, "f1", ["store", "run"], "forked"))

    async def stop_forked(self) -> None:
        """End it; its data stay."""
        ended, self.forked = self.forked, []
        await asyncio.gather(*(child.stop() for child in ended))

    async def start_tables(self) -> list[str]:
        """Start two replicas of SQL tables; return the addresses of their ports for PostgreSQL's clients."""
        serve, options = ["sql", "serve"], ("--pg-port", "0", "--read-s-max", "300")
        self.tables += await asyncio.gather(
            *(self._start_replica_of(SQL_LOG, name, serve, "tables", *options) for name in ("s1", "s2"))
        )
        return [str(child.said["pg_address"]) for child in self.tables]

    async def stop_tables(self) -> None:
        """End them; their data stay."""
        ended, self.tables = self.tables, []
        await asyncio.gather(*(child.stop() for child in ended))

    async def _start_replica_of(self, log: str, name: str, what: list[str], folder: str, *more: str) -> Child:
        command = [sys.executable, "-P", "-m", "rsm_spark", *what, "--json", "--log", log, "--port", "0", *more]
        command += ["--metadata-uri", self.metadata_uri, "--replica-id", name, "--bookies", "3/3/2"]
        command += ["--data-dir", str(self.work_dir / folder / name), "--log-key", str(self._log_key)]
        child = await Child.start(name, command, log_dir=self.log_dir)
        try:
            await child.until(lambda said: said.get("ready"), timeout_s=_READY_S, what="serving")
        except BaseException:
            await child.stop()
            raise
        return child

    async def start_loader(self, *, client_count: int, limit: int | None) -> Child:
        """Start the loader; it waits to be told to go."""
        command = [sys.executable, "-P", "-m", "rsm_demo.loader", self.metadata_uri, LOG, str(client_count)]
        return await self._start_other("loader", command + ([str(limit)] if limit else []))

    async def start_follower(self) -> Child:
        """Start the Python follower, which tails the log from its first record."""
        return await self._start_other(
            "follower", [sys.executable, "-P", "-m", "rsm_demo.follower", self.metadata_uri, LOG]
        )

    async def start_materializer(self) -> Child:
        """Start the Spark job that keeps a Delta table equal to the map."""
        if not _MATERIALIZE.exists():
            raise RsmError(f"{_MATERIALIZE} is missing: the demonstration runs from a checkout of rsm-spark")
        command = [sys.executable, str(_MATERIALIZE), "--log", LOG, "--table", str(self.table)]
        command += ["--metadata-uri", self.metadata_uri, "--checkpoint", str(self.work_dir / "checkpoint")]
        return await self._start_other("materialize", [*command, "--trigger", "1s"])

    async def start_broker(self, name: str) -> None:
        """Start a task broker on its own data; return when it serves."""
        broker = ["broker", "run"]
        self.brokers[name] = await self._start_replica_of(TASK_LOG, name, broker, "brokers", "--http-port", "0")

    async def start_workers(self) -> None:
        """Start the workers; return when each has a broker."""
        self.runs.mkdir(exist_ok=True)
        for name in WORKERS:
            command = [sys.executable, "-P", "-m", "rsm_spark", "worker", "run", "--json", "--log", TASK_LOG]
            command += ["--metadata-uri", self.metadata_uri, "--worker-id", name, "--threads", str(WORKER_THREADS)]
            command += ["--executor", "asyncio", "--tasks", "rsm_demo.airline_tasks"]
            environment = {"RSM_DEMO_RUNS": str(self.runs)}
            child = await Child.start(name, command, log_dir=self.log_dir, environment=environment)
            self.workers.append(child)
            await child.until(lambda said: said.get("ready"), timeout_s=_READY_S, what="having a broker")

    @property
    def services(self) -> list[Child]:
        """Replicas, brokers and workers."""
        replicas = [*self.replicas.values(), *self.passengers.values(), *self.forked, *self.tables]
        return [*replicas, *self.brokers.values(), *self.workers]

    async def stop_readers(self) -> None:
        """End the loader, the follower and Spark; what they made stays."""
        readers, self._others = self._others, []
        await asyncio.gather(*(child.stop() for child in readers))

    async def stop(self, *, keep_services: bool = False) -> None:
        """End every process that was started here, but for the services if they are kept; the data stay."""
        children = self._others if keep_services else [*self._others, *self.services]
        await asyncio.gather(*(child.stop() for child in children), return_exceptions=True)
        if self.cluster is not None and not keep_services and self.cluster.pids():
            await asyncio.to_thread(self.cluster.stop)

    async def _start_other(self, name: str, command: list[str]) -> Child:
        child = await Child.start(name, command, log_dir=self.log_dir)
        self._others.append(child)
        return child
