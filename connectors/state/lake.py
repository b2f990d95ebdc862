"""The lake of a log, as readers of its state open it."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.source.access import DriverAccess
from connectors.source.lake_reader import lake_table
from rsm_spark.snapshots.lake import LakeSnapshots


def lake_of(
    lake: str | None, log: str, storage_options: Mapping[str, str] | None, access: DriverAccess
) -> LakeSnapshots | None:
    """Return the lake's snapshots of a log, also those below a name that it had; None without a lake.

    Args:
        lake: Folder or URI that holds the snapshot tables of many logs.
        log: Name of the log.
        storage_options: For `deltalake`.
        access: Knows the former names.

    Raises:
        OptionError: The lake's address holds a secret.
        NoSuchLogError: There is no such log.
        SnapshotError: The lake cannot be read.

    """
    if lake is None:
        return None
    found = LakeSnapshots(lake_table(lake, log), storage_options=storage_options or None)
    log_id, names = access.former_names(log)
    if names:
        found.follow(log_id, names)
    return found
