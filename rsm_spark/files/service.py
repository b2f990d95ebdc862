"""One server of a file store: a replica, and WebHDFS. What `rsm files serve` runs, and what a program embeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger.client.client import LedgerClient
from ledger.http.api_server import ApiServer
from ledger.http.api_settings import ApiSettings
from ledger.http.metrics_push import push_metrics
from ledger.http.origins import HostCheck
from ledger.http.replies import HttpReply
from ledger.http.routes import METRICS_TYPE, ProbePage
from ledger.http.tokens import Tokens
from ledger.rights.table import Right
from rsm_spark.client.leader_links import links_of
from rsm_spark.core.contents import CONTENTS_TABLE, FREED_TABLE
from rsm_spark.files.cleaning import FileCleaner
from rsm_spark.files.commands import FileCommand, FileDone, FileQuery, FileResult, UploadBegun
from rsm_spark.files.content_ledgers import ContentLedgers
from rsm_spark.files.desk import ANSWER_S, FileDesk
from rsm_spark.files.machine import FileMachine
from rsm_spark.files.records import ROOT
from rsm_spark.files.scopes import FileScopes
from rsm_spark.files.settings import FileSettings
from rsm_spark.files.webhdfs.call import WebHdfsState
from rsm_spark.files.webhdfs.edge import WebHdfsEdge
from rsm_spark.files.webhdfs.pages import WebHdfsPage
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.discovery import Discovery
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.runtime.telemetry import ReplicaTelemetry
from rsm_spark.server.probes import health
from rsm_spark.server.replica_server import StoreService
from rsm_spark.snapshots.manifest import SnapshotStore
from rsm_spark.transport.connections import PORTS

_LOGGER = logging.getLogger(__name__)
_CLEANER = "the cleaner of files"


class FileService(StoreService):
    """See the module. For the event loop on which it is made.

    Args:
        client: Connected ledger client; stays the caller's to close.
        settings: See `FileSettings`.
        lake: Snapshots to boot from when there is no local one.

    Attributes:
        http_address: "host:port" of WebHDFS.
        url: The same as a URL.
        files: The state; read it through the door.
        contents: Contents in ledgers of their own.

    Raises:
        RsmError: The port is taken, or not on loopback.
        UsageError: TLS or tokens are missing where they are needed, or a file cannot be used.

    """

    def __init__(self, client: LedgerClient, settings: FileSettings, *, lake: SnapshotStore | None = None) -> None:
        self.files = FileMachine()
        super().__init__(client, settings, lake=lake, machine=self.files, keys=FileScopes(), ports=PORTS + 1)
        discovery = Discovery(client.store, settings.log, settings.replica.rsm_root)
        self._links = links_of(discovery, settings.log, settings.security, ANSWER_S, self.server.near)
        self._log = settings.log
        self._writes_ledgers = settings.ledger_files
        replica, root = settings.replica, settings.replica.rsm_root
        chains = ChainStore(client.store, settings.log, root)
        self.contents = ContentLedgers(client, chains, settings.log, replica)
        self._desk = FileDesk(self.replica, self._links)
        self._cleaner = FileCleaner(
            client, chains, root, execute=self._clean, ask=self._look, leads=self._leads, pause_s=replica.trim_s
        )
        self._cleaning: asyncio.Task[None] | None = None
        self._push: asyncio.Task[None] | None = None
        self.replica.on_role(self._on_role)
        self._door = ApiServer(settings.door(), self._edge, ports=PORTS + 1)
        edge = self._door.edge
        edge.state.address, edge.state.url = self._door.address, self._door.url
        self.http_address = self.replica.http = self._door.address
        self.replica.http_is_tls = self._door.url.startswith("https:")
        self.url = self._door.url
        self._telemetry = ReplicaTelemetry(self.replica, folder=str(settings.data_dir))
        self._telemetry.add(_FileTelemetry(edge, self.files, self._cleaner))
        self.describe = lambda: {"http_address": self.http_address}

    def _edge(self, bounded: ApiSettings, hosts: HostCheck, tokens: Tokens | None) -> WebHdfsEdge:
        state = WebHdfsState(self._desk, self.contents, self._log, bounded, tokens, writes_ledgers=self._writes_ledgers)
        pages = {
            "/healthz": WebHdfsPage(None, self._health),
            "/readyz": WebHdfsPage(None, self._ready),
            "/status": WebHdfsPage(Right.STATUS, self._status),
            "/metrics": WebHdfsPage(Right.CLUSTER_READ, self._metrics),
        }
        return WebHdfsEdge(state, hosts, pages)

    def _on_role(self, _role: ReplicaRole) -> None:
        self._cleaner.look()

    async def _clean(self, command: FileCommand) -> FileDone | UploadBegun:
        return await self._desk.execute(command, _CLEANER)

    async def _look(self, query: FileQuery) -> FileResult:
        return await self._desk.query(query, _CLEANER)

    async def start(self) -> None:
        """Load the state, follow the log, serve; see `StoreService.start`."""
        await self._door.start()  # It tells how far the replica is.
        try:
            await super().start()
        except BaseException:
            await self._door.stop()
            await self._links.close()
            raise
        self._cleaning = asyncio.get_running_loop().create_task(self._cleaner.run())
        self._cleaning.add_done_callback(_tell_end)
        self._push = push_metrics(self._metrics_page)

    async def stop(self) -> None:
        """Take no more requests, answer what was taken, and leave in an orderly way."""
        await self._door.stop()
        if self._push is not None:
            self._push.cancel()
        if self._cleaning is not None:
            self._cleaning.cancel()
            await asyncio.wait([self._cleaning])
        try:
            await super().stop()
        finally:
            await self._links.close()

    # ---- pages

    async def _health(self) -> HttpReply:
        return _reply(health(self.replica.status()))

    async def _ready(self) -> HttpReply:
        return _reply(self.readiness())

    async def _status(self) -> HttpReply:
        return HttpReply(200, self.status_json())

    async def _metrics(self) -> HttpReply:
        return _reply(await self._metrics_page())

    async def _metrics_page(self) -> ProbePage:
        return ProbePage(200, await self._telemetry.text(), METRICS_TYPE)


class _FileTelemetry(Collector):
    """Metrics of a file store and its door."""

    def __init__(self, edge: WebHdfsEdge, machine: FileMachine, cleaner: FileCleaner) -> None:
        self._edge = edge
        self._machine = machine
        self._cleaner = cleaner

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as they are now."""
        requests = CounterMetricFamily("rsm_files_requests", "Requests answered.", labels=["operation", "status"])
        for (operation, status), count in sorted(self._edge.counts.items()):
            requests.add_metric([operation, str(status)], count)
        yield requests
        held = self._machine.tree.held(ROOT)
        yield GaugeMetricFamily("rsm_files_files", "Files.", value=held.files)
        yield GaugeMetricFamily("rsm_files_directories", "Directories.", value=held.directories)
        yield GaugeMetricFamily("rsm_files_bytes", "Bytes of all files.", value=held.size)
        yield GaugeMetricFamily(
            "rsm_files_uploads", "Files that are being sent.", value=len(self._machine.uploads.held)
        )
        held_ledgers, freed_ledgers = (self._machine.count(table) for table in (CONTENTS_TABLE, FREED_TABLE))
        yield GaugeMetricFamily("rsm_files_ledgers", "Files in ledgers of their own.", value=held_ledgers)
        yield GaugeMetricFamily(
            "rsm_files_ledgers_freed", "Ledgers that no file has any more, and that are about to go.",
            value=freed_ledgers,
        )  # fmt: skip
        yield CounterMetricFamily(
            "rsm_files_ledgers_deleted", "Ledgers of contents that this process deleted.", value=self._cleaner.deleted
        )
        state = self._edge.state
        yield GaugeMetricFamily("rsm_files_connections", "Connections open.", value=state.seats.taken)
        yield GaugeMetricFamily(
            "rsm_files_answer_bytes", "Bytes of long answers that callers take.", value=state.answers.held
        )


def _tell_end(cleaning: asyncio.Task[None]) -> None:
    if not cleaning.cancelled() and cleaning.exception() is not None:
        _LOGGER.error("space of files is not freed any more", exc_info=cleaning.exception())


def _reply(page: ProbePage) -> HttpReply:
    return HttpReply(page.status, page.body, (), page.content_type.encode())


def file_service(client: LedgerClient, settings: FileSettings, lake: SnapshotStore | None = None) -> FileService:
    """Return a server of a file store, not started yet; see `FileService`."""
    settings = msgspec.structs.replace(settings, http=msgspec.structs.replace(
        settings.http, rate_burst=max(1, int(2 * settings.http.rate_per_s))
    ))  # fmt: skip
    return FileService(client, settings, lake=lake)
