"""The bookie's server: connections on one side, the store on the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from ledger.bookie.connection import Connection
from ledger.bookie.connection_times import Overdue, TimeLimits
from ledger.bookie.handlers import HandlerLimits, Handlers
from ledger.bookie.inbox import ReceiveRoom
from ledger.bookie.intake_v2 import AddIntakeV2
from ledger.bookie.intake_v3 import AddIntakeV3
from ledger.bookie.protocols import V2, V3
from ledger.bookie.reads_v2 import ReadRunsV2
from ledger.bookie.responder import TakeRun
from ledger.bookie.tls import TlsPolicy
from ledger.store.disk import Disk
from ledger.store.entry_store import EntryStore, Executors, StoreHooks, StoreSettings
from ledger.store.recovery import IndexFactory
from ledger.wire.codes import V2Opcode
from ledger.wire.packets import Request

__all__ = ["BookieServer", "ServerSettings"]

_log = logging.getLogger(__name__)


class ServerSettings(msgspec.Struct, frozen=True):
    """Limits of the server.

    Attributes:
        connections_max: One more is closed at once.
        handlers: How much may be asked at a time.
        times: How slow a client may be.
        times_check_s: Interval of the look at slow clients.
        read_bytes: Most that is read from a socket at a time; one such buffer serves all connections.
        unfinished_bytes_max: What all connections together may hold of frames that are not whole.
        space_check_s: Interval of the look at free space.
        is_read_only: Take no ordinary adds, whatever room there is.
        users: Passwords by user, one of whom each connection must log in as; None lets everybody in.

    """

    connections_max: int = 20_000
    handlers: HandlerLimits = HandlerLimits()
    times: TimeLimits = TimeLimits()
    times_check_s: float = 5.0
    read_bytes: int = 256 << 10
    unfinished_bytes_max: int = 256 << 20
    space_check_s: float = 5.0
    is_read_only: bool = False
    users: dict[str, str] | None = None


class BookieServer:
    """Serves a store. Build with `open`, then `listen`.

    Attributes:
        failed: Done when the store failed for good; the process must end.

    """

    store: EntryStore
    runs: dict[int, dict[int, TakeRun]]

    def __init__(self, settings: ServerSettings, tls: TlsPolicy) -> None:
        self._settings = settings
        self.tls = tls
        self.users = settings.users
        self.room = ReceiveRoom(settings.read_bytes, kept_bytes_max=settings.unfinished_bytes_max)
        self._is_full = False
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
        settings: StoreSettings,
        open_index: IndexFactory,
        *,
        nonce: Callable[[], int],
        on_read_only: Callable[[bool], None] = lambda _: None,
        server_settings: ServerSettings | None = None,
        tls: TlsPolicy | None = None,
    ) -> BookieServer:
        """Replay the storage and return a server that does not listen yet.

        Raises:
            OSError: The disk refuses.

        """
        limits = server_settings or ServerSettings()
        server = cls(limits, tls or TlsPolicy())
        hooks = StoreHooks(server._on_batch_done, server._on_room, server._on_failure, on_read_only)
        server.store = await EntryStore.open(disk, executors, settings, open_index, hooks, nonce=nonce)

        if limits.is_read_only:
            server.store.is_read_only = True  # For good: free space is not looked at.

        def disk_bytes() -> asyncio.Future[tuple[int, int]]:
            folder = settings.ledger_dir
            return executors.readers.submit(lambda: (disk.total_bytes(folder), disk.free_bytes(folder)))

        server._handlers = Handlers(server.store, limits.handlers, disk_bytes)
        wake, run_bytes_max = server._handlers.polls.wake, settings.journal.file_bytes // 4
        adds_v2 = AddIntakeV2(server.store, wake, run_bytes_max=run_bytes_max)
        adds_v3 = AddIntakeV3(server.store, wake, run_bytes_max=run_bytes_max)
        server.runs = {
            V2.version: {V2.add_operation: adds_v2.take, V2Opcode.READ_ENTRY: ReadRunsV2(server.store).take},
            V3.version: {V3.add_operation: adds_v3.take},
        }
        return server

    _handlers: Handlers

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

    # -- ConnectionOwner -----------------------------------------------------------------------------------

    def handle(self, connection: Connection, request: Request) -> bool:
        """See `ConnectionOwner`."""
        return self._handlers.handle(connection, request)

    def on_opened(self, connection: Connection) -> bool:
        """See `ConnectionOwner`."""
        limit = self._settings.connections_max
        if len(self._connections) >= limit:
            if not self._is_full:
                _log.error(
                    "%d connections are open, the limit: more are closed at once until some end; raise the limit, or "
                    "look for a client that opens too many",
                    limit,
                )
            self._is_full = True
            return False
        self._connections[connection] = None
        return True

    def on_lost(self, connection: Connection) -> None:
        """See `ConnectionOwner`."""
        self._connections.pop(connection, None)
        self._waiting.pop(connection, None)
        self._answered.pop(connection, None)
        if len(self._connections) < self._settings.connections_max * 9 // 10:
            self._is_full = False
        for waiter in list(connection.waiters):
            self._handlers.polls.drop(waiter)

    def on_no_room(self, connection: Connection) -> None:
        """See `ConnectionOwner`."""
        self._waiting[connection] = None

    def on_answered(self, connection: Connection) -> None:
        """See `ConnectionOwner`."""
        self._answered[connection] = None

    # -- StoreHooks ----------------------------------------------------------------------------------------

    def _on_batch_done(self) -> None:
        answered, self._answered = self._answered, {}
        for connection in answered:
            try:
                connection.flush()
            except Exception:  # noqa: BLE001  one connection's failure must not cost the others their answers.
                _log.exception("answers of a batch could not be written")
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
        for connection in list(self._connections):
            if has_stood_still:
                connection.times.forgive(now_s)  # What clients sent meanwhile was not read yet.
                continue
            overdue = connection.overdue(limits, now_s)
            if overdue is not None:
                level = logging.INFO if overdue is Overdue.IDLE else logging.WARNING
                _log.log(level, "closing a connection: %s", overdue, extra={"peer": connection.peer})
                connection.abort()
        self._times_checked_s = now_s
        self._times_timer = loop.call_later(interval_s, self._check_times)

    def _check_space(self) -> None:
        loop = asyncio.get_running_loop()
        self._space_check = loop.create_task(self._look_at_space())
        self._space_timer = loop.call_later(self._settings.space_check_s, self._check_space)

    async def _look_at_space(self) -> None:
        try:
            await self.store.check_space()
        except OSError:
            _log.exception("free space cannot be told")

    async def close(self) -> None:
        """Take no more requests, make durable and answer what was taken, end all connections."""
        if self._space_timer is not None:
            self._space_timer.cancel()
        if self._times_timer is not None:
            self._times_timer.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.stop_reading()
        await self.store.close()
        for connection in list(self._connections):
            connection.close()
