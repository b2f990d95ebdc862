"""State of a development cluster in its data directory: ports for ever, processes while they run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ledger.decoding import json_decoder
from ledger.dev.errors import ClusterBusyError, ClusterError
from ledger.dev.process import ProcessId

_FILE = "cluster.json"
_LOCK_FILE = "lock"
_FORMAT = 1
_POLL_S = 0.05


class ServerState(msgspec.Struct):
    """One server of the cluster.

    Attributes:
        name: `zookeeper`, `bookie-1`, `bookie-2`, ...; also the name of its folder and of its log.
        address: host:port; a server keeps it for ever, because its identity is made of it.
        process: Who runs it, or None if it was stopped.
        restart_count: How often it was started again since `rsm up`, because it had ended on its own.
        is_given_up: It did not stay, and is not started again before the next `rsm up`.

    """

    name: str
    address: str
    process: ProcessId | None = None
    restart_count: int = 0
    is_given_up: bool = False

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


class ClusterState(msgspec.Struct):
    """All that is remembered about one cluster.

    Attributes:
        zookeeper: The ZooKeeper that the bookies use.
        owns_zookeeper: False if somebody else started it: then it is never started or ended from here.
        bookies: In the order of their numbers; those beyond `bookie_count` stay known, with their data.
        bookie_count: How many of them the last start wanted.
        supervisor: Who starts servers again that end on their own.
        is_detached: It is a process of its own, not an `rsm up` in somebody's terminal.
        format: Version of this file.
        has_auto_recovery: Its bookies repair what a lost one held.

    """

    zookeeper: ServerState
    owns_zookeeper: bool
    bookies: list[ServerState]
    bookie_count: int
    supervisor: ProcessId | None = None
    is_detached: bool = False
    format: int = _FORMAT
    has_auto_recovery: bool = True

    @property
    def metadata_uri(self) -> str:
        """Address of the cluster's metadata, for clients and bookies."""
        return f"zk+hierarchical://{self.zookeeper.address}/ledgers"

    def wanted(self) -> list[ServerState]:
        """Return the servers that run while the cluster is whole, ZooKeeper first."""
        return [*([self.zookeeper] if self.owns_zookeeper else []), *self.bookies[: self.bookie_count]]

    def owned(self) -> list[ServerState]:
        """Return the servers that this cluster may start and end, ZooKeeper first."""
        return [*([self.zookeeper] if self.owns_zookeeper else []), *self.bookies]


def read_state(data_dir: Path) -> ClusterState | None:
    """Return the state of the cluster in this directory, or None if there never was one.

    Raises:
        ClusterError: The file cannot be read or was written by another version.

    """
    path = data_dir / _FILE
    try:
        state = json_decoder(ClusterState).decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ClusterError(f"cannot read {path}: {error}; move the directory away to start anew") from error
    if state.format != _FORMAT:
        raise ClusterError(f"{path} has format {state.format}, this version knows {_FORMAT}: upgrade rsm-spark")
    return state


def write_state(data_dir: Path, state: ClusterState) -> None:
    """Replace the state file; after a crash there is the old one or the new one."""
    path = data_dir / _FILE
    temporary = path.with_suffix(".json.tmp")
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(state)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextlib.contextmanager
def cluster_lock(data_dir: Path, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the right to start and end processes of this cluster.

    The system gives the lock back when its holder dies, so a stale one cannot exist.

    Raises:
        ClusterBusyError: Somebody else held it for all of `wait_s` seconds.

    """
    deadline = time.monotonic() + wait_s
    with (data_dir / _LOCK_FILE).open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ClusterBusyError(
                        f"another `rsm up` or `rsm down` is at work on {data_dir}: wait, or use another --data-dir",
                    ) from None
                time.sleep(_POLL_S)
            else:
                break
        yield
