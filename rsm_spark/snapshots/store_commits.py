"""The commits of a Delta table in S3, read from their objects.

`deltalake` lists a table's history while it keeps every other thread of the process from running: a replica whose store
is slow would neither lead nor follow meanwhile. It also asks for each commit each time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.object_stores.s3 import S3Store
from rsm_spark.snapshots.delta_log import Commit, decode_commit
from rsm_spark.snapshots.delta_sync import contained

_LOG = "_delta_log/"
_NAME = re.compile(r"_delta_log/(\d{20})\.json")
_COMMIT_BYTES_MAX = 64 << 20


class StoreCommitLog:
    """The commits of one table, and its objects; what is read once is not asked for again.

    Args:
        place: URI of the table.
        storage_options: Of the store.

    Raises:
        ObjectStoreError: The options contradict each other.

    """

    def __init__(self, place: str, storage_options: Mapping[str, str] | None) -> None:
        self._store = S3Store(place, storage_options)
        # Version -> (size, what was read): the store never has two commits of one version.
        self._read: dict[int, tuple[int, Commit]] = {}

    def commits(self, limit: int | None = None) -> list[Commit]:
        """Return the newest commits, newest first; none if there is no table.

        Raises:
            ObjectStoreError: They cannot be read.

        """
        sizes = self._store.sizes("")
        found = {int(match[1]): size for path, size in sizes.items() if (match := _NAME.fullmatch(path))}
        versions = sorted(found, reverse=True)
        self._read = {version: self._read[version] for version in versions if version in self._read}
        return [self._commit(version, found[version], sizes) for version in versions[:limit]]

    def _commit(self, version: int, size: int, sizes: Mapping[str, int]) -> Commit:
        known = self._read.get(version)
        if known is None or known[0] != size:
            with self._store.open(f"{_LOG}{version:020d}.json") as file:
                known = (size, decode_commit(file.read(_COMMIT_BYTES_MAX), version))
            self._read[version] = known
        missing = tuple(name for name, length in known[1].added if not _holds(sizes, name, length))
        return known[1]._replace(missing=missing)

    def remove(self) -> None:
        """Remove the table with all that lies there.

        Commits go last: broken off, it can be done again by who looks whose table it is.

        Raises:
            ObjectStoreError: It cannot be removed.

        """
        for path in sorted(self._store.sizes(""), key=lambda path: (path.startswith(_LOG), path)):
            self._store.delete(path)
        for upload in self._store.unfinished(""):
            self._store.discard(upload)
        self._read.clear()

    def copy_in(self, source: Path, name: str) -> None:
        """Put a local file into the table; it belongs to no version yet.

        Raises:
            OSError: It cannot be read or written; nothing of it is there then.

        """
        self._store.copy_in(source, name)

    def sweep(self, age_s: float) -> int:
        """End uploads that were begun so long ago, by writers that were killed; return how many.

        Raises:
            ObjectStoreError: They cannot be listed or ended.

        """
        begun_before_s = time.time() - age_s
        old = [upload for upload in self._store.unfinished("") if upload.begun_s < begun_before_s]
        for upload in old:
            self._store.discard(upload)
        return len(old)


def _holds(sizes: Mapping[str, int], name: str, size: int) -> bool:
    try:
        return sizes.get(contained(name)) == size
    except CorruptSnapshotError:
        return False
