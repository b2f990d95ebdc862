"""The bookie's server: connections on one side, the store on the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from ledger.bookie.connection import Connection
from ledger.bookie.handlers import Handlers
from ledger.bookie.intake import AddIntake
from ledger.store.disk import Disk
from ledger.store.entry_store import EntryStore, Executors, StoreHooks, StoreSettings
from ledger.store.recovery import IndexFactory
from ledger.wire.packets import Request

__all__ = ["BookieServer", "ServerSettings"]

_log = logging.getLogger(__name__)


class ServerSettings(msgspec.Struct, frozen=True):
    """Limits of the server.

    Attributes:
        polls_max: Long polls that may wait at a time.
        cold_reads_max: Reads of one connection that may wait for the disk at a time.
        space_check_s: Interval of the look at free space.

    """

    polls_max: int = 10_000
    cold_reads_max: int = 10_000
    space_check_s: float = 5.0


class BookieServer:
    """Serves a store. Build with `open`, then `listen`.

    Attributes:
        failed: Done when the store failed for good; the process must end.

    """

    store: EntryStore
    intake: AddIntake

    def __init__(self, settings: ServerSettings, on_read_only: Callable[[bool], None]) -> None:
        self._settings = settings
        self._on_read_only = on_read_only
        self._connections: dict[Connection, None] = {}
        # Connections that wait for room, in the order in which they found none.
        self._waiting: dict[Connection, None] = {}
        # Connections with answers that nobody wrote yet.
        self._answered: dict[Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._space_timer: asyncio.TimerHandle | None = None
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
    ) -> BookieServer:
        """Replay the storage and return a server that does not listen yet.

        Raises:
            OSError: The disk refuses.

        """
        limits = server_settings or ServerSettings()
        server = cls(limits, on_read_only)
        hooks = StoreHooks(server._on_batch_done, server._on_room, server._on_failure, on_read_only)
        server.store = await EntryStore.open(disk, executors, settings, open_index, hooks, nonce=nonce)

        def disk_bytes() -> asyncio.Future[tuple[int, int]]:
            folder = settings.ledger_dir
            return executors.readers.submit(lambda: (disk.total_bytes(folder), disk.free_bytes(folder)))

        server._handlers = Handlers(
            server.store,
            polls_max=limits.polls_max,
            cold_reads_max=limits.cold_reads_max,
            disk_bytes=disk_bytes,
        )
        server.intake = AddIntake(
            server.store,
            server._handlers.send_answer,
            server._handlers.polls.wake,
            run_bytes_max=settings.journal.file_bytes // 4,
        )
        return server

    _handlers: Handlers

    async def listen(self, host: str, port: int) -> int:
        """Serve at an address; return the port (0 asks the system for one)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=1024)
        self._space_timer = loop.call_later(self._settings.space_check_s, self._check_space)
        sockets = self._server.sockets
        return int(sockets[0].getsockname()[1]) if sockets else port

    # -- ConnectionOwner -----------------------------------------------------------------------------------

    def handle(self, connection: Connection, request: Request) -> bool:
        """See `ConnectionOwner`."""
        return self._handlers.handle(connection, request)

    def on_opened(self, connection: Connection) -> None:
        """See `ConnectionOwner`."""
        self._connections[connection] = None

    def on_lost(self, connection: Connection) -> None:
        """See `ConnectionOwner`."""
        self._connections.pop(connection, None)
        self._waiting.pop(connection, None)
        self._answered.pop(connection, None)
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
        if self._waiting:
            self._on_room()

    def _on_room(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.go_on()

    def _on_failure(self, error: BaseException) -> None:
        for connection in list(self._connections):
            connection.abort()
        if not self.failed.done():
            self.failed.set_result(error)

    # -- space and end -------------------------------------------------------------------------------------

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
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.stop_reading()
        await self.store.close()
        for connection in list(self._connections):
            connection.close()
