"""Connection of `rsm cluster` to the metadata of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ledger.cluster_options import ClusterOptions
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.session import connect
from ledger.zookeeper.uri import MetadataUri


@asynccontextmanager
async def cluster_ledgers(at: ClusterOptions) -> AsyncIterator[LedgerStore]:
    """Connect to a cluster.

    Raises:
        NoSuchClusterError: There is none.

    """
    uri = MetadataUri.of(at.metadata_uri)
    store = await connect(uri.hosts)
    try:
        ledgers = LedgerStore(store, uri.ledgers_root)
        await ledgers.writable_bookies()  # Complains if there is no cluster.
        yield ledgers
    finally:
        await store.close()
