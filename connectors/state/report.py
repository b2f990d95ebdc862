"""Telling the leader of a snapshot that was found right, from a process that is no replica.

By the same service, under the same TLS and token rules, as `rsm snapshot verify --report`. Only the log's leader
judges: it logs what agrees with a checkpoint that it has itself applied, and refuses the rest with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError
from ledger.loop_thread import LoopThread
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.errors import RsmError
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.transport.snapshot_report import report_lake

REPORTER = "jobs/verify.py"
"""Name of the reader of the snapshot, in the log's record."""


def report_snapshot(log: str, manifest: SnapshotManifest, source: Mapping[str, str]) -> str:
    """Report a lake snapshot as verified; return why that was not taken, or "".

    Args:
        log: Name of the log.
        manifest: Of the snapshot.
        source: Options of the source `ledger`: metadataUri, zkAuthFile, zkTlsFile, rsmRoot.

    """

    async def tell() -> str:
        client = await LedgerClient.connect(
            source.get("metadataUri"), zk_auth_file=source.get("zkAuthFile"), zk_tls_file=source.get("zkTlsFile")
        )
        try:
            root = source.get("rsmRoot", DEFAULT_RSM_ROOT)
            return await report_lake(client, log, root, manifest, by=REPORTER)
        finally:
            await client.close()

    thread = LoopThread("verify-report")
    try:
        return thread.run(tell())
    except (RsmError, LedgerError) as error:
        return str(error)
    finally:
        thread.stop()
