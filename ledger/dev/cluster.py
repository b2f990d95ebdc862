"""Starts, watches and ends the processes of one development cluster.

1. A server is one folder, one log and one address, all named in the state file; the data outlive the processes.
2. What a call started is ended again when the call fails; what ran before it is left alone.
3. The state file is written after each start, so that a crash of this program leaves no unknown process.
"""
# Longer than 400 lines: starting, ending, crashing and starting again share one state file, one lock and one undo.

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ledger.decoding import json_decoder
from ledger.dev import ports
from ledger.dev.errors import (
    ClusterError,
    ClusterTakenError,
    NoAnswerError,
    NoClusterError,
    PortTakenError,
    ProcessDiedError,
)
from ledger.dev.process import end_all, identify, is_alive, send_signal, spawn, wait_frozen
from ledger.dev.state import ClusterState, ServerState, cluster_lock, read_state, write_state
from ledger.private_files import make_private
from ledger.readiness import read_readiness
from ledger.zookeeper_server import probe
from ledger.zookeeper_server import server as zookeeper_server
from ledger.zookeeper_server.errors import ZooKeeperServerError
from ledger.zookeeper_server.settings import ZooKeeperSettings

_BOOKIE_COUNT_DEFAULT = 3
_ZOOKEEPER_PORT = 2181
_BOOKIE_PORT = 3181
_ZOOKEEPER_MIB = 96
# Generous: three interpreters and a virtual machine start at once, perhaps on a busy machine.
_START_S_MAX = 90.0
_GRACE_S = 10.0
_BUSY_WAIT_S = 20.0
_START_WAIT_S = 1.0  # Longer than a watching `rsm up` holds the lock, shorter than anybody's patience.
_POLL_S = 0.02
_LOG_TAIL_BYTES = 4096


class DevCluster:
    """One ZooKeeper and N bookies on the loopback address of this machine.

    Args:
        data_dir: Holds everything: data, logs, ports, process ids. Made if missing.
        bookie_count: How many bookies run; None means as many as last time, else 3.
        zookeeper_address: host:port of a ZooKeeper that runs already; None starts one.
        well_known_ports: The first start prefers 2181 and 3181…, where clients look by default.
        first_port: Of ZooKeeper, and the next ones of the bookies, from the first start on; None chooses free ones.
        has_auto_recovery: Bookies repair what a lost one held; None means as last time, else they do.
        on_progress: Told in a few words what is being waited for.
        outlives: The servers go on when this program is gone; else they are ended then, however it went.

    """

    def __init__(
        self,
        data_dir: Path,
        *,
        bookie_count: int | None = None,
        zookeeper_address: str | None = None,
        well_known_ports: bool = False,
        first_port: int | None = None,
        has_auto_recovery: bool | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
        outlives: bool = False,
    ) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self._bookie_count = bookie_count
        self._zookeeper_address = zookeeper_address
        self._well_known_ports = well_known_ports
        self._first_port = first_port
        self._has_auto_recovery = has_auto_recovery
        self._on_progress = on_progress
        self._outlives = outlives
        self._state: ClusterState | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the cluster; its data stay."""
        self.stop()

    @property
    def state(self) -> ClusterState:
        """State of the cluster as its file holds it.

        Raises:
            NoClusterError: There is no cluster in this directory.

        """
        if self._state is None:
            self._state = read_state(self.data_dir)
        if self._state is None:
            raise NoClusterError(f"no cluster in {self.data_dir}: start one by `rsm up --data-dir {self.data_dir}`")
        return self._state

    @property
    def metadata_uri(self) -> str:
        """Address of the cluster's metadata, as in `--metadata-uri`."""
        return self.state.metadata_uri

    @property
    def zookeeper(self) -> str:
        """Address of ZooKeeper, host:port."""
        return self.state.zookeeper.address

    @property
    def bookies(self) -> list[str]:
        """Addresses (which are also the ids) of the bookies of the last start, in the order of their numbers."""
        return [bookie.address for bookie in self.state.bookies[: self.state.bookie_count]]

    def refresh(self) -> None:
        """Forget what was read, because another program may have started or ended servers."""
        self._state = None

    def died(self) -> list[ServerState]:
        """Return the servers that ended though nobody asked them to.

        Raises:
            ClusterBusyError: An `rsm up` or `rsm down` is at work just now, so nobody can tell.

        """
        with cluster_lock(self.data_dir):
            self.refresh()
            dead = self._dead(self.state.owned())
            return [server for server in dead if server.process is not None and not server.is_given_up]

    @property
    def is_down(self) -> bool:
        """True if every server was ended on purpose, as far as was read last."""
        return all(server.process is None for server in self.state.owned())

    def recorded_pid(self, name: str) -> int:
        """Return the pid that a server has, or had when it ended on its own; 0 = it was stopped."""
        return next((known.process.pid for known in self.state.owned() if known.name == name and known.process), 0)

    def give_up(self, name: str) -> None:
        """Note that a server is not started again before the next start of the cluster."""
        with self._locked():
            for server in self.state.owned():
                server.is_given_up = server.is_given_up or server.name == name
            write_state(self.data_dir, self.state)

    @property
    def supervisor(self) -> int:
        """The pid of who starts servers again that end on their own; 0 = nobody does."""
        process = self.state.supervisor
        return process.pid if process is not None and is_alive(process) else 0

    def supervise(self, *, is_detached: bool) -> bool:
        """Have servers started again that end on their own: by a new process, or by this one, which has to do it.

        Returns:
            False if somebody does it already.

        """
        with self._locked():
            if self.supervisor:
                return False
            command = [sys.executable, "-P", "-m", "ledger.dev.supervisor", str(self.data_dir)]
            if is_detached:
                self.state.supervisor = spawn(
                    command, log=self.log_path("supervisor"), env=_environment(), outlives=True
                )
            else:
                self.state.supervisor = identify(os.getpid())
            self.state.is_detached = is_detached
            write_state(self.data_dir, self.state)
        return True

    def restart(self, name: str) -> bool:
        """Start a server that ended though nobody asked it to; wait until it serves.

        Returns:
            False if it runs, or was ended on purpose meanwhile.

        Raises:
            ClusterError: It cannot be started; it counts as one that ended on its own, as before.

        """
        with self._locked():
            (server,) = (known for known in self.state.owned() if known.name == name)
            if server.process is None or is_alive(server.process):
                return False
            try:
                if server is self.state.zookeeper:
                    self._start_zookeeper()
                else:
                    self._start_bookies([server])
                server.restart_count += 1
                write_state(self.data_dir, self.state)
            except BaseException:
                end_all([server.process], grace_s=1.0)
                raise
            return True

    def last_words(self, server: ServerState) -> str:
        """Return the last line that a server has logged, and where."""
        path = self.log_path(server.name)
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return f"{lines[-1].strip() if lines else 'it said nothing'} (see {path})"

    def pids(self) -> dict[str, int]:
        """Return the pids of the servers that run, by name."""
        running = ((server.name, server.process) for server in self.state.owned())
        return {name: process.pid for name, process in running if process is not None and is_alive(process)}

    def not_ready(self) -> dict[str, str]:
        """Return the bookies that run and are not ready, and why."""
        now_s = time.monotonic()
        running = self.pids()
        found = {
            bookie.name: read_readiness(self.data_dir / bookie.name / "ledgers" / "current", now_s)
            for bookie in self.state.bookies
            if bookie.name in running
        }
        return {name: said.words for name, said in found.items() if not said.is_ready}

    def log_path(self, name: str) -> Path:
        """Return the log file of a server (`zookeeper`, `bookie-1`, ...)."""
        return self.data_dir / "logs" / f"{name}.log"

    @property
    def log_key(self) -> Path | None:
        """Key file for the logs on this cluster (`--log-key`); None if there is none."""
        path = self.data_dir / "keys" / "log.key"
        return path if path.exists() else None

    def make_log_key(self) -> None:
        """Make the key file, unless there is one or what makes it is not installed."""
        if self.log_key is None:
            path = self.data_dir / "keys" / "log.key"
            # A process of its own: a log's key is no matter of the ledger's.
            command = [sys.executable, "-P", "-m", "rsm_spark", "log", "key", "new", "--file", str(path)]
            subprocess.run(command, env=_environment(), capture_output=True, check=False)

    def start(self, *, may_run: bool = False) -> None:
        """Start what does not run yet and wait until everything answers.

        Args:
            may_run: It is no error that all of it runs already, if nobody supervises it.

        Raises:
            ClusterError: It cannot be started, or all of it runs already. What this call started is ended again.

        """
        try:
            make_private(self.data_dir)
            (self.data_dir / "logs").mkdir(exist_ok=True)
            with cluster_lock(self.data_dir, wait_s=_START_WAIT_S):
                self._prepare(may_run=may_run)
                with self._undo_on_failure():
                    self._start_zookeeper()
                    self._start_bookies(self._dead(self.state.bookies[: self.state.bookie_count]))
        except OSError as error:
            raise ClusterError(f"cannot use {self.data_dir}: {error.strerror or error}") from error

    def stop(self) -> list[str]:
        """End the servers that this cluster started, bookies first, and nothing else.

        Returns:
            Names of the servers that ran.

        """
        self.refresh()
        self._end_supervisor(self.state)  # Without a cluster there is no directory to lock either.
        with self._locked():
            state = self.state
            ended = list(self.pids())
            self._end(state.bookies)  # While ZooKeeper runs, so that they can sign off.
            self._end([state.zookeeper] if state.owns_zookeeper else [])
        return ended

    def kill_bookie(self, number: int) -> None:
        """End a bookie by SIGKILL, as a crash would; `number` counts from 0."""
        self._crash(self.state.bookies[number])

    def stop_bookie(self, number: int) -> None:
        """End a bookie in good order; `number` counts from 0."""
        with self._locked():
            self._end([self.state.bookies[number]])

    def start_bookie(self, number: int) -> None:
        """Start a bookie that was killed or stopped, on its data and its port, and wait until it serves."""
        with self._locked(), self._undo_on_failure():
            self._start_bookies(self._dead([self.state.bookies[number]]))

    def pause_bookie(self, number: int) -> None:
        """Freeze a bookie (SIGSTOP): it keeps its connections and answers nothing."""
        self._freeze(self.state.bookies[number])

    def resume_bookie(self, number: int) -> None:
        """Let a frozen bookie go on."""
        self._signal(self.state.bookies[number], signal.SIGCONT)

    def kill_zookeeper(self) -> None:
        """End ZooKeeper by SIGKILL; sessions outlive this if it is started again soon."""
        self._crash(self.state.zookeeper)

    def start_zookeeper(self) -> None:
        """Start ZooKeeper again on its data and its port, and wait until it answers."""
        with self._locked(), self._undo_on_failure():
            self._start_zookeeper()

    def pause_zookeeper(self) -> None:
        """Freeze ZooKeeper (SIGSTOP): nobody gets an answer, and no session expires."""
        self._freeze(self.state.zookeeper)

    def resume_zookeeper(self) -> None:
        """Let a frozen ZooKeeper go on."""
        self._signal(self.state.zookeeper, signal.SIGCONT)

    def _prepare(self, *, may_run: bool) -> None:
        """Decide which servers there are, under the lock; ports that were chosen once stay."""
        state = read_state(self.data_dir)
        if state is None:
            state = self._first_state()
        elif self._zookeeper_address not in (None, state.zookeeper.address):
            raise ClusterTakenError(
                f"{self.data_dir} belongs to the ZooKeeper at {state.zookeeper.address}, "
                f"not to {self._zookeeper_address}: use another --data-dir",
            )
        self._check_ports(state)
        if self._bookie_count is not None:
            state.bookie_count = self._bookie_count
        if self._has_auto_recovery is not None:
            state.has_auto_recovery = self._has_auto_recovery
        taken = {server.port for server in [state.zookeeper, *state.bookies]}
        for number in range(len(state.bookies), state.bookie_count):
            port = self._new_port(number + 1, _BOOKIE_PORT + number, taken)
            taken.add(port)
            state.bookies.append(ServerState(f"bookie-{number + 1}", f"{ports.HOST}:{port}"))
        self._state = state
        if state.wanted() and not self._dead(state.wanted()) and not (may_run and not self.supervisor):
            raise ClusterTakenError(
                f"the cluster in {self.data_dir} runs already: `rsm ps` shows it, `rsm down` ends it, "
                "another --data-dir starts a second one",
            )
        for server in state.owned():
            server.restart_count, server.is_given_up = 0, False
        write_state(self.data_dir, state)

    def _first_state(self) -> ClusterState:
        address = self._zookeeper_address
        if address is None:
            address = f"{ports.HOST}:{self._new_port(0, _ZOOKEEPER_PORT, ())}"
        return ClusterState(
            zookeeper=ServerState("zookeeper", address),
            owns_zookeeper=self._zookeeper_address is None,
            bookies=[],
            bookie_count=_BOOKIE_COUNT_DEFAULT,
        )

    def _new_port(self, place: int, usual: int, taken: Collection[int]) -> int:
        """Return the port of a new server, for ever.

        Args:
            place: Among all: ZooKeeper is at 0, the bookies behind it.
            usual: Where clients look by default.
            taken: Ports that were chosen already.

        """
        if self._first_port is None:
            return ports.choose_port(taken=taken, preferred=usual if self._well_known_ports else None)
        port = self._first_port + place
        if port in taken or not ports.is_free(port):
            raise PortTakenError(f"{ports.HOST}:{port} is in use: choose other --ports than {self._first_port}")
        return port

    def _check_ports(self, state: ClusterState) -> None:
        """Refuse ports that are other than those of the servers that are there."""
        if self._first_port is None:
            return
        for place, server in enumerate([state.zookeeper, *state.bookies]):
            if server in state.owned() and server.port != self._first_port + place:
                raise ClusterTakenError(
                    f"{self.data_dir}: {server.name} is at {server.address} for ever, its identity is made of it: "
                    "leave --ports out, or use another --data-dir"
                )

    def _start_zookeeper(self) -> None:
        server = self.state.zookeeper
        host, _, port = server.address.rpartition(":")
        if not self.state.owns_zookeeper:
            if not probe.answers(host, int(port), timeout_s=5.0):
                raise NoAnswerError(f"no ZooKeeper answers at {server.address}: check --zookeeper")
            return
        if self._dead([server]):
            self._require_free(server)
            self._spawn(server, _zookeeper(self.data_dir / server.name, host, server.port), out=None)
        self._on_progress("waiting for ZooKeeper")
        self._wait([server], lambda _: probe.answers(host, int(port), timeout_s=0.3))

    def _start_bookies(self, bookies: list[ServerState]) -> None:
        for bookie in bookies:
            self._require_free(bookie)
        for bookie in bookies:
            folder = self.data_dir / bookie.name
            folder.mkdir(exist_ok=True)
            arguments = ["--metadata-uri", self.metadata_uri, "--port", str(bookie.port), "--data-dir", str(folder)]
            if not self.state.has_auto_recovery:
                arguments.append("--no-autorecovery")
            command = [sys.executable, "-P", "-m", "ledger.bookie", "run", *arguments, "--json"]
            self._spawn(bookie, command, out=self._out_path(bookie))
        if bookies:
            self._on_progress(f"waiting for {len(bookies)} bookies")
            self._wait(bookies, self._is_ready)

    def _spawn(self, server: ServerState, command: list[str], *, out: Path | None) -> None:
        outlives = self._outlives or self.supervisor not in (0, os.getpid())
        server.process = spawn(command, log=self.log_path(server.name), out=out, env=_environment(), outlives=outlives)
        write_state(self.data_dir, self.state)

    def _wait(self, servers: list[ServerState], has_started: Callable[[ServerState], bool]) -> None:
        deadline = time.monotonic() + _START_S_MAX
        left = servers
        while left := [server for server in left if not has_started(server)]:
            for server in self._dead(left):
                raise ProcessDiedError(f"{server.name} ended while it started: {self.last_words(server)}")
            if time.monotonic() > deadline:
                raise NoAnswerError(
                    f"{left[0].name} does not answer at {left[0].address} after {_START_S_MAX:.0f} s: "
                    f"{self.last_words(left[0])}",
                )
            time.sleep(_POLL_S)

    def _is_ready(self, bookie: ServerState) -> bool:
        try:
            line, newline, _ = self._out_path(bookie).read_bytes().partition(b"\n")
            return bool(newline) and json_decoder(_Ready).decode(line).ready
        except (OSError, msgspec.DecodeError):
            return False

    def _out_path(self, server: ServerState) -> Path:
        return self.data_dir / "logs" / f"{server.name}.out"

    def _require_free(self, server: ServerState) -> None:
        if not ports.is_free(server.port):
            raise PortTakenError(
                f"{server.address}, the address of {server.name} in {self.data_dir}, is taken by another program: "
                f"end that one (ss -ltnp 'sport = :{server.port}' names it) or use another --data-dir",
            )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, and know what others did before it was held."""
        with cluster_lock(self.data_dir, wait_s=_BUSY_WAIT_S):
            self.refresh()
            yield

    @contextlib.contextmanager
    def _undo_on_failure(self) -> Iterator[None]:
        before = self.pids()
        try:
            yield
        except BaseException:
            # KeyboardInterrupt too: nobody would know of these processes later.
            self._end([server for server in self.state.owned() if server.name not in before], grace_s=1.0)
            raise

    def _end(self, servers: list[ServerState], *, grace_s: float = _GRACE_S) -> None:
        running = [server.process for server in servers if server.process is not None]
        end_all(running, grace_s=grace_s)
        for server in servers:
            server.process = None
        write_state(self.data_dir, self.state)

    def _end_supervisor(self, state: ClusterState) -> None:
        """End a supervisor that is a process of its own; what it is starting just now, it ends."""
        process = state.supervisor
        if state.is_detached and process is not None and process.pid != os.getpid():
            end_all([process], grace_s=_GRACE_S, signal_number=signal.SIGUSR1)

    def _crash(self, server: ServerState) -> None:
        self._signal(server, signal.SIGKILL)
        with self._locked():
            self._end([known for known in self.state.owned() if known.name == server.name])

    def _signal(self, server: ServerState, signal_number: int) -> None:
        if server.process is None or not send_signal(server.process, signal_number):
            raise ClusterError(f"{server.name} does not run")

    def _freeze(self, server: ServerState) -> None:
        self._signal(server, signal.SIGSTOP)
        assert server.process is not None
        wait_frozen(server.process)

    def _dead(self, servers: list[ServerState]) -> list[ServerState]:
        return [server for server in servers if server.process is None or not is_alive(server.process)]


def _zookeeper(folder: Path, host: str, port: int) -> list[str]:
    """Write the files of a small ZooKeeper, and return the command that runs it."""
    settings = ZooKeeperSettings(data_dir=str(folder), bind=host, port=port, heap_mib=_ZOOKEEPER_MIB, is_small=True)
    try:
        command = zookeeper_server.zookeeper_command(settings)
        zookeeper_server.write_files(settings)
    except ZooKeeperServerError as error:
        raise ClusterError(
            f"{error}; or have `rsm up --zookeeper HOST:PORT` use a ZooKeeper that runs, and name that cluster by "
            "--metadata-uri, if this is another command"
        ) from error
    return command


class _Ready(msgspec.Struct):
    """The line by which a bookie says that it is registered and serves."""

    ready: bool


def _environment() -> dict[str, str]:
    """Return the environment of a bookie: this one's, and where this very `ledger` was imported from."""
    # The user's folders would be shared by all the bookies: each has its own below the data directory.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RSM_BOOKIE__")}
    root = Path(__file__).resolve().parents[2]
    if root not in (Path(sysconfig.get_path("purelib")).resolve(), Path(sysconfig.get_path("platlib")).resolve()):
        earlier = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{earlier}" if earlier else str(root)
    environment["PYTHONUNBUFFERED"] = "1"
    return environment
