"""Processor time by operation, of each kind of process: it holds where rates vary with what else the machine does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the processor seconds that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def tree_cpu_s(pid: int) -> float:
    """Return what a process, all that it started and all that it has waited for have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    used_s = sum(map(int, fields[11:15])) / _TICKS_PER_S
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # It, or a child, has just ended.
            used_s += sum(map(tree_cpu_s, map(int, (task / "children").read_text().split())))
    return used_s


class CpuMeter:
    """Counts from when it is made.

    Args:
        kinds: Processes by what they are, such as `{"leader": [17], "bookies": [3, 4, 5]}`.

    """

    def __init__(self, kinds: Mapping[str, Sequence[int]]) -> None:
        self._kinds = kinds
        self._before = self._used()

    def _used(self) -> dict[str, float]:
        return {kind: sum(map(cpu_s, pids)) for kind, pids in self._kinds.items()}

    def note(self, name: str, operations: float, note: Callable[[str, float], object]) -> None:
        """Note µs by operation: `{name}_cpu_us` of all, `{name}_cpu_us_{kind}` of each kind."""
        used = {kind: used - self._before[kind] for kind, used in self._used().items()}
        note(f"{name}_cpu_us", sum(used.values()) * 1e6 / operations)
        for kind, seconds in used.items():
            note(f"{name}_cpu_us_{kind}", seconds * 1e6 / operations)
