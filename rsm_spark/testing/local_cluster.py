"""A real cluster for one test: ZooKeeper, bookies and replicas of a machine, on this computer, gone with the block.

    async with LocalCluster(Bank) as cluster:
        async with await cluster.client() as bank:
            await bank.execute(b"ann 5")
        await cluster.stop(await cluster.leader())     # another one leads

Given as "module:Class" each replica is a process, `rsm serve`, which can be killed; else they are in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ledger.client.client import LedgerClient
from ledger.dev import ClusterError, DevCluster
from ledger.dev.process import hold, identify
from ledger.errors import UsageError
from rsm_spark.client.service_client import ServiceClient
from rsm_spark.core.machine import StateMachine
from rsm_spark.errors import ConnectionLostError, RsmError
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.server.replica_server import StoreService, StoreSettings
from rsm_spark.transport.channel import ReplicaChannel
from rsm_spark.transport.reach import WHOLE_LOG

Machine = Callable[[], StateMachine] | str
"""Makes an empty machine; or names its class, "module:Class"."""

_SESSION_TIMEOUT_MS = 2_000
_READY_S = 60.0
_GRACE_S = 20.0
_LOOK_S = 0.05
_LAST_WORDS_BYTES = 2_000


class LocalCluster:
    """ZooKeeper, bookies, and replicas of one log.

    Args:
        machine: What the replicas run.
        replicas: How many are started; they are named "a", "b", "c" and so on.
        bookies: How many.
        metadata_uri: Of a cluster that runs already; None starts one, which takes some seconds and needs Java.
        log: Name of the log; "" = one that nobody has.
        settings: Of replicas in this process.
        options: Of replicas that are processes: what `rsm serve` takes besides.

    Attributes:
        servers: ZooKeeper and bookies, which can be killed and frozen; None if they ran already.
        log: Name of the log.
        metadata_uri: Where everything is found; set when the block has begun.

    """

    def __init__(
        self,
        machine: Machine,
        *,
        replicas: int = 3,
        bookies: int = 3,
        metadata_uri: str | None = None,
        log: str = "",
        settings: ReplicaSettings | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.log = log or f"test-{os.urandom(4).hex()}"
        self.metadata_uri = metadata_uri or ""
        self.servers: DevCluster | None = None
        self._machine = machine
        self._names = [chr(ord("a") + number) for number in range(replicas)]
        self._bookie_count = bookies
        self._settings = settings or ReplicaSettings()
        self._options = tuple(options)
        self._folder = Path()
        self._running: dict[str, _Served | _Process] = {}

    # ---- life

    async def __aenter__(self) -> Self:
        """Start everything; return when each replica serves.

        Raises:
            ClusterError: ZooKeeper or a bookie cannot be started.
            RsmError, LedgerError: A replica cannot.

        """
        self._folder = Path(tempfile.mkdtemp(prefix="rsm-test-"))
        try:
            if not self.metadata_uri:
                self.servers = DevCluster(self._folder / "servers", bookie_count=self._bookie_count)
                await asyncio.to_thread(self.servers.start)
                self.metadata_uri = self.servers.metadata_uri
            for name in self._names:
                await self.start(name)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End everything, and remove what it has written."""
        await self._end()

    async def _end(self) -> None:
        try:
            ended = await asyncio.gather(*(self.stop(name) for name in list(self._running)), return_exceptions=True)
        finally:
            if self.servers is not None and self.servers.pids():
                await asyncio.to_thread(self.servers.stop)
            shutil.rmtree(self._folder, ignore_errors=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    # ---- replicas

    @property
    def replicas(self) -> list[str]:
        """Names of the replicas that run."""
        return sorted(self._running)

    async def start(self, name: str, machine: Machine | None = None) -> None:
        """Start a replica: a new one, or one that was stopped or killed, on its own data.

        Args:
            name: Of the replica.
            machine: What it runs, such as the next version; None = what the cluster was given.

        Raises:
            UsageError: It runs.
            RsmError, LedgerError: It cannot be started.

        """
        if name in self._running:
            raise UsageError(f"replica {name} of log {self.log} runs: stop it first")
        wanted = self._machine if machine is None else machine
        folder = self._folder / f"replica-{name}"
        if isinstance(wanted, str):
            self._running[name] = await _Process.start(self, name, wanted, folder, self._options)
        else:
            settings = StoreSettings(log=self.log, replica_id=name, data_dir=folder, replica=self._settings)
            self._running[name] = await _Served.start(wanted(), settings, self.metadata_uri)

    async def stop(self, name: str) -> None:
        """Have a replica end in good order; its data stay.

        Raises:
            UsageError: It does not run.
            RsmError: It had stopped by itself, or ends with an error.

        """
        self._the(name)
        await self._running.pop(name).stop()

    async def kill(self, name: str) -> None:
        """End a replica by SIGKILL, as a crash would.

        Raises:
            UsageError: It does not run, or is in this process.

        """
        replica = self._the(name)
        if not isinstance(replica, _Process):
            raise UsageError(
                f"replica {name} of log {self.log} is in this process, which a kill would end: name the machine as "
                '"module:Class", then each replica is a process'
            )
        del self._running[name]
        await replica.kill()

    def _the(self, name: str) -> _Served | _Process:
        if name not in self._running:
            raise UsageError(f"replica {name} of log {self.log} does not run; {', '.join(self.replicas) or 'none'} do")
        return self._running[name]

    # ---- what they say

    async def client(self, **options: Any) -> ServiceClient:
        """Return a client of the service; `options` are those of `ServiceClient.connect`."""
        return await ServiceClient.connect(self.log, self.metadata_uri, **options)

    async def status(self, name: str) -> dict[str, Any]:
        """Return what a replica says of itself: `role`, `revision`, `digest`, `alarms` and the rest of `rsm status`.

        Raises:
            UsageError: It does not run.
            ConnectionLostError: It does not answer.

        """
        async with ReplicaChannel(self._the(name).address, self.log) as channel:
            said: dict[str, Any] = json.loads(await channel.status(5))
            return said

    async def leader(self, *, timeout_s: float = 60.0) -> str:
        """Return the replica that leads, as soon as one does.

        Raises:
            TimeoutError: None does in time.

        """
        async with asyncio.timeout(timeout_s):
            while True:
                async for name, said in self._all_status():
                    if said["role"] == "leader":
                        return name
                await asyncio.sleep(_LOOK_S)

    async def agree(self, *, timeout_s: float = 60.0) -> int:
        """Wait until all replicas have applied the same records; return the revision.

        Raises:
            AssertionError: Their states differ.
            TimeoutError: They are not there in time.

        """
        async with asyncio.timeout(timeout_s):
            while True:
                said = {name: one async for name, one in self._all_status()}
                revisions = {one["revision"] for one in said.values()}
                if len(said) == len(self._running) and len(revisions) == 1:
                    digests = {name: one["digest"] for name, one in said.items()}
                    assert len(set(digests.values())) == 1, f"replicas at one revision differ: {digests}"
                    return int(revisions.pop())
                await asyncio.sleep(_LOOK_S)

    async def _all_status(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        for name in self.replicas:
            with contextlib.suppress(ConnectionLostError):
                yield name, await self.status(name)


class _Served:
    """A replica in this process."""

    def __init__(self, client: LedgerClient, service: StoreService) -> None:
        self.address = service.address
        self._client, self._service = client, service

    @classmethod
    async def start(cls, machine: StateMachine, settings: StoreSettings, metadata_uri: str) -> Self:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        client = await LedgerClient.connect(metadata_uri, session_timeout_ms=_SESSION_TIMEOUT_MS)
        try:
            service = StoreService(client, settings, machine=machine, keys=WHOLE_LOG)
            await service.start()
        except BaseException:
            await client.close()
            raise
        return cls(client, service)

    async def stop(self) -> None:
        failure = self._service.replica.status().failure
        try:
            await self._service.stop()
        finally:
            await self._client.close()
        if failure:
            raise RsmError(f"replica at {self.address} had stopped by itself: {failure}")


class _Process:
    """A replica that is a process."""

    def __init__(self, process: Process, address: str, name: str, log_file: Path) -> None:
        self.address = address
        self._process, self._name, self._log_file = process, name, log_file

    @classmethod
    async def start(cls, of: LocalCluster, name: str, machine: str, folder: Path, options: Sequence[str]) -> Self:
        folder.parent.mkdir(parents=True, exist_ok=True)
        log_file = folder.with_suffix(".log")
        command = [sys.executable, "-m", "rsm_spark", "serve", machine, "--json", "--log", of.log, "--replica-id", name]
        command += ["--metadata-uri", of.metadata_uri, "--data-dir", str(folder)]
        command += ["--session-timeout-ms", str(_SESSION_TIMEOUT_MS), *options]
        # It finds what this process finds, whatever a runner of tests has added; options are those given here.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RSM_")}
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path or str(Path.cwd()) for path in sys.path))
        with log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip
        assert process.stdout is not None
        with contextlib.suppress(ClusterError):  # It has ended already, and what follows says why.
            hold(identify(process.pid))
        try:
            async with asyncio.timeout(_READY_S):
                line = await process.stdout.readline()
            ready = json.loads(line) if line else {}
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        if not ready:
            await process.wait()
            raise RsmError(f"replica {name} of log {of.log} ended at its start: {_last_words(log_file)}")
        return cls(process, ready["address"], name, log_file)

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_GRACE_S):
                code = await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise RsmError(f"replica {self._name} did not end within {_GRACE_S:g} s of SIGTERM") from None
        if code:
            raise RsmError(f"replica {self._name} ended with exit code {code}: {_last_words(self._log_file)}")

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


def _last_words(log_file: Path) -> str:
    said = log_file.read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace").strip()
    return said or "it said nothing"
