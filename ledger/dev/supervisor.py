"""Starts servers of a development cluster again that end on their own: in `rsm up`, or as a process of its own.

    python -m ledger.dev.supervisor DATA_DIR     what `rsm up --detach` leaves behind

1. Pauses double from 1 s to 30 s, and begin anew for a server that had stayed for a minute.
2. A server that does not stay is left alone after 20 starts; `rsm ps` shows it, `rsm up` starts it.
3. SIGTERM and SIGINT end the cluster; SIGUSR1, which `rsm down` sends, ends the supervisor alone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ledger.dev.cluster import DevCluster
from ledger.dev.errors import ClusterBusyError, ClusterError
from ledger.dev.state import ServerState

_POLL_S = 0.2
_PAUSE_S_MIN = 1.0
_PAUSE_S_MAX = 30.0
_STAYED_S = 60.0
RESTARTS_MAX = 20
"""Starts of one server that did not stay, before it is left alone: ten minutes or so."""


class Supervisor:
    """Looks after a cluster that was started.

    Args:
        cluster: The cluster.
        say: Told in one line what happened.

    """

    def __init__(self, cluster: DevCluster, say: Callable[[str], object]) -> None:
        self._cluster = cluster
        self._say = say
        self._restarts: dict[str, _Restart] = {}

    def run(self) -> None:
        """Go on until the cluster was ended by somebody."""
        while True:
            time.sleep(_POLL_S)
            try:
                died = self._cluster.died()
            except ClusterBusyError:
                continue  # Whoever is at work ends and starts servers on purpose.
            for server in died:
                self._start_again(server, self._restarts.setdefault(server.name, _Restart()))
            if self._cluster.is_down:
                self._say("the cluster was ended by `rsm down`")
                return

    def _start_again(self, server: ServerState, restart: _Restart) -> None:
        pid = server.process.pid if server.process else 0
        try:
            if pid != restart.told_pid:
                restart.told_pid = pid
                seen = f"{server.name} ({server.address}, pid {pid}) died: {self._cluster.last_words(server)}"
                self._plan(server, restart, seen)
            if time.monotonic() < restart.due_s:
                return
            if self._cluster.restart(server.name):
                restart.started_s = time.monotonic()
                self._say(f"{server.name} runs again, pid {self._cluster.pids().get(server.name, 0)}")
        except ClusterBusyError:
            return
        except ClusterError as error:
            restart.started_s = time.monotonic()
            restart.told_pid = self._cluster.recorded_pid(server.name)
            self._plan(server, restart, f"{server.name} does not start: {error}")

    def _plan(self, server: ServerState, restart: _Restart, seen: str) -> None:
        """Decide when a server is started again, if at all."""
        now_s = time.monotonic()
        if now_s - restart.started_s > _STAYED_S:
            restart.pause_s, restart.count = _PAUSE_S_MIN, 1
        else:
            restart.pause_s = min(2 * restart.pause_s, _PAUSE_S_MAX)
            restart.count += 1
        if restart.count > RESTARTS_MAX:
            restart.due_s = float("inf")
            self._cluster.give_up(server.name)
            self._say(f"{seen}; it was started {RESTARTS_MAX} times and is left alone now: `rsm up` starts it")
        else:
            restart.due_s = now_s + restart.pause_s
            self._say(f"{seen}; starts again in {restart.pause_s:.0f} s")


@dataclass
class _Restart:
    """Time of a server's next start: the delay grows if the server does not stay."""

    pause_s: float = _PAUSE_S_MIN
    count: int = 0
    told_pid: int = 0
    due_s: float = 0.0
    started_s: float = float("-inf")


def main(data_dir: Path) -> int:
    """Supervise the cluster of this directory until it is ended; return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGUSR1, _leave)
    cluster = DevCluster(data_dir, outlives=True)
    _tell(f"supervises {cluster.data_dir}, pid {os.getpid()}")
    try:
        Supervisor(cluster, _tell).run()
    except KeyboardInterrupt:
        _tell(f"a signal came; ended: {', '.join(cluster.stop())}")
    except (ClusterError, OSError) as error:
        _tell(f"ends, because it cannot look after the cluster: {error}; `rsm up` takes over")
        return 1
    return 0


def _tell(words: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} supervisor: {words}\n")
    sys.stderr.flush()


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
