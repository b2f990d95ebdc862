"""What Spark writes rows to, ours and others', for benches: servers that run while they are measured.

Ours are a leader and a follower each, or a gateway, on three bookies (3/3/2, fsync before every answer). Delta is a
table on the local disk, which nobody syncs; PostgreSQL a primary and a synchronous standby, written by JDBC in
`foreachBatch`, with `reWriteBatchedInserts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ledger.dev import DevCluster
from rsm_spark.gateway_client.blocking import BlockingLogGatewayClient
from rsm_spark.sql import SqlClient
from tests.bench.cpu import tree_cpu_s
from tests.bench.nats_peer import PeerMissingError
from tests.bench.spark_reads import spark_cpu_s
from tests.bench.sql_peers import PostgresPeer
from tests.integration.broker_processes import brokers
from tests.integration.store_processes import STORE, StoreProcess
from tests.spark.log_gateways import LogGatewayProcess

__all__ = ["COLUMNS", "DELTA", "JDBC", "KINDS", "ROW", "Rows", "SinkPlace", "SinkRound", "SinkSite", "pgjdbc_jar"]

KINDS: Final = ("log", "map", "table", "tasks", "commands")
DELTA: Final = "delta"
JDBC: Final = "jdbc"
ROW: Final = ("id", "concat('key-', lpad(id, 12, '0')) key", "substr(sha2(string(id), 512), 1, 84) value")
"""100 bytes of key and value that do not compress below a half."""
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "log": ("key", "value payload"),
    "map": ("key", "value"),
    "table": ("id", "concat(key, value) v"),
    "tasks": ("concat('tenant-', id % 3) tenant", "'bench' type", "concat(key, value) payload"),
    "commands": ("'deposit' method", "to_json(named_struct('name', concat(key, value), 'amount', 1)) arguments"),
    DELTA: ("key", "value"),
    JDBC: ("id", "concat(key, value) v"),
}
"""Of each kind, made of the columns of `Rows`."""
_FILE_COUNT: Final = 8
_FILES_PER_BATCH: Final = 4
_TABLE: Final = "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)"
_POM: Final = Path(__file__).parent.parent / "compat" / "java" / "pgjdbc" / "pom.xml"
_QUERY_S_MAX: Final = 1_200
_REPLICAS: Final = {
    "map": STORE,
    "table": ("rsm_spark", "sql", "serve"),
    "commands": ("rsm_spark", "serve", "examples.bank:Bank"),
}


class SinkPlace(NamedTuple):
    """What a query writes to.

    Attributes:
        kind: One of `COLUMNS`.
        writer: Of a stream's frame; checkpoint and trigger are missing.
        used_s: Processor seconds of all servers so far.
        batch: Format and options by which a batch is written.

    """

    kind: str
    writer: Callable[[DataFrame], DataStreamWriter]
    used_s: Callable[[], float]
    batch: tuple[str, Mapping[str, str]]


class SinkRound(NamedTuple):
    """One query.

    Attributes:
        rows_per_s: By the time of its micro-batches.
        spark_cpu_us: Of the JVM and its Python workers, a row; the start of the query included.
        server_cpu_us: Of all servers, a row.

    """

    rows_per_s: float
    spark_cpu_us: float
    server_cpu_us: float


class Rows:
    """Parquet files that queries read.

    Args:
        spark: Session.
        folder: For the files, empty.

    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def written(self, first: int, count: int) -> Path:
        """Return a folder that has so many rows, in files of two micro-batches."""
        place = self._folder / f"{first}-{count}"
        if not place.exists():
            rows = self._spark.range(first, first + count, 1, _FILE_COUNT)
            rows.selectExpr(*ROW).write.parquet(str(place))
        return place

    def measure(self, place: SinkPlace, first: int, count: int, checkpoint: Path) -> SinkRound:
        """Write rows by a stream of its own until there are no more."""
        files = self.written(first, count)
        schema = self._spark.read.parquet(str(files)).schema
        frame = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", _FILES_PER_BATCH)
        selected = frame.parquet(str(files)).selectExpr(*COLUMNS[place.kind])
        before = spark_cpu_s(self._spark), place.used_s()
        query = place.writer(selected).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        await_end(query)
        used = spark_cpu_s(self._spark) - before[0], place.used_s() - before[1]
        batches = [one for one in query.recentProgress if one.numInputRows]
        assert sum(one.numInputRows for one in batches) == count, "all rows, each once"
        took_ms = sum(one.durationMs["triggerExecution"] for one in batches)
        return SinkRound(count / took_ms * 1e3, used[0] / count * 1e6, used[1] / count * 1e6)


def await_end(query: StreamingQuery) -> None:
    """Wait until a query has ended by itself; it is stopped if that takes too long."""
    if not query.awaitTermination(_QUERY_S_MAX):
        query.stop()
        raise TimeoutError(f"a query has not ended within {_QUERY_S_MAX} s: {query.lastProgress}")


class SinkSite:
    """Servers of all kinds, each started anew for whoever measures it.

    Args:
        cluster: Bookies and metadata store.
        folder: For their disks.
        jar: pgjdbc; None = there is none.

    """

    def __init__(self, cluster: DevCluster, folder: Path, jar: Path | None) -> None:
        self._cluster, self._folder, self._jar = cluster, folder, jar
        self._numbers = itertools.count()

    def running(self, kind: str) -> contextlib.AbstractContextManager[SinkPlace]:
        """Run the servers of a kind, on empty folders.

        Raises:
            PeerMissingError: It cannot be had on this machine.

        """
        name = f"sink-{kind}-{next(self._numbers)}"
        folder = self._folder / name
        if kind == DELTA:
            return self._delta(folder)
        if kind == JDBC:
            return self._jdbc(folder)
        folder.mkdir()
        made = {"log": self._log, "tasks": self._tasks}.get(kind) or partial(self._replicas, kind)
        return made(name, folder)

    def _ours(self, kind: str, log: str, pids: Sequence[int], **more: str) -> SinkPlace:
        options = {"log": log, "as": kind, **more}
        if kind != "log":
            options["metadataUri"] = self._cluster.metadata_uri

        def used_s() -> float:
            bookies = [pid for process, pid in self._cluster.pids().items() if process.startswith("bookie")]
            return sum(map(tree_cpu_s, [*pids, *bookies]))

        def writer(frame: DataFrame) -> DataStreamWriter:
            # Each query has a name of its own, as jobs have.
            named = {**options, "writer": f"bench-{next(self._numbers)}"}
            return frame.writeStream.format("ledger").options(**named)

        return SinkPlace(kind, writer, used_s, ("ledger", options))

    @contextlib.contextmanager
    def _replicas(self, kind: str, name: str, folder: Path) -> Iterator[SinkPlace]:
        started: list[StoreProcess] = []
        try:
            for replica in ("a", "b"):
                started.append(
                    StoreProcess(
                        self._cluster.metadata_uri, name, folder, replica, "--bookies", "3/3/2", command=_REPLICAS[kind]
                    )
                )
            if kind == "table":
                asyncio.run(_execute(name, self._cluster.metadata_uri, _TABLE))
            more = {"table": "t"} if kind == "table" else {}
            yield self._ours(kind, name, [one.process.pid for one in started], **more)
        finally:
            for one in started:
                one.kill()

    @contextlib.contextmanager
    def _tasks(self, name: str, folder: Path) -> Iterator[SinkPlace]:
        options = ("--metadata-uri", self._cluster.metadata_uri, "--log", name, "--bookies", "3/3/2")
        with brokers(folder, "a", "b", options=options) as started:
            yield self._ours("tasks", name, [one.process.pid for one in started])

    @contextlib.contextmanager
    def _log(self, name: str, _folder: Path) -> Iterator[SinkPlace]:
        gateway = LogGatewayProcess(self._cluster.metadata_uri)
        try:
            with BlockingLogGatewayClient.connect([gateway.url]) as client:
                client.create(name)
            yield self._ours("log", name, [gateway.process.pid], gateway=gateway.url)
        finally:
            gateway.kill()

    @contextlib.contextmanager
    def _delta(self, folder: Path) -> Iterator[SinkPlace]:
        path = str(folder / "table")
        yield SinkPlace(
            DELTA,
            lambda frame: frame.writeStream.format("delta").option("path", path),
            lambda: 0.0,
            ("delta", {"path": path}),
        )

    @contextlib.contextmanager
    def _jdbc(self, folder: Path) -> Iterator[SinkPlace]:
        if self._jar is None:
            raise PeerMissingError("there is no pgjdbc: Maven is needed once")
        peer = PostgresPeer(folder)
        with peer.running():
            with psycopg.connect(peer.source, dbname="postgres", autocommit=True) as asked:
                asked.execute(_TABLE)
            where = dict(part.split("=", 1) for part in peer.source.split())
            options = {
                "url": f"jdbc:postgresql://{where['host']}:{where['port']}/postgres?reWriteBatchedInserts=true",
                "user": where["user"],
                "driver": "org.postgresql.Driver",
                "dbtable": "t",
            }

            def append(frame: DataFrame, _batch: int) -> None:
                frame.write.format("jdbc").options(**options).mode("append").save()

            yield SinkPlace(JDBC, lambda frame: frame.writeStream.foreachBatch(append), peer.used_s, ("jdbc", options))


async def _execute(log: str, metadata_uri: str, sql: str) -> None:
    async with await SqlClient.connect(log, metadata_uri) as client:
        await client.execute(sql)


def pgjdbc_jar(folder: Path) -> Path | None:
    """Return the JAR of PostgreSQL's driver, as Maven has it; None = it cannot be had here.

    Args:
        folder: For a file of a moment.

    """
    maven = shutil.which("mvn")
    if maven is None:
        return None
    found = folder / f"class-path-{time.monotonic_ns()}"
    command = [maven, "-q", "-B", "-f", str(_POM), "dependency:build-classpath", f"-Dmdep.outputFile={found}"]
    got = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if got.returncode != 0:
        return None
    jars = [Path(jar) for jar in found.read_text().strip().split(":") if "/org/postgresql/" in jar]
    return jars[0] if jars else None
