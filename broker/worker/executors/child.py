"""A child process of a worker: runs one task after the other in its main thread, until its worker hangs up.

It imports the user's code; its worker does not. A thread reads the pipe, so that a run hears when it is to end, and so
that nothing outlives the worker. Only standard library, msgspec, and what the messages need are imported here.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.worker_messages import AssignedRun
from broker.worker.code.entries import EntryError, entry_of
from broker.worker.context import RunCancelledError, TaskContext
from broker.worker.core.effects import StopReason
from broker.worker.executors.child_messages import (
    ChildMessage,
    FrameReader,
    FunctionLoaded,
    ParentMessage,
    Ready,
    RunEnded,
    RunMade,
    RunProgress,
    SetUp,
    StopRun,
    encode_frame,
)
from broker.worker.jail.enter import enter
from broker.worker.jail.kernel import die_with_parent
from broker.worker.jail.plan import JailPlan
from broker.worker.outcomes import cut_error, error_text, failed, finished, refused, stopped
from broker.worker.registry import Registry, load_registry
from ledger.decoding import json_decoder
from ledger.errors import UsageError

_MESSAGES: msgspec.msgpack.Decoder[ParentMessage] = msgspec.msgpack.Decoder(ParentMessage)
_READ_BYTES = 256 * 1024
_PROGRESS_S = 0.1
"""The newest sign of life reaches the worker so often; it sends them on more rarely still."""


class _Child:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._send_lock = threading.Lock()
        self._made: queue.SimpleQueue[SetUp | RunMade] = queue.SimpleQueue()
        self._context: TaskContext | None = None
        self._stopped: dict[int, str] = {}
        self._registry: Registry | None = None
        self._giver: Callable[[TaskContext], AbstractContextManager[Mapping[str, Any]]] | None = None
        self._folder = ""
        self._entries: dict[str, Callable[..., Any]] = {}
        # The newest sign of life, until the thread that sends them has taken it.
        self._progress: deque[ProgressOf] = deque(maxlen=1)
        self._has_progress = threading.Event()

    def serve(self) -> None:
        """Run what comes, for ever: the reader ends the process."""
        threading.Thread(target=self._read, name="rsm-child-reader", daemon=True).start()
        threading.Thread(target=self._send_progress, name="rsm-child-progress", daemon=True).start()
        while True:
            message = self._made.get()
            if isinstance(message, SetUp):
                self._set_up(message)
            else:
                end = self._run(message.run)
                self._send(RunEnded(end, time.process_time()))

    # ---- the reader's thread

    def _read(self) -> None:
        frames = FrameReader()
        with contextlib.suppress(OSError):
            while chunk := self._connection.recv(_READ_BYTES):
                for text in frames.feed(chunk):
                    message = _MESSAGES.decode(text)
                    if isinstance(message, StopRun):
                        self._stop(message)
                    else:
                        self._made.put(message)
        # The worker is gone: nobody wants what runs here, and somebody else may be running it soon.
        os._exit(1)

    def _stop(self, message: StopRun) -> None:
        # Marked first: the main thread looks there when it has made the context of the run.
        self._stopped[message.assignment_id] = message.reason
        context = self._context
        if context is not None and context.assignment_id == message.assignment_id:
            context.stop(StopReason(message.reason))

    # ---- the main thread

    def _set_up(self, message: SetUp) -> None:
        if message.memory_bytes_max:
            resource.setrlimit(resource.RLIMIT_AS, (message.memory_bytes_max, message.memory_bytes_max))
        if message.folder:
            self._folder = message.folder
            sys.path[:] = _path_of_a_pool(message.folder)
        try:
            if message.tasks:
                self._registry = load_registry(message.tasks)
            if message.giver:
                module, _, name = message.giver.partition(":")
                self._giver = getattr(importlib.import_module(module), name)
        except UsageError as error:
            self._send(Ready(error=cut_error(str(error))))
            return
        except BaseException as error:  # noqa: BLE001 - `sys.exit` while it is imported, for example
            self._send(Ready(error=error_text(error)))
            return
        self._send(Ready(self._registry.types if self._registry is not None else []))

    def _run(self, run: AssignedRun) -> EndedRun:
        context = self._context = TaskContext(run, self._on_progress)
        reason = self._stopped.pop(run.assignment_id, None)
        if reason is not None:
            return stopped(run.task_id, run.assignment_id, StopReason(reason))
        try:
            function = self._function(run)
            if function is None:
                return refused(run.task_id, run.assignment_id, f"this worker has no function for type {run.type!r}")
            self._send(FunctionLoaded(run.assignment_id))
            with self._giver(context) if self._giver is not None else contextlib.nullcontext({}) as given:
                result = function(context, run.payload, **given)
            return finished(run.task_id, run.assignment_id, result)
        except EntryError as error:
            return refused(run.task_id, run.assignment_id, str(error))
        except BaseException as error:  # noqa: BLE001 - whatever a user's function raises is its end, exits included
            # What was given and is broken off says so by errors of its own.
            if context.stop_reason is not None and (isinstance(error, RunCancelledError) or self._giver is not None):
                return stopped(run.task_id, run.assignment_id, context.stop_reason)
            return failed(run.task_id, run.assignment_id, error)
        finally:
            self._context = None
            self._stopped.clear()

    def _function(self, run: AssignedRun) -> Callable[..., Any] | None:
        if self._registry is not None:
            return self._registry.find(run.type)
        entry = self._entries.get(run.mode)
        if entry is None:
            entry = self._entries[run.mode] = entry_of(run.mode, run.code, self._folder)
        return entry

    def _on_progress(self, task_id: int, assignment_id: int, fraction: float, message: str) -> None:
        self._progress.append(ProgressOf(task_id, assignment_id, fraction, message))
        self._has_progress.set()

    def _send_progress(self) -> None:
        while self._has_progress.wait():
            self._has_progress.clear()
            # Of a run that is over nobody wants to hear: the worker passes it over.
            with contextlib.suppress(IndexError):
                self._send(RunProgress(self._progress.popleft()))
            time.sleep(_PROGRESS_S)

    def _send(self, message: ChildMessage) -> None:
        with self._send_lock:
            self._connection.sendall(encode_frame(message))


def _path_of_a_pool(folder: str) -> list[str]:
    """Return the path with a pool's folder right behind the standard library.

    What it calls like a module of Python's does not hide that, and what lies where the worker was started does not hide
    what is in the pool.
    """
    home = os.path.dirname(os.__file__)  # noqa: PTH120 - pathlib is not needed here
    standard = [place for place in sys.path if place.startswith(home) and "site-packages" not in place]
    return [*standard, folder, *(place for place in sys.path if place not in standard)]


def main(fd: int, worker: int, jail: str = "") -> None:
    """Serve a worker over this file descriptor.

    Args:
        fd: Of a connected stream socket.
        worker: Its process id.
        jail: A `JailPlan` as JSON; "" = none.

    """
    # The worker may be killed: nothing is left behind, though this process hang in a C function.
    die_with_parent(worker)
    os.set_inheritable(fd, False)  # noqa: FBT003 - what the user's code starts does not hold the pipe open
    # What the user prints is for people: it must not get lost in a pipe that nobody reads.
    os.dup2(2, 1)
    # A terminal's ctrl-C is for the worker, which drains.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if jail:
        plan = json_decoder(JailPlan).decode(jail)
        enter(plan, fd)
        os.environ["HOME"] = os.environ["TMPDIR"] = plan.scratch_inside
    _Child(socket.socket(fileno=fd)).serve()
