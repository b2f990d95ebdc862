"""Ledgers that hold contents for a log, and none of its entries: files of a file store that are too long for records.

A node says that a log has, or had, such ledgers: who copies or shares a log looks there before it looks through all
ledgers of the cluster.
"""

from __future__ import annotations

from ledger.client.client import LedgerClient
from ledger.ports import MetadataStore
from rsm_spark.core.orphans import content_number
from rsm_spark.log.deletion import contents_path, ensure_node
from rsm_spark.log.remains import ledgers_of


async def note_contents(store: MetadataStore, log_id: str, rsm_root: str) -> None:
    """Note that a log is going to have such ledgers, before it has the first."""
    await ensure_node(store, contents_path(log_id, rsm_root))


async def has_contents(store: MetadataStore, log_id: str, rsm_root: str) -> bool:
    """Return whether a log has, or had, such ledgers; some of them may still be without a name.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    await store.sync(rsm_root)
    return await store.exists(contents_path(log_id, rsm_root)) is not None


async def contents_of(client: LedgerClient, log_id: str, rsm_root: str) -> dict[int, int]:
    """Return the ledgers that hold contents for a log, each with the number under which the log knows it.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    if not await has_contents(client.store, log_id, rsm_root):
        return {}
    found = {ledger: content_number(one.custom) for ledger, one in (await ledgers_of(client, log_id)).items()}
    return {ledger: number for ledger, number in found.items() if number is not None}
