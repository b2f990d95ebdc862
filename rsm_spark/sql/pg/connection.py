"""One connection of a PostgreSQL client: bytes from and to its session, and what the session has to have done.

1. A frame is cut out when its turn comes, and after some milliseconds of them everybody else has a turn: a packet of
   ten thousand requests holds nobody up.
2. What came and was not taken is bounded: then nothing more is read. What was said and not taken by the client is
   bounded: then nothing more is done for it.
3. Who has not logged in within ten seconds is cut.
"""

# Longer than 400 lines: it is one life, from the first byte to the last.

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar, cast

from ledger.errors import LedgerError
from ledger.frame_pot import FramePot, FrameShare
from ledger.http.connection_slots import ConnectionSlot
from ledger.rights.principal import Principal
from ledger.tls import certificate_names
from rsm_spark.errors import RsmError
from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg.faults import (
    CANCELLED,
    INTERNAL,
    PROTOCOL_VIOLATION,
    SHUT_DOWN,
    PgFatalFault,
    PgFault,
    fault_of_error,
)
from rsm_spark.sql.pg.session import PgSession
from rsm_spark.sql.pg.tasks import (
    DescribeRows,
    EndTransaction,
    PgCaller,
    PgTask,
    ReadRows,
    ReadSlice,
    RowsLeft,
    RowsRead,
    RunStep,
    RunWrites,
    SendAnswers,
    StartTransaction,
    TranslateQuery,
    WritesDone,
)
from rsm_spark.sql.pg.wire import (
    MESSAGE_BYTES_MAX,
    PgBrokenError,
    PgCancelRequest,
    PgEncryptionRequest,
    PgReader,
    PgRequest,
    PgSecretAnswer,
    PgStartupRequest,
    PgTerminateRequest,
)
from rsm_spark.sql.table_rights import TableRights

_LOGGER = logging.getLogger(__name__)
STRANGER_S: Final = 10.0
STUCK_S: Final = 120.0
"""Time in which a client has to take something of what it is sent."""
_TURN_S: Final = 0.002
_TURN_REQUESTS: Final = 16
_WRITE_HIGH_BYTES: Final = 128 * 1024
_LINGER_S: Final = 5.0
_ENCRYPTIONS_MAX: Final = 3
T = TypeVar("T")


class PgOpenTransaction(Protocol):
    """A transaction that was begun; `PgTransaction` is one."""

    async def step(self, task: RunStep) -> Any:
        """See `PgTransaction`."""
        ...

    async def end(self, *, is_kept: bool) -> int:
        """See `PgTransaction`."""
        ...


class PgConnectionOwner(Protocol):
    """Part of the port that a connection needs."""

    def opened(self, connection: PgConnection) -> None:
        """Take note of a connection."""
        ...

    def closed(self, connection: PgConnection) -> None:
        """Take note of its end."""
        ...

    async def encrypt(self, transport: asyncio.Transport, connection: PgConnection) -> asyncio.Transport:
        """Do the server's part of TLS; return what encrypts."""
        ...

    async def enter(self, connection: PgConnection, startup: PgStartupRequest) -> PgSession:
        """Have a client log in."""
        ...

    def cancel(self, request: PgCancelRequest) -> None:
        """End what a connection has under way."""
        ...

    def refused(self, connection: PgConnection, why: str) -> None:
        """Take note that a client has no right to what it asked for."""
        ...

    async def translate(self, task: TranslateQuery, owner: str) -> Any:
        """See `PgBackend`."""
        ...

    async def read(self, task: ReadRows, caller: PgCaller) -> Any:
        """See `PgBackend`."""
        ...

    async def describe(self, task: DescribeRows, caller: PgCaller) -> Any:
        """See `PgBackend`."""
        ...

    async def begin(self, caller: PgCaller) -> PgOpenTransaction:
        """See `PgBackend`."""
        ...

    async def write(self, task: RunWrites, caller: PgCaller) -> Any:
        """See `PgBackend`."""
        ...

    @property
    def has_tls(self) -> bool:
        """True if connections are encrypted here."""
        ...


class PgConnection(asyncio.Protocol):
    """See the module.

    Args:
        slot: Its place at the port.
        pot: For all that is kept for clients.
        owner: The port.

    Attributes:
        slot: The same.
        peer: The other end, for messages.
        principal: Who has logged in.
        again: Finds that one again.
        caller: Whose requests these are: for turns, and what it may.
        process_id, secret: By which what it has under way is cancelled.
        is_encrypted: By TLS.

    """

    def __init__(self, slot: ConnectionSlot, pot: FramePot, owner: PgConnectionOwner) -> None:
        self._loop = asyncio.get_running_loop()
        self.slot = slot
        self._share = FrameShare(pot, slot.address, self.cut)
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reader = PgReader()
        self._is_paused = False
        self._came: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._stuck_since_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._began_s = self._loop.time()
        self._ended_s = 0.0
        self._session: PgSession | None = None
        # What may be cancelled, while it is under way.
        self._reading: asyncio.Future[Any] | None = None
        self._is_cancelled = False
        self._transaction: PgOpenTransaction | None = None
        self._rows_left: dict[RowsLeft, None] = {}
        self._is_draining = False
        self._is_waiting = False
        self.peer = ""
        self.principal: Principal | None = None
        self.again: Callable[[], Principal | None] = lambda: None
        self.caller = PgCaller("", TableRights())
        self.process_id = secrets.randbelow(2**31)
        self.secret = int.from_bytes(os.urandom(4), "big", signed=True)
        self.is_encrypted = False

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        found: Any = transport.get_extra_info("socket")
        if found is not None and found.family in {socket.AF_INET, socket.AF_INET6}:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        name = transport.get_extra_info("peername")
        self.peer = "" if not name else f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        self.slot.cut = self.cut
        self._owner.opened(self)
        self._task = self._loop.create_task(self._run())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a client that left, however
        self._transport = None
        self._share.set(0, is_new_frame=True)
        if self._task is not None:
            self._task.cancel()
        self._owner.closed(self)
        self.slot.cut = self._share.cut = _nothing
        self._reader.clear()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if self._reader.is_full and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        _wake(self._came)

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()
        self._stuck_since_s = self._loop.time()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        self._stuck_since_s = 0.0
        _wake(drained)

    # ---- the port's side

    def cut(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def cancel_reading(self) -> None:
        """End what it reads."""
        if self._reading is not None and not self._reading.done():
            self._is_cancelled = True
            self._reading.cancel()

    def drain(self) -> None:
        """Do nothing more for it than what is under way."""
        self._is_draining = True
        if self._is_waiting and self._task is not None:
            self._task.cancel()

    @property
    def ended(self) -> asyncio.Task[None]:
        """The task that serves it."""
        assert self._task is not None
        return self._task

    @property
    def is_done(self) -> bool:
        """True if nothing runs for it."""
        return self._task is None or self._task.done()

    def look(self, now_s: float) -> None:
        """Cut who is late, and who is nobody any more; called once a second."""
        if self._ended_s:
            if now_s - self._ended_s > _LINGER_S:
                self.cut()
        elif self.principal is None:
            if now_s - self._began_s > STRANGER_S:
                self.cut()
        elif self.again() != self.principal:
            self._end(
                PgFatalFault(SHUT_DOWN, f"{self.principal} is not in force here any more, or has other rights now")
            )
            if self._task is not None:
                self._task.cancel()
        if self._stuck_since_s and now_s - self._stuck_since_s > STUCK_S:
            self.cut()

    def awake(self, paused_s: float) -> None:
        """Take note that this process stood still."""
        self._began_s += paused_s
        if self._stuck_since_s:
            self._stuck_since_s += paused_s

    # ---- bytes

    def names(self) -> tuple[str, ...]:
        """Return the names in the client's certificate."""
        return () if self._transport is None else certificate_names(self._transport)

    def say(self, text: bytes) -> None:
        """Send bytes."""
        if text and self._transport is not None:
            self._transport.write(text)

    async def _next(self, take: Callable[[], T | None]) -> T:
        while True:
            found = take()
            if self._is_paused and not self._reader.is_full and self._transport is not None:
                self._is_paused = False
                self._transport.resume_reading()
            if found is not None:
                return found
            self._account()
            self._came = self._loop.create_future()
            self._is_waiting = self._session is not None
            try:
                if self._is_draining and self._is_waiting:
                    raise PgFatalFault(SHUT_DOWN, "this replica stops: connect again, or to another one")
                await self._came
            finally:
                self._came = None
                self._is_waiting = False

    async def secret_said(self) -> bytes:
        """Return the answer to a question of the log-in."""
        request = await self._next(self._reader.request)
        if isinstance(request, PgTerminateRequest):
            raise ConnectionResetError
        if not isinstance(request, PgSecretAnswer):
            raise PgFatalFault(PROTOCOL_VIOLATION, "a password was expected")
        return request.content

    def _account(self) -> None:
        held = self._reader.held_bytes
        if self._session is not None:
            held += self._session.held_bytes
        if self._transport is not None:
            held += self._transport.get_write_buffer_size()
        if held != self._share.byte_count:
            self._share.set(held, is_new_frame=False)

    def _end(self, fault: PgFatalFault | None) -> None:
        """Say why, and close."""
        if self._transport is None or self._ended_s:
            return
        self._ended_s = self._loop.time()
        if fault is not None:
            self.say(answers.fault(fault))
        self._transport.close()

    # ---- its life

    async def _run(self) -> None:
        fault: PgFatalFault | None = None
        try:
            if await self._greet():
                await self._serve()
        except PgFatalFault as error:
            fault = error
        except PgBrokenError as error:
            fault = PgFatalFault(PROTOCOL_VIOLATION, str(error))
        except (ConnectionError, OSError):
            pass
        except asyncio.CancelledError:
            if self._transport is None or not self._is_draining:
                raise
            fault = PgFatalFault(SHUT_DOWN, "this replica stops: connect again, or to another one")
        except Exception:
            _LOGGER.exception("a connection of PostgreSQL's protocol failed", extra={"peer": self.peer})
            fault = PgFatalFault(INTERNAL, "the connection failed at the replica: its log says why")
        finally:
            self._end(fault)
            for left in list(self._rows_left):
                await self._close_rows(left)
            await self._drop_transaction()

    async def _close_rows(self, left: RowsLeft) -> None:
        """Have a result forgotten that is not read on; if that cannot be said, its time ends it."""
        del self._rows_left[left]
        with contextlib.suppress(RsmError, LedgerError):
            await left.close()

    async def _drop_transaction(self) -> None:
        """Have the leader forget what its client has left open; if that cannot be said, it does so by itself."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with contextlib.suppress(RsmError, LedgerError):
                await transaction.end(is_kept=False)

    async def _greet(self) -> bool:
        """Let a client in; return whether it is one that stays."""
        for _ in range(_ENCRYPTIONS_MAX):
            greeting = await self._next(self._reader.greeting)
            match greeting:
                case PgCancelRequest():
                    self._owner.cancel(greeting)
                    return False
                case PgEncryptionRequest():
                    await self._encrypt(greeting)
                case PgStartupRequest():
                    session = await self._owner.enter(self, greeting)
                    self._reader.message_bytes_max = MESSAGE_BYTES_MAX
                    session.begin(self.process_id, self.secret)
                    self._session = session
                    return True
        raise PgFatalFault(PROTOCOL_VIOLATION, "encryption is asked for again and again")

    async def _encrypt(self, greeting: PgEncryptionRequest) -> None:
        if not greeting.is_tls or not self._owner.has_tls or self.is_encrypted:
            self.say(answers.TLS_NO)
            return
        if self._reader.held_bytes:
            # Said in plain text, it would be taken for what the encrypted client said.
            raise PgFatalFault(PROTOCOL_VIOLATION, "something was said between the wish for TLS and its answer")
        assert self._transport is not None
        self.say(answers.TLS_YES)
        self._transport = await self._owner.encrypt(self._transport, self)
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        self.is_encrypted = True

    async def _serve(self) -> None:
        session = self._session
        assert session is not None
        began_s, count = self._loop.time(), 0
        while not session.is_over:
            came = self._reader.request()
            if came is None:
                await self._send()
                request: PgRequest = await self._next(self._reader.request)
                began_s, count = self._loop.time(), 0
            else:
                request = came
            if not session.take(request):
                writes = session.writes_at(request)
                if writes is None:
                    await self._handle(session, request)
                else:
                    await self._write(session, request, writes)
            if session.has_dropped:
                await self._close_dropped(session)
            if session.denied:
                denied, session.denied = session.denied, ""
                self._owner.refused(self, denied)
            count += 1
            if count >= _TURN_REQUESTS or self._loop.time() - began_s > _TURN_S:
                await self._send()
                await asyncio.sleep(0)
                began_s, count = self._loop.time(), 0

    async def _send(self) -> None:
        """Send what the session has said; wait while the client takes too little."""
        session = self._session
        assert session is not None
        self.say(session.take_answers())
        self._account()
        while self._drained is not None:
            await self._drained
            self._account()

    async def _write(self, session: PgSession, request: PgRequest, writes: RunWrites) -> None:
        """Have done what nearly all that write have done: `_handle`, spelled out."""
        try:
            done: WritesDone = await self._owner.write(writes, self.caller)
        except PgFatalFault:
            raise
        except PgFault as fault:
            session.failed(request, fault)
        except (RsmError, LedgerError) as error:
            session.failed(request, fault_of_error(error))
        else:
            session.written(done)

    async def _handle(self, session: PgSession, request: PgRequest) -> None:
        steps = session.handle(request)
        try:
            task = next(steps)
            while True:
                try:
                    answer = await self._carry_out(task)
                except PgFault as fault:
                    task = steps.throw(fault)
                except (RsmError, LedgerError) as error:
                    task = steps.throw(fault_of_error(error))
                else:
                    task = steps.send(answer)
        except StopIteration:
            pass
        finally:
            steps.close()
            await self._close_dropped(session)

    async def _close_dropped(self, session: PgSession) -> None:
        for left in session.take_dropped():
            await self._close_rows(left)

    async def _carry_out(self, task: PgTask) -> Any:
        owner, caller = self._owner, self.caller
        match task:
            case TranslateQuery():
                return await owner.translate(task, caller.turns_as)
            case SendAnswers():
                await self._send()
                return await asyncio.sleep(0)
            case ReadRows():
                found: RowsRead = await self._cancellable(owner.read(task, caller))
                if found.left is not None:
                    self._rows_left[found.left] = None
                return found
            case ReadSlice():
                return await self._cancellable(task.left.next())
            case DescribeRows():
                return await self._cancellable(owner.describe(task, caller))
            case RunWrites():
                return await owner.write(task, caller)
            case StartTransaction():
                self._transaction = await owner.begin(caller)
                return None
            case RunStep():
                assert self._transaction is not None
                return await self._cancellable(self._transaction.step(task))
            case EndTransaction():
                transaction, self._transaction = self._transaction, None
                return 0 if transaction is None else await transaction.end(is_kept=task.is_kept)

    async def _cancellable(self, work: Coroutine[Any, Any, Any]) -> Any:
        self._is_cancelled = False
        self._reading = asyncio.get_running_loop().create_task(work)
        try:
            return await self._reading
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
            raise PgFault(CANCELLED, "it was cancelled, as its client has asked") from None
        finally:
            self._is_cancelled = False
            self._reading = None


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        with contextlib.suppress(asyncio.InvalidStateError):
            waiter.set_result(None)


def _nothing() -> None:
    """Nothing is left to cut."""
