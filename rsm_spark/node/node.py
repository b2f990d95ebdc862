"""One machine's processes: carries out what `core/supervision.py` decides."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from ledger.process_guard import ProcessGuard
from rsm_spark.node.children import NodeChild, rsm_command
from rsm_spark.node.core.supervision import Effect, EndChild, SayLine, StartChild, Supervision
from rsm_spark.node.settings import NodeProcess, NodeSettings, grace_ms, words_of

_ASKED: Final = frozenset({"zookeeper"})
"""Kinds that do not say when they are ready: `rsm KIND ready` waits for it."""
_ASK_S: Final = "1000000"


class NodeRunner:
    """The processes of one machine.

    Args:
        settings: Names them.
        say: Told in one line what has changed.

    Attributes:
        supervision: State of each process.

    """

    def __init__(self, settings: NodeSettings, say: Callable[[str], object]) -> None:
        self.supervision = Supervision({one.name: grace_ms(one) for one in settings.process})
        self._settings = settings
        self._say = say
        self._kinds = {one.name: one for one in settings.process}
        self._running: dict[str, NodeChild] = {}
        self._asking: dict[str, NodeChild] = {}
        self._wake = asyncio.Event()

    async def run(self, guard: ProcessGuard) -> None:
        """Run them until the guard hears a signal; return once all have ended."""
        guard.ready()
        while not self.supervision.is_over:
            self._do(self.supervision.on_time(_now_ms()))
            due_ms = self.supervision.due_ms()
            timeout_s = None if due_ms is None else max(0.0, (due_ms - _now_ms()) / 1000)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            self._wake.clear()

    def stop(self) -> None:
        """End all of them, in the opposite order; the second call kills them."""
        self._do(self.supervision.end("a signal came", _now_ms()))

    def status(self) -> list[dict[str, object]]:
        """Return the state of each process, in the order of their start."""
        now_ms = _now_ms()
        return [
            {
                "name": child.name,
                "kind": self._kinds[child.name].kind,
                "state": child.phase.value,
                "for_s": round((now_ms - child.since_ms) / 1000, 1) if child.since_ms else 0.0,
                "pid": child.pid,
                "restarts": child.restarts,
                "last_end": child.last_end,
                "conf": self._kinds[child.name].conf,
            }
            for child in self.supervision.children.values()
        ]

    def kind_of(self, name: str) -> str:
        """Return what a process is: one of the kinds of its file."""
        return self._kinds[name].kind

    # --- ChildListener

    def on_line(self, name: str, line: str) -> None:
        """Hear a line of a process: the first one says that it serves."""
        self._say(f"{name}: {line}")
        if self._kinds[name].kind not in _ASKED:
            self._do(self.supervision.on_ready(name, _now_ms()))

    def on_end(self, name: str, how: str, code: int) -> None:
        """Hear that a process has ended."""
        del self._running[name]
        if (asking := self._asking.pop(name, None)) is not None:
            asking.send(signal.SIGKILL)
        self._do(self.supervision.on_ended(name, how, _now_ms(), code=code))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartChild(name):
                    self._start(self._kinds[name])
                case EndChild(name, is_kill):
                    self._running[name].send(signal.SIGKILL if is_kill else signal.SIGTERM)
                case SayLine(words):
                    self._say(words)
        if effects:
            self._wake.set()  # What is due next may be due earlier now.

    def _start(self, process: NodeProcess) -> None:
        name, environment = process.name, self._environment(process)
        try:
            child = NodeChild(name, rsm_command(words_of(process)), environment, self)
        except OSError as error:
            self._do(self.supervision.on_ended(name, f"cannot be started: {error}", _now_ms()))
            return
        self._running[name] = child
        self._do(self.supervision.on_started(name, child.pid, _now_ms()))
        if process.kind in _ASKED:
            words = [process.kind, "ready", "--conf", process.conf, *process.arguments, "--wait-s", _ASK_S]
            with contextlib.suppress(OSError):  # The next one starts without it, a little later.
                self._asking[name] = NodeChild(name, rsm_command(words), environment, _Asked(self, name))

    def _environment(self, process: NodeProcess) -> dict[str, str]:
        environment = {**os.environ, **self._settings.environment, **process.environment, "PYTHONUNBUFFERED": "1"}
        environment.pop("NOTIFY_SOCKET", None)  # systemd started this process, and hears from it alone.
        return environment

    def answered(self, name: str) -> None:
        """Hear that a process which was asked serves."""
        if self._asking.pop(name, None) is not None:
            self._do(self.supervision.on_ready(name, _now_ms()))


class _Asked:
    """Hears of the process that asks another one whether it serves."""

    def __init__(self, node: NodeRunner, name: str) -> None:
        self._node = node
        self._name = name
        self._has_answered = False

    def on_line(self, _name: str, _line: str) -> None:
        self._has_answered = True

    def on_end(self, _name: str, _how: str, code: int) -> None:
        if self._has_answered and code == 0:
            self._node.answered(self._name)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
