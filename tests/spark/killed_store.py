"""Two servers of a file store, one of which kills at a point."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.store_processes import Stores
from tests.spark.file_kill_points import FileKillPoint

_OPTIONS = ("--http-port", "0", "--session-timeout-ms", "2000", "--ledger-files")


class KilledStore:
    """See the module.

    Args:
        running: Where they are started.
        point: Where a process is killed.
        folder: Of marks.

    Attributes:
        addresses: Of the servers; the one that leads is the first.

    """

    def __init__(self, running: Stores, point: FileKillPoint, folder: Path) -> None:
        command = ("tests.spark.killed_file_server", str(folder), point.name)
        started = {name: running.start(name, *_OPTIONS, command=command) for name in ("a", "b")}
        self._running = running
        leader = asyncio.run(running.leader()).replica_id
        self._names = sorted(started, key=lambda name: name != leader)
        self.addresses = [str(started[name].ready["http_address"]) for name in self._names]

    def left(self) -> str:
        """Return the address of a server that runs."""
        return next(
            address
            for name, address in zip(self._names, self.addresses, strict=True)
            if self._running.alive[name].process.poll() is None
        )
