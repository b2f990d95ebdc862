"""One connection to the bookie: frames in, batches of answers out.

All whole frames of a wake-up are handled in one go; their answers leave in one write. A connection whose next
request cannot be handled yet (no room in the journal, a ledger that must be fetched from the index, a client that
does not read its answers) stops reading its socket and goes on where it was: so memory is bounded, and requests
of one connection take effect in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from ledger.bookie.intake import AddIntake
from ledger.bookie.long_poll import Waiter
from ledger.bookie.responder import Responder
from ledger.errors import RemoteProtocolError
from ledger.store.cold_reads import Lookup
from ledger.store.disk import Buffer
from ledger.store.entry_store import EntryStore
from ledger.wire.frames import FrameBuffer
from ledger.wire.packets import Request
from ledger.wire.v3 import decode_request

__all__ = ["Connection", "ConnectionOwner"]

_log = logging.getLogger(__name__)
_V3_FIRST_BYTE = 0x0A  # The protobuf tag of a request's header; a v2 packet begins with its version, 2.
_WRITE_HIGH_BYTES = 4 << 20
_LOAD_AHEAD_MAX = 4096


class ConnectionOwner(Protocol):
    """The server, as its connections see it."""

    store: EntryStore
    intake: AddIntake

    def handle(self, connection: Connection, request: Request) -> bool:
        """Handle a request that is not an ordinary add; False if there is no room."""
        ...

    def on_opened(self, connection: Connection) -> None:
        """Take note of a new connection."""
        ...

    def on_lost(self, connection: Connection) -> None:
        """Forget a connection."""
        ...

    def on_no_room(self, connection: Connection) -> None:
        """Call `connection.go_on` when there may be room in the journal."""
        ...

    def on_answered(self, connection: Connection) -> None:
        """Flush this connection at the end of the journal's batch."""
        ...


class Connection(Responder, asyncio.BufferedProtocol):
    """See the module.

    Invariant: `_backlog` is empty, or `_is_blocked`, or `_is_working`.
    """

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        # (chunk, bounds of its packets, first packet not handled yet)
        self._backlog: deque[tuple[bytes, list[tuple[int, int]], int]] = deque()
        self._cold: list[tuple[Lookup, Callable[[Any], None]]] = []
        self._is_blocked = False
        self._is_working = False
        self._is_writable = True
        self._has_spoken = False
        self.waiters: dict[Waiter, None] = {}
        self.cold_read_count = 0

    # -- asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        self._owner.on_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """See `asyncio.BaseProtocol`."""
        self._transport = None
        self._backlog.clear()
        self._owner.on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        try:
            chunk, bounds = self._frames.take_chunk(nbytes)
            if bounds and not self._has_spoken:
                self._check_version(chunk[bounds[0][0]])
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        if bounds:
            self._backlog.append((chunk, bounds, 0))
            if not self._is_blocked and not self._is_working:
                self._work()

    def eof_received(self) -> bool:
        """See `asyncio.BufferedProtocol`."""
        return False

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`: the client does not read its answers, so nothing more is taken from it."""
        self._is_writable = False
        self._block()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._is_writable = True
        self.go_on()

    # -- requests ------------------------------------------------------------------------------------------

    def _check_version(self, first_byte: int) -> None:
        if first_byte != _V3_FIRST_BYTE:
            raise RemoteProtocolError(
                f"the first packet begins with byte {first_byte:#x}, not with a v3 request: protocol v2 is not "
                "served; set useV2WireProtocol=false in the client"
            )
        self._has_spoken = True

    def _refuse(self, error: RemoteProtocolError) -> None:
        _log.warning("closing a connection: %s", error, extra={"peer": self._peer()})
        self._backlog.clear()
        if self._transport is not None:
            self.flush()
            self._transport.close()

    def _peer(self) -> object:
        return None if self._transport is None else self._transport.get_extra_info("peername")

    def _work(self) -> None:
        """Handle the backlog until it is empty or something must be waited for."""
        self._is_working = True
        try:
            while self._backlog and not self._is_blocked:
                chunk, bounds, start = self._backlog.popleft()
                end = self._handle(chunk, bounds, start)
                if end < len(bounds) and self._transport is not None:
                    self._backlog.appendleft((chunk, bounds, end))
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        finally:
            self._is_working = False
        self._start_cold_reads()
        self.flush()

    def _handle(self, chunk: bytes, bounds: list[tuple[int, int]], start: int) -> int:
        """Handle packets in order; return the number of the first that must wait, or their count."""
        owner = self._owner
        store = owner.store
        view = memoryview(chunk)
        index = start
        while index < len(bounds):
            taken = owner.intake.take(self, chunk, bounds, index)
            if taken > index:
                index = taken
                continue
            begin, end = bounds[index]
            request = decode_request(view[begin:end])
            ledger_id: int = getattr(request, "ledger_id", -1)
            if ledger_id >= 0 and ledger_id not in store.ledgers and not store.is_known_absent(ledger_id):
                self._load(chunk, bounds, index)
                return index
            if not owner.handle(self, request):
                self._block()
                owner.on_no_room(self)
                return index
            index += 1
        return index

    def _load(self, chunk: bytes, bounds: list[tuple[int, int]], start: int) -> None:
        """Fetch the ledgers of all waiting packets from the index in one trip, then go on."""
        store = self._owner.store
        view = memoryview(chunk)
        missing: dict[int, None] = {}
        for begin, end in bounds[start : start + _LOAD_AHEAD_MAX]:
            ledger_id: int = getattr(decode_request(view[begin:end]), "ledger_id", -1)
            if ledger_id >= 0 and ledger_id not in store.ledgers and not store.is_known_absent(ledger_id):
                missing[ledger_id] = None
        self._block()
        store.load(list(missing)).add_done_callback(self._on_loaded)

    def _on_loaded(self, future: asyncio.Future[None]) -> None:
        error = future.exception()
        if error is None:
            self.go_on()
        elif self._transport is not None:
            _log.error("closing a connection: the index cannot be read", exc_info=error)
            self._transport.close()

    def _block(self) -> None:
        self._is_blocked = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Go on with the backlog, and with the socket when it is empty."""
        if self._transport is None or not self._is_blocked or not self._is_writable:
            return
        self._is_blocked = False
        self._work()
        # `_work` may have lost the connection or blocked again.
        if not self._is_blocked and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- answers -------------------------------------------------------------------------------------------

    def send(self, frame: Buffer) -> None:
        """See `Responder`."""
        if not self._out:
            self._owner.on_answered(self)
        self._out.append(frame)

    def send_all(self, parts: Sequence[Buffer]) -> None:
        """See `Responder`."""
        if not self._out:
            self._owner.on_answered(self)
        self._out += parts

    def flush(self) -> None:
        """See `Responder`."""
        if not self._out:
            return
        out, self._out = self._out, []
        # uvloop raises on a closed transport, and an answer that nobody hears is no error.
        if self._transport is not None and not self._transport.is_closing():
            if len(out) == 1:
                self._transport.write(out[0])
            else:
                self._transport.writelines(out)

    def read_cold(self, lookup: Lookup, answer: Callable[[Any], None]) -> None:
        """See `Responder`."""
        self.cold_read_count += 1
        self._cold.append((lookup, answer))
        if not self._is_working:
            self._start_cold_reads()

    def _start_cold_reads(self) -> None:
        if not self._cold:
            return
        cold, self._cold = self._cold, []
        future = self._owner.store.read([lookup for lookup, _ in cold])

        def finish(results: asyncio.Future[list[bytes | Exception | None]]) -> None:
            self.cold_read_count -= len(cold)
            error = results.exception()
            found = [error] * len(cold) if isinstance(error, Exception) else results.result()
            for (_, answer), entry in zip(cold, found, strict=True):
                answer(entry)
            self.flush()

        future.add_done_callback(finish)

    def stop_reading(self) -> None:
        """Take nothing more; what was taken is still answered."""
        self._backlog.clear()
        self._is_writable = False  # So that nothing wakes it.
        self._block()

    def close(self) -> None:
        """End the connection after what is written."""
        if self._transport is not None:
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once: nothing more may be said."""
        self._out = []
        if self._transport is not None:
            self._transport.abort()
