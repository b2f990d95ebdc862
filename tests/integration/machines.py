"""Machines on one machine: network namespaces on a bridge, each with files of its own in the places that all have."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

__all__ = ["Machines"]

_LINE_S_MAX = 240


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Machines:
    """A switch, and machines with addresses of one network on it.

    Args:
        folder: Holds `etc` and `state`, which are another folder on each machine, and those folders.
        names: Of the machines.

    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.names = list(names)
        self.folder = folder
        self.etc, self.state = folder / "etc", folder / "state"
        self._tag = f"rsm{os.getpid()}"
        self._made: list[str] = []
        self._nodes: dict[str, MachineNode] = {}

    def address(self, name: str) -> str:
        """Return a machine's address."""
        return f"10.78.0.{self.names.index(name) + 1}"

    def __enter__(self) -> Self:
        try:
            self.etc.mkdir()
            self.state.mkdir()
            _run("ip", "netns", "add", self._space("switch"))
            self._made.append(self._space("switch"))
            self._in("switch", "ip", "link", "add", "bridge", "type", "bridge")
            self._in("switch", "ip", "link", "set", "bridge", "up")
            for name in self.names:
                self._plug(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes.values():
            node.kill()
        for space in self._made:
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "del", space)

    def _space(self, name: str) -> str:
        return f"{self._tag}{'s' if name == 'switch' else self.names.index(name)}"

    def namespace(self, name: str) -> Path:
        """Return the file of a machine's network namespace."""
        return Path("/run/netns") / self._space(name)

    def _in(self, name: str, *command: str) -> None:
        _run("ip", "netns", "exec", self._space(name), *command)

    def _plug(self, name: str) -> None:
        number = self.names.index(name)
        _run("ip", "netns", "add", self._space(name))
        self._made.append(self._space(name))
        self._in(name, "ip", "link", "set", "lo", "up")
        here, there = f"{self._tag}h{number}", f"port{number}"
        _run(
            "ip", "link", "add", here, "netns", self._space(name), "type", "veth",
            "peer", "name", there, "netns", self._space("switch"),
        )  # fmt: skip
        self._in("switch", "ip", "link", "set", there, "master", "bridge", "up")
        self._in(name, "ip", "address", "add", f"{self.address(name)}/24", "dev", here)
        self._in(name, "ip", "link", "set", here, "up")

    def unplug(self, name: str) -> None:
        """Take a machine's cable out of the switch."""
        self._in("switch", "ip", "link", "set", f"port{self.names.index(name)}", "down")

    def plug_in(self, name: str) -> None:
        """Put it in again."""
        self._in("switch", "ip", "link", "set", f"port{self.names.index(name)}", "up")

    def command(self, name: str, files: Path, *words: str) -> list[str]:
        """Return the command that runs these words on a machine, with its own files at `etc` and `state`."""
        state = self.folder / f"state-of-{name}"
        state.mkdir(exist_ok=True)
        script = 'mount --bind "$1" "$2" && mount --bind "$3" "$4" && cd "$4" && shift 4 && exec "$@"'
        places = [str(files), str(self.etc), str(state), str(self.state)]
        return ["ip", "netns", "exec", self._space(name), "sh", "-c", script, "sh", *places, *words]

    def start(self, name: str, files: Path, *words: str) -> MachineNode:
        """Run a machine's node; what it says is heard."""
        node = MachineNode(self.command(name, files, *words), self.folder / f"{name}.log")
        self._nodes[name] = node
        return node


class MachineNode:
    """`rsm node run` of one machine."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def hear(self, is_it: Callable[[str], bool]) -> str:
        """Wait for a line."""
        while True:
            try:
                line = self._lines.get(timeout=_LINE_S_MAX)
            except queue.Empty:
                raise AssertionError(f"see {self._log}; it said\n" + "\n".join(self.said)) from None
            self.said.append(line)
            if is_it(line):
                return line

    def kill(self) -> None:
        """End it as a power cut would, with all of its processes."""
        self.process.kill()
        self.process.wait()
