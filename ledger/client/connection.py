"""One bookie as a client sees it: a connection that is opened when needed, re-opened, and shared by all handles.

Requests carry a transaction number; `pending` maps its raw bytes to who asked. Everything goes by the batch: what
handles send during one turn of the loop leaves in one write, and the answers of one wake-up are handed on as one
list per asker. Requests that a broken connection leaves behind are reported, never sent again from here: whether
to repeat is for the asker to know.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Protocol, TypeAlias

from ledger.client.settings import ClientSettings
from ledger.errors import LedgerError, RemoteProtocolError
from ledger.wire import v3
from ledger.wire.codes import Status
from ledger.wire.frames import FrameBuffer
from ledger.wire.packets import AddResponse, Response
from ledger.wire.v3_fast import stored_run
from ledger.wire.varint import decode_varint, encode_varint

__all__ = ["Asker", "BookieConnection", "Operation", "Resolve", "Watcher"]

_log = logging.getLogger(__name__)

Resolve: TypeAlias = Callable[[str], Awaitable[tuple[str, int]]]
"""Bookie id -> (host, port)."""


class Asker(Protocol):
    """Who sends requests; called on the event loop, with whole batches. `token` is what it gave with a request."""

    def on_stored(self, bookie_id: str, tokens: list[Any]) -> None:
        """Take the adds that were answered EOK."""
        ...

    def on_responses(self, bookie_id: str, responses: list[tuple[Any, Response]]) -> None:
        """Take all other answers."""
        ...

    def on_unanswered(self, bookie_id: str, tokens: list[Any], reason: str) -> None:
        """Take the requests that will get no answer: the connection broke, or time is up."""
        ...


class Watcher(Protocol):
    """Who wants a bookie to be connected all the time (a writer)."""

    def on_connected(self, bookie_id: str) -> None:
        """Go on: the connection is up (again)."""
        ...

    def on_disconnected(self, bookie_id: str) -> None:
        """Stop sending: the connection broke; the first attempt to open it again is under way."""
        ...

    def on_unreachable(self, bookie_id: str, reason: str) -> None:
        """Count the bookie as failed: it was silent, or could not be connected; more attempts will follow."""
        ...


Operation: TypeAlias = tuple[Asker, Any]
"""Who asked, and its token."""


class _State(Enum):
    IDLE = "idle"  # nobody needs it
    CONNECTING = "connecting"  # requests queue up in `_out`
    CONNECTED = "connected"
    WAITING = "waiting"  # the last attempt failed a moment ago: requests fail at once


class BookieConnection:
    """The client's end of everything between it and one bookie."""

    def __init__(
        self,
        bookie_id: str,
        resolve: Resolve,
        rng: random.Random,
        settings: ClientSettings,
        next_txn: Callable[[], int],
    ) -> None:
        self.bookie_id = bookie_id
        self.failure: str | None = None
        """Why the last attempt or connection failed; None after a successful one."""
        self._resolve = resolve
        self._rng = rng
        self._settings = settings
        self._next_txn = next_txn
        self._loop = asyncio.get_running_loop()
        self._state = _State.IDLE
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._watchers: list[Watcher] = []
        # Raw transaction -> who asked, oldest first: requests on the wire or in `_out`.
        self._pending: dict[bytes, Operation] = {}
        # The same for long polls, which have deadlines of their own (loop time).
        self._polls: dict[bytes, tuple[float, Operation]] = {}
        # (time, first transaction not yet given out then), one a sweep: what was asked before it is that old.
        self._marks: deque[tuple[float, int]] = deque()
        self._received_at = 0.0
        self._out: list[bytes] = []
        self._flush_planned = False
        self._delay_s = 0.0
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether requests go out at once."""
        return self._state is _State.CONNECTED

    @property
    def is_suspect(self) -> bool:
        """Whether the last thing seen of the bookie was a failure: ask another one first."""
        return self.failure is not None

    def watch(self, watcher: Watcher) -> None:
        """Keep the bookie connected for `watcher`, and tell it of every change."""
        self._watchers.append(watcher)
        self._want()

    def unwatch(self, watcher: Watcher) -> None:
        """Forget a watcher."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def send(self, data: bytes, operations: dict[bytes, Operation]) -> None:
        """Send whole frames, whose raw transactions are the keys of `operations`, in order.

        If the bookie cannot be reached, they are reported as unanswered in a later turn of the loop.
        """
        self._want()
        if self._state is _State.WAITING or self._is_closed:
            self._loop.call_soon(self._report, operations, self.failure or "the client is closed")
            return
        self._pending.update(operations)
        self._queue(data)

    def poll(self, data: bytes, txn: bytes, operation: Operation, timeout_s: float) -> None:
        """Send one request that the bookie may hold for `timeout_s` before it answers."""
        self._want()
        if self._state is _State.WAITING or self._is_closed:
            self._loop.call_soon(self._report, {txn: operation}, self.failure or "the client is closed")
            return
        self._polls[txn] = (self._loop.time() + timeout_s + self._settings.request_timeout_s, operation)
        self._queue(data)

    def sweep(self) -> None:
        """Report the requests that have waited too long; give up a connection on which nothing comes any more."""
        now = self._loop.time()
        limit_s = self._settings.request_timeout_s
        overdue: dict[bytes, Operation] = {}
        oldest = None
        while self._marks and now - self._marks[0][0] >= limit_s:
            oldest = self._marks.popleft()
        if self._pending:
            self._marks.append((now, self._next_txn()))
        if oldest is not None:
            for txn, operation in self._pending.items():
                if decode_varint(txn) >= oldest[1]:
                    break
                overdue[txn] = operation
        for txn, (deadline, operation) in self._polls.items():
            if now >= deadline:
                overdue[txn] = operation
        if not overdue:
            return
        if self._transport is not None and now - self._received_at >= limit_s:
            self._drop(f"no answer within {limit_s:g} s", is_failure=True)
            return
        for txn in overdue:
            self._pending.pop(txn, None)
            self._polls.pop(txn, None)
        self._report(overdue, f"no answer within {limit_s:g} s")

    async def close(self) -> None:
        """End the connection; what is pending is reported as unanswered."""
        self._is_closed = True
        self._watchers.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._drop("the client is closed")

    # --- sending

    def _queue(self, data: bytes) -> None:
        self._out.append(data)
        if not self._flush_planned and self._state is _State.CONNECTED:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        transport = self._transport
        if transport is None or not self._out:
            return
        out = self._out
        self._out = []
        transport.write(out[0] if len(out) == 1 else b"".join(out))
        waiting = transport.get_write_buffer_size()
        if waiting > self._settings.write_buffer_bytes_max:
            self._drop(f"it takes nothing: {waiting} bytes wait for its socket", is_failure=True)

    # --- receiving, called by the channel

    def _on_packets(self, stored_txns: list[bytes], packets: list[memoryview]) -> None:
        """Hand on one wake-up's answers: the transactions of adds that were stored, and all other packets."""
        self._received_at = self._loop.time()
        pop = self._pending.pop
        stored: dict[Asker, list[Any]] = {}
        others: dict[Asker, list[tuple[Any, Response]]] = {}
        last_asker: Asker | None = None
        tokens: list[Any] = []
        for txn in stored_txns:
            operation = pop(txn, None)
            if operation is None:
                continue  # it was reported as unanswered before
            asker, token = operation
            if asker is not last_asker:
                last_asker = asker
                tokens = stored.setdefault(asker, [])
            tokens.append(token)
        for packet in packets:
            self._on_other(packet, stored, others)
        for asker, tokens in stored.items():
            asker.on_stored(self.bookie_id, tokens)
        for asker, responses in others.items():
            asker.on_responses(self.bookie_id, responses)

    def _on_other(
        self,
        packet: memoryview,
        stored: dict[Asker, list[Any]],
        others: dict[Asker, list[tuple[Any, Response]]],
    ) -> None:
        response = v3.decode_response(packet)
        txn = encode_varint(response.txn_id)
        operation = self._pending.pop(txn, None)
        if operation is None:
            polled = self._polls.pop(txn, None)
            if polled is None:
                return
            operation = polled[1]
        asker, token = operation
        if isinstance(response, AddResponse) and response.status == Status.EOK:
            stored.setdefault(asker, []).append(token)
        else:
            others.setdefault(asker, []).append((token, response))

    # --- connecting

    def _want(self) -> None:
        if self._state is _State.IDLE and not self._is_closed:
            self._state = _State.CONNECTING
            self._task = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Try until the connection is up, or nobody wants it any more."""
        while True:
            self._state = _State.CONNECTING
            reason = await self._attempt()
            if reason is None:
                return
            self.failure = reason
            low, high = self._settings.reconnect_delay_s_min, self._settings.reconnect_delay_s_max
            self._delay_s = min(high, max(low, 2 * self._delay_s))
            self._state = _State.WAITING
            self._fail_pending(reason)
            for watcher in list(self._watchers):
                watcher.on_unreachable(self.bookie_id, reason)
            await asyncio.sleep(self._delay_s * self._rng.uniform(0.5, 1.0))
            if not self._watchers:
                self._state = _State.IDLE
                return

    async def _attempt(self) -> str | None:
        """Open the connection; return why it did not work, or None."""
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                host, port = await self._resolve(self.bookie_id)
                transport, _ = await self._loop.create_connection(lambda: _Channel(self), host, port)
        except TimeoutError:
            return f"no connection within {self._settings.connect_timeout_s:g} s"
        except OSError as error:
            return error.strerror or str(error) or type(error).__name__
        except LedgerError as error:
            return str(error)
        if transport.is_closing():
            return "it closed the connection at once"
        self._transport = transport
        self._received_at = self._loop.time()
        self._state = _State.CONNECTED
        self.failure = None
        self._delay_s = 0.0
        self._flush()
        if self._transport is not transport:
            return None  # given up in the flush, which has told everybody
        for watcher in list(self._watchers):
            watcher.on_connected(self.bookie_id)
        return None

    def _on_lost(self, transport: asyncio.BaseTransport | None, error: Exception | None) -> None:
        if transport is self._transport and transport is not None:
            self._drop(f"connection lost ({error})" if error else "it closed the connection")

    def _drop(self, reason: str, *, is_failure: bool = False) -> None:
        """Give the connection up; a watcher has it opened again at once, others when they next ask.

        A lost connection says little about the bookie, the next attempt will tell. But a process that is stopped
        still lets others connect: if it was silent (`is_failure`), that is a failure by itself.
        """
        transport = self._transport
        self._transport = None
        if transport is not None:
            transport.abort()
            if not self._is_closed:
                _log.info("bookie disconnected", extra={"bookie_id": self.bookie_id, "reason": reason})
        if self._state is _State.CONNECTED:
            self._state = _State.IDLE
            self.failure = reason
            for watcher in list(self._watchers):
                watcher.on_disconnected(self.bookie_id)
                if is_failure:
                    watcher.on_unreachable(self.bookie_id, reason)
        self._fail_pending(reason)
        if self._watchers:
            self._want()

    def _fail_pending(self, reason: str) -> None:
        operations = {**self._pending, **{txn: operation for txn, (_, operation) in self._polls.items()}}
        self._pending.clear()
        self._polls.clear()
        self._marks.clear()
        self._out.clear()
        self._report(operations, reason)

    def _report(self, operations: dict[bytes, Operation], reason: str) -> None:
        by_asker: dict[Asker, list[Any]] = {}
        for asker, token in operations.values():
            by_asker.setdefault(asker, []).append(token)
        for asker, tokens in by_asker.items():
            asker.on_unanswered(self.bookie_id, tokens, reason)


class _Channel(asyncio.BufferedProtocol):
    """Bytes of one TCP connection to whole frames."""

    def __init__(self, connection: BookieConnection) -> None:
        self._connection = connection
        self._frames = FrameBuffer()
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        connection = self._connection
        if connection._transport is not self._transport and connection._transport is not None:
            return  # given up: nothing that it still says counts
        try:
            stored_txns, packets = self._frames.take_after_run(nbytes, stored_run)
            if stored_txns or packets:
                connection._on_packets(stored_txns, packets)
        except RemoteProtocolError as error:
            connection._drop(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection._on_lost(self._transport, exc)
