"""Logs with contents beside their entries: what copies or shares a log does not take those with it, and says so."""

from __future__ import annotations

from ledger.client.client import LedgerClient
from rsm_spark.backup.manifest import BackupError
from rsm_spark.log.contents import contents_of


async def refuse_contents(client: LedgerClient, log: str, log_id: str, rsm_root: str, what: str) -> None:
    """Refuse to copy or share a log whose records name contents that lie elsewhere.

    Args:
        client: Connected ledger client.
        log: Name of the log.
        log_id: Its id.
        rsm_root: Where logs live.
        what: That is to be made of it.

    Raises:
        BackupError: It has such contents.
        MetadataError: The metadata store cannot be asked.

    """
    held = await contents_of(client, log_id, rsm_root)
    if held:
        raise BackupError(
            f"log {log}: {len(held)} ledgers hold contents of its files (ledger {min(held)} is one), and {what} would "
            "not have them. Copy the files themselves (rsm files get); or write the large ones anew with servers that "
            "run without --ledger-files, and delete the old ones"
        )
