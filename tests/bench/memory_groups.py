"""Memory cgroups for processes of a bench: what a limit of their own does to them. Needs root, and cgroup v1 or v2."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.bench.nats_peer import PeerMissingError

_V1: Final = Path("/sys/fs/cgroup/memory")
_V2: Final = Path("/sys/fs/cgroup")
_REMOVE_S_MAX: Final = 30.0
_MIB: Final = 1024 * 1024


class MemoryGroup:
    """One cgroup with a limit; everything that its processes use counts, the page cache too.

    Args:
        name: Of it; free until now.
        limit_mib: Of memory.

    Raises:
        PeerMissingError: This machine does not let one be made.

    """

    def __init__(self, name: str, limit_mib: int) -> None:
        self._is_v1 = (_V1 / "memory.limit_in_bytes").exists()
        self._folder = (_V1 if self._is_v1 else _V2) / f"rsm-bench-{os.getpid()}-{name}"
        try:
            self._folder.mkdir()
            limit = "memory.limit_in_bytes" if self._is_v1 else "memory.max"
            (self._folder / limit).write_text(str(limit_mib * _MIB))
        except OSError as error:
            raise PeerMissingError(f"no memory cgroup can be made here: {error}") from error

    @property
    def prefix(self) -> tuple[str, ...]:
        """Command before another one, which then runs in this group."""
        return ("sh", "-c", f'echo $$ > {self._folder}/cgroup.procs && exec "$@"', "sh")

    def own_mib(self) -> float:
        """Return what its processes hold and could not give back: without files."""
        told = self._told("memory.stat")
        return int(told["rss" if self._is_v1 else "anon"]) / _MIB

    def ended_count(self) -> int:
        """Return how many of its processes the system has ended for want of memory."""
        return int(self._told("memory.oom_control" if self._is_v1 else "memory.events").get("oom_kill", 0))

    def _told(self, name: str) -> dict[str, str]:
        lines = (self._folder / name).read_text().splitlines()
        return {key: value for key, _, value in (line.partition(" ") for line in lines)}

    def remove(self) -> None:
        """Remove it; its processes have ended."""
        deadline = time.monotonic() + _REMOVE_S_MAX
        while self._folder.exists() and time.monotonic() < deadline:
            with suppress(OSError):  # The last one is still on its way out.
                self._folder.rmdir()
                return
            time.sleep(0.1)
