"""The replica process: everything is wired here. `rsm store run` ends in `run_store`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.zk.ledgers import LedgerStore
from ledger.zk.session import connect
from ledger.zk.uri import MetadataUri
from rsm_spark.runtime import Replica, Role
from rsm_spark.runtime.folder_lock import locked
from rsm_spark.runtime.probes import Page, ProbeServer, ProbeSettings, health, readiness
from rsm_spark.runtime.short_pauses import short_pauses
from rsm_spark.snapshots import SnapshotStore
from rsm_spark.snapshots.pandas_free import leave_pandas_out
from rsm_spark.store.service import StoreService, StoreSettings

__all__ = ["SESSION_TIMEOUT_MS", "ReadyNotice", "RunService", "run_store"]

SESSION_TIMEOUT_MS = 2_000
"""How long ZooKeeper waits for a silent replica before another one may lead: most of a failover's time. The server
grants two of its ticks at least; it must exceed the longest pause of this process."""

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


class RunService(Protocol):
    """A replica with its servers, as this module runs it; `StoreService` is one."""

    address: str
    replica: Replica
    http_address: str

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


async def run_store(
    settings: StoreSettings,
    metadata_uri: str | None,
    on_ready: Callable[[ReadyNotice], None],
    *,
    lake: SnapshotStore | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    probes: ProbeSettings | None = None,
    make_service: Callable[[LedgerClient, SnapshotStore | None], RunService] | None = None,
) -> None:
    """Run until SIGTERM or SIGINT.

    Args:
        settings: Of the replica.
        metadata_uri: Where everything is found; None = by the environment.
        on_ready: Called once the replica serves.
        lake: Snapshots to boot from when there is no local one.
        session_timeout_ms: Asked of ZooKeeper.
        probes: Health and metrics over HTTP; None = none.
        make_service: Makes what is run, of a connected client and the lake; None = a `StoreService`.

    Raises:
        RsmError: It cannot start, or the replica stopped by itself; the message says why and what would help.
        LedgerError: Metadata store or bookies cannot be asked.

    """
    began_s = time.monotonic()
    leave_pandas_out()
    uri = MetadataUri.of(metadata_uri)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    with locked(settings.data_dir), contextlib.ExitStack() as pauses:
        client = await _connect(uri, session_timeout_ms)
        try:
            service: RunService
            service = StoreService(client, settings, lake=lake) if make_service is None else make_service(client, lake)
            service.replica.on_role(lambda role: _log_role(settings, role))
            async with service:
                pauses.enter_context(short_pauses())
                server = None if probes is None else await _answer_probes(service, settings, probes)
                try:
                    http_address = service.http_address if server is None else server.address
                    on_ready(_notice(service, settings, time.monotonic() - began_s, http_address))
                    await _wait(service, stopped)
                finally:
                    if server is not None:
                        await server.stop()
        finally:
            await client.close()


async def _wait(service: RunService, stopped: asyncio.Event) -> None:
    """Wait for a signal, or for the replica to stop by itself, which raises."""
    loop = asyncio.get_running_loop()
    signalled = loop.create_task(stopped.wait())
    replica = loop.create_task(service.wait_stopped())
    try:
        await asyncio.wait([signalled, replica], return_when=asyncio.FIRST_COMPLETED)
        if replica.done():
            replica.result()
    finally:
        signalled.cancel()
        replica.cancel()
        await asyncio.wait([signalled, replica])


async def _connect(uri: MetadataUri, session_timeout_ms: int) -> LedgerClient:
    store = await connect(uri.hosts, session_timeout_ms=session_timeout_ms)
    ledgers = LedgerStore(store, uri.ledgers_root)
    rng = random.Random()  # noqa: S311 - spreads load, guards nothing
    settings = ClientSettings.from_environment()
    return LedgerClient(ledgers, ConnectionPool(ledgers.bookie_address, rng, settings), rng, settings)


async def _answer_probes(service: RunService, settings: StoreSettings, probes: ProbeSettings) -> ProbeServer:
    from rsm_spark.runtime.telemetry import METRICS_TYPE, ReplicaTelemetry  # noqa: PLC0415 - only where it is asked for

    replica = service.replica
    telemetry = ReplicaTelemetry(replica)
    server = ProbeServer(
        {
            "/healthz": lambda: health(replica.status()),
            "/readyz": lambda: readiness(replica.status(), lag_ms_max=probes.lag_ms_max),
            "/metrics": lambda: Page(200, telemetry.text(), METRICS_TYPE),
            "/status": lambda: Page(200, service.status_json(), "application/json"),
        },
        bind=probes.bind,
        port=probes.port,
        security=settings.security,
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
    )


def _log_role(settings: StoreSettings, role: Role) -> None:
    _LOGGER.info("role: %s", role, extra={"log": settings.log, "replica_id": settings.replica_id})
