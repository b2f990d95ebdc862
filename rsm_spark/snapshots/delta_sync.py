"""Make a Delta commit on a local disk survive a power failure: `deltalake` itself never calls fsync.

Called after a commit and before anybody is told of it: the files that the commit added (rows, and changes for the
table's change feed), the commit, and their folders.
A power failure before that may leave a commit whose files are not whole; what has been told of is whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from rsm_spark.errors import CorruptSnapshotError


def local_folder(place: str) -> Path | None:
    """Return the folder of a table on this machine; None for object stores, which need no sync."""
    text = place.removeprefix("file://")
    return None if "://" in text else Path(text)


def contained(name: str) -> str:
    """Return the path, below its table, of a file that a Delta commit names, which encodes it as a URI does.

    Whoever may write a table's log may name anything in it: what lies elsewhere is not the table's.

    Raises:
        CorruptSnapshotError: It is absolute, names another store or leads out of the table.

    """
    path = unquote(name)
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or "://" in path or "\0" in path or "\\" in path:
        raise CorruptSnapshotError(f"a Delta commit names {name!r}, which does not lie in its table")
    return path


def sync_commit(place: str, version: int) -> None:
    """Wait until a commit of a table and all that it added are on the disk. Does nothing for object stores.

    Args:
        place: Path or URI of the Delta table.
        version: Table version that the commit made.

    Raises:
        OSError: The disk failed: what was written may be lost.

    """
    folder = local_folder(place)
    if folder is None:
        return
    log = folder / "_delta_log"
    commit = log / f"{version:020d}.json"
    folders = {str(folder), str(log), str(folder.parent)}
    for line in commit.read_bytes().splitlines():
        action: dict[str, Any] = msgspec.json.decode(line)
        added = action.get("add") or action.get("cdc")
        if added is not None:
            file = folder / contained(added["path"])
            _sync(file)
            folders.add(str(file.parent))
    _sync(commit)
    for name in sorted(folders):
        _sync(Path(name))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
