"""Guard of every server process: it ends by SIGTERM in any state, and ends itself if its event loop stands still.

    with ProcessGuard("bookie", stall_s=30.0) as guard:
        await guard.unless_stopped(serve())

A thread of its own asks the event loop for a sign of life. A loop that stands still answers no client, no probe and no
SIGTERM: its stack is logged after a few seconds, and after `stall_s` the process ends with a message, so that whoever
supervises it starts it again. What was acknowledged is on disk by then. Time in which the whole process was stopped
(SIGSTOP, a suspended machine) is not counted, since the thread was stopped as well. A library that stands still without
giving the interpreter's lock back stops this thread too, and is not noticed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

from ledger.errors import UsageError

_LOGGER = logging.getLogger(__name__)
_Result = TypeVar("_Result")

STALL_S: Final = 30.0
"""Time for which the event loop of a server may stand still, by default."""
STOP_S: Final = 4.5
"""Time that a server without data of its own to write may take to end."""
EXIT_STALLED: Final = 70
"""Exit code of a process whose event loop stood still (EX_SOFTWARE)."""
_EXIT_STOPPED: Final = 128
_STARTING_FACTOR: Final = 10
_TELL_S_MAX: Final = 5.0
_STEP_S: Final = 0.5


class ProcessGuard:
    """Watches a process from when it is entered, on the main thread and the running loop.

    Args:
        name: What the process is, for messages.
        stall_s: How long the event loop may stand still; 0 = for ever. Ten times that before `ready`.
        stop_s: How long the process may go on after SIGTERM or SIGINT; None = as long as it likes.
        on_signal: Called on the loop at each of these signals.

    Attributes:
        stopped: Set by the first of these signals.

    """

    def __init__(
        self,
        name: str,
        *,
        stall_s: float = STALL_S,
        stop_s: float | None = STOP_S,
        on_signal: Callable[[], None] = lambda: None,
    ) -> None:
        if stall_s < 0:
            raise UsageError(f"--stall-s {stall_s:g}: seconds, or 0 for never")
        self.stopped = asyncio.Event()
        self._name = name
        self._stall_s = stall_s
        self._stop_s = stop_s
        self._on_signal = on_signal
        self._is_ready = False
        self._has_left = False
        self._signal = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="process-guard", daemon=True)
        self._before: dict[int, Any] = {}
        self._is_asked = False
        self._stood_s = 0.0
        self._has_told = False
        self._ending_s = 0.0

    def __enter__(self) -> Self:
        """Begin to watch, and to hear signals."""
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._hear)
        self._main_thread = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Watch the loop no more. After a signal, the interpreter itself has to end in time, too."""
        self._has_left = True
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if not self._signal or self._stop_s is None:
            self._over.set()

    def ready(self) -> None:
        """Say that the process has started: from now on the loop may not stand still for longer than is allowed."""
        self._is_ready = True

    def end_within(self, stop_s: float) -> None:
        """Say that a process which a signal was sent to has nothing more to do: from now on it may take so long."""
        if self._signal:
            self._stop_s = stop_s

    async def unless_stopped(self, work: Coroutine[Any, Any, _Result]) -> _Result | None:
        """Do this until it is over; None if a signal came first, by which it is cancelled."""
        loop = asyncio.get_running_loop()
        working = loop.create_task(work)
        stopping = loop.create_task(self.stopped.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
                await asyncio.wait([working])
                if working.cancelled():
                    return None
            return working.result()
        finally:
            stopping.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait([working])

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._signal = self._signal or number
        self._loop.call_soon_threadsafe(self._heard)

    def _heard(self) -> None:
        self.stopped.set()
        self._on_signal()

    # --- on the thread

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(_STEP_S):
            now = time.monotonic()
            # A longer step is one in which this thread was stopped too, or waited for a processor.
            step_s = min(now - before, 2 * _STEP_S)
            before = now
            if not self._has_left:
                self._look_at_loop(step_s)
            if self._signal and self._stop_s is not None:
                self._ending_s += step_s
                if self._ending_s >= self._stop_s:
                    self._end_late()

    def _look_at_loop(self, step_s: float) -> None:
        # Asked without a limit too: a signal that comes just before the loop begins to wait is heard when it wakes up.
        if not self._is_asked:
            self._goes_on()
            self._is_asked = True
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # The loop has been closed.
                self._has_left = True
            return
        if not self._stall_s:
            return
        self._stood_s += step_s
        limit_s = self._stall_s * (1 if self._is_ready else _STARTING_FACTOR)
        if self._stood_s >= limit_s:
            self._end_stalled(limit_s)
        if self._stood_s >= min(_TELL_S_MAX, limit_s / 2) and not self._has_told:
            self._has_told = True
            frame = sys._current_frames().get(self._main_thread)
            stack = "".join(traceback.format_stack(frame)) if frame is not None else "unknown"
            _LOGGER.error("the event loop has stood still for %.1f s", self._stood_s, extra={"trace": stack})

    def _goes_on(self) -> None:
        if self._has_told:
            _LOGGER.warning("the event loop goes on, after it had stood still for %.1f s", self._stood_s)
        self._stood_s = 0.0
        self._has_told = False

    def _answer(self) -> None:
        self._is_asked = False

    def _end_stalled(self, limit_s: float) -> None:
        self._say(
            f"the event loop has stood still for {limit_s:g} s: this process ends now, to be started again. What was "
            "acknowledged is safe. --stall-s changes the limit, 0 lifts it. All threads:"
        )
        faulthandler.dump_traceback(all_threads=True)
        os._exit(EXIT_STALLED)

    def _end_late(self) -> None:
        self._say(
            f"{signal.Signals(self._signal).name} came {self._ending_s:.1f} s ago, and something is still awaited: "
            "this process ends now. Everything acknowledged is safe"
        )
        os._exit(_EXIT_STOPPED + self._signal)

    def _say(self, words: str) -> None:
        sys.stderr.write(f"{self._name}: {words}\n")
        sys.stderr.flush()
