"""SQL beside ours: PostgreSQL with a synchronous standby, rqlite on three nodes, HerdDB on the same bookies.

Each keeps a change on two disks' worth of files, synced, before it answers. Their servers run only while they are
measured, each time on empty folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg

from ledger.dev.ports import HOST, choose_port
from ledger.dev.process import ProcessId, end_all, spawn
from ledger.zookeeper_server.errors import JavaError
from ledger.zookeeper_server.java import find_java
from tests.bench.cpu import tree_cpu_s
from tests.bench.nats_peer import PeerMissingError
from tests.bench.sql_load import ROWS
from tools.fetch_bookkeeper import FetchError, ensure_jars

__all__ = ["HerdDBPeer", "PostgresPeer", "RqlitePeer", "SqlPeer", "run_load"]

_GO: Final = Path(__file__).with_name("go") / "rqlite"
_RQLITED: Final = "github.com/rqlite/rqlite/v8/cmd/rqlited"
_HERDDB_LOCK: Final = Path(__file__).parents[2] / "tools" / "herddb.lock"
_POSTGRES_PROGRAMS: Final = Path("/usr/lib/postgresql/15/bin")
_BUILD_S_MAX: Final = 1_800
_START_S_MAX: Final = 180.0
_OPENED: Final = ("java.nio", "java.io", "java.util.zip", "sun.nio.ch", "jdk.internal.misc")


class SqlPeer(Protocol):
    """What the bench asks of each."""

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Run the servers on empty folders."""

    def load(self, op: str, **options: Any) -> dict[str, Any]:
        """Run an `op` of `tests.bench.sql_load`."""

    def used_s(self) -> float:
        """Return the processor seconds of all servers, bookies among them."""


def run_load(options: Mapping[str, Any]) -> dict[str, Any]:
    """Run `tests.bench.sql_load` to its end."""
    command = [sys.executable, "-P", "-m", "tests.bench.sql_load", json.dumps(dict(options))]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=1_200
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _START_S_MAX
    while not holds():
        assert time.monotonic() < deadline, f"{what} within {_START_S_MAX} s"
        time.sleep(0.1)


class PostgresPeer:
    """A primary and a standby that has synced each commit before it is answered.

    Args:
        folder: For data and logs; it is made, and given to the user `postgres` if we are root.

    Raises:
        PeerMissingError: There is no PostgreSQL 15 of Debian.

    """

    def __init__(self, folder: Path) -> None:
        if not (_POSTGRES_PROGRAMS / "initdb").exists():
            raise PeerMissingError(f"there is no {_POSTGRES_PROGRAMS}/initdb: apt-get install postgresql")
        self._folder = folder
        self._as: list[str] = []
        folder.mkdir(parents=True)
        if os.geteuid() == 0:
            self._as = ["runuser", "-u", "postgres", "--"]
            os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        self._ports: list[int] = []
        self._postmasters: list[int] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run both on empty folders."""
        self._ports = [choose_port(taken=set())]
        self._ports.append(choose_port(taken=set(self._ports)))
        try:
            self._run("initdb", "-D", str(self._folder / "primary"), "-A", "trust", "-U", "postgres")
            self._start("primary", self._ports[0])
            source = f"{self.source} application_name=standby"
            self._run("pg_basebackup", "-D", str(self._folder / "standby"), "-R", "-X", "stream", "-d", source)
            self._start("standby", self._ports[1])
            with psycopg.connect(f"{source} dbname=postgres", autocommit=True) as asked:
                asked.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
                asked.execute("SELECT pg_reload_conf()")
                state = "SELECT sync_state FROM pg_stat_replication"
                _until(lambda: asked.execute(state).fetchall() == [("sync",)], "PostgreSQL has a synchronous standby")
            yield
        finally:
            self._postmasters = []
            for name in ("standby", "primary"):
                with contextlib.suppress(subprocess.CalledProcessError):
                    self._run("pg_ctl", "-D", str(self._folder / name), "-m", "immediate", "-w", "stop")
                shutil.rmtree(self._folder / name, ignore_errors=True)

    @property
    def source(self) -> str:
        """Return where the primary is, as libpq has it: host, port and user."""
        return f"host={HOST} port={self._ports[0]} user=postgres"

    def load(self, op: str, **options: Any) -> dict[str, Any]:
        """Run it against the primary."""
        where = {"door": "pg", "address": f"{HOST}:{self._ports[0]}", "database": "postgres"}
        return run_load({**where, "op": op, **options})

    def used_s(self) -> float:
        """Of both."""
        return sum(map(tree_cpu_s, self._postmasters))

    def _start(self, name: str, port: int) -> None:
        options = f"-p {port} -c listen_addresses={HOST} -c unix_socket_directories={self._folder} "
        options += "-c fsync=on -c synchronous_commit=on -c max_connections=100 -c wal_level=replica"
        data = self._folder / name
        self._run("pg_ctl", "-D", str(data), "-w", "-l", str(self._folder / f"{name}.log"), "-o", options, "start")
        self._postmasters.append(int((data / "postmaster.pid").read_text().split()[0]))

    def _run(self, program: str, *arguments: str) -> None:
        # Not through a pipe: the server would hold it open for ever.
        with (self._folder / "said.log").open("ab") as said:
            subprocess.run(
                [*self._as, str(_POSTGRES_PROGRAMS / program), *arguments],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=True, cwd="/",
            )  # fmt: skip


class RqlitePeer:
    """Three nodes, asked by the one that leads.

    Args:
        folder: For program, data and logs.

    Raises:
        PeerMissingError: It cannot be built here.

    """

    def __init__(self, folder: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise PeerMissingError("there is no `go` on the path")
        folder.mkdir(parents=True)
        self._folder = folder
        self._program = folder / "rqlited"
        built = subprocess.run(
            [go, "build", "-mod=readonly", "-o", str(self._program), _RQLITED],
            cwd=_GO, capture_output=True, text=True, check=False, timeout=_BUILD_S_MAX,
        )  # fmt: skip
        if built.returncode != 0:
            last = built.stderr.strip().splitlines() or ["it said nothing"]
            raise PeerMissingError(f"`go build` of rqlite failed: {last[-1]}")
        self._processes: list[ProcessId] = []
        self._leader = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run them on empty folders; the first one leads."""
        ports: list[int] = []
        for _ in range(6):
            ports.append(choose_port(taken=set(ports)))
        self._processes = []
        try:
            for number, (client, raft) in enumerate(zip(ports[:3], ports[3:], strict=True)):
                data = self._folder / f"n{number}"
                shutil.rmtree(data, ignore_errors=True)
                command = [str(self._program), "-node-id", f"n{number}", "-http-addr", f"{HOST}:{client}"]
                command += ["-raft-addr", f"{HOST}:{raft}", *(("-join", f"{HOST}:{ports[3]}") if number else ())]
                log = self._folder / f"n{number}.log"
                self._processes.append(spawn([*command, str(data)], log=log, env=os.environ))
                _until(lambda client=client: _is_ready(client), f"rqlite's node {number} is ready")  # type: ignore[misc]
            self._leader = f"{HOST}:{ports[0]}"
            yield
        finally:
            end_all(self._processes, grace_s=10)

    def load(self, op: str, **options: Any) -> dict[str, Any]:
        """Run it against the leader."""
        return run_load({"door": "rqlite", "address": self._leader, "op": op, **options})

    def used_s(self) -> float:
        """Of all nodes."""
        return sum(tree_cpu_s(process.pid) for process in self._processes)


def _is_ready(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=5) as asked:
        asked.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        return asked.recv(64).split(b" ", 2)[1] == b"200"
    return False


class HerdDBPeer:
    """Two servers of HerdDB 0.29 whose log is on our bookies, 3/3/2, and its JDBC driver.

    Args:
        folder: For classes, data and logs.
        zookeeper: host:port of the bookies' ZooKeeper.
        bookies_used_s: Processor seconds of the bookies so far.

    Raises:
        PeerMissingError: Its JARs or a Java compiler cannot be had.

    """

    def __init__(self, folder: Path, zookeeper: str, bookies_used_s: Callable[[], float]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._zookeeper = zookeeper
        self._bookies_used_s = bookies_used_s
        self._round = 0
        self._processes: list[ProcessId] = []
        self._client: subprocess.Popen[str] | None = None
        try:
            jars = ensure_jars(_HERDDB_LOCK)
            java = find_java()
        except (FetchError, JavaError) as error:
            raise PeerMissingError(f"HerdDB: {error}") from error
        compiler = Path(java).resolve().with_name("javac")
        if not compiler.exists():
            raise PeerMissingError(f"HerdDB: there is no {compiler}")
        classes = folder / "classes"
        source = Path(__file__).with_name("java") / "HerdDB.java"
        subprocess.run([str(compiler), "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True)
        self._java = [
            java, *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
            "-Dio.netty.tryReflectionSetAccessible=true", "-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m",
            "-XX:+UseSerialGC", "-cp", f"{classes}:{jars}/*", "HerdDB",
        ]  # fmt: skip

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run both and the driver, on a root of this round's own in ZooKeeper."""
        self._round += 1
        root = f"/herd-{self._round}"
        self._processes = []
        url = f"jdbc:herddb:zookeeper:{self._zookeeper}{root}"
        try:
            ports: list[int] = []
            for number in range(2):
                ports.append(choose_port(taken=set(ports)))
                data = self._folder / f"r{self._round}-n{number}"
                settings = {
                    "server.mode": "cluster", "server.node.id": f"n{number}", "server.host": HOST,
                    "server.port": ports[number], "server.base.dir": data,
                    "server.zookeeper.address": self._zookeeper, "server.zookeeper.path": root,
                    "server.bookkeeper.ledgers.path": "/ledgers", "server.bookkeeper.ensemble.size": 3,
                    "server.bookkeeper.write.quorum.size": 3, "server.bookkeeper.ack.quorum.size": 2,
                    "tablespace.default.replica.count": 2, "server.jmx.enable": "false",
                }  # fmt: skip
                command = [*self._java, "serve", *(f"{name}={value}" for name, value in settings.items())]
                self._processes.append(spawn(command, log=self._folder / f"n{number}.log", env=os.environ))
                _until(lambda port=ports[number]: _listens(port), f"HerdDB's server {number} listens")  # type: ignore[misc]
            with (self._folder / "load.log").open("ab") as log:
                self._client = subprocess.Popen(
                    [*self._java, "load", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
            yield
        finally:
            if self._client is not None:
                self._client.kill()
                self._client.wait()
            end_all(self._processes, grace_s=20)

    def load(self, op: str, **options: Any) -> dict[str, Any]:
        """Run it by JDBC."""
        client = self._client
        assert client is not None
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(json.dumps({"op": op, "first": 1, "rows": ROWS, **options}) + "\n")
        client.stdin.flush()
        line = client.stdout.readline()
        assert line, f"HerdDB's client ended: see {self._folder}"
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer
        return answer

    def used_s(self) -> float:
        """Of both and of the bookies."""
        return sum(tree_cpu_s(process.pid) for process in self._processes) + self._bookies_used_s()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=5):
        return True
    return False
