"""The replica process: everything is wired here. `rsm store run` and `rsm broker run` end in `run_replica`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.errors import LedgerError, UsageError
from ledger.http.metrics_push import push_metrics
from ledger.http.probe_server import ProbeServer
from ledger.http.routes import ProbePage, probe_routes
from ledger.http.settings import HttpPortSettings
from ledger.process_guard import ProcessGuard
from ledger.rights.callers import Callers
from ledger.telemetry.start import metrics_period_s, start_telemetry
from ledger.tls import is_loopback
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.session import connect
from ledger.zookeeper.uri import MetadataUri
from rsm_spark.errors import SnapshotError
from rsm_spark.runtime.folder_lock import locked
from rsm_spark.runtime.lake_names import follow_renames
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.short_pauses import short_pauses
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.server.probes import health
from rsm_spark.server.replica_options import ReplicaOptions
from rsm_spark.server.replica_server import StoreSettings
from rsm_spark.snapshots.manifest import LakeStore, SnapshotStore
from rsm_spark.snapshots.pandas_free import leave_pandas_out

_LOGGER = logging.getLogger(__name__)


class ReadyNotice(msgspec.Struct, frozen=True):
    """The line by which a replica says that its state is loaded and that it serves."""

    ready: bool
    log: str
    log_id: str
    replica_id: str
    address: str
    pid: int
    revision: int
    boot_s: float
    http_address: str = ""
    etcd_address: str = ""
    etcd_json_address: str = ""
    pg_address: str = ""


class RunService(Protocol):
    """A replica with its servers, as this module runs it; `StoreService` is one."""

    address: str
    replica: Replica
    http_address: str

    def readiness(self) -> ProbePage:
        """Say whether clients should be sent here."""
        ...

    def status_json(self) -> bytes:
        """Return what `/status` shows."""
        ...

    async def wait_stopped(self) -> None:
        """Wait until the replica has stopped by itself, which raises."""
        ...

    async def __aenter__(self) -> Self:
        """Start."""
        ...

    async def __aexit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Stop."""
        ...


def run_replica(
    given: ReplicaOptions,
    settings: StoreSettings,
    make_service: Callable[[LedgerClient, SnapshotStore | None], RunService],
    words: Callable[[ReadyNotice], str],
    probes: HttpPortSettings | None = None,
) -> None:
    """Run a replica until SIGTERM or SIGINT, on the quickest event loop that is installed.

    Args:
        given: What the command was told beside the settings.
        settings: Of the replica.
        make_service: Makes what is run, of a connected client and the lake.
        words: What is printed once it serves, unless JSON is asked for.
        probes: Health and metrics over HTTP; None = the service has them itself.

    Raises:
        RsmError: It cannot start, or the replica stopped by itself; the message says why and what would help.
        LedgerError: Metadata store or bookies cannot be asked.

    """

    def announce(notice: ReadyNotice) -> None:
        sys.stdout.write((msgspec.json.encode(notice).decode() if given.json else words(notice)) + "\n")
        sys.stdout.flush()

    start_telemetry(given.telemetry, "rsm-replica", f"{settings.log}/{settings.replica_id}")
    work = _run(given, settings, make_service, announce, probes)
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


async def _follow(lake: LakeStore, client: LedgerClient, settings: StoreSettings) -> None:
    """Find the log's snapshots below a former name; a lake that does not answer holds up no replica."""
    try:
        await follow_renames(lake, client.store, settings.log, settings.replica.rsm_root)
    except SnapshotError as error:
        _LOGGER.warning("snapshots below former names of the log are not looked for: %s", error)


async def _run(
    given: ReplicaOptions,
    settings: StoreSettings,
    make_service: Callable[[LedgerClient, SnapshotStore | None], RunService],
    on_ready: Callable[[ReadyNotice], None],
    probes: HttpPortSettings | None,
) -> None:
    began_s = time.monotonic()
    leave_pandas_out()
    uri = MetadataUri.of(given.metadata_uri)
    lake = given.lake_of(settings.log)

    async def serve(guard: ProcessGuard) -> None:
        client, bookies = await _connect(uri, given.session_timeout_ms)
        try:
            check_exposure(settings, [*uri.hosts, *bookies])
            if lake is not None:
                await _follow(lake, client, settings)
            service = make_service(client, lake)
            service.replica.on_role(lambda role: _log_role(settings, role))
            async with service:
                pauses.enter_context(short_pauses())
                server = None if probes is None else await _answer_probes(service, settings, probes)
                try:
                    http_address = service.http_address if server is None else server.address
                    guard.ready()
                    on_ready(_notice(service, settings, time.monotonic() - began_s, http_address))
                    await service.wait_stopped()
                finally:
                    if server is not None:
                        await server.stop()
        finally:
            await client.close()

    with (
        locked(settings.data_dir),
        contextlib.ExitStack() as pauses,
        ProcessGuard(f"replica {settings.replica_id}", stall_s=given.stall_s) as guard,
    ):
        await guard.unless_stopped(serve(guard))


def check_exposure(settings: StoreSettings, addresses: Sequence[str]) -> None:
    """Refuse a log without a key where others than this machine reach metadata store or bookies.

    Args:
        settings: Of the replica.
        addresses: "host:port" of metadata servers and bookies.

    Raises:
        UsageError: The log would have no key, and nobody said that this is meant.

    """
    replica = settings.replica
    if replica.log_keys is not None:
        return
    beyond = [address for address in addresses if not is_loopback(address.rpartition(":")[0].strip("[]"))]
    if beyond and not replica.allow_unsigned:
        raise UsageError(
            f"log {settings.log}: whoever reaches {beyond[0]} can forge a log without a key. Give every replica the "
            "same key file: --log-key FILE (rsm log key new makes one); or say --unsigned"
        )
    _LOGGER.info(
        "log %s: this replica has no key: whoever reaches metadata store or bookies can forge such a log",
        settings.log,
        extra={"log": settings.log, "replica": settings.replica_id},
    )


async def _connect(uri: MetadataUri, session_timeout_ms: int) -> tuple[LedgerClient, list[str]]:
    """Return a client, and the addresses of the bookies as far as they are known."""
    store = await connect(uri.hosts, session_timeout_ms=session_timeout_ms)
    ledgers = LedgerStore(store, uri.ledgers_root)
    rng = random.Random()  # noqa: S311 - spreads load, guards nothing
    settings = ClientSettings.from_environment()
    client = LedgerClient(ledgers, ConnectionPool(ledgers.bookie_address, rng, settings), rng, settings)
    bookies: list[str] = []
    with contextlib.suppress(LedgerError):  # None yet: the replica waits for them.
        for bookie_id in await ledgers.writable_bookies():
            host, port = await ledgers.bookie_address(bookie_id)
            bookies.append(f"{host}:{port}")
    return client, bookies


async def _answer_probes(service: RunService, settings: StoreSettings, probes: HttpPortSettings) -> ProbeServer | None:
    """Answer probes, and tell a collector metrics, each where it is asked for."""
    if probes.port is None and not metrics_period_s():
        return None
    from rsm_spark.runtime.telemetry import METRICS_TYPE, ReplicaTelemetry  # noqa: PLC0415 - only where it is asked for

    replica = service.replica
    telemetry = ReplicaTelemetry(replica, folder=str(settings.data_dir))

    async def metrics() -> ProbePage:
        return ProbePage(200, await telemetry.text(), METRICS_TYPE)

    push_metrics(metrics)
    if probes.port is None:
        return None
    server = ProbeServer(
        probe_routes(
            health=lambda: health(replica.status()),
            readiness=service.readiness,
            metrics=metrics,
            status=lambda: ProbePage(200, service.status_json(), "application/json"),
        )
        | getattr(service, "http_routes", {}),  # of SQL tables alone
        bind=probes.bind,
        port=probes.port,
        tls=settings.security.served(),
        callers=Callers(settings.security.principals, settings.security.token_file),
        allowed_hosts=probes.allowed_hosts,
    )
    await server.start()
    return server


def _notice(service: RunService, settings: StoreSettings, boot_s: float, http_address: str) -> ReadyNotice:
    return ReadyNotice(
        ready=True,
        log=settings.log,
        log_id=service.replica.status().log_id,
        replica_id=settings.replica_id,
        address=service.address,
        pid=os.getpid(),
        revision=service.replica.revision,
        boot_s=round(boot_s, 3),
        http_address=http_address,
        etcd_address=service.replica.etcd,
        etcd_json_address=getattr(service, "etcd_json", ""),  # of the map alone
        pg_address=getattr(service, "pg_address", ""),  # of SQL tables alone
    )


def _log_role(settings: StoreSettings, role: ReplicaRole) -> None:
    _LOGGER.info("role: %s", role, extra={"log": settings.log, "replica": settings.replica_id})
