"""Checks that a snapshot is what its manifest says: the sum of its rows, the bytes of its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.machine import Row
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.snapshots.manifest import SnapshotFile, SnapshotManifest, decode_manifest

KEEP_MIN = 3
"""Snapshots to keep at least: fewer would make one damaged snapshot the last but one chance."""
MANIFEST_NAME = "manifest.json"
_HASH_CHUNK_BYTES = 1024 * 1024


def snapshot_name(manifest: SnapshotManifest) -> str:
    """Return the name of a snapshot's folder; names sort by revision."""
    return f"{manifest.revision:020d}-{manifest.prefix_hash[:8]}"


class RowCheck:
    """Sums up rows as they pass, and compares the sum with a manifest."""

    def __init__(self) -> None:
        self._prefixes: dict[str, bytes] = {}
        self._digest = 0
        self._count = 0

    def passing(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the same rows, accounted for."""
        for row in rows:
            prefix = self._prefixes.get(row.table)
            if prefix is None:
                prefix = self._prefixes[row.table] = table_prefix(row.table)
            self._digest += row_term(prefix, row.key, row.row)
            self._count += 1
            yield row

    def add(self, rows: Sequence[Row]) -> None:
        """Account for rows."""
        for _ in self.passing(rows):
            pass

    def difference(self, manifest: SnapshotManifest) -> str | None:
        """Return in what the rows differ from the manifest, or None."""
        if self._count != manifest.row_count:
            return f"{self._count} rows, its manifest says {manifest.row_count}"
        digest = digest_bytes(self._digest % DIGEST_MODULUS).hex()
        if digest != manifest.digest:
            return f"rows with the digest {digest}, its manifest says {manifest.digest}"
        return None


def checked_manifest(folder: Path) -> SnapshotManifest:
    """Read a snapshot's manifest and every byte of its files.

    Raises:
        CorruptSnapshotError: The files are not what the manifest says.
        OSError: They cannot be read.

    """
    manifest = decode_manifest((folder / MANIFEST_NAME).read_bytes(), place=str(folder))
    if snapshot_name(manifest) != folder.name:
        raise CorruptSnapshotError(f"{folder}: its manifest is that of {snapshot_name(manifest)}")
    for described in manifest.files:
        check_file(folder, described)
    if sum(described.rows for described in manifest.files) != manifest.row_count:
        raise CorruptSnapshotError(f"{folder}: its files do not add up to {manifest.row_count} rows")
    return manifest


def check_file(folder: Path, described: SnapshotFile) -> None:
    """Compare size and sha256 of one file with what its manifest says.

    Raises:
        CorruptSnapshotError: They differ, or the manifest names a file outside its folder.
        OSError: It cannot be read.

    """
    if os.sep in described.name or described.name.startswith("."):
        raise CorruptSnapshotError(f"{folder}: its manifest names the file {described.name!r}")
    path = folder / described.name
    size = path.stat().st_size
    if size != described.bytes:
        raise CorruptSnapshotError(f"{path}: {size} bytes, should be {described.bytes}")
    found = file_sha256(path)
    if found != described.sha256:
        raise CorruptSnapshotError(f"{path}: sha256 {found}, should be {described.sha256}")


def file_sha256(path: Path) -> str:
    """Return the hash of a file, hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
