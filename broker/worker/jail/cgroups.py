"""Bounds for all processes of a child together, where this process may make cgroups below its own.

Version 1: in the folders of `memory` and `pids`. Version 2: beside its own, where the folder above was handed to it
(systemd: `Delegate=yes` and `DelegateSubgroup=worker`), since no cgroup may have processes and bounded cgroups at once.
Where version 2 has neither of the two, its cgroups bound nothing, but what is in them is still found and ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_MOUNTED = Path("/sys/fs/cgroup")
_CONTROLLERS = ("memory", "pids")


class Cgroups:
    """Makes and removes cgroups of children.

    Attributes:
        controllers: What can be bounded: some of memory and pids.

    """

    def __init__(self) -> None:
        self._folders: dict[str, list[Path]] = {}
        # Of children that were still ending when they were to be removed.
        self._left: list[Path] = []
        self._version_1, self._version_2, self._bounded_by_2 = _own_folders()
        self._sweep()
        self.controllers: tuple[str, ...] = ()
        # What can be bounded is what can be bounded: it is tried.
        probe = self.make("probe", memory_bytes=1 << 40, processes=1_000)
        self.controllers = tuple(sorted({one for one in _CONTROLLERS if self._is_made(one, probe)}))
        self.remove("probe")

    def make(self, name: str, *, memory_bytes: int, processes: int) -> list[str]:
        """Make a child's cgroups; return the files to which it writes itself. What cannot be made is left out."""
        self._clear()
        made: list[Path] = []
        full = f"rsm-code-{os.getpid()}-{name}"
        with contextlib.suppress(OSError):
            if self._version_2 is not None:
                folder = self._version_2 / full
                folder.mkdir()
                made.append(folder)
                if "pids" in self._bounded_by_2:
                    (folder / "pids.max").write_text(str(processes))
                if "memory" in self._bounded_by_2:
                    (folder / "memory.max").write_text(str(memory_bytes))
                    with contextlib.suppress(OSError):
                        (folder / "memory.swap.max").write_text("0")
        for controller, parent in self._version_1.items():
            folder = parent / full
            with contextlib.suppress(OSError):
                folder.mkdir()
                made.append(folder)
                if controller == "memory":
                    (folder / "memory.limit_in_bytes").write_text(str(memory_bytes))
                    (folder / "memory.memsw.limit_in_bytes").write_text(str(memory_bytes))
                else:
                    (folder / "pids.max").write_text(str(processes))
        self._folders[name] = made
        return [str(folder / "cgroup.procs") for folder in made]

    def remove(self, name: str) -> None:
        """Remove a child's cgroups; its processes are gone, or going."""
        self._left += self._folders.pop(name, [])
        self._clear()

    def _clear(self) -> None:
        left, self._left = self._left, []
        for folder in left:
            try:
                _kill_all(folder)
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                self._left.append(folder)

    def _sweep(self) -> None:
        """End and remove what killed workers have left."""
        for parent in {*self._version_1.values(), *([self._version_2] if self._version_2 is not None else [])}:
            for folder in parent.glob("rsm-code-*"):
                if not Path("/proc", folder.name.split("-")[2]).exists():
                    self._left.append(folder)

    def _is_made(self, controller: str, files: list[str]) -> bool:
        if controller in self._bounded_by_2 and any(file.startswith(f"{self._version_2}/") for file in files):
            return True
        parent = self._version_1.get(controller)
        return parent is not None and any(file.startswith(f"{parent}/") for file in files)


def _kill_all(folder: Path) -> None:
    """Kill what is in a cgroup; what has left its process group, and has no namespace that ends with it, too."""
    with contextlib.suppress(OSError):  # Version 1: nothing new comes while it is gone through.
        (folder / "pids.max").write_text("0")
    with contextlib.suppress(FileNotFoundError):
        kill = folder / "cgroup.kill"
        if kill.exists():  # Version 2, since Linux 5.14.
            kill.write_text("1")
            return
    for pid in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _own_folders() -> tuple[dict[str, Path], Path | None, frozenset[str]]:
    """Return the folders below which version 1 has room for ours, by controller; that of version 2, what it bounds."""
    first: dict[str, Path] = {}
    second: Path | None = None
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounted = _mounted_2()
    except OSError:
        return {}, None, frozenset()
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and mounted is not None:
            second = _delegated(mounted / path.strip("/"))
        for controller in controllers.split(","):
            place = _MOUNTED / controller / path.strip("/")
            if controller in _CONTROLLERS and os.access(place, os.W_OK):
                first[controller] = place
    return first, second, frozenset() if second is None else _enabled(second)


def _mounted_2() -> Path | None:
    """Return where version 2 is mounted: beside version 1 it is not where it is alone."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] == "cgroup2":
            return Path(before.split()[4])
    return None


def _delegated(own: Path) -> Path | None:
    """Return the folder above, if it was handed to this process."""
    above = own.parent
    try:
        is_ours = os.getxattr(above, "user.delegate") == b"1" and own.name != "" and os.access(above, os.W_OK)
    except OSError:
        return None
    return above if is_ours else None


def _enabled(folder: Path) -> frozenset[str]:
    """Return which of memory and processes are bounded for cgroups in a folder, from now on."""
    with contextlib.suppress(OSError):
        there = (folder / "cgroup.controllers").read_text().split()
        wanted = [one for one in _CONTROLLERS if one in there]
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{one}" for one in wanted))
        return frozenset(wanted)
    return frozenset()
