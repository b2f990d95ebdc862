"""Bookies of both kinds on one ZooKeeper: ours and Apache BookKeeper's, so that one ensemble may mix them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ledger.dev.ports import HOST, choose_port
from ledger.dev.process import ProcessId, end_all, is_alive, send_signal, spawn
from ledger.errors import NoNodeError
from ledger.wire.paths import available_path
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.session import connect
from tests.compat.java_client import java_command, run_shell

__all__ = ["Bookies", "Kind"]

Kind = Literal["ours", "java"]
_START_S_MAX = 90.0
_GRACE_S = 15.0
_JAVA_HEAP_MIB = 256
_SESSION_TIMEOUT_MS = 4000
_JAVA_CONF = """\
metadataServiceUri={uri}
bookiePort={port}
allowLoopback=true
advertisedAddress=127.0.0.1
listeningInterface=lo
journalDirectories={folder}/journal
ledgerDirectories={folder}/ledgers
httpServerEnabled=false
journalSyncData=true
journalPreAllocSizeMB=4
journalMaxSizeMB=64
logSizeLimit=67108864
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
zkTimeout={session_timeout_ms}
numAddWorkerThreads=1
numReadWorkerThreads=2
serverNumIOThreads=2
"""


class _Server(msgspec.Struct):
    kind: Kind
    port: int
    folder: Path
    bookie_id: str
    process: ProcessId | None = None


class Bookies:
    """A cluster under a root of its own in a ZooKeeper that runs; empty until `start`.

    Args:
        zookeeper: host:port.
        root: BookKeeper's root node.
        folder: Holds data, logs and configurations.
        jars: BookKeeper's JARs.
        our_arguments: Further ones for `rsm bookie run`; `{id}` is the bookie's id.
        our_id: What they make of an id, of the port at the first start.
        java_lines: Further lines of the configuration of BookKeeper's bookies, in place of those of the same name;
            `{port}` is the bookie's.
        java_id: What these lines make of a bookie's id.
        java_options: Further ones for the virtual machines of BookKeeper's bookies.
        java_more_jars: Folder of further JARs for them.
        formatted_by: Whose tool makes the cluster's first nodes: our bookies do it by themselves, BookKeeper has a
            command of its shell.

    """

    def __init__(
        self,
        zookeeper: str,
        root: str,
        folder: Path,
        jars: Path,
        *,
        our_arguments: Sequence[str] = (),
        java_lines: Sequence[str] = (),
        java_options: Sequence[str] = (),
        java_more_jars: Path | None = None,
        java_id: str = HOST + ":{port}",
        our_id: str = HOST + ":{port}",
        formatted_by: Kind = "ours",
    ) -> None:
        self.zookeeper = zookeeper
        self.root = root
        self.uri = f"zk+hierarchical://{zookeeper}{root}"
        self.folder = folder
        self._jars = jars
        self._our_arguments = tuple(our_arguments)
        self._java_lines = tuple(java_lines)
        self._java_options = tuple(java_options)
        self._java_more_jars = None if java_more_jars is None else java_more_jars / "*"
        self._id_of: dict[Kind, str] = {"java": java_id, "ours": our_id}
        self._servers: dict[str, _Server] = {}
        if formatted_by == "ours":
            asyncio.run(self._lay_out())
        else:
            run_shell(jars, self.java_conf(), ("initnewcluster",))

    @property
    def ids(self) -> list[str]:
        """Ids of the bookies, in the order of their starts, running or not."""
        return list(self._servers)

    def ids_of(self, kind: Kind) -> list[str]:
        """Ids of the bookies of one kind."""
        return [server.bookie_id for server in self._servers.values() if server.kind == kind]

    def start(self, *kinds: Kind) -> list[str]:
        """Start new bookies, all at once; return their ids once all are registered."""
        started = []
        for kind in kinds:
            port = choose_port(taken={server.port for server in self._servers.values()})
            folder = self.folder / f"{kind}-{port}"
            folder.mkdir(parents=True)
            bookie_id = self._id_of[kind].format(port=port)
            server = _Server(kind, port, folder, bookie_id)
            self._servers[server.bookie_id] = server
            self._spawn(server)
            started.append(server.bookie_id)
        self._wait_until_registered(started)
        return started

    def restart(self, bookie_id: str) -> None:
        """Start a bookie that was killed or stopped, on its data and its port.

        The registration of a killed one, which may outlive it by seconds, is taken away first: else one could not
        tell when the new process has registered.
        """
        asyncio.run(self._forget(bookie_id))
        self._spawn(self._servers[bookie_id])
        self._wait_until_registered([bookie_id])

    def move(self, bookie_id: str, *, is_killed: bool = False) -> None:
        """End a bookie with a name of its own, and start it at another port."""
        (self.kill if is_killed else self.stop)(bookie_id)
        self._servers[bookie_id].port = choose_port(taken={server.port for server in self._servers.values()})
        self.restart(bookie_id)

    def kill(self, bookie_id: str) -> None:
        """End a bookie by SIGKILL, as a crash would."""
        server = self._servers[bookie_id]
        assert server.process is not None
        send_signal(server.process, signal.SIGKILL)
        end_all([server.process], grace_s=_GRACE_S)
        server.process = None

    def stop(self, bookie_id: str) -> None:
        """End a bookie in good order."""
        server = self._servers[bookie_id]
        assert server.process is not None
        end_all([server.process], grace_s=_GRACE_S)
        server.process = None

    def stop_all(self) -> None:
        """End all of them; none may be left."""
        processes = [server.process for server in self._servers.values() if server.process is not None]
        for process in processes:
            send_signal(process, signal.SIGKILL)
        end_all(processes, grace_s=_GRACE_S)
        assert not [process.pid for process in processes if is_alive(process)]

    def java_conf(self, bookie_id: str | None = None) -> Path:
        """Return a configuration file for BookKeeper's own tools: of one of its bookies, else of no bookie at all."""
        if bookie_id is not None:
            server = self._servers[bookie_id]
            return self._write_conf(server.folder, server.port)
        folder = self.folder / "tools"
        folder.mkdir(exist_ok=True)
        return self._write_conf(folder, 3181)

    def spawn_java(self, name: str, *arguments: str) -> ProcessId:
        """Start another program of BookKeeper's; who asks for it ends it."""
        command = [*java_command(self._jars, heap_mib=_JAVA_HEAP_MIB, log_level="INFO"), *arguments]
        return spawn(command, log=self.folder / f"{name}.log", env=os.environ)

    def _spawn(self, server: _Server) -> None:
        log = server.folder / "log"
        if server.kind == "java":
            command = java_command(self._jars, heap_mib=_JAVA_HEAP_MIB, classes=self._java_more_jars)
            command += [
                *self._java_options,
                "org.apache.bookkeeper.server.Main",
                "--conf",
                str(self._write_conf(server.folder, server.port)),
            ]
        else:
            command = [sys.executable, "-P", "-m", "ledger.bookie", "run", "--metadata-uri", self.uri]
            command += ["--port", str(server.port), "--data-dir", str(server.folder)]
            # Tests of auto-recovery start it themselves.
            ours = [argument.replace("{id}", server.bookie_id) for argument in self._our_arguments]
            command += ["--no-autorecovery", *ours]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        server.process = spawn(command, log=log, env=environment)

    def _write_conf(self, folder: Path, port: int) -> Path:
        for name in ("journal", "ledgers"):
            (folder / name).mkdir(exist_ok=True)
        text = _JAVA_CONF.format(uri=self.uri, port=port, folder=folder, session_timeout_ms=_SESSION_TIMEOUT_MS)
        chosen = {line.partition("=")[0] for line in self._java_lines}
        lines = [line for line in text.splitlines() if line.partition("=")[0] not in chosen]
        lines += [line.format(port=port) for line in self._java_lines]
        path = folder / "bookie.conf"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    def _wait_until_registered(self, bookie_ids: Sequence[str]) -> None:
        asyncio.run(self._registered(bookie_ids))

    async def _registered(self, bookie_ids: Sequence[str]) -> None:
        deadline = time.monotonic() + _START_S_MAX
        async with self._store() as ledgers:
            while missing := set(bookie_ids) - set(await ledgers.writable_bookies()):
                for bookie_id in missing:
                    server = self._servers[bookie_id]
                    log = server.folder / "log"
                    assert server.process is not None
                    assert is_alive(server.process), f"{bookie_id} ended: {log.read_text(errors='replace')[-3000:]}"
                assert time.monotonic() < deadline, f"not registered: {missing}"
                await asyncio.sleep(0.05)

    async def _forget(self, bookie_id: str) -> None:
        async with self._store() as ledgers:
            with contextlib.suppress(NoNodeError):
                await ledgers.store.delete(available_path(self.root, bookie_id))

    @contextlib.asynccontextmanager
    async def _store(self):  # type: ignore[no-untyped-def]
        session = await connect([self.zookeeper])
        try:
            yield LedgerStore(session, self.root)
        finally:
            await session.close()

    async def _lay_out(self) -> None:
        async with self._store() as ledgers:
            await ledgers.ensure_layout(str(uuid.UUID(bytes=os.urandom(16))))
