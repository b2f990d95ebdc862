"""Memory that this process may use, and its distance from that limit: asked by the leader before each entry.

    limit   what an operator has said; else the least of the cgroup's (v2 or v1, its ancestors' too), the process's own
            (`ulimit -v`) and what the machine has
    used    resident memory of this process, of mapped files 64 MiB at most; beside it what all processes of a limited
            cgroup use together

From `MARK` of the limit on the state must not grow by what clients ask for; below `EASED` that is taken again. A
process that goes on to the limit is ended from outside, with all that it held, and again after each restart.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

MARK = 0.70
"""The rest is for what cannot be refused: ends of tasks, a snapshot that is written, garbage, the next entry."""
EASED = 0.65
_CGROUP_MARK = 0.90
"""Share of a cgroup's limit that all its processes use: above it one of them is soon ended, whichever has grown."""
_LOOK_S = 0.25
_UNLIMITED = 1 << 60
_MIB = 1024 * 1024
_PROGRAM_BYTES = 64 * _MIB
"""Python, its libraries and ours, as a broker has them mapped."""


class MemoryUse(msgspec.Struct, frozen=True):
    """Bytes: what is used, and the limit that it is nearest to."""

    used: int
    limit: int

    @property
    def share(self) -> float:
        """Part of the limit that is used."""
        return self.used / self.limit


class _Cgroup(msgspec.Struct, frozen=True):
    """A limited memory cgroup: where it lies, its limit, and the file that tells of its use."""

    folder: Path
    limit: int

    def used(self) -> int:
        """Return what its processes use and could not give back; 0 if it does not say."""
        try:
            told = dict(
                line.split(" ", 1) for line in (self.folder / "memory.stat").read_text(encoding="ascii").splitlines()
            )
            return int(told.get("total_rss") or told.get("anon") or told.get("rss") or 0)
        except (OSError, ValueError):
            return 0


def _number(path: Path) -> int:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def _cgroup(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> _Cgroup | None:
    """Return the tightest memory cgroup around this process; None = none has a limit."""
    try:
        lines = proc.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found: list[_Cgroup] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = base / path.lstrip("/")
        # In a container the path may be that of the host: then the limit lies at the root that is mounted.
        for one in (folder, *folder.parents):
            limit = _number(one / name)
            if 0 < limit < _UNLIMITED:
                found.append(_Cgroup(one, limit))
            if one == base:
                break
    return min(found, key=lambda one: one.limit, default=None)


def _machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_limit(said_mib: int = 0) -> int:
    """Return how many bytes this process may use.

    Args:
        said_mib: By an operator; 0 = look.

    """
    if said_mib:
        return said_mib * _MIB
    cgroup = _cgroup()
    return min(_machine(), _machine() if cgroup is None else cgroup.limit, _address_limit() or _machine())


def _address_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 0 if soft == resource.RLIM_INFINITY or soft >= _UNLIMITED else soft


def _own() -> tuple[int, int]:
    """Return size of the address space and memory of this process, in bytes.

    Pages of mapped files are left out but for what the program itself has of them, since it cannot run without: the
    system takes the others back when it needs room, and a snapshot that is read may have more of them than there is
    memory.
    """
    try:
        size, resident, of_files = Path("/proc/self/statm").read_bytes().split()[:3]
    except (OSError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return 0, peak * (1 if sys.platform == "darwin" else 1024)
    page = os.sysconf("SC_PAGE_SIZE")
    return int(size) * page, int(resident) * page - max(0, int(of_files) * page - _PROGRAM_BYTES)


class MemoryGauge:
    """See the module.

    Args:
        said_mib: By an operator; 0 = look.
        clock_s: Monotonic.

    Attributes:
        limit: Bytes that this process may use.
        is_full: Nothing that makes the state grow is to be taken.

    """

    def __init__(self, said_mib: int = 0, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.limit = memory_limit(said_mib)
        self.is_full = False
        self._cgroup = _cgroup()
        self._address_limit = _address_limit()
        self._clock_s = clock_s
        self._looked_s = float("-inf")
        self._use = MemoryUse(0, self.limit)

    def look(self) -> MemoryUse:
        """Return the use, at most a quarter of a second old; `is_full` is as of then."""
        now_s = self._clock_s()
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            self._use, share = self._measure()
            self.is_full = share >= (EASED if self.is_full else MARK)
        return self._use

    def _measure(self) -> tuple[MemoryUse, float]:
        size, resident = _own()
        use = MemoryUse(resident, self.limit)
        share = use.share
        if self._address_limit and size / self._address_limit > share:
            use = MemoryUse(size, self._address_limit)
            share = use.share
        if self._cgroup is not None:
            together = MemoryUse(self._cgroup.used(), self._cgroup.limit)
            if together.share >= _CGROUP_MARK and together.share > share:
                return together, together.share
        return use, share


def return_free_memory() -> None:
    """Have the C library give freed memory back to the system: it may take some ten milliseconds. Where it can."""
    try:
        trim = ctypes.CDLL(ctypes.util.find_library("c")).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim(0)
