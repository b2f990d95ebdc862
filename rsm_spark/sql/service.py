"""SQL tables served: what `rsm sql serve` runs, and what a program embeds.

    settings = StoreSettings(log="shop", replica_id="a", data_dir=Path("/var/lib/shop-a"))
    client = await LedgerClient.connect("zk+hierarchical://127.0.0.1:2181/ledgers")
    async with SqlService(client, settings) as service:
        await service.wait_stopped()

The file of the tables is `tables.db` in the replica's folder. It is the replica's alone: to look into it, copy it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from ledger.client.client import LedgerClient
from rsm_spark.client.leader_links import links_of
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.errors import ConnectionLostError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.discovery import Discovery
from rsm_spark.server.replica_server import StoreService, StoreSettings
from rsm_spark.snapshots.manifest import SnapshotStore
from rsm_spark.sql.feed.desk import FeedDesk
from rsm_spark.sql.feed.events import FEED_CALL, FEED_SERVICE, decode_feed_request
from rsm_spark.sql.http_api import SqlHttpEdge
from rsm_spark.sql.http_changes import SqlHttpChanges
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.messages import encode
from rsm_spark.sql.pg_settings import PgSettings
from rsm_spark.sql.quick_reads import QuickReads
from rsm_spark.sql.reader_pool import ReaderPool
from rsm_spark.sql.reads import SqlReads
from rsm_spark.sql.row_desk import RowDesk
from rsm_spark.sql.scopes import SQL_SCOPES
from rsm_spark.sql.system_desk import SystemDesk
from rsm_spark.sql.table_rights import rights_of
from rsm_spark.sql.transactions import TransactionDesk
from rsm_spark.transport.connections import PORTS
from rsm_spark.transport.guard import caller_or_nobody
from rsm_spark.transport.told_service import ToldService

TABLES_FILE = "tables.db"
_DRAIN_S = 2.0


def patient(settings: StoreSettings, sql: SqlSettings) -> StoreSettings:
    """Return settings by which a leader that runs a long statement is not taken for one that stands still.

    Statements run on the event loop, which does not beat meanwhile.
    """
    replica = settings.replica
    if not replica.beat_silence_s:
        return settings
    silence_s = replica.beat_silence_s + sql.command_ms_max / 1000
    return msgspec.structs.replace(settings, replica=msgspec.structs.replace(replica, beat_silence_s=silence_s))


class SqlService(StoreService):
    """A replica of SQL tables, and its server. For the event loop on which it is made.

    Args:
        client: Connected ledger client; stays the caller's to close.
        settings: Log, replica id, folder, address and the rest.
        sql: Limits of the tables.
        lake: Snapshots to boot from when there is nothing on the disk.
        pg: Port for PostgreSQL's clients.

    Attributes:
        pg: What serves PostgreSQL's clients; None = there is no such port.
        pg_address: "host:port" of it; "" = there is none.
        reads: Answers its queries.
        feeds: Feeds of changes.
        http_routes: What the HTTP server of the process serves of the tables.

    Raises:
        RsmError: The port is taken, or the file of the tables cannot be opened.

    """

    def __init__(
        self,
        client: LedgerClient,
        settings: StoreSettings,
        sql: SqlSettings | None = None,
        lake: SnapshotStore | None = None,
        pg: PgSettings | None = None,
    ) -> None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        sql, pg = sql or SqlSettings(), pg or PgSettings()
        ports = PORTS if pg.port is None else PORTS + 1
        self.machine = SqlMachine(settings.data_dir / TABLES_FILE, sql)
        super().__init__(client, patient(settings, sql), lake=lake, machine=self.machine, keys=SQL_SCOPES, ports=ports)
        self._readers = ReaderPool(self.machine.path, sql)
        self._desk = TransactionDesk(self.machine.hold, lambda: self.machine.wal_pages, sql)
        self._results = RowDesk(self._readers, lambda: self.machine.wal_pages, sql)
        self._quick = QuickReads(self.machine.path, sql)
        self.feeds = FeedDesk(self.feed, self.machine, self.past, sql.feeds_max)
        ToldService(settings.log, FEED_SERVICE, FEED_CALL, self._told).add_to(self.server)
        discovery = Discovery(client.store, settings.log, settings.replica.rsm_root)
        self._system = SystemDesk(
            client,
            discovery,
            ChainStore(client.store, settings.log, settings.replica.rsm_root),
            settings.replica_id,
            settings.security,
            self.status_json,
            lambda: (*self._desk.held_commits(), *self._results.held_commits()),
        )
        self.backend = self.reads = reads = SqlReads(
            self.replica, self._readers, self._desk, self._results, self._system, self._quick
        )
        self._http = SqlHttpEdge(
            self.replica,
            reads,
            links_of(discovery, settings.log, settings.security, TIMEOUT_S, self.server.near),
            settings.log,
            sql.result_bytes_max,
        )
        changes = SqlHttpChanges(self.feeds, settings.log)
        self.http_routes = self._http.routes() | changes.routes()
        reads.on_refused = self._http.on_refused = changes.on_refused = self.server.guard.on_refused
        self.pg = None
        self.pg_address = ""
        if pg.port is None:
            return
        from rsm_spark.sql.pg.backend import PgBackend  # noqa: PLC0415 - sqlglot only where it is used
        from rsm_spark.sql.pg.server import PgServer  # noqa: PLC0415

        links = links_of(discovery, settings.log, settings.security, TIMEOUT_S, self.server.near)
        backend = PgBackend(self.replica, reads, self._readers, links, settings.log, max(1, sql.transactions_max // 4))
        self.pg = PgServer(
            backend,
            bind=pg.bind or settings.bind,
            port=pg.port,
            security=settings.security,
            connections_max=pg.connections_max,
            ports=ports,
        )
        self.pg.on_refused = self.server.guard.on_refused
        self.pg_address = self.pg.address

    async def _told(self, text: bytes, owner: str) -> AsyncIterator[bytes]:
        """Iterate over the messages of a feed that a client asks for."""
        request = decode_feed_request(text)
        if request.log != self._settings.log:
            raise ConnectionLostError(f"this replica serves the log {self._settings.log!r}, not {request.log!r}")
        rights = rights_of(caller_or_nobody())
        async with contextlib.aclosing(self.feeds.slices(request, owner, rights)) as slices:
            async for one in slices:
                yield encode(one)

    async def start(self) -> None:
        """Load the state, follow the log, serve; see `StoreService.start`."""
        await super().start()
        if self.pg is not None:
            self.pg.start()

    async def stop(self) -> None:
        """Leave in an orderly way, then close the file."""
        try:
            if self.pg is not None:
                await self.pg.stop(_DRAIN_S)
            await self._http.stop()
            self._system.close()
            await super().stop()
        finally:
            self._desk.close()
            self._results.close()
            self._readers.close()
            self._quick.close()
            self.machine.close()
