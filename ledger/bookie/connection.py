"""One connection to the bookie: frames in, batches of answers out.

All whole frames of a wake-up are handled in one go; their answers leave in one write. A connection whose next
request cannot be handled yet (no room in the journal, a ledger that must be fetched from the index, a client that
does not read its answers) stops reading its socket and goes on where it was: so memory is bounded, and requests
of one connection take effect in order.

The first packet decides between protocols v3 and v2, and again the first one after a change to TLS.
"""

# Longer than 400 lines: reading, answering, TLS and end are steps of one connection, and each looks at its state.

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from ledger.bookie.admission import ConnectionAdmission
from ledger.bookie.cold_queue import ColdQueue, Job
from ledger.bookie.connection_times import ConnectionTimes, Overdue, TimeLimits
from ledger.bookie.gate import address_of
from ledger.bookie.inbox import Inbox
from ledger.bookie.long_poll import Waiter
from ledger.bookie.protocols import V3, ServedProtocol, protocol_of
from ledger.bookie.responder import Responder, TakeRun
from ledger.bookie.sockets import keep_alive
from ledger.bookie.waiting_births import WaitingBirths, key_of_birth
from ledger.errors import LoginError, RemoteProtocolError
from ledger.frame_pot import FrameShare
from ledger.storage.disk import Buffer
from ledger.storage.read_queue import Lookup
from ledger.tls import certificate_names
from ledger.wire.codes import Status
from ledger.wire.frames import FRAME_BYTES_MAX
from ledger.wire.packets import AuthRequest, Request, StartTlsRequest, StartTlsResponse
from ledger.wire.refusal import refusal

if TYPE_CHECKING:
    # The server makes connections, and each one asks and tells it: two halves of one thing, in one folder.
    from ledger.bookie.server import BookieServer


RefusalReason = Literal["log-in", "not-allowed", "unknown-ledger", "wrong-password", "over-limit", "protocol"]
"""Before what must come first; beyond its rights; a ledger that no metadata vouch for; another password than the
ledger's; more than its share; no message of the protocol."""

_LOGGER = logging.getLogger(__name__)
_WRITE_HIGH_BYTES: Final = 4 << 20
_FLUSH_BYTES: Final = 1 << 20
"""Answers of one wake-up are written when they are this long, so that a client that does not read is noticed."""
_LOAD_AHEAD_MAX: Final = 4096
_PREFIX_BYTES: Final = 4
_STRANGER_FRAME_BYTES_MAX: Final = 64 << 10
"""Before TLS and log-in; a step of a log-in has some hundred bytes."""
_unpack_length = struct.Struct(">I").unpack_from


class Connection(Responder, asyncio.BufferedProtocol):
    """See the module.

    Invariant: `_backlog` is empty, or `_is_blocked`, or `_is_working`.
    """

    def __init__(self, owner: BookieServer) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self.address = ""
        # By operation; empty before the protocol is known, and before TLS and log-in where they are required.
        self._runs: dict[int, TakeRun] = {}
        self._out: list[Buffer] = []
        self._out_bytes = 0
        # (chunk, first byte not handled yet, end of its whole frames)
        self._backlog: deque[tuple[bytes, int, int]] = deque()
        self._cold = ColdQueue(owner.store, self._on_cold_answered)
        self._is_blocked = False
        self._is_loading = False  # Whoever wakes it meanwhile would have the same ledgers fetched once more.
        self._is_working = False
        self._is_writable = True
        self._upgrade: asyncio.Task[None] | None = None
        self._admission = ConnectionAdmission(owner.tls, owner.users, owner.principals)
        self._is_bounded = False  # Each request is looked at.
        self._is_stranger = self._admission.missing is not None
        pot, frame_bytes_max = owner.frames, FRAME_BYTES_MAX
        if self._is_stranger:
            pot, frame_bytes_max = owner.stranger_frames, _STRANGER_FRAME_BYTES_MAX
        self._share = FrameShare(pot)
        self._inbox = Inbox(owner.room, self._share, frame_bytes_max=frame_bytes_max)
        self._births: WaitingBirths | None = None
        self._is_turned_away = False
        self._read_count = 0  # wake-ups that brought whole frames
        self.times = ConnectionTimes()
        self.protocol: ServedProtocol = V3
        self.waiters: dict[Waiter, None] = {}

    # -- asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self.address = self._share.address = address_of(transport.get_extra_info("peername"))
        self._share.cut = partial(self.cut, "unfinished frames hold too much, and it holds most")
        self.times.on_opened(asyncio.get_running_loop().time())
        if not self._owner.on_opened(self, is_stranger=self._is_stranger):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        keep_alive(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self._transport, self._out, self._out_bytes = None, [], 0
        self._backlog.clear()
        self._inbox.clear()
        # What refers back to the connection is let go: with TLS it weighs a quarter of a MiB, and whoever comes and
        # goes fast would pile up many until the garbage collector looks.
        self._cold.close()
        if self._births is not None:
            self._births.clear()
            self._births = None
        self._owner.on_lost(self)
        self._share.cut, self._upgrade = _nobody, None

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        return self._inbox.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_stranger and self._admission.missing is None:
            self._admit()  # Decrypted, before `_secure` hears of it.
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
        return False

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`: the client does not read its answers, so nothing more is taken from it."""
        self._is_writable = False
        self.times.on_writable(is_writable=False, now_s=asyncio.get_running_loop().time())
        self._block()

    def resume_writing(self) -> None:
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
        self._open_runs()

    def _open_runs(self) -> None:
        """Let runs be taken without a look at each request, as far as who is there may have them."""
        if self._admission.missing is None and not self._runs:
            self._is_bounded = self._admission.is_bounded
            runs = self._owner.runs[self.protocol.version]
            if not self._is_bounded:
                self._runs = runs
            elif self._admission.may_read:  # The others' requests are all looked at.
                self._runs = {what: run for what, run in runs.items() if what != self.protocol.add_operation}

    def _refuse(self, error: RemoteProtocolError) -> None:
        self._warn("closing a connection: %s", error)
        if not isinstance(error.__cause__, LoginError):
            self._owner.on_refused(self, "protocol", "message", str(error))
        self._backlog.clear()
        self._inbox.clear()
        self._runs = {}
        if self._transport is not None:
            self.flush()
            self._transport.close()

    def _warn(self, message: str, *args: object) -> None:
        self._owner.peer_log.warning(asyncio.get_running_loop().time(), self.peer, message, *args)

    @property
    def caller(self) -> tuple[str, str]:
        """Name and role of the caller, as far as they are known, for the audit."""
        principal = self._admission.principal
        return (self._admission.user or "", "") if principal is None else (principal.name, principal.role.value)

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
            if (not runs or self._is_bounded) and not self._admission.admits(request):
                self._turn_away(request)
                position = stop
                continue
            ledger_id: int = getattr(request, "ledger_id", -1)
            if ledger_id >= 0 and ledger_id not in store.ledgers and not store.resident.is_known_absent(ledger_id):
                self._load(chunk, position, end)
                return position
            if ledger_id >= 0 and ledger_id not in store.ledgers:
                key = key_of_birth(request)
                if key is not None and not self.may_begin(ledger_id, key):
                    if not self._wait_for_birth(ledger_id, key, chunk[position:stop]):
                        self._block()
                        return position
                    position = stop
                    continue
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
            if ledger_id >= 0 and ledger_id not in store.ledgers and not store.resident.is_known_absent(ledger_id):
                missing[ledger_id] = None
            position, count = stop, count + 1
        self._block()
        self._is_loading = True
        store.resident.load(list(missing)).add_done_callback(self._on_loaded)

    def _on_loaded(self, future: asyncio.Future[None]) -> None:
        self._is_loading = False
        error = future.exception()
        if error is None:
            self.go_on()
        elif self._transport is not None:
            _LOGGER.error("closing a connection: the index cannot be read", exc_info=error)
            self._transport.close()

    # -- ledgers that are not known here -------------------------------------------------------------------

    def may_begin(self, ledger_id: int, key: bytes) -> bool:
        births = self._owner.births
        return births is None or self._admission.may_write_unknown_ledgers or births.allows(ledger_id, key)

    def _wait_for_birth(self, ledger_id: int, key: bytes, frame: bytes) -> bool:
        """Let a request wait until the metadata were asked; False if too many wait."""
        if self._births is None:
            assert self._owner.births is not None
            share = FrameShare(self._owner.frames, self.address, self._share.cut)
            self._births = WaitingBirths(self._owner.births, share, self._on_vouched, self._refuse_birth)
        return self._births.wait(ledger_id, key, frame)

    def _on_vouched(self, frames: bytes) -> None:
        """Go on with what waited, and with what waited for its end."""
        if self._transport is None:
            return
        if frames:
            self._backlog.appendleft((frames, 0, len(frames)))
        if self._is_blocked:
            self.go_on()
        elif not self._is_working:
            self._work()
        self.flush()

    def _refuse_birth(self, frame: bytes, status: Status) -> None:
        request = self.protocol.decode_request(memoryview(frame)[_PREFIX_BYTES:])
        reason: RefusalReason = "unknown-ledger" if status is Status.EUA else "over-limit"
        why = f"ledger {getattr(request, 'ledger_id', -1)}: no metadata vouch for it"
        self._owner.on_refused(self, reason, type(request).__name__, why)
        self.answer(refusal(request, status))

    def _block(self) -> None:
        self._is_blocked = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Go on with the backlog, and with the socket when it is empty."""
        if self._transport is None or not self._is_blocked or not self._is_writable or self._upgrade is not None:
            return
        if self._is_loading:
            return
        self._is_blocked = False
        self._work()
        # `_work` may have lost the connection or blocked again.
        if not self._is_blocked and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- answers -------------------------------------------------------------------------------------------

    def send(self, frame: Buffer) -> None:
        if not self._out:
            self._owner.on_answered(self)
        self._out.append(frame)
        self._out_bytes += len(frame)

    def send_all(self, parts: Sequence[Buffer]) -> None:
        if not self._out:
            self._owner.on_answered(self)
        self._out += parts
        self._out_bytes += sum(map(len, parts))

    def flush(self) -> None:
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
        self._cold.add(lookup, answer)
        if not self._is_working:
            self._start_cold()

    def run_cold(self, job: Job) -> None:
        self._cold.add_job(job)
        if not self._is_working:
            self._start_cold()

    @property
    def pending_count(self) -> int:
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
            self._warn("a client is turned away: it asks %s", self._admission.why(request))
        self._is_turned_away = True
        reason: RefusalReason = "log-in" if self._admission.missing else "not-allowed"
        self._owner.on_refused(self, reason, type(request).__name__, self._admission.why(request))
        self.answer(refusal(request, Status.EUA))

    def log_in(self, request: AuthRequest) -> None:
        try:
            self.answer(self._admission.log_in(request))
        except LoginError as error:
            self._owner.on_refused(self, "log-in", "log-in", str(error))
            if self.protocol is V3:  # v2 has no words for it.
                self.answer(refusal(request, Status.EUA))
            raise RemoteProtocolError(f"no log-in: {error}") from error
        if not self._runs and self._admission.missing is None:
            self._open_runs()
            self._admit()

    def _admit(self) -> None:
        """Let a stranger have what others have: all that had to come first was done."""
        if self._is_stranger:
            self._is_stranger = False
            self._share.move(self._owner.frames)
            self._inbox.frame_bytes_max = FRAME_BYTES_MAX
        self._owner.on_admitted(self)

    def start_tls(self, request: StartTlsRequest) -> None:
        context = self._owner.tls.context
        if context is None or self._admission.is_secure:
            self.answer(StartTlsResponse(request.txn_id, Status.EBADREQ))
            return
        self.answer(StartTlsResponse(request.txn_id, Status.EOK))
        self.flush()
        self._block()
        self._owner.on_handshake(self)
        if self._transport is None or self._transport.is_closing():
            return
        self._upgrade = asyncio.get_running_loop().create_task(self._secure())

    async def _secure(self) -> None:
        """Shake hands; what came behind the request in plain text is never believed."""
        tls, transport = self._owner.tls, self._transport
        if transport is None or transport.is_closing():
            return
        if self._backlog or self._inbox.kept_bytes or (self._births is not None and self._births.byte_count):
            self._upgrade = None
            self._refuse(RemoteProtocolError("plain bytes follow a START_TLS request"))
            return
        # From here on whatever reaches this protocol was decrypted, perhaps before this task hears of it.
        self._admission.is_secure, self._read_count = True, 0
        try:
            secured = await tls.upgrade(transport, self)
        except (OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            self._warn("closing a connection: TLS failed: %s", reason)
            secured = None
        # uvloop says that a handshake is done also when its connection was cut meanwhile.
        if secured is None or self._transport is None or transport.is_closing() or secured.is_closing():
            transport.abort()
            if self._transport is not None:
                self.connection_lost(None)  # Nobody else tells after a handshake that failed.
            return
        self._transport, self._upgrade = secured, None
        self._admission.show_certificate(certificate_names(secured))
        if self._admission.missing is None:
            self._admit()
            if self._read_count:  # The first packet was there before this task.
                self._open_runs()
        secured.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        self.go_on()

    # -- end -----------------------------------------------------------------------------------------------

    def overdue(self, limits: TimeLimits, now_s: float) -> Overdue | None:
        """Return what this connection's client is too slow with, if anything."""
        has_part, is_admitted = self._inbox.kept_bytes > 0, not self._is_stranger
        return self.times.overdue(
            limits, now_s, self._read_count, has_part=has_part, is_busy=self.is_busy, is_admitted=is_admitted
        )

    @property
    def is_busy(self) -> bool:
        """True if the bookie owes this connection an answer, or does not read from it at present."""
        is_waiting = self._births is not None and self._births.byte_count > 0
        return bool(self.pending_count or self.waiters or self._out or self._is_blocked or is_waiting)

    @property
    def use_rank(self) -> tuple[bool, float]:
        return self._read_count > 0, self.times.since_s

    def look_again(self) -> None:
        """End the connection if who was let in would not be let in any more, or may do something else now."""
        if self._admission.is_over(self._owner.users):
            reason = "its user or principal is not in force here any more, or has other rights now"
            self._warn("cutting a connection: %s", reason)
            self._owner.on_refused(self, "not-allowed", "stay connected", reason)
            self.abort()

    def cut(self, reason: str) -> None:
        """End the connection at once, for the others' sake."""
        self._warn("cutting a connection: %s", reason)
        self._owner.on_refused(self, "over-limit", "stay connected", reason)
        self.abort()

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


def _nobody() -> None:
    """Cut nobody: the connection is over."""
