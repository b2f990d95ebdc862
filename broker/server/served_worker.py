"""The broker's end of one worker's stream: one message for all that has gathered, either way.

`run` writes what is to be handed over; a task reads. A worker that does not take what it is sent is cut off: what was
not delivered is given back when it comes again. One that says nothing for several pings is cut off too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from broker.machine.commands import HeldRun
from broker.machine.policies import WorkerOffer
from broker.machine.worker_messages import AssignedRun, FromBroker, FromWorker, WorkerWelcome
from broker.wire.worker_codec import decode_from_worker, encode_from_broker
from rsm_spark.errors import InvalidCommandError

_MESSAGE_BYTES = 1024 * 1024
"""Payloads of one message, before the last of them."""
_QUEUE_BYTES_MAX = 64 * 1024 * 1024
"""Payloads that wait for a worker that reads slowly."""
_IN_WORK_BYTES_MAX = 8 * 1024 * 1024
"""Ends that a worker has told and the log does not know yet; beyond it, its stream is read no further."""
_RUN_BYTES = 200
_ID_BYTES = 16
_END_S = 5.0
_ACKNOWLEDGE_S = 0.05
"""Time that the last message of a stream may take."""

_LOGGER = logging.getLogger(__name__)


class ServedWorker:
    """See the module; a `WorkerLink`.

    Args:
        context: gRPC's, or of the framed port.
        epoch: Returns the leader's epoch, for every message.
        on_said: Takes what the worker says, in order.
        on_cut: Called when the stream is cut off: whatever is still on its way, nothing more is heard or said.
        strange: Returns what of an offer is beyond its rights; "" = nothing.

    Attributes:
        heard_at: When it said something last.

    """

    def __init__(
        self,
        context: Any,
        epoch: Callable[[], int],
        on_said: Callable[[ServedWorker, FromWorker], None],
        on_cut: Callable[[ServedWorker], None],
        strange: Callable[[WorkerOffer], str] = lambda _: "",
    ) -> None:
        self._context = context
        self._epoch = epoch
        self._on_said = on_said
        self._on_cut = on_cut
        self._strange = strange
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = None
        self._welcome: WorkerWelcome | None = None
        self._runs: list[AssignedRun] = []
        self._cancels: list[HeldRun] = []
        self._acknowledged: list[int] = []
        self._acknowledging: asyncio.TimerHandle | None = None
        self._pong = 0
        self._last: FromBroker | None = None
        self._abort: tuple[grpc.StatusCode, str] | None = None
        self._has_ended = False
        self._is_cut = False
        self._queue_bytes = 0
        self._in_work = 0
        self._wake: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self.heard_at = self._loop.time()

    # ---- what is handed over

    def welcome(self, welcome: WorkerWelcome) -> None:
        self._welcome = welcome
        self._wake_up()

    def assign(self, run: AssignedRun) -> None:
        """Hand over a run."""
        if self._last is not None:
            return
        self._runs.append(run)
        self._queue(len(run.payload) + _RUN_BYTES)
        self._wake_up()

    def cancel(self, run: HeldRun) -> None:
        """Ask it to end a run."""
        self._cancels.append(run)
        self._wake_up()

    def acknowledge(self, assignment_ids: Sequence[int]) -> None:
        """Say that these ends are in the log: with what else it is told, or in a moment.

        Nothing but the worker's memory waits for it, and a message for each end would be half of all messages.
        """
        self._acknowledged += assignment_ids
        self._queue(len(assignment_ids) * _ID_BYTES)
        if self._has_ended:
            self._wake_up()
        elif self._acknowledging is None:
            self._acknowledging = self._loop.call_later(_ACKNOWLEDGE_S, self._acknowledge_now)

    def _acknowledge_now(self) -> None:
        self._acknowledging = None
        self._wake_up()

    def _queue(self, size: int) -> None:
        self._queue_bytes += size
        if self._queue_bytes > _QUEUE_BYTES_MAX + size:
            self.cut(f"it does not read: {self._queue_bytes} bytes wait for it")

    def change_work(self, size: int) -> None:
        """Take note that so much more of what it said, or less, is on its way into the log."""
        self._in_work += size
        if size < 0:
            if self._has_ended:
                self._wake_up()
            if self._room is not None and not self._room.done():
                self._room.set_result(None)

    def pong(self, number: int) -> None:
        self._pong = number
        self._wake_up()

    def end(self, *, leader: str = "", refused: str = "", is_replaced: bool = False) -> None:
        """End the stream; what was not sent yet is not sent any more."""
        if self._last is None:
            self._last = FromBroker(
                self._epoch(), leader=leader, refused=refused, is_replaced=is_replaced if refused else None
            )
            self._runs.clear()
            self._cancels.clear()
            self._wake_up()
            self._loop.call_later(_END_S, self.cut, "it does not read")

    def cut(self, reason: str) -> None:
        """End the stream at once; what is on its way to the worker is not waited for."""
        if self._task is None or self._is_cut:
            return
        _LOGGER.warning("a worker's stream is cut off: %s", reason)
        self._is_cut = True
        self._abort = grpc.StatusCode.ABORTED, f"the broker has cut this stream off: {reason}"
        self._task.cancel()
        self._on_cut(self)

    # ---- the stream

    async def run(self) -> None:
        """Serve the stream to its end; the worker's hello has been read."""
        task = self._task = asyncio.current_task()
        reader = self._loop.create_task(self._read())
        try:
            await self._write()
        except asyncio.CancelledError:
            if not self._is_cut:
                raise
            assert task is not None
            task.uncancel()
        finally:
            self._task = None
            if self._acknowledging is not None:
                self._acknowledging.cancel()
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
        if self._abort is not None:
            # A worker that does not read gets it when it does, or when its connection is given up.
            await self._context.abort(*self._abort)

    async def _write(self) -> None:
        while True:
            if self._last is not None:
                if self._last.leader or self._last.refused:
                    await self._context.write(encode_from_broker(self._last))
                return
            if self._has_gathered:
                await self._context.write(encode_from_broker(self._gather()))
            elif self._has_ended and (self._abort is not None or self._in_work <= 0):
                return  # What it has told is in the log, and acknowledged.
            else:
                self._wake = self._loop.create_future()
                await self._wake

    @property
    def _has_gathered(self) -> bool:
        if self._runs or self._cancels or self._pong or self._welcome is not None:
            return True
        return bool(self._acknowledged) and (self._acknowledging is None or self._has_ended)

    def _gather(self) -> FromBroker:
        """Take what is to be sent next: all of it, unless it is very large."""
        runs, size = self._runs, 0
        for place, run in enumerate(runs):
            size += len(run.payload) + _RUN_BYTES
            if size > _MESSAGE_BYTES:
                runs, self._runs = runs[: place + 1], runs[place + 1 :]
                break
        else:
            self._runs = []
        self._queue_bytes -= size + len(self._acknowledged) * _ID_BYTES
        welcome, self._welcome = self._welcome, None
        acknowledged, self._acknowledged = self._acknowledged, []
        if self._acknowledging is not None:
            self._acknowledging.cancel()
            self._acknowledging = None
        # Runs to cancel go behind those that are assigned.
        cancels: list[HeldRun] = []
        if not self._runs:
            cancels, self._cancels = self._cancels, []
        pong, self._pong = self._pong, 0
        return FromBroker(self._epoch(), welcome, runs, acknowledged, cancels, pong)

    async def _read(self) -> None:
        try:
            while (text := await self._context.read()) is not grpc.aio.EOF:
                self.heard_at = self._loop.time()
                said = decode_from_worker(text)
                if said.hello is not None:
                    raise InvalidCommandError("a worker says hello once a stream")  # noqa: TRY301
                if said.offer is not None and (strange := self._strange(said.offer)):
                    self._abort = grpc.StatusCode.PERMISSION_DENIED, strange
                    return
                while self._in_work > _IN_WORK_BYTES_MAX:
                    self._room = self._loop.create_future()
                    await self._room
                self._on_said(self, said)
        except InvalidCommandError as error:
            self._abort = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except asyncio.CancelledError:
            raise
        except Exception:
            _LOGGER.exception("a worker's stream ends: its message could not be handled")
            self._abort = grpc.StatusCode.INTERNAL, "the broker failed on this message; its log says why"
        finally:
            self._has_ended = True
            self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
