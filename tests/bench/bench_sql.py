"""`make bench-sql`: SQL tables over PostgreSQL's protocol, beside PostgreSQL 15, rqlite and HerdDB.

Ours: three replicas on three bookies (3/3/2, fsync before every answer); clients ask the leader. PostgreSQL: a primary
and a synchronous standby, fsync on. rqlite 8: three nodes. HerdDB 0.29: two servers, log on the same bookies, 3/3/2.
In turn within each round, on empty folders, all on this machine, clients too; one that cannot be had here is null, and
standard error says why. 10,000 rows of 100 bytes:

* `sql_updates_1` / `_64`: one row by its primary key, rate, `_p50_ms`, `_p99_ms`, and `_cpu_us`: what all servers used
  for one; ours also by kind of process (`_cpu_us_leader`)
* `sql_selects_1` / `_64`: the same for reads: linearizable in ours and rqlite; the primary's in PostgreSQL, the
  leader's in HerdDB. `sql_selects_local_64`: what one server knows, asking nobody else (`rsm.read = 'stale'`,
  `level=none`)
* `sql_bulk`: rows a second by one client: COPY (ours in batches), INSERTs of 1,000 rows in rqlite, JDBC's batches
* `sql_failover_s`: ours alone: from the SIGKILL of the leader to the first answer to an update begun afterwards, at a
  surviving replica

RSM_BENCH_ROUNDS, RSM_BENCH_SECONDS (of each load), RSM_BENCH_KILLS, RSM_BENCH_ROWS (of the bulk load) change sizes;
RSM_BENCH_ONLY=updates,selects,bulk,failover names parts, RSM_BENCH_PEERS=postgresql,rqlite,herddb who is beside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg

from ledger.dev import DevCluster
from tests.bench.cpu import cpu_s
from tests.bench.figure import percentile, print_figure, print_figure_beside, say
from tests.bench.nats_peer import PeerMissingError
from tests.bench.sql_load import ROWS
from tests.bench.sql_peers import HerdDBPeer, PostgresPeer, RqlitePeer, SqlPeer, run_load
from tests.integration.store_processes import Stores, stores

ROUND_COUNT: Final = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
SECONDS: Final = float(os.environ.get("RSM_BENCH_SECONDS", "5"))
KILL_COUNT: Final = int(os.environ.get("RSM_BENCH_KILLS", "10"))
BULK_ROWS: Final = int(os.environ.get("RSM_BENCH_ROWS", "100000"))
PARTS: Final = os.environ.get("RSM_BENCH_ONLY", "updates,selects,bulk,failover").split(",")
PEERS: Final = ("postgresql", "rqlite", "herddb")
WANTED: Final = os.environ.get("RSM_BENCH_PEERS", ",".join(PEERS)).split(",")
LEVELS: Final = (1, 64)
NAMES: Final = ("a", "b", "c")
_SERVE: Final = ("rsm_spark", "sql", "serve")
_OPTIONS: Final = ("--pg-port", "0", "--bookies", "3/3/2", "--session-timeout-ms", "2000")
_FIRST_ANSWER_S_MAX: Final = 120.0
_UNITS: Final = {"_ms": "ms", "_s": "s", "_cpu_us": "µs", "_bulk": "rows/s"}


class OurSql:
    """Three replicas of a log of this round's own."""

    def __init__(self, cluster: DevCluster, folder: Path, bookies_used_s: Callable[[], float]) -> None:
        self._cluster = cluster
        self._folder = folder
        self._bookies_used_s = bookies_used_s
        self._round = 0
        self._leader = ""
        self.replicas: Stores | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run them on empty folders."""
        self._round += 1
        folder = self._folder / f"ours-{self._round}"
        folder.mkdir()
        with stores(self._cluster.metadata_uri, f"bench-{self._round}", folder) as self.replicas:
            for name in NAMES:
                self.replicas.start(name, *_OPTIONS, command=_SERVE)
            self._leader = asyncio.run(self.replicas.leader()).replica_id
            yield

    def load(self, op: str, **options: Any) -> dict[str, Any]:
        """Run it against the leader."""
        assert self.replicas is not None
        leader = self.replicas.alive[self._leader]
        where = {"door": "pg", "address": leader.ready["pg_address"], "database": leader.log, "is_ours": True}
        return run_load({**where, "op": op, **options})

    def used_s(self) -> float:
        """Of all replicas and bookies."""
        return sum(self.used_by_kind_s().values())

    def used_by_kind_s(self) -> dict[str, float]:
        """Of the leader, its followers and the bookies."""
        assert self.replicas is not None
        used = {name: cpu_s(one.process.pid) for name, one in self.replicas.alive.items()}
        leader = used.pop(self._leader)
        return {"leader": leader, "followers": sum(used.values()), "bookies": self._bookies_used_s()}

    def failover_s(self) -> float:
        """Kill the leader, start it again at the end; return the seconds until a survivor answers an update."""
        assert self.replicas is not None
        victim = asyncio.run(self.replicas.leader())
        (survivor, *_) = (one for name, one in self.replicas.alive.items() if name != victim.replica_id)
        host, _, port = str(survivor.ready["pg_address"]).rpartition(":")
        where: dict[str, Any] = {"host": host, "port": int(port), "dbname": survivor.log, "user": "postgres"}
        with psycopg.connect(**where, autocommit=True, prepare_threshold=None) as asked:
            asked.execute("UPDATE t SET n = n + 1 WHERE id = 1")
            victim.kill()
            began = time.monotonic()
            while True:
                try:
                    asked.execute("UPDATE t SET n = n + 1 WHERE id = 1")
                    break
                except psycopg.OperationalError as error:
                    if asked.closed or time.monotonic() - began > _FIRST_ANSWER_S_MAX:
                        raise AssertionError("no survivor answers an update") from error
                    time.sleep(0.005)
            took_s = time.monotonic() - began
        self.replicas.start(victim.replica_id, *_OPTIONS, command=_SERVE)
        return took_s


class SqlBench:
    """Figures of all rounds, by side."""

    def __init__(self, ours: OurSql, peers: Mapping[str, SqlPeer]) -> None:
        self._ours = ours
        self._peers = peers
        self._figures: dict[str, dict[str, list[float]]] = {
            side: defaultdict(list) for side in ("ours", *PEERS)
        }  # fmt: skip

    def run_round(self, number: int) -> None:
        """Measure everybody; who begins changes."""
        sides: list[tuple[str, SqlPeer]] = [("ours", self._ours), *self._peers.items()]
        for side, server in sides[number % len(sides) :] + sides[: number % len(sides)]:
            if side != "ours" and set(PARTS) == {"failover"}:
                continue
            with server.running():
                server.load("create")
                server.load("bulk", first=1, rows=ROWS)
                for op in ("updates", "selects"):  # So that a JVM has compiled, and caches have, what counts.
                    server.load(op, callers=max(LEVELS), seconds=SECONDS)
                for part in ("updates", "selects"):
                    for level in LEVELS if part in PARTS else ():
                        self._measure(side, server, f"{part}_{level}", part, callers=level, seconds=SECONDS)
                if "selects" in PARTS and side != "herddb":
                    self._measure(side, server, "selects_local_64", "selects_local", callers=64, seconds=SECONDS)
                if "bulk" in PARTS:
                    self._measure(side, server, "bulk", "bulk", first=ROWS + 1, rows=BULK_ROWS)
                if side == "ours" and "failover" in PARTS and number == ROUND_COUNT - 1:
                    for kill in range(KILL_COUNT):
                        self._note(side, "failover_s", self._ours.failover_s())
                        say(f"  kill {kill + 1}: {self._figures[side]['failover_s'][-1]:.2f} s")

    def _measure(self, side: str, server: SqlPeer, name: str, op: str, **options: Any) -> None:
        before_s, kinds_before_s = server.used_s(), self._ours.used_by_kind_s() if side == "ours" else {}
        said = server.load(op, **options)
        used_us = (server.used_s() - before_s) * 1e6 / said["count"]
        say(f"  {side}: {name}: {said['per_s']:,.0f}/s, p50 {said.get('p50_ms', 0):.2f} ms, CPU {used_us:,.0f} µs")
        self._note(side, name, said["per_s"])
        for what in ("p50_ms", "p99_ms"):
            if what in said:
                self._note(side, f"{name}_{what}", said[what])
        self._note(side, f"{name}_cpu_us", used_us)
        for kind, used_s in (self._ours.used_by_kind_s() if side == "ours" else {}).items():
            self._note(side, f"{name}_cpu_us_{kind}", (used_s - kinds_before_s[kind]) * 1e6 / said["count"])

    def _note(self, side: str, name: str, value: float) -> None:
        self._figures[side][name].append(value)

    def show(self) -> None:
        """Print all figures."""
        ours = self._figures.pop("ours")
        failovers = ours.pop("failover_s", [])
        for name, values in ours.items():
            unit = next((unit for end, unit in _UNITS.items() if f"_{name}".endswith(end)), "operations/s")
            unit = "µs" if "_cpu_us" in name else unit
            if "_cpu_us_" in name:
                print_figure(f"sql_{name}", values, unit)
            else:
                peers = {peer: figures.get(name, []) for peer, figures in self._figures.items()}
                print_figure_beside(f"sql_{name}", values, unit, peers)
        if failovers:
            print_figure("sql_failover_p50_s", [percentile(failovers, 0.5)], "s")
            print_figure("sql_failover_s_max", [max(failovers)], "s")


def _peers(folder: Path, cluster: DevCluster, bookies_used_s: Callable[[], float]) -> dict[str, SqlPeer]:
    makers: dict[str, Callable[[Path], SqlPeer]] = {
        "postgresql": PostgresPeer,
        "rqlite": RqlitePeer,
        "herddb": lambda place: HerdDBPeer(place, cluster.zookeeper, bookies_used_s),
    }
    found: dict[str, SqlPeer] = {}
    for name in PEERS:
        if name not in WANTED:
            say(f"{name} is null: RSM_BENCH_PEERS leaves it out")
            continue
        try:
            found[name] = makers[name](folder / name)
        except PeerMissingError as error:
            say(f"{name} is null: {error}")
    return found


def main() -> None:
    """Measure all in turn."""
    with tempfile.TemporaryDirectory(prefix="bench-sql-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL's user comes through.
        with DevCluster(folder / "cluster", bookie_count=3, has_auto_recovery=False) as cluster:

            def _bookies_used_s() -> float:
                return sum(cpu_s(pid) for process, pid in cluster.pids().items() if process.startswith("bookie"))

            bench = SqlBench(OurSql(cluster, folder, _bookies_used_s), _peers(folder, cluster, _bookies_used_s))
            for number in range(ROUND_COUNT):
                say(f"round {number + 1} of {ROUND_COUNT}")
                bench.run_round(number)
        bench.show()


if __name__ == "__main__":
    main()
