"""One connection of a client to one bookie: opened when needed, re-opened, shared by all handles.

It speaks one protocol (`ledger.wire.protocol`). Everything goes by the batch: what handles send during one turn of
the loop leaves in one write, and the answers of one wake-up are handed on as one list per asker. Requests that a
broken connection leaves behind are reported, never sent again from here: whether to repeat is for the asker to know.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

from ledger.client.add_runs import AddBatch
from ledger.client.channel import Channel, Stored, start_tls
from ledger.client.in_flight import Asker, InFlight, Operation, Tokens, check_admitted, joined
from ledger.client.login import log_in
from ledger.client.quarantine import Quarantine
from ledger.client.settings import ClientSettings
from ledger.errors import BookieUnavailableError, LedgerError
from ledger.tls import ClientContexts, describe_early_end
from ledger.wire.codes import Status
from ledger.wire.packets import AddResponse, Response
from ledger.wire.protocol import PROTOCOLS, Key, WireProtocol

_LOGGER = logging.getLogger(__name__)

_LATE_MAX: Final = 200_000
"""Requests given up and never answered; a bookie that leaves out so many answers is not worth keeping them."""

Resolve: TypeAlias = Callable[[str], Awaitable[tuple[str, int]]]
"""Bookie id -> (host, port)."""


class Watcher(Protocol):
    """Listener that wants a bookie to be connected all the time (a writer)."""

    def on_connected(self, bookie_id: str) -> None:
        """Go on: the connection is up (again)."""
        ...

    def on_disconnected(self, bookie_id: str) -> None:
        """Stop sending: the connection broke; the first attempt to open it again is under way."""
        ...

    def on_unreachable(self, bookie_id: str, reason: str) -> None:
        """Count the bookie as failed: it was silent, or could not be connected; more attempts will follow."""
        ...


class _State(Enum):
    IDLE = "idle"  # nobody needs it
    CONNECTING = "connecting"  # requests queue up in `_out`
    CONNECTED = "connected"
    WAITING = "waiting"  # the last attempt failed a moment ago: requests fail at once


class Shared:
    """Objects that all connections of one client share.

    Attributes:
        resolve: Bookie id -> (host, port).
        rng: For the jitter of reconnects.
        settings: Limits and times.
        quarantine: Where failures are counted.
        tls: Contexts of encrypted connections; None for plain ones.

    """

    def __init__(
        self, resolve: Resolve, rng: random.Random, settings: ClientSettings, tls: ClientContexts | None = None
    ) -> None:
        self.resolve = resolve
        self.rng = rng
        self.settings = settings
        self.quarantine = Quarantine(settings.quarantine_s)
        self.tls = tls


class BookieConnection:
    """The client's end of one connection."""

    def __init__(self, bookie_id: str, shared: Shared, protocol: WireProtocol) -> None:
        self.bookie_id = bookie_id
        self.protocol = protocol
        self.in_flight = InFlight(protocol)
        self.failure: str | None = None
        """Error of the last attempt or connection; None after a successful one."""
        self._shared = shared
        self._settings = shared.settings
        self._loop = asyncio.get_running_loop()
        self._state = _State.IDLE
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._watchers: list[Watcher] = []
        self._received_at = 0.0
        # Frames for the next write. Invariant: `_out_bytes` is their size.
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_planned = False
        # Whether the bookie has said something sensible on this connection.
        self._has_heard = False
        # The last pause before an attempt; 0 once the bookie has said something sensible.
        self._delay_s = 0.0
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """True if requests go out at once."""
        return self._state is _State.CONNECTED

    @property
    def is_suspect(self) -> bool:
        """True if the last thing seen of the bookie was a failure: ask another one first."""
        return self.failure is not None

    def watch(self, watcher: Watcher) -> None:
        """Keep the bookie connected for `watcher`, and tell it of every change."""
        self._watchers.append(watcher)
        self._want()

    def unwatch(self, watcher: Watcher) -> None:
        """Forget a watcher."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def send_adds(self, data: bytes, batch: AddBatch[Asker]) -> None:
        """Send the frames of adds.

        If the bookie cannot be reached, they are reported as unanswered in a later turn of the loop.
        """
        if self._can_send([(batch.asker, batch.entry_ids)]):
            self.in_flight.add_batch(batch, self._loop.time())
            self._queue(data)

    def send(self, data: bytes, requests: Sequence[tuple[Key, Operation]]) -> None:
        """Send the frames of other requests; `requests` are their keys, and who asks. Else as `send_adds`."""
        if self._can_send([(asker, (token,)) for _, (asker, token) in requests]):
            now = self._loop.time()
            for key, operation in requests:
                self.in_flight.add_request(key, operation, now)
            self._queue(data)

    def poll(self, data: bytes, key: Key, operation: Operation, timeout_s: float) -> None:
        """Send one request that the bookie may hold for `timeout_s` before it answers."""
        asker, token = operation
        if self._can_send([(asker, (token,))]):
            deadline = self._loop.time() + timeout_s + self._settings.request_timeout_s
            self.in_flight.add_poll(key, operation, deadline)
            self._queue(data)

    def sweep(self) -> None:
        """Report the requests that have waited too long; give up a connection on which nothing comes any more."""
        now = self._loop.time()
        limit_s = self._settings.request_timeout_s
        overdue = self.in_flight.overdue(now, limit_s)
        if not overdue:
            return
        reason = f"no answer within {limit_s:g} s"
        self._shared.quarantine.strike(self.bookie_id, now)
        is_silent = now - self._received_at >= limit_s
        if self._channel is not None and is_silent:
            self._drop(reason, is_failure=True, given_up=overdue)
            return
        self._report(overdue, reason)
        if self.in_flight.late_count > _LATE_MAX:
            self._drop(f"it leaves out answers: {self.in_flight.late_count} by now", is_failure=True)

    async def close(self) -> None:
        """End the connection; what is pending is reported as unanswered."""
        self._is_closed = True
        self._watchers.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._drop("the client is closed")

    # --- sending

    def _can_send(self, operations: list[Tokens]) -> bool:
        """Have the connection opened if it is not; if it cannot be now, report the operations soon."""
        self._want()
        if self._state is _State.WAITING or self._is_closed:
            self._loop.call_soon(self._report, operations, self.failure or "the client is closed")
            return False
        return True

    def _queue(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        is_due = self._state is _State.CONNECTED or self._out_bytes > self._settings.write_buffer_bytes_max
        if is_due and not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        waiting = self._out_bytes
        if self._channel is not None and self._out:
            transport = self._channel.transport
            assert transport is not None
            out = self._out
            self._out = []
            self._out_bytes = 0
            transport.write(out[0] if len(out) == 1 else b"".join(out))
            waiting = transport.get_write_buffer_size()
        if waiting > self._settings.write_buffer_bytes_max:
            self._drop(f"it takes nothing: {waiting} bytes wait for its socket", is_failure=True)

    # --- receiving, called by the channel

    def on_answers(self, channel: Channel, stored: Stored, packets: list[memoryview]) -> None:
        """Hand on one wake-up's answers: runs of adds that were stored, and all other packets.

        Raises:
            RemoteProtocolError: A packet is no answer, or answers what was not asked; or the bookie lets nobody in who
                has not logged in.

        """
        assert channel is self._channel
        self._received_at = self._loop.time()
        by_asker: dict[Asker, list[Sequence[Any]]] = {}
        for asker, entry_ids in stored:
            by_asker.setdefault(asker, []).append(entry_ids)
        others: dict[Asker, list[tuple[Any, Response]]] = {}
        try:
            for packet in packets:
                for asker, token, response in self.in_flight.take(packet):
                    if isinstance(response, AddResponse) and response.status == Status.EOK:
                        by_asker.setdefault(asker, []).append((token,))
                    else:
                        others.setdefault(asker, []).append((token, response))
                        self._judge(response)
            self._has_heard = True
            self._delay_s = 0.0
        finally:  # what came before a bad packet counts
            for asker, runs in by_asker.items():
                asker.on_stored(self.bookie_id, joined(runs))
            for asker, responses in others.items():
                asker.on_responses(self.bookie_id, responses)

    def on_broken(self, channel: Channel, reason: str) -> None:
        """Give the connection up: what came is not the protocol."""
        if channel is self._channel:
            _LOGGER.warning("bookie given up for a while", extra={"bookie": self.bookie_id, "reason": reason})
            self._has_heard = False
            self._drop(reason, is_failure=True)

    def on_lost(self, channel: Channel, error: Exception | None) -> None:
        """Take note that the connection is closed; if nothing sensible came for the second time, that is a failure."""
        if channel is self._channel:
            is_refused = self._shared.tls is not None and not self._has_heard
            if is_refused:
                reason = describe_early_end(error)
            else:
                reason = f"connection lost ({error})" if error else "it closed the connection"
            self._drop(reason, is_failure=is_refused or (not self._has_heard and self._delay_s > 0))

    def _judge(self, response: Response) -> None:
        if response.status == Status.EIO:
            self._shared.quarantine.strike(self.bookie_id, self._received_at)
        else:
            check_admitted(response)

    # --- connecting

    def _want(self) -> None:
        if self._state is _State.IDLE and not self._is_closed:
            self._state = _State.CONNECTING
            self._task = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Try until the connection is up, or nobody wants it any more; pause first if the last one was no good."""
        if self._state is not _State.WAITING:
            reason = await self._attempt()
            if reason is None:
                return
            self._fail_attempt(reason)
        while True:
            await asyncio.sleep(self._delay_s * self._shared.rng.uniform(0.5, 1.0))
            if not self._watchers:
                self._state = _State.IDLE
                return
            self._state = _State.CONNECTING
            reason = await self._attempt()
            if reason is None:
                return
            self._fail_attempt(reason)

    def _fail_attempt(self, reason: str) -> None:
        self.failure = reason
        self._shared.quarantine.fail(self.bookie_id, self._loop.time())
        self._grow_delay()
        self._state = _State.WAITING
        self._fail_pending(reason)
        for watcher in list(self._watchers):
            watcher.on_unreachable(self.bookie_id, reason)

    def _grow_delay(self) -> None:
        low, high = self._settings.reconnect_delay_s_min, self._settings.reconnect_delay_s_max
        self._delay_s = min(high, max(low, 2 * self._delay_s))

    async def _attempt(self) -> str | None:
        """Open the connection; return why it did not work, or None."""
        channel = Channel(self)
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                host, port = await self._shared.resolve(self.bookie_id)
                await self._loop.create_connection(lambda: channel, host, port)
                await self._check_address(host, port)
                if self._settings.login is not None:
                    protocol = self.protocol if self._shared.tls is None else PROTOCOLS["v3"]
                    await log_in(channel, self._settings.login, protocol)
                if self._shared.tls is not None:
                    await start_tls(channel, self._shared.tls.newest(), host, txn_id=0)
        except TimeoutError:
            reason: str | None = f"no {channel.awaited} within {self._settings.connect_timeout_s:g} s"
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
        except LedgerError as error:
            reason = str(error)
        else:
            assert channel.transport is not None
            reason = "it closed the connection at once" if channel.transport.is_closing() else None
        if reason is not None:
            if channel.transport is not None:
                channel.transport.abort()
            return reason
        self._on_open(channel)
        return None

    async def _check_address(self, host: str, port: int) -> None:
        """Make sure that an open connection leads to this bookie, if the address is not its id (`ledger.bookie.place`).

        Raises:
            BookieUnavailableError: It has moved, and another one may listen there.

        """
        if f"{host}:{port}" != self.bookie_id and await self._shared.resolve(self.bookie_id) != (host, port):
            raise BookieUnavailableError(f"it listens at {host}:{port} no more")

    def _on_open(self, channel: Channel) -> None:
        self._channel = channel
        channel.is_open = True
        self._received_at = self._loop.time()
        self._state = _State.CONNECTED
        self._has_heard = False
        self.failure = None
        self._flush()
        if self._channel is not channel:
            return  # given up in the flush, which has told everybody
        for watcher in list(self._watchers):
            watcher.on_connected(self.bookie_id)

    def _drop(self, reason: str, *, is_failure: bool = False, given_up: Sequence[Tokens] = ()) -> None:
        """Give the connection up; a watcher has it opened again at once, others when they next ask.

        A lost connection says little about the bookie, the next attempt will tell. But a process that is stopped
        still lets others connect: if it was silent (`is_failure`), that is a failure by itself. One that has said
        nothing sensible since the last attempt is tried again after a pause.
        """
        channel, self._channel = self._channel, None
        if channel is not None:
            assert channel.transport is not None
            channel.is_open = False
            channel.transport.abort()
            if not self._is_closed:
                _LOGGER.info("bookie disconnected", extra={"bookie": self.bookie_id, "reason": reason})
        if is_failure:
            self._shared.quarantine.fail(self.bookie_id, self._loop.time())
        if self._state is _State.CONNECTED:
            self._state = _State.IDLE
            self.failure = reason
            if not self._has_heard and not self._is_closed:
                self._grow_delay()
                self._state = _State.WAITING
                self._task = self._loop.create_task(self._connect())
            for watcher in list(self._watchers):
                watcher.on_disconnected(self.bookie_id)
                if is_failure:
                    watcher.on_unreachable(self.bookie_id, reason)
        self._fail_pending(reason, given_up)
        if self._watchers:
            self._want()

    def _fail_pending(self, reason: str, given_up: Sequence[Tokens] = ()) -> None:
        rest = [*given_up, *self.in_flight.clear()]
        self._out.clear()
        self._out_bytes = 0
        self._report(rest, reason)

    def _report(self, operations: Sequence[Tokens], reason: str) -> None:
        by_asker: dict[Asker, list[Sequence[Any]]] = {}
        for asker, tokens in operations:
            by_asker.setdefault(asker, []).append(tokens)
        for asker, runs in by_asker.items():
            asker.on_unanswered(self.bookie_id, joined(runs), reason)
