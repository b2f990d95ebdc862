"""Reads of SQL tables in the process of a replica, beside plain SQLite on the same rows, in turn.

    python -P -m tests.bench.bench_sql_embedded

A replica alone, two bookies and ZooKeeper on this machine; 100,000 rows; one thread. Figures are reads a second and
processor time of this process for one: by primary key (`read`), the same confirmed by the bookies (`query`), and a sum
over 1,000 rows. The peer is Python's sqlite3 on a file of the same rows, each read in a transaction of its own, as
`read` has it.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ledger.dev import DevCluster
from rsm_spark.sql.embedded import SqlReplica
from tests.bench.figure import ROUND_COUNT, print_figure, say

ROWS: Final = 100_000
POINTS: Final = 20_000
CONFIRMED: Final = 2_000
SUMS: Final = 300
POINT: Final = "SELECT v FROM t WHERE id = ?"
SUM: Final = "SELECT sum(n) FROM t WHERE id BETWEEN ? AND ? + 999"


def _timed(call: Callable[[int], Any], keys: list[int]) -> tuple[float, float]:
    """Return calls a second, and µs of this process's processor time for one."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for key in keys:
        call(key)
    return len(keys) / (time.perf_counter() - began_s), (time.process_time() - cpu_s) / len(keys) * 1e6


async def _confirmed(shop: SqlReplica, keys: list[int]) -> tuple[float, float]:
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for key in keys:
        await shop.query(POINT, (key,))
    return len(keys) / (time.perf_counter() - began_s), (time.process_time() - cpu_s) / len(keys) * 1e6


def _plain(folder: Path) -> sqlite3.Connection:
    path = folder / "plain.db"
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, v TEXT)")
        made.executemany("INSERT INTO t VALUES (?, ?, ?)", ((n, n, f"value {n}") for n in range(1, ROWS + 1)))
    return sqlite3.connect(path, isolation_level=None)


def _read_plain(plain: sqlite3.Connection, sql: str, *values: int) -> None:
    plain.execute("BEGIN")
    plain.execute(sql, values).fetchall()
    plain.execute("ROLLBACK")


async def _measure(cluster: DevCluster, folder: Path) -> None:
    async with await SqlReplica.open("shop", folder / "shop-a", cluster.metadata_uri) as shop:
        await shop.client.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, v TEXT)")
        for first in range(1, ROWS + 1, 5_000):
            numbers = f"WITH RECURSIVE k(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM k LIMIT 5000)"  # noqa: S608
            await shop.client.execute(f"INSERT INTO t {numbers} SELECT i, i, 'value ' || i FROM k")  # noqa: S608
        plain, rng = _plain(folder), random.Random(1)
        figures: dict[str, list[tuple[float, float]]] = {}

        def note(name: str, found: tuple[float, float]) -> None:
            figures.setdefault(name, []).append(found)

        for number in range(ROUND_COUNT):
            say(f"round {number + 1} of {ROUND_COUNT}")
            keys = [rng.randint(1, ROWS - 1_000) for _ in range(POINTS)]
            note("point", _timed(lambda key: shop.read(POINT, (key,)), keys))
            note("point_peer", _timed(lambda key: _read_plain(plain, POINT, key), keys))
            note("confirmed", await _confirmed(shop, keys[:CONFIRMED]))
            note("sum", _timed(lambda key: shop.read(SUM, (key, key)), keys[:SUMS]))
            note("sum_peer", _timed(lambda key: _read_plain(plain, SUM, key, key), keys[:SUMS]))
        for name in ("point", "confirmed", "sum"):
            peer = figures.get(f"{name}_peer", [])
            print_figure(f"sql_embedded_{name}", [one[0] for one in figures[name]], "reads/s", [one[0] for one in peer])
            print_figure(f"sql_embedded_{name}_cpu", [one[1] for one in figures[name]], "us", [one[1] for one in peer])


def main() -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as name, DevCluster(Path(name) / "cluster", bookie_count=2) as cluster:
        asyncio.run(_measure(cluster, Path(name)))


if __name__ == "__main__":
    main()
