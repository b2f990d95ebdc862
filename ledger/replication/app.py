"""Auto-recovery wired up: a candidate for the auditor's place and a worker, in a process of its own or a bookie's."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.http.probe_server import ProbeServer
from ledger.process_guard import STALL_S, ProcessGuard
from ledger.replication.auditor import Auditor, AuditorCounts
from ledger.replication.marks import MarkStore
from ledger.replication.removals import RemovalDesk
from ledger.replication.settings import ReplicationSettings
from ledger.replication.worker import ReplicationWorker, WorkerCounts
from ledger.zookeeper import session
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.uri import MetadataUri

_LEAVE_S_MAX = 1.0


class RunningNotice(msgspec.Struct, frozen=True):
    """The line by which auto-recovery says that it runs.

    Attributes:
        ready: True.
        owner: Its name in votes and locks.
        http_address: Where it answers HTTP; "" = nowhere.

    """

    ready: bool
    owner: str
    http_address: str = ""


class AutoRecovery:
    """One auditor candidate and one worker.

    Args:
        ledgers: Metadata; the session's ephemeral nodes are votes and locks.
        owner: Name in votes and locks, unlike that of any other process.
        rng: Choices and jitter.
        settings: Times and limits.
        client_settings: Of the connections to bookies.
        wall_ms: Wall clock.

    Attributes:
        marks: Of the cluster.
        removals: Bookies that are taken out by this process.

    """

    def __init__(
        self,
        ledgers: LedgerStore,
        owner: str,
        rng: random.Random,
        settings: ReplicationSettings,
        client_settings: ClientSettings,
        *,
        wall_ms: Callable[[], int],
    ) -> None:
        self.marks = MarkStore(ledgers.store, ledgers.root, owner)
        self.removals = RemovalDesk(ledgers, wall_ms=wall_ms)
        self._pool = ConnectionPool(ledgers.bookie_address, rng, client_settings)
        client = LedgerClient(ledgers, self._pool, rng, client_settings, wall_ms=wall_ms)
        self._auditor = Auditor(ledgers, self._pool, self.marks, settings, wall_ms=wall_ms)
        self._worker = ReplicationWorker(client, self._pool, self.marks, rng, settings)

    @property
    def auditor_counts(self) -> AuditorCounts:
        """Work of the auditor since it started."""
        return self._auditor.counts

    @property
    def worker_counts(self) -> WorkerCounts:
        """Work of the worker since it started."""
        return self._worker.counts

    def look_now(self) -> bool:
        """Audit at once if this process is the auditor; return whether it is."""
        return self._auditor.look_now()

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            CorruptMetadataError: Marks are kept in another way than ours.
            MetadataError: The metadata store did not answer at the start.

        """
        await self.marks.ensure_layout()
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._auditor.run()), loop.create_task(self._worker.run())]
        try:
            await asyncio.gather(*tasks)
        except (asyncio.CancelledError, Exception):  # No `finally`: a process that is killed runs none.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.removals.stop()
            await self._pool.close()
            raise


OpenHttp = Callable[[LedgerStore, AutoRecovery], Awaitable[ProbeServer | None]]
"""Opens the HTTP port of auto-recovery; None = there is none."""


async def run_auto_recovery(
    metadata_uri: str | None,
    settings: ReplicationSettings,
    on_ready: Callable[[RunningNotice], None],
    *,
    open_http: OpenHttp | None = None,
    session_timeout_ms: int = 10_000,
    stall_s: float = STALL_S,
) -> None:
    """Run until SIGTERM or SIGINT.

    Args:
        metadata_uri: Where the cluster is.
        settings: Times and limits.
        on_ready: Told when it runs.
        open_http: Opens the HTTP port; None = there is none.
        session_timeout_ms: Asked of ZooKeeper.
        stall_s: How long the event loop may stand still; 0 = for ever.

    Raises:
        LedgerError: It cannot start: what is wrong and what would help.

    """
    uri = MetadataUri.of(metadata_uri)
    with ProcessGuard("auto-recovery", stall_s=stall_s) as guard:
        store = await guard.unless_stopped(session.connect(uri.hosts, session_timeout_ms=session_timeout_ms))
        if store is None:
            return
        loop = asyncio.get_running_loop()
        ledgers = LedgerStore(store, uri.ledgers_root)
        work = loop.create_task(_recover(ledgers, settings, guard, on_ready, open_http))
        stop = loop.create_task(guard.stopped.wait())
        await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        work.cancel()
        await asyncio.wait([work], timeout=_LEAVE_S_MAX)
        await store.close()  # Whoever still waits for ZooKeeper, to give a vote or a lock back, hears so.
        for result in await asyncio.gather(work, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def _recover(
    ledgers: LedgerStore,
    settings: ReplicationSettings,
    guard: ProcessGuard,
    on_ready: Callable[[RunningNotice], None],
    open_http: OpenHttp | None,
) -> None:
    owner = f"{socket.gethostname()}:{os.getpid()}.{os.urandom(4).hex()}"
    recovery = AutoRecovery(
        ledgers,
        owner,
        random.Random(),  # noqa: S311 - spreads load, guards nothing
        settings,
        ClientSettings.from_environment(),
        wall_ms=lambda: time.time_ns() // 1_000_000,
    )
    await ledgers.writable_bookies()  # Complains if there is no cluster.
    await recovery.marks.ensure_layout()
    http = None if open_http is None else await open_http(ledgers, recovery)
    try:
        guard.ready()
        on_ready(RunningNotice(ready=True, owner=owner, http_address="" if http is None else http.address))
        await recovery.run()
    finally:
        if http is not None:
            await http.stop()
