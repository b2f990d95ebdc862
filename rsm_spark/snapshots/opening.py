"""Snapshots in a lake, opened by a process that may do without deltalake otherwise."""

from __future__ import annotations

from pathlib import Path

from rsm_spark.object_stores.storage_options import checked_uri, read_storage_options
from rsm_spark.snapshots.manifest import LakeStore


def lake_snapshots(lake: str, log_name: str, storage_options_file: Path | None = None) -> LakeStore:
    """Return the snapshots of a log in a lake.

    Args:
        lake: Folder or URI that holds the snapshot tables of many logs.
        log_name: Of the log.
        storage_options_file: JSON file with options for an object store; None = the environment says all.

    Raises:
        UsageError: The file cannot be used, or the address holds a secret.

    """
    from rsm_spark.snapshots.lake import LakeSnapshots, lake_place  # noqa: PLC0415 - deltalake only where it is used

    options = read_storage_options(storage_options_file)
    return LakeSnapshots(lake_place(checked_uri(lake), log_name), storage_options=options)
