"""Tells the leader of a log that a snapshot in the lake was read back and found right."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ledger.client.client import LedgerClient
from rsm_spark.core.commands import AnswerStatus
from rsm_spark.log.discovery import Discovery
from rsm_spark.runtime.lake_service import LAKE_PLACE
from rsm_spark.runtime.verifying import finding
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.transport.peer_client import GrpcPeers
from rsm_spark.transport.security import Security


async def report_lake(
    client: LedgerClient, log: str, rsm_root: str, manifest: SnapshotManifest, *, by: str = "rsm snapshot verify"
) -> str:
    """Tell the leader that a snapshot in the lake was read back; return why it refuses, or "".

    Args:
        client: Connected ledger client.
        log: Name of the log.
        rsm_root: Where logs and services live.
        manifest: Of the snapshot.
        by: Who has read it; not who wrote it.

    Raises:
        ConnectionLostError: Nobody leads, or the leader cannot be reached.

    """
    with tempfile.TemporaryDirectory(prefix="rsm-snapshot-") as folder:
        discovery = Discovery(client.store, log, rsm_root)
        peers = GrpcPeers(log, discovery, LocalSnapshots(Path(folder)), Security.from_environment())
        answer = await peers.report(finding(manifest, LAKE_PLACE, LAKE_PLACE, by))
    return "" if answer.status is AnswerStatus.OK else answer.payload.decode() or answer.status.name
