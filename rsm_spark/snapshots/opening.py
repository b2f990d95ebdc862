"""Snapshots in a lake, opened by a process that may do without deltalake otherwise."""

from __future__ import annotations

from rsm_spark.snapshots.manifest import RemovableSnapshots


def lake_snapshots(lake: str, log_name: str) -> RemovableSnapshots:
    """Return the snapshots of a log in a lake.

    Args:
        lake: Folder or URI that holds the snapshot tables of many logs.
        log_name: Of the log.

    """
    from rsm_spark.snapshots.lake import LakeSnapshots, lake_place  # noqa: PLC0415 - deltalake only where it is used

    return LakeSnapshots(lake_place(lake, log_name))
