"""One connection to the bookie: frames in, batches of answers out.

All whole frames of a wake-up are handled in one go; their answers leave in one write. A connection whose next
request cannot be handled yet (no room in the journal, a ledger that must be fetched from the index, a client that
does not read its answers) stops reading its socket and goes on where it was: so memory is bounded, and requests
of one connection take effect in order.

The first packet decides between protocols v3 and v2, and again the first one after a change to TLS.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from ledger.bookie.admission import Admission
from ledger.bookie.cold_queue import ColdQueue, Job
from ledger.bookie.connection_owner import ConnectionOwner
from ledger.bookie.connection_times import ConnectionTimes, Overdue, TimeLimits
from ledger.bookie.inbox import Inbox
from ledger.bookie.long_poll import Waiter
from ledger.bookie.protocols import V3, WireProtocol, protocol_of
from ledger.bookie.responder import Responder, TakeRun
from ledger.bookie.sockets import keep_alive
from ledger.errors import LoginError, RemoteProtocolError
from ledger.store.cold_reads import Lookup
from ledger.store.disk import Buffer
from ledger.wire.codes import Status
from ledger.wire.packets import AuthRequest, Request, StartTlsRequest, StartTlsResponse
from ledger.wire.refusal import refusal

__all__ = ["Connection"]

_log = logging.getLogger(__name__)
_WRITE_HIGH_BYTES: Final = 4 << 20
_FLUSH_BYTES: Final = 1 << 20
"""Answers of one wake-up are written when they are this long, so that a client that does not read is noticed."""
_LOAD_AHEAD_MAX: Final = 4096
_PREFIX_BYTES: Final = 4
_unpack_length = struct.Struct(">I").unpack_from


class Connection(Responder, asyncio.BufferedProtocol):
    """See the module.

    Invariant: `_backlog` is empty, or `_is_blocked`, or `_is_working`.
    """

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._inbox = Inbox(owner.room)
        self._transport: asyncio.Transport | None = None
        # By operation; empty before the protocol is known, and before TLS and log-in where they are required.
        self._runs: dict[int, TakeRun] = {}
        self._out: list[Buffer] = []
        self._out_bytes = 0
        # (chunk, first byte not handled yet, end of its whole frames)
        self._backlog: deque[tuple[bytes, int, int]] = deque()
        self._cold = ColdQueue(owner.store, self._on_cold_answered)
        self._is_blocked = False
        self._is_working = False
        self._is_writable = True
        self._upgrade: asyncio.Task[None] | None = None
        self._admission = Admission(owner.tls, owner.users)
        self._is_turned_away = False
        self._read_count = 0  # wake-ups that brought whole frames
        self.times = ConnectionTimes()
        self.protocol: WireProtocol = V3
        self.waiters: dict[Waiter, None] = {}

    # -- asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        if not self._owner.on_opened(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        keep_alive(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """See `asyncio.BaseProtocol`."""
        self._transport, self._out, self._out_bytes = None, [], 0
        self._backlog.clear()
        self._inbox.clear()
        self._cold.clear()
        self._owner.on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        """See `asyncio.BufferedProtocol`."""
        return self._inbox.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        try:
            chunk, start, end = self._inbox.take(nbytes, self._take_run)
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        if chunk:
            self._read_count += 1
        if start < end and self._transport is not None:
            self._backlog.append((chunk, start, end))
            if not self._is_blocked and not self._is_working:
                self._work()

    def eof_received(self) -> bool:
        """See `asyncio.BufferedProtocol`."""
        return False

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`: the client does not read its answers, so nothing more is taken from it."""
        self._is_writable = False
        self.times.on_writable(is_writable=False, now_s=asyncio.get_running_loop().time())
        self._block()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._is_writable = True
        self.times.on_writable(is_writable=True, now_s=asyncio.get_running_loop().time())
        self._start_cold()
        self.go_on()

    # -- requests ------------------------------------------------------------------------------------------

    def _take_run(self, chunk: bytes, end: int) -> int:
        """Take the ordinary adds at the front of what came; the rest goes to the backlog."""
        if self._read_count == 0:
            self._choose(chunk[_PREFIX_BYTES])
        if self._is_blocked or self._is_working or self._backlog:
            return 0
        take_run = self._runs.get(self.protocol.add_operation)
        return 0 if take_run is None else take_run(self, chunk, 0, end)

    def _choose(self, first_byte: int) -> None:
        """Choose the protocol by the first packet's first byte."""
        self.protocol = protocol_of(first_byte)
        if self._admission.missing is None:
            self._runs = self._owner.runs[self.protocol.version]

    def _refuse(self, error: RemoteProtocolError) -> None:
        _log.warning("closing a connection: %s", error, extra={"peer": self.peer})
        self._backlog.clear()
        self._inbox.clear()
        self._runs = {}
        if self._transport is not None:
            self.flush()
            self._transport.close()

    @property
    def peer(self) -> object:
        """Address of the client, for the log."""
        return None if self._transport is None else self._transport.get_extra_info("peername")

    def _work(self) -> None:
        """Handle the backlog until it is empty or something must be waited for."""
        self._is_working = True
        try:
            while self._backlog and not self._is_blocked:
                chunk, start, end = self._backlog.popleft()
                position = self._handle(chunk, start, end)
                if position < end and self._transport is not None:
                    self._backlog.appendleft((chunk, position, end))
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        finally:
            self._is_working = False
        self._start_cold()
        self.flush()

    def _handle(self, chunk: bytes, start: int, end: int) -> int:
        """Handle packets in order; return where the first begins that must wait, or `end`."""
        owner, store, runs = self._owner, self._owner.store, self._runs
        decode, place = self.protocol.decode_request, _PREFIX_BYTES + self.protocol.operation_place
        view = memoryview(chunk)
        position = start
        while position < end and not self._is_blocked:
            take_run = runs.get(chunk[position + place]) if position + place < end else None
            if take_run is not None:
                taken = take_run(self, chunk, position, end)
                if self._out_bytes > _FLUSH_BYTES:
                    self.flush()
                if taken > position:
                    position = taken
                    continue
            stop = position + _PREFIX_BYTES + int(_unpack_length(chunk, position)[0])
            request = decode(view[position + _PREFIX_BYTES : stop])
            if not runs and not self._admission.admits(request):
                self._turn_away(request)
                position = stop
                continue
            ledger_id: int = getattr(request, "ledger_id", -1)
            if ledger_id >= 0 and ledger_id not in store.ledgers and not store.is_known_absent(ledger_id):
                self._load(chunk, position, end)
                return position
            if not owner.handle(self, request):
                self._block()
                owner.on_no_room(self)
                return position
            position = stop
            if self._out_bytes > _FLUSH_BYTES:
                self.flush()
        return position

    def _load(self, chunk: bytes, start: int, end: int) -> None:
        """Fetch the ledgers of all waiting packets from the index in one trip, then go on."""
        store, decode = self._owner.store, self.protocol.decode_request
        view = memoryview(chunk)
        missing: dict[int, None] = {}
        position, count = start, 0
        while position < end and count < _LOAD_AHEAD_MAX:
            stop = position + _PREFIX_BYTES + int(_unpack_length(chunk, position)[0])
            ledger_id: int = getattr(decode(view[position + _PREFIX_BYTES : stop]), "ledger_id", -1)
            if ledger_id >= 0 and ledger_id not in store.ledgers and not store.is_known_absent(ledger_id):
                missing[ledger_id] = None
            position, count = stop, count + 1
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
        if self._transport is None or not self._is_blocked or not self._is_writable or self._upgrade is not None:
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
        self._out_bytes += len(frame)

    def send_all(self, parts: Sequence[Buffer]) -> None:
        """See `Responder`."""
        if not self._out:
            self._owner.on_answered(self)
        self._out += parts
        self._out_bytes += sum(map(len, parts))

    def flush(self) -> None:
        """See `Responder`."""
        if not self._out or self._upgrade is not None:
            return
        out, self._out, self._out_bytes = self._out, [], 0
        # uvloop raises on a closed transport, and an answer that nobody hears is no error.
        if self._transport is not None and not self._transport.is_closing():
            if len(out) == 1:
                self._transport.write(out[0])
            else:
                self._transport.writelines(out)

    def read_cold(self, lookup: Lookup, answer: Callable[[Any], None]) -> None:
        """See `Responder`."""
        self._cold.add(lookup, answer)
        if not self._is_working:
            self._start_cold()

    def run_cold(self, job: Job) -> None:
        """See `Responder`."""
        self._cold.add_job(job)
        if not self._is_working:
            self._start_cold()

    @property
    def pending_count(self) -> int:
        """See `Responder`."""
        return self._cold.count

    def _on_cold_answered(self) -> None:
        self.flush()
        self._start_cold()

    def _start_cold(self) -> None:
        """Read on from disk, but nothing for a client that does not read its answers."""
        if self._is_writable:
            self._cold.start()

    # -- TLS and log-in ------------------------------------------------------------------------------------

    def _turn_away(self, request: Request) -> None:
        """Answer EUA, and go on: it ends a writer of any kind, where a closed connection has it look for others."""
        if not self._is_turned_away:
            missing = self._admission.missing
            _log.warning("a client is turned away: it asks before %s", missing, extra={"peer": self.peer})
        self._is_turned_away = True
        self.answer(refusal(request, Status.EUA))

    def log_in(self, request: AuthRequest) -> None:
        """See `Responder`."""
        try:
            self.answer(self._admission.log_in(request))
        except LoginError as error:
            if self.protocol is V3:  # v2 has no words for it.
                self.answer(refusal(request, Status.EUA))
            raise RemoteProtocolError(f"no log-in: {error}") from error
        if not self._runs and self._admission.missing is None:
            self._runs = self._owner.runs[self.protocol.version]

    def start_tls(self, request: StartTlsRequest) -> None:
        """See `Responder`."""
        context = self._owner.tls.context
        if context is None or self._admission.is_secure:
            self.answer(StartTlsResponse(request.txn_id, Status.EBADREQ))
            return
        self.answer(StartTlsResponse(request.txn_id, Status.EOK))
        self.flush()
        self._block()
        self._upgrade = asyncio.get_running_loop().create_task(self._secure())

    async def _secure(self) -> None:
        """Shake hands; what came behind the request in plain text is never believed."""
        tls, transport = self._owner.tls, self._transport
        if transport is None or transport.is_closing():
            return
        if self._backlog or self._inbox.kept_bytes:
            self._upgrade = None
            self._refuse(RemoteProtocolError("plain bytes follow a START_TLS request"))
            return
        # From here on whatever reaches this protocol was decrypted, perhaps before this task hears of it.
        self._admission.is_secure, self._read_count = True, 0
        try:
            secured = await tls.upgrade(transport, self)
        except (OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            _log.warning("closing a connection: TLS failed: %s", reason, extra={"peer": self.peer})
            secured = None
        if secured is None or self._transport is None:
            transport.abort()
            if self._transport is not None:
                self.connection_lost(None)  # asyncio does not tell after a handshake that failed.
            return
        self._transport, self._upgrade = secured, None
        secured.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        self.go_on()

    # -- end -----------------------------------------------------------------------------------------------

    def overdue(self, limits: TimeLimits, now_s: float) -> Overdue | None:
        """Return what this connection's client is too slow with, if anything."""
        is_busy = bool(self.pending_count or self.waiters or self._out or self._is_blocked)
        has_part = self._inbox.kept_bytes > 0
        is_admitted = self._admission.missing is None
        return self.times.overdue(
            limits, now_s, self._read_count, has_part=has_part, is_busy=is_busy, is_admitted=is_admitted
        )

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
        self._out, self._out_bytes = [], 0
        if self._transport is not None:
            self._transport.abort()
