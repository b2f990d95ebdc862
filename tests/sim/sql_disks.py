"""SQL tables on simulated replicas: each host's file outlives its processes, as far as a crash leaves it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from ledger.testing.hosts import SimHost
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.messages import SqlStatement, SqlTransaction, encode
from rsm_spark.testing.cluster import ReplicaCluster

_FRAME_BYTES = 4096 + 24
_WAL_HEAD_BYTES = 32
_FRAMES_MAX = 900  # More may have been written back into the file, and are safe then.

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS done (id INTEGER PRIMARY KEY AUTOINCREMENT, who, at DEFAULT CURRENT_TIMESTAMP)",
    "CREATE TABLE IF NOT EXISTS word (k TEXT COLLATE NOCASE, v, PRIMARY KEY (k)) WITHOUT ROWID",
    """CREATE TRIGGER IF NOT EXISTS counted AFTER INSERT ON done BEGIN
    INSERT INTO counter VALUES (1, 1) ON CONFLICT DO UPDATE SET n = n + 1; END""",
)


class HostDisk:
    """The file of one host.

    Args:
        folder: Its own.
        rng: Chance.
        machine: Makes the machine of a path; a test may plant a bug in it.

    """

    def __init__(self, folder: Path, rng: random.Random, machine: Callable[..., SqlMachine]) -> None:
        self._folder = folder
        self._rng = rng
        self._make = machine
        self._open: SqlMachine | None = None
        self._boots = 0
        self._path: Path | None = None
        folder.mkdir()

    def machine(self) -> SqlMachine:
        """Return the machine of a new process; the one before was killed, now and then with its host."""
        self._boots += 1
        path = self._folder / f"{self._boots}.db"
        if self._path is not None:
            shutil.copyfile(self._path, path)
            wal = self._path.with_name(self._path.name + "-wal")
            text = wal.read_bytes() if wal.exists() else b""
            frames = max(0, len(text) - _WAL_HEAD_BYTES) // _FRAME_BYTES
            if self._rng.random() < 0.4 and 1 < frames < _FRAMES_MAX:
                text = text[: _WAL_HEAD_BYTES + _FRAME_BYTES * self._rng.randint(frames // 2, frames)]
            path.with_name(path.name + "-wal").write_bytes(text)
        if self._open is not None:
            self._open.close()
        self._path = path
        self._open = self._make(path, None, lambda: 0.0)
        return self._open

    def wipe(self) -> None:
        """Lose the file; the process is gone."""
        self._path = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()


def with_disks(
    cluster: ReplicaCluster, folder: Path, rng: random.Random, machine: Callable[..., SqlMachine]
) -> list[HostDisk]:
    """Give each host of a cluster a file that outlives its processes."""
    disks = {host.name: HostDisk(folder / host.name, rng, machine) for host in cluster.hosts}
    for name, disk in disks.items():
        cluster.machines[name] = disk.machine
    wipe = cluster.wipe

    def _wipe(host: SimHost) -> None:
        wipe(host)
        disks[host.name].wipe()

    cluster.wipe = _wipe  # type: ignore[method-assign]
    return list(disks.values())


def drawn_command(rng: random.Random) -> bytes:
    """Draw a transaction."""
    if rng.random() < 0.15:
        return encode(SqlTransaction(tuple(map(SqlStatement, SCHEMA))))
    return encode(SqlTransaction(tuple(_drawn(rng) for _ in range(rng.choice((1, 1, 2, 4))))))


def _drawn(rng: random.Random) -> SqlStatement:
    draw = rng.random()
    if draw < 0.6:
        return SqlStatement("INSERT INTO done (who) VALUES (?)", (rng.choice("abc"),))
    if draw < 0.65:
        return SqlStatement("DELETE FROM done WHERE id = (SELECT max(id) FROM done)")
    if draw < 0.8:
        return SqlStatement("INSERT OR REPLACE INTO word VALUES (?, random())", (rng.choice("aAbB"),))
    if draw < 0.9:
        return SqlStatement("UPDATE word SET k = upper(k), v = ? WHERE k = ?", (rng.random(), rng.choice("aAbB")))
    if draw < 0.94:
        return SqlStatement("INSERT OR ROLLBACK INTO counter VALUES (1, 0)")
    if draw < 0.97:
        return SqlStatement(f"ALTER TABLE word ADD COLUMN c{rng.randint(1, 3)} DEFAULT 'x'")
    return SqlStatement("CREATE TABLE IF NOT EXISTS other (a, b)" if rng.random() < 0.5 else "DROP TABLE other")
