"""Deletion of a partitioned log: its layout says so first, then its partitions go, then the layout."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

from ledger.client.client import LedgerClient
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, service_path
from rsm_spark.core.partition_layout import partition_log
from rsm_spark.errors import LogError, NoSuchLogError
from rsm_spark.log.deletion import DeletedLog, delete_log, delete_tree
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.layout_store import LayoutStore


async def delete_partitioned_log(
    client: LedgerClient,
    log: str,
    rsm_root: str = DEFAULT_RSM_ROOT,
    *,
    rng: random.Random,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[DeletedLog]:
    """Delete a partitioned log with all that it holds; a deletion that was cut off is finished.

    Args:
        client: Connected ledger client.
        log: Name of the log.
        rsm_root: Where logs live.
        rng: For back-off.
        on_progress: Called after each ledger of a partition: how many are done, of how many.

    Raises:
        NoSuchLogError: There is no partitioned log of this name.
        LogError: A writer of it is alive.
        MetadataError: The metadata store cannot be asked. What was begun is finished by the next call.

    """
    store = client.store
    layouts = LayoutStore(store, log, rsm_root, rng=rng)
    await layouts.read()
    if await Discovery(store, log, rsm_root).members():
        raise LogError(f"log {log}: its writer still runs: stop it first; nothing was deleted")
    layout = await layouts.begin_deletion()
    done = []
    for partition in range(layout.partition_count):
        with contextlib.suppress(NoSuchLogError):  # An earlier deletion came so far.
            done += await delete_log(client, partition_log(log, partition), rsm_root, on_progress=on_progress)
    await delete_tree(store, service_path(log, rsm_root))
    await layouts.end_deletion()
    return done
