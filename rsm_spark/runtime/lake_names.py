"""Snapshots in a lake that lie below a name which their log had before."""

from __future__ import annotations

import asyncio

from ledger.ports import MetadataStore
from rsm_spark.errors import NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.former_names import former_names
from rsm_spark.snapshots.manifest import LakeStore


async def follow_renames(lake: LakeStore, store: MetadataStore, log: str, rsm_root: str) -> None:
    """Have the snapshots of a log found that lie below a name which it had before.

    Args:
        lake: As `lake_snapshots` returned it.
        store: Session with the metadata store.
        log: Name of the log; if there is none, nothing is looked for.
        rsm_root: Where logs live.

    Raises:
        SnapshotError: The lake cannot be read.
        CorruptLogError, MetadataError: Nobody can say which names it had.

    """
    try:
        chain, _ = await ChainStore(store, log, rsm_root).read()
    except NoSuchLogError:
        return
    names = await former_names(store, chain.log_id, rsm_root)
    if names:
        await asyncio.to_thread(lake.follow, chain.log_id, names)
