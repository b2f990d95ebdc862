"""`python -P -m tests.bench.bench_sql_large`: SQL tables that are much larger than the memory of their replicas.

Two replicas, each in a memory cgroup of its own, on one bookie (1/1/1). One table with an index, of rows of 8 KB, is
filled by COPY over PostgreSQL's port until it has `RSM_SQL_GB` (1). Meanwhile a client updates a small table on the
leader, and another one reads large rows by their key. Then, one after the other:

* the lake: a snapshot and typed tables of all rows
* a failover: SIGKILL of the leader, until the other one answers an update
* a new follower, whose disk is empty: from its start until it has all; its snapshot comes from the other replica
* all rows are summed up on both, and in the lake: the sums are the same

Each prints seconds, and the most memory that the replicas had meanwhile without the page cache (`_own_mib`). A process
that the system ends for want of memory ends the bench.

RSM_SQL_GB, RSM_SQL_MIB (of each cgroup, 1024), RSM_SQL_NOISE (share of each row that cannot be compressed, 0.05: a
snapshot on the disk is that much smaller than the tables), RSM_SQL_LAKE (0 = without a lake) and RSM_SQL_FOLDER (files,
else in the temporary folder).
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]
import pyarrow.compute as pc
from deltalake import DeltaTable

from ledger.dev import DevCluster
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from tests.bench.figure import percentile, print_figure, say
from tests.bench.memory_groups import MemoryGroup
from tests.integration.store_processes import Stores, stores

GB: Final = float(os.environ.get("RSM_SQL_GB", "1"))
LIMIT_MIB: Final = int(os.environ.get("RSM_SQL_MIB", "1024"))
NOISE: Final = float(os.environ.get("RSM_SQL_NOISE", "0.05"))
HAS_LAKE: Final = os.environ.get("RSM_SQL_LAKE", "1") != "0"
FOLDER: Final = os.environ.get("RSM_SQL_FOLDER")
ROW_BYTES: Final = 8_000
ROWS: Final = int(GB * 1e9) // ROW_BYTES
PART_ROWS: Final = 4_000
LOG: Final = "large"
_SERVE: Final = ("rsm_spark", "sql", "serve")
_OPTIONS: Final = (
    *("--pg-port", "0", "--bookies", "1/1/1", "--single-copy", "--trim-single-copy", "--retention-s", "0"),
    *("--trim-s", "5", "--verify-s", "5", "--snapshot-s", str(max(20, int(30 * GB)))),
)
_TABLES: Final = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER NOT NULL, v BLOB NOT NULL)",
    "CREATE INDEX t_k ON t (k)",
    "CREATE TABLE small (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)",
    "INSERT INTO small VALUES (1, 0)",
)
_SAMPLE_S: Final = 0.2
_PAUSE_S: Final = 0.05
_STEP_S_MAX: Final = 3_600.0


def value_of(number: int) -> bytes:
    """Return the large column of a row."""
    noise = random.Random(number).randbytes(int(ROW_BYTES * NOISE))
    return noise + b"v" * (ROW_BYTES - len(noise))


def key_of(number: int) -> int:
    """Return the indexed column of a row: neighbours lie far from each other."""
    return number * 2_654_435_761 % (1 << 32)


class MemoryWatcher(threading.Thread):
    """Notes the most memory that each group has had since it was asked last."""

    def __init__(self, groups: Mapping[str, MemoryGroup]) -> None:
        super().__init__(daemon=True)
        self._groups = groups
        self._most: dict[str, float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            for name, group in self._groups.items():
                with self._lock:
                    self._most[name] = max(self._most.get(name, 0.0), group.own_mib())

    def take(self) -> dict[str, float]:
        """Return it, and begin anew."""
        with self._lock:
            most, self._most = self._most, {}
        return most

    def stop(self) -> None:
        self._over.set()
        self.join()


class LargeSql:
    """The replicas, and what is measured on them."""

    def __init__(self, cluster: DevCluster, replicas: Stores, groups: Mapping[str, MemoryGroup], lake: Path) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._groups = groups
        self._lake_folder = lake
        self._lake = LakeSnapshots(lake_place(str(lake), LOG))
        self._memory = MemoryWatcher(groups)
        self._memory.start()

    def stop(self) -> None:
        self._memory.stop()

    def start(self, name: str) -> None:
        """Start a replica in its group."""
        self._replicas.prefixes[name] = self._groups[name].prefix
        lake = ("--lake-s", "10", "--lake", str(self._lake_folder)) if HAS_LAKE else ()
        self._replicas.start(name, *_OPTIONS, *lake, command=_SERVE)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        say(f"{name} …")
        self._memory.take()
        began_s = time.monotonic()
        yield
        took_s = time.monotonic() - began_s
        print_figure(f"sql_large_{name}_s", [took_s], "s")
        print_figure(f"sql_large_{name}_own_mib", [max(self._memory.take().values(), default=0.0)], "MiB")
        self._check_alive()

    def _check_alive(self) -> None:
        for name, group in self._groups.items():
            assert not group.ended_count(), f"the system has ended replica {name} for want of memory"
        for name, one in self._replicas.alive.items():
            assert one.process.poll() is None, f"replica {name} has ended: {one.errors()}"

    def _connected(self, name: str) -> Any:
        one = self._replicas.alive[name]
        host, _, port = str(one.ready["pg_address"]).rpartition(":")
        return asyncpg.connect(
            host=host, port=int(port), database=LOG, user="postgres", ssl=False, timeout=60, command_timeout=300
        )

    # ---- steps

    async def load(self, leader: str) -> int:
        """Fill the tables; return how often the small one was updated."""
        writer = await self._connected(leader)
        for sql in _TABLES:
            await writer.execute(sql)
        await writer.execute("SET rsm.copy = 'batches'")
        loaded = [0]
        updates: list[float] = []
        reads: list[float] = []
        beside = [
            asyncio.create_task(self._update(leader, updates)),
            asyncio.create_task(self._read(leader, loaded, reads)),
        ]
        began_s = time.monotonic()
        with self._step("load"):
            for first in range(1, ROWS + 1, PART_ROWS):
                part = range(first, min(first + PART_ROWS, ROWS + 1))
                rows = [(number, key_of(number), value_of(number)) for number in part]
                await writer.copy_records_to_table("t", records=rows, columns=("id", "k", "v"))
                loaded[0] = part[-1]
                self._check_alive()
                if first // PART_ROWS % 10 == 0:
                    say(f"  {part[-1] * ROW_BYTES / 1e9:.2f} GB, {part[-1] / (time.monotonic() - began_s):,.0f} rows/s")
        print_figure("sql_large_load_rows", [ROWS / (time.monotonic() - began_s)], "rows/s")
        for task in beside:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for name, latencies in (("update", updates), ("read", reads)):
            print_figure(f"sql_large_{name}_p50_ms", [percentile(latencies, 0.5) * 1000], "ms")
            print_figure(f"sql_large_{name}_max_ms", [max(latencies) * 1000], "ms")
        await writer.close()
        return len(updates)

    async def _update(self, name: str, latencies: list[float]) -> None:
        connection = await self._connected(name)
        while True:
            at = time.perf_counter()
            await connection.execute("UPDATE small SET n = n + 1 WHERE id = 1")
            latencies.append(time.perf_counter() - at)
            await asyncio.sleep(_PAUSE_S)

    async def _read(self, name: str, loaded: Sequence[int], latencies: list[float]) -> None:
        connection = await self._connected(name)
        rng = random.Random(1)
        while True:
            if loaded[0]:
                number = rng.randint(1, loaded[0])
                at = time.perf_counter()
                found = await connection.fetchval("SELECT v FROM t WHERE k = $1", str(key_of(number)))
                latencies.append(time.perf_counter() - at)
                assert found == value_of(number), number
            await asyncio.sleep(_PAUSE_S)

    async def wait_lake(self) -> None:
        """Wait until the lake has typed tables of all rows."""
        with self._step("lake"):
            deadline = time.monotonic() + _STEP_S_MAX
            while not any(one.table == "t" and one.rows == ROWS for one in self._lake.tables.versions()):
                assert time.monotonic() < deadline, "no typed tables of all rows in the lake"
                self._check_alive()
                await asyncio.sleep(0.5)

    async def fail_over(self, leader: str, survivor: str) -> None:
        """Kill the leader; wait until the other one answers an update. Its disk is lost."""
        connection = await self._connected(survivor)
        with self._step("failover"):
            self._replicas.gone(leader).kill()
            deadline = time.monotonic() + _STEP_S_MAX
            while True:
                try:
                    await connection.execute("UPDATE small SET n = n + 1 WHERE id = 1")
                    break
                except asyncpg.PostgresError:
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(0.01)
        await connection.close()
        shutil.rmtree(self._replicas.folder / leader)

    async def boot(self, name: str) -> None:
        """Start a replica whose disk is empty; wait until it has applied what the others have."""
        with self._step("new_follower"):
            self.start(name)
            revision = max([(await one.status())["revision"] for one in self._replicas.alive.values()])
            await self._replicas.agree(revision, timeout_s=_STEP_S_MAX)

    async def compare(self, updates: int) -> None:
        """Compare the sums of all replicas and of the lake."""
        wanted = (ROWS, sum(map(key_of, range(1, ROWS + 1))), ROWS * ROW_BYTES)
        with self._step("sums"):
            for name in self._replicas.alive:
                connection = await self._connected(name)
                await connection.execute("SET rsm.read = 'stale'")
                found = [0, 0, 0]
                for first in range(1, ROWS + 1, PART_ROWS):
                    sql = "SELECT count(*), sum(k), sum(length(v)) FROM t WHERE id BETWEEN {} AND {}"
                    row = await connection.fetchrow(sql.format(first, first + PART_ROWS - 1))
                    found = [before + int(more) for before, more in zip(found, row, strict=True)]
                assert tuple(found) == wanted, (name, found, wanted)
                assert int(await connection.fetchval("SELECT n FROM small")) >= updates, name
                await connection.close()
            if not HAS_LAKE:
                return
            version = next(one for one in self._lake.tables.versions() if one.table == "t" and one.rows == ROWS)
            table = DeltaTable(f"{self._lake.tables.place}/{version.path}", version=version.version)
            keys = table.to_pyarrow_table(columns=["k"])["k"]
            assert (len(keys), pc.sum(keys).as_py()) == wanted[:2]


async def _measure(bench: LargeSql, replicas: Stores) -> None:
    for name in ("a", "b"):
        bench.start(name)
    updates = await bench.load((await replicas.leader()).replica_id)
    if HAS_LAKE:
        await bench.wait_lake()
    leader = (await replicas.leader()).replica_id  # It may be another one since.
    (survivor,) = {"a", "b"} - {leader}
    await bench.fail_over(leader, survivor)
    await bench.boot("c")
    await bench.compare(updates)


def main() -> None:
    """Measure all steps once."""
    say(f"{ROWS:,} rows of {ROW_BYTES:,} bytes, {LIMIT_MIB:,} MiB for each replica")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sql-large-", dir=FOLDER)))
        groups = {name: MemoryGroup(name, LIMIT_MIB) for name in "abc"}
        for group in groups.values():
            stack.callback(group.remove)
        cluster = stack.enter_context(DevCluster(folder / "cluster", bookie_count=1, has_auto_recovery=False))
        replicas = stack.enter_context(stores(cluster.metadata_uri, LOG, folder))
        bench = LargeSql(cluster, replicas, groups, folder / "lake")
        try:
            asyncio.run(_measure(bench, replicas))
        finally:
            bench.stop()


if __name__ == "__main__":
    main()
