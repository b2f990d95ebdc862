"""A service of one's own on a replicated log: a state machine, served.

    async with serve(Counters(), StoreSettings(log="counters", replica_id="a", data_dir=Path("a"))) as service:
        await wait_for_signal(service)

Start it on several machines, each with a replica id and a folder of its own: one of them leads, the others follow and
take over. Clients are `rsm_spark.client.service_client.ServiceClient`s, or whatever calls `service.replica.submit`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

from ledger.client.client import LedgerClient
from rsm_spark.core.machine import StateMachine
from rsm_spark.runtime.folder_lock import locked
from rsm_spark.runtime.short_pauses import short_pauses
from rsm_spark.server.replica_server import StoreService, StoreSettings
from rsm_spark.snapshots.manifest import SnapshotStore
from rsm_spark.transport.reach import WHOLE_LOG

SESSION_TIMEOUT_MS = 2_000
"""Time for which ZooKeeper waits for a silent replica before another may lead: most of a failover's time. The server
grants two of its ticks at least; it must exceed the longest pause of the process."""


@contextlib.asynccontextmanager
async def serve(
    machine: StateMachine,
    settings: StoreSettings,
    metadata_uri: str | None = None,
    *,
    lake: SnapshotStore | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
) -> AsyncIterator[StoreService]:
    """Run a replica of this machine and its server while the block runs.

    What was loaded is taken out of the garbage collector's sight, with everything else that the process holds by then,
    and so is what grows later: see `rsm_spark.runtime.short_pauses`.

    Args:
        machine: The state, empty; used by nobody else.
        settings: Log, replica id, folder, address and the rest.
        metadata_uri: Where everything is found; default `RSM_METADATA_URI`, else the local ZooKeeper.
        lake: Snapshots to boot from when there is no local one.
        session_timeout_ms: Asked of ZooKeeper.

    Raises:
        UsageError: The folder is in use, or an address or a file cannot be used.
        RsmError: The state cannot be loaded: see `Replica.start`.
        LedgerError: Metadata store or bookies cannot be asked.

    """
    with locked(settings.data_dir):
        client = await LedgerClient.connect(metadata_uri, session_timeout_ms=session_timeout_ms)
        try:
            async with StoreService(client, settings, lake=lake, machine=machine, keys=WHOLE_LOG) as service:
                with short_pauses():
                    yield service
        finally:
            await asyncio.shield(client.close())


async def wait_for_signal(service: StoreService) -> None:
    """Return at SIGTERM or SIGINT; the service is then still running, and its block ends in an orderly way.

    Raises:
        RsmError: The replica stopped by itself: a corrupt log, a state that differs from the leader's.

    """
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, told.set)
    signalled = loop.create_task(told.wait())
    stopped = loop.create_task(service.wait_stopped())
    try:
        await asyncio.wait([signalled, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            stopped.result()
    finally:
        signalled.cancel()
        stopped.cancel()
        await asyncio.wait([signalled, stopped])
        for number in signals:
            loop.remove_signal_handler(number)
