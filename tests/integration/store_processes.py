"""Replicas of the store as processes, for tests."""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rsm_spark.errors import ConnectionLostError
from rsm_spark.transport.channel import ReplicaChannel

STORE = ("rsm_spark.map", "run")
_READY_S = 60.0


class StoreProcess:
    """One `rsm store run`, or another replica.

    Args:
        prefix: Put before the command, to run it elsewhere.
        environment: Instead of this process's.
        command: What `python -m` runs: another version of the store, or another service.

    Attributes:
        ready: Its ready line.

    """

    def __init__(
        self,
        metadata_uri: str,
        log: str,
        folder: Path,
        replica_id: str,
        *options: str,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = STORE,
    ) -> None:
        self.log = log
        self.replica_id = replica_id
        self._errors = folder / f"{replica_id}.log"
        run = [sys.executable, "-m", *command, "--log", log, "--metadata-uri", metadata_uri]
        run += ["--data-dir", str(folder / replica_id), "--replica-id", replica_id, "--json", "--log-level", "info"]
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [*prefix, *run, *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=Path(__file__).parents[2],
                env=environment,
            )
        try:
            self.ready: dict[str, Any] = json.loads(self._line())
        except BaseException:
            self.kill()
            raise

    @property
    def address(self) -> str:
        return str(self.ready["address"])

    def _line(self) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(_READY_S), f"{self.replica_id} is not ready: {self.errors()}"
        line = self.process.stdout.readline().decode()
        assert line, f"{self.replica_id} ended: {self.errors()}"
        return line

    def errors(self) -> str:
        return self._errors.read_text()[-3000:]

    def kill(self) -> None:
        self.process.kill()
        self._reap(10)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._reap(20)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def _reap(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert "never retrieved" not in self._errors.read_text(), self.errors()
        return code

    async def status(self) -> dict[str, Any]:
        async with ReplicaChannel(self.address, self.log) as channel:
            status: dict[str, Any] = json.loads(await channel.status(5))
            return status


class Stores:
    """The replicas of one log.

    Attributes:
        alive: Those that run.
        own_options: Of a replica alone, wherever it is started; by its id.
        prefixes: Put before the command of a replica, to run it elsewhere; by its id.

    """

    def __init__(self, metadata_uri: str, log: str, folder: Path) -> None:
        self.metadata_uri = metadata_uri
        self.log = log
        self.folder = folder
        self.alive: dict[str, StoreProcess] = {}
        self.own_options: dict[str, tuple[str, ...]] = {}
        self.prefixes: dict[str, Sequence[str]] = {}

    def start(self, replica_id: str, *options: str, command: Sequence[str] = STORE) -> StoreProcess:
        options = (*options, *self.own_options.get(replica_id, ()))
        prefix = self.prefixes.get(replica_id, ())
        store = self.alive[replica_id] = StoreProcess(
            self.metadata_uri, self.log, self.folder, replica_id, *options, prefix=prefix, command=command
        )
        return store

    def start_with_etcd(self, replica_id: str, *options: str, command: Sequence[str] = STORE) -> str:
        """Start a replica that serves etcd's API; return where, which stays so when it is started again."""
        address = str(self.start(replica_id, *options, "--etcd-port", "0", command=command).ready["etcd_address"])
        self.own_options[replica_id] = ("--etcd-port", address.rpartition(":")[2])
        return address

    def gone(self, replica_id: str) -> StoreProcess:
        return self.alive.pop(replica_id)

    async def leader(self, timeout_s: float = 60) -> StoreProcess:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for store in list(self.alive.values()):
                try:
                    if (await store.status())["role"] == "leader":
                        return store
                except ConnectionLostError:
                    continue
            await asyncio.sleep(0.05)
        raise AssertionError(f"no leader of {self.log}: " + "\n".join(s.errors() for s in self.alive.values()))

    async def agree(self, revision: int, timeout_s: float = 60) -> list[dict[str, Any]]:
        """Wait until all replicas have applied this revision; return what they say then."""
        deadline = time.monotonic() + timeout_s
        while True:
            said = [await store.status() for store in self.alive.values()]
            reached = {one["revision"] for one in said}
            if min(reached) >= revision and len(reached) == 1:
                return said
            assert time.monotonic() < deadline, f"replicas at {reached}, wanted {revision}"
            await asyncio.sleep(0.05)

    def end(self) -> None:
        for store in self.alive.values():
            if store.process.poll() is None:
                os.kill(store.process.pid, signal.SIGCONT)
                store.kill()


@contextmanager
def stores(metadata_uri: str, log: str, folder: Path) -> Iterator[Stores]:
    replicas = Stores(metadata_uri, log, folder)
    try:
        yield replicas
    finally:
        replicas.end()
