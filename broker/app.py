"""The broker process: everything is wired here. `rsm broker run` ends in `run_broker`."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from broker.service import BrokerService
from broker.settings import BrokerSettings
from ledger.client.client import LedgerClient
from rsm_spark.snapshots import SnapshotStore
from rsm_spark.store.app import SESSION_TIMEOUT_MS, ReadyNotice, run_store

__all__ = ["run_broker"]


async def run_broker(
    settings: BrokerSettings,
    metadata_uri: str | None,
    on_ready: Callable[[ReadyNotice], None],
    *,
    lake: SnapshotStore | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
) -> None:
    """Run until SIGTERM or SIGINT.

    Args:
        settings: Of the broker.
        metadata_uri: Where everything is found; None = by the environment.
        on_ready: Called once the broker serves.
        lake: Snapshots to boot from when there is no local one.
        session_timeout_ms: Asked of ZooKeeper.

    Raises:
        RsmError: It cannot start, or the replica stopped by itself; the message says why and what would help.
        LedgerError: Metadata store or bookies cannot be asked.

    """
    if settings.http is not None:
        # Now, while nothing waits for this process: a session with ZooKeeper might not outlive it.
        importlib.import_module("broker.http.server")

    def make(client: LedgerClient, lake: SnapshotStore | None) -> BrokerService:
        return BrokerService(client, settings, lake=lake)

    await run_store(
        settings, metadata_uri, on_ready, lake=lake, session_timeout_ms=session_timeout_ms, make_service=make
    )
