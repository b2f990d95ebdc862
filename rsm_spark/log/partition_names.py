"""Names of logs: which are allowed, and which are of partitioned logs and of partitions, as the layouts tell."""

from __future__ import annotations

from ledger.errors import NoNodeError
from ledger.ports import MetadataStore, Watcher
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.partition_layout import decode_layout, layout_path, split_partition_log
from rsm_spark.errors import LogError

_NAME_MAX = 200


def check_name(log: str) -> None:
    """Check the name of a log that is to be made.

    Raises:
        LogError: It is none.

    """
    if not log or len(log) > _NAME_MAX or "/" in log or log in {".", ".."} or not log.isprintable():
        raise LogError(
            f"{log[:_NAME_MAX]!r} is no name of a log: it needs 1 to {_NAME_MAX} printable characters without a slash"
        )


async def is_partitioned(store: MetadataStore, log: str, rsm_root: str = DEFAULT_RSM_ROOT) -> bool:
    """Return whether a name is that of a partitioned log.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    path = layout_path(log, rsm_root)
    await store.sync(path)
    return await store.exists(path) is not None


async def log_names(store: MetadataStore, rsm_root: str, *, watch: Watcher | None = None) -> list[str]:
    """Return the names of all logs, ascending; a partitioned one stands for its partitions.

    Args:
        store: Session with the metadata store.
        rsm_root: Where logs live.
        watch: Called when one may have come or gone.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    whole = frozenset(await _children(store, layout_path("", rsm_root).rstrip("/"), watch))
    plain = await _children(store, f"{rsm_root}/logs", watch)
    pieces = {name for name in plain if (split := split_partition_log(name)) is not None and split[0] in whole}
    return sorted({*plain, *whole} - pieces)


async def _children(store: MetadataStore, path: str, watch: Watcher | None) -> list[str]:
    try:
        return await store.children(path, watch=watch)
    except NoNodeError:
        return []


async def refuse_partition(store: MetadataStore, log: str, log_id: str, rsm_root: str, *, what: str) -> None:
    """Refuse what is done to a partitioned log as a whole, or not at all.

    Args:
        store: Session with the metadata store.
        log: Name of a plain log.
        log_id: Its id, 32 hex digits.
        rsm_root: Where logs live.
        what: What is asked for, as the end of "cannot be …".

    Raises:
        LogError: It is a partition.
        MetadataError: The metadata store cannot be asked.

    """
    whole = await whole_of(store, log, log_id, rsm_root)
    if whole is not None:
        raise LogError(f"log {log}: it is a partition of log {whole} and cannot be {what} by itself: name {whole}")


async def whole_of(store: MetadataStore, log: str, log_id: str, rsm_root: str) -> str | None:
    """Return the partitioned log of which a plain log is a partition that stays; None = of none, or that is going.

    Raises:
        CorruptLogError: The layout of the log that it seems to be of holds none.
        MetadataError: The metadata store cannot be asked.

    """
    split = split_partition_log(log)
    if split is None:
        return None
    whole, partition = split
    path = layout_path(whole, rsm_root)
    await store.sync(path)
    try:
        layout = decode_layout((await store.get(path)).value, log=whole)
    except NoNodeError:
        return None
    is_named = partition < layout.partition_count and layout.log_ids[partition] == log_id
    return whole if is_named and not layout.is_deleting else None
