"""The bookie's server: connections on one side, the store on the other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import msgspec

from ledger.audit_lines import Refusals
from ledger.bookie.births import Births, FindKey
from ledger.bookie.connection import Connection, RefusalReason
from ledger.bookie.connection_times import Overdue, TimeLimits
from ledger.bookie.gate import Gate, GateLimits
from ledger.bookie.handlers import HandlerLimits, Handlers
from ledger.bookie.inbox import ReceiveRoom
from ledger.bookie.intake_v2 import AddIntakeV2
from ledger.bookie.intake_v3 import AddIntakeV3
from ledger.bookie.peer_log import PeerLog
from ledger.bookie.protocols import V2, V3
from ledger.bookie.reads_v2 import ReadRunsV2
from ledger.bookie.responder import TakeRun
from ledger.bookie.tls import TlsPolicy
from ledger.frame_pot import FramePot
from ledger.login import UsersFile
from ledger.rights.file import PrincipalsFile
from ledger.storage.disk import Disk
from ledger.storage.entry_store import EntryStore
from ledger.storage.recovery import IndexFactory
from ledger.storage.settings import Executors, StorageSettings, StoreHooks
from ledger.wire import packets as p
from ledger.wire.codes import V2Opcode
from ledger.wire.packets import Request

_LOGGER = logging.getLogger(__name__)


class ServerSettings(msgspec.Struct, frozen=True):
    """Limits of the server.

    Attributes:
        gate: How many connections.
        handlers: How much may be asked at a time.
        times: How slow a client may be.
        times_check_s: Interval of the look at slow clients.
        read_bytes: Most that is read from a socket at a time; one such buffer serves all connections.
        unfinished_bytes_max: What all connections together may hold of frames that are not whole; those of one
            address half of it.
        stranger_bytes_max: The same for connections before TLS and log-in, where those are required.
        space_check_s: Interval of the look at free space.
        is_read_only: Take no ordinary adds, whatever room there is.
        users: Passwords by user, one of whom each connection must log in as; None lets everybody in.
        auth_file: Where `users` are read again when it has changed; None = they stay.
        principals: File of who may do what; None = whoever is let in may do everything.

    """

    gate: GateLimits = GateLimits()
    handlers: HandlerLimits = HandlerLimits()
    times: TimeLimits = TimeLimits()
    times_check_s: float = 5.0
    read_bytes: int = 256 << 10
    unfinished_bytes_max: int = 256 << 20
    stranger_bytes_max: int = 8 << 20
    space_check_s: float = 5.0
    is_read_only: bool = False
    users: dict[str, str] | None = None
    auth_file: str | None = None
    principals: str | None = None


class ServerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a server: what is open now, and what was handled since the process began.

    Attributes:
        connections: Open now.
        waiting_connections: Those that wait for room in the journal.
        held_bytes: Bytes of frames that are not whole yet.
        adds: Adds that were handled, refused ones too.
        refused_adds: Adds that were refused: fenced, read-only, a wrong password.
        reads: Reads of one entry, long polls too.
        batch_reads: Reads of several.
        lac_reads: Reads of a LAC.
        lac_writes: Explicit LACs.
        forces: Forces of a ledger.
        entry_lists: Lists of a ledger's entries.
        promises: Promises to writers that nobody hears of a fence for a while.
        waited_fences: Fences whose answers have waited for such a promise, or for those of the process before.

    """

    connections: int
    waiting_connections: int
    held_bytes: int
    adds: int
    refused_adds: int
    reads: int
    batch_reads: int
    lac_reads: int
    lac_writes: int
    forces: int
    entry_lists: int
    promises: int
    waited_fences: int


class BookieServer:
    """Serves a store. Build with `open`, then `listen`.

    Attributes:
        failed: Done when the store failed for good; the process must end.
        refusals: What was refused since the process began, by reason.
        frames: What unfinished frames may hold.
        stranger_frames: The same before TLS and log-in, where they are required.
        births: Who may bring ledgers into being; None lets everybody.

    """

    store: EntryStore
    runs: dict[int, dict[int, TakeRun]]

    def __init__(self, settings: ServerSettings, tls: TlsPolicy, births: Births | None = None) -> None:
        self._settings = settings
        self.tls = tls
        now_s = time.monotonic()
        self._users = settings.users if settings.auth_file is None else UsersFile(settings.auth_file, now_s=now_s)
        self._principals = None if settings.principals is None else PrincipalsFile(settings.principals, now_s=now_s)
        self.births = births
        self.room = ReceiveRoom(settings.read_bytes)
        self.frames = FramePot(settings.unfinished_bytes_max, settings.unfinished_bytes_max // 2)
        self.stranger_frames = FramePot(settings.stranger_bytes_max, settings.stranger_bytes_max // 2)
        self.peer_log = PeerLog(_LOGGER)
        self.refusals = Refusals()
        self._gate = Gate(settings.gate)
        self._connections: dict[Connection, None] = {}
        # Connections that wait for room, in the order in which they found none.
        self._waiting: dict[Connection, None] = {}
        # Connections with answers that nobody wrote yet.
        self._answered: dict[Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._space_timer: asyncio.TimerHandle | None = None
        self._times_timer: asyncio.TimerHandle | None = None
        self._times_checked_s = 0.0
        self._space_check: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls,
        disk: Disk,
        executors: Executors,
        settings: StorageSettings,
        open_index: IndexFactory,
        *,
        nonce: Callable[[], int],
        on_read_only: Callable[[bool], None] = lambda _: None,
        server_settings: ServerSettings | None = None,
        tls: TlsPolicy | None = None,
        find_key: FindKey | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> BookieServer:
        """Replay the storage and return a server that does not listen yet.

        Without `find_key` anybody may bring any ledger into being: see `ledger.bookie.births`. Promises to writers end
        by `clock` (see `ledger.core.lease_promises`).

        Raises:
            OSError: The disk refuses.

        """
        limits = server_settings or ServerSettings()
        server = cls(limits, tls or TlsPolicy(), None if find_key is None else Births(find_key))
        hooks = StoreHooks(server._on_batch_done, server._on_room, server._on_failure, on_read_only)
        server.store = await EntryStore.open(disk, executors, settings, open_index, hooks, nonce=nonce)

        if limits.is_read_only:
            server.store.is_read_only = True  # For good: free space is not looked at.

        def disk_bytes() -> asyncio.Future[tuple[int, int]]:
            folder = settings.ledger_dir
            return executors.readers.submit(lambda: (disk.total_bytes(folder), disk.free_bytes(folder)))

        server._handlers = Handlers(server.store, limits.handlers, disk_bytes, clock)
        server._handlers.on_foreign_fence = server._on_foreign_fence
        wake, run_bytes_max = server._handlers.polls.wake, settings.journal.file_bytes // 4
        adds_v2 = AddIntakeV2(server.store, wake, run_bytes_max=run_bytes_max)
        adds_v3 = AddIntakeV3(server.store, wake, run_bytes_max=run_bytes_max)
        reads_v2 = ReadRunsV2(server.store)
        server.runs = {
            V2.version: {V2.add_operation: adds_v2.take, V2Opcode.READ_ENTRY: reads_v2.take},
            V3.version: {V3.add_operation: adds_v3.take},
        }
        server._adds, server._reads = (adds_v2, adds_v3), reads_v2
        return server

    _handlers: Handlers
    _adds: tuple[AddIntakeV2, AddIntakeV3]
    _reads: ReadRunsV2

    def counts(self) -> ServerCounts:
        """Return what was handled since the process began, and what is under way."""
        handled = self._handlers.counts
        return ServerCounts(
            connections=len(self._connections),
            waiting_connections=len(self._waiting),
            held_bytes=self.frames.held_bytes + self.stranger_frames.held_bytes,
            adds=sum(adds.taken_count for adds in self._adds) + handled[p.AddRequest],
            refused_adds=self._handlers.writes.refused_count,
            reads=self._reads.taken_count + handled[p.ReadRequest],
            batch_reads=handled[p.BatchReadRequest],
            lac_reads=handled[p.ReadLacRequest],
            lac_writes=handled[p.WriteLacRequest],
            forces=handled[p.ForceRequest],
            entry_lists=handled[p.ListRequest],
            promises=self._handlers.promise_count,
            waited_fences=self._handlers.fence_waits.waited_count,
        )

    async def listen(self, host: str, port: int) -> int:
        """Serve at an address; return the port (0 asks the system for one)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=1024)
        if not self._settings.is_read_only:
            self._space_timer = loop.call_later(self._settings.space_check_s, self._check_space)
        self._times_checked_s = loop.time()
        self._times_timer = loop.call_later(self._settings.times_check_s, self._check_times)
        sockets = self._server.sockets
        return int(sockets[0].getsockname()[1]) if sockets else port

    # -- asked and told by connections ----------------------------------------------------------------------

    @property
    def users(self) -> Mapping[str, str] | None:
        """Passwords by user, one of whom each connection must log in as; None lets everybody in."""
        users = self._users
        return users.look(time.monotonic()) if isinstance(users, UsersFile) else users

    @property
    def principals(self) -> PrincipalsFile | None:
        """Rights by principal; None = every admitted client may do everything."""
        if self._principals is not None:
            self._principals.look(time.monotonic())
        return self._principals

    def handle(self, connection: Connection, request: Request) -> bool:
        """Handle a request that is not an ordinary add; False if there is no room."""
        return self._handlers.handle(connection, request)

    def on_opened(self, connection: Connection, *, is_stranger: bool) -> bool:
        """Take note of a new connection; False if there are too many, and all of them busy."""
        if not self._gate.open(connection, is_stranger=is_stranger):
            self.peer_log.warning(
                asyncio.get_running_loop().time(),
                connection.peer,
                "a connection is refused: %d of its address are open and %d in all, and those that might be cut are "
                "busy; raise the limit, or look for a client that opens too many",
                self._gate.count_of(connection.address),
                len(self._connections),
            )
            self.on_refused(connection, "over-limit", "connect", "too many connections are open, all of them busy")
            return False
        self._connections[connection] = None
        return True

    def on_refused(self, connection: Connection, reason: RefusalReason, action: str, why: str) -> None:
        """Count a refusal, and tell of one of each kind in a while.

        Args:
            connection: Whose it is.
            reason: To count it by.
            action: What was tried: "connect", "log-in", or a kind of request.
            why: In words.

        """
        name, role = connection.caller
        said = {"principal": name, "role": role, "source": _shown(connection.peer), "action": action,
                "target": "bookie", "outcome": f"refused ({reason}): {why}"}  # fmt: skip
        self.refusals.add(said, time.monotonic(), reason=reason)

    def _on_foreign_fence(self, connection: object, ledger_id: int) -> None:
        if isinstance(connection, Connection):
            self.on_refused(connection, "wrong-password", "fence", f"ledger {ledger_id} has another password")

    def on_handshake(self, connection: Connection) -> None:
        """Take note that a connection begins to go over to TLS: until it is admitted it counts as a stranger's."""
        self._gate.doubt(connection)

    def on_admitted(self, connection: Connection) -> None:
        """Take note that it has gone over to TLS and logged in, as far as it must."""
        self._gate.admit(connection)

    def on_lost(self, connection: Connection) -> None:
        """Forget a connection."""
        self._gate.leave(connection)
        self._connections.pop(connection, None)
        self._waiting.pop(connection, None)
        self._answered.pop(connection, None)
        for waiter in list(connection.waiters):
            self._handlers.polls.drop(waiter)

    def on_no_room(self, connection: Connection) -> None:
        """Call `connection.go_on` when there may be room in the journal."""
        self._waiting[connection] = None

    def on_answered(self, connection: Connection) -> None:
        """Flush this connection at the end of the journal's batch."""
        self._answered[connection] = None

    # -- StoreHooks ----------------------------------------------------------------------------------------

    def _on_batch_done(self) -> None:
        answered, self._answered = self._answered, {}
        for connection in answered:
            try:
                connection.flush()
            except Exception:
                _LOGGER.exception("answers of a batch could not be written")
                connection.abort()
        self._on_room()

    def _on_room(self) -> None:
        if not self._connections:
            return  # Nobody waits, and while the store is opened there are no handlers yet.
        self._handlers.writes.on_room()
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.go_on()

    def _on_failure(self, error: BaseException) -> None:
        for connection in list(self._connections):
            connection.abort()
        if not self.failed.done():
            self.failed.set_result(error)

    # -- slow clients, space and end -----------------------------------------------------------------------

    def _check_times(self) -> None:
        loop = asyncio.get_running_loop()
        now_s, limits, interval_s = loop.time(), self._settings.times, self._settings.times_check_s
        has_stood_still = now_s > self._times_checked_s + 3 * interval_s
        self._look_again()
        for connection in list(self._connections):
            if has_stood_still:
                connection.times.forgive(now_s)  # What clients sent meanwhile was not read yet.
                continue
            overdue = connection.overdue(limits, now_s)
            if overdue is not None:
                if overdue is Overdue.IDLE:
                    _LOGGER.info("closing a connection: %s", overdue, extra={"peer": connection.peer})
                else:
                    self.peer_log.warning(now_s, connection.peer, "closing a connection: %s", overdue)
                connection.abort()
        self._times_checked_s = now_s
        self._times_timer = loop.call_later(interval_s, self._check_times)

    def _look_again(self) -> None:
        """End connections of users and principals who are gone."""
        if self._users is not None or self.principals is not None:
            for connection in list(self._connections):
                connection.look_again()

    def _check_space(self) -> None:
        loop = asyncio.get_running_loop()
        self._space_check = loop.create_task(self._look_at_space())
        self._space_timer = loop.call_later(self._settings.space_check_s, self._check_space)

    async def _look_at_space(self) -> None:
        try:
            await self.store.check_space()
        except OSError:
            _LOGGER.exception("free space cannot be told")

    async def close(self) -> None:
        """Take no more requests, make durable and answer what was taken, end all connections."""
        if self._space_timer is not None:
            self._space_timer.cancel()
        if self._times_timer is not None:
            self._times_timer.cancel()
        if self._server is not None:
            self._server.close()
        if self.births is not None:
            self.births.close()
        self._handlers.fence_waits.close()
        for connection in list(self._connections):
            connection.stop_reading()
        await self.store.close()
        for connection in list(self._connections):
            connection.close()


def _shown(peer: object) -> str:
    """Return an address as the audit names it."""
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else str(peer or "")
