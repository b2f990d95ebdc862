"""Snapshots on this replica's disk: Parquet files and a manifest in one folder each.

    <folder>/00000000000000012345-1f3a9c02/manifest.json, map.parquet, _sessions.parquet
             <revision>          -<8 hex of the prefix hash>

A snapshot appears by one rename, after everything in it is on the disk: files, fsync, manifest with their sha256,
fsync, fsync of the folder, rename, fsync of the parent. A crash before the rename leaves a folder `.new-…`, which the
next write removes; after it, a whole snapshot. What is read is checked against the manifest: size and sha256 of each
file when snapshots are listed, count and state digest of the rows while they are read. Damaged snapshots stay where
they are, as evidence, are reported, and are neither used nor counted among those to keep.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from io import BufferedWriter
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.machine import Row
from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.snapshots.columns import ROW_SCHEMA, RowFile, rows_of_batch
from rsm_spark.snapshots.disk import SnapshotDisk
from rsm_spark.snapshots.manifest import (
    SnapshotDamage,
    SnapshotFile,
    SnapshotManifest,
    decode_manifest,
    encode_manifest,
)

__all__ = ["KEEP_MIN", "MANIFEST_NAME", "KnownSnapshots", "LocalSnapshots", "RowCheck", "snapshot_name"]

KEEP_MIN = 3
"""Fewer would make one damaged snapshot the last but one chance."""
MANIFEST_NAME = "manifest.json"
_NEW = ".new-"
_HASH_CHUNK_BYTES = 1024 * 1024

_LOGGER = logging.getLogger(__name__)


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

    def difference(self, manifest: SnapshotManifest) -> str | None:
        """Return in what the rows differ from the manifest, or None."""
        if self._count != manifest.row_count:
            return f"{self._count} rows, its manifest says {manifest.row_count}"
        digest = digest_bytes(self._digest % DIGEST_MODULUS).hex()
        if digest != manifest.digest:
            return f"rows with the digest {digest}, its manifest says {manifest.digest}"
        return None


class KnownSnapshots(NamedTuple):
    """Snapshots as last checked, newest first."""

    whole: list[SnapshotManifest]
    damaged: list[SnapshotDamage]


class LocalSnapshots:
    """Snapshots of one log in one folder; implements `SnapshotStore`. One process uses the folder at a time.

    Args:
        folder: Made when missing.
        keep: Whole snapshots to keep, at least `KEEP_MIN`; older ones are removed after each write.
        disk: The file system.

    Raises:
        SnapshotError: `keep` is below `KEEP_MIN`.

    """

    def __init__(self, folder: Path, *, keep: int = KEEP_MIN, disk: SnapshotDisk | None = None) -> None:
        if keep < KEEP_MIN:
            raise SnapshotError(f"{folder}: asked to keep {keep} snapshots: keep at least {KEEP_MIN}")
        self._folder = folder
        self._keep = keep
        self._disk = disk or SnapshotDisk()
        # Folder name -> what a full check found, valid while the files' sizes and times are the same.
        self._checked: dict[str, tuple[object, SnapshotManifest | SnapshotDamage]] = {}
        # Snapshots whose rows turned out wrong while they were read.
        self._unreadable: dict[str, SnapshotDamage] = {}

    def write(self, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
        """Write a snapshot; see `SnapshotStore`. One that is there already, and whole, is left as it is."""
        name = snapshot_name(manifest)
        target = self._folder / name
        try:
            present = self._find(name) if target.exists() else None
            if isinstance(present, SnapshotManifest):
                return present
            self._prepare()
            made = self._folder / f"{_NEW}{name}"
            self._disk.make_folder(made)
            whole = self._write_files(made, manifest, rows)
            if present is not None:
                self._disk.rename(target, self._free_name(f".damaged-{name}"))
            self._disk.rename(made, target)
            self._disk.sync_folder(self._folder)
            self._unreadable.pop(name, None)
            self._checked.pop(name, None)
        except (OSError, pa.ArrowException) as error:
            raise SnapshotError(
                f"{target}: snapshot at revision {manifest.revision} cannot be written: {error}"
            ) from error
        self._prune()
        return whole

    def manifests(self) -> list[SnapshotManifest]:
        """Return the whole snapshots, newest first; see `SnapshotStore`."""
        return [found for found in self._found() if isinstance(found, SnapshotManifest)]

    def damaged(self) -> list[SnapshotDamage]:
        """Return the damaged snapshots, newest first."""
        return [found for found in self._found() if isinstance(found, SnapshotDamage)]

    def known(self) -> KnownSnapshots:
        """Return what the last checks found, without looking at the disk: quick enough for an event loop."""
        found = dict(sorted({name: one for name, (_, one) in self._checked.items()}.items(), reverse=True))
        found.update(self._unreadable)
        return KnownSnapshots(
            [one for one in found.values() if isinstance(one, SnapshotManifest)],
            [one for one in found.values() if isinstance(one, SnapshotDamage)],
        )

    def read(self, manifest: SnapshotManifest) -> Iterator[Row]:
        """Iterate over a snapshot's rows; see `SnapshotStore`. Holds one row group at a time."""
        name = snapshot_name(manifest)
        check = RowCheck()
        try:
            yield from check.passing(self._rows(self._folder / name, manifest))
            difference = check.difference(manifest)
        except (OSError, pa.ArrowException) as error:
            difference = f"files that cannot be read: {error}"
        if difference is not None:
            damage = SnapshotDamage(str(self._folder / name), f"has {difference}")
            self._unreadable[name] = damage
            raise CorruptSnapshotError(f"{damage.place}: snapshot {damage.reason}")

    def _write_files(self, made: Path, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
        check = RowCheck()
        tables: dict[str, tuple[RowFile, BufferedWriter]] = {}
        with ExitStack() as open_files:
            try:
                for row in check.passing(rows):
                    entry = tables.get(row.table)
                    if entry is None:
                        file = open_files.enter_context(self._disk.create(made / f"{row.table}.parquet"))
                        entry = tables[row.table] = (RowFile(row.table, file), file)
                    entry[0].add(row)
                for table, file in tables.values():
                    table.finish()
                    self._disk.sync_file(file)
            except BaseException:
                for table, _file in tables.values():
                    table.abandon()
                raise
        difference = check.difference(manifest)
        if difference is not None:
            raise SnapshotError(f"{made}: the state to be written has {difference}")
        whole = msgspec.structs.replace(manifest, files=tuple(_described(table) for table, _ in tables.values()))
        with self._disk.create(made / MANIFEST_NAME) as file:
            file.write(encode_manifest(whole))
            self._disk.sync_file(file)
        self._disk.sync_folder(made)
        return whole

    def _rows(self, folder: Path, manifest: SnapshotManifest) -> Iterator[Row]:
        for described in manifest.files:
            with pq.ParquetFile(folder / described.name, memory_map=True) as parquet:
                if not parquet.schema_arrow.equals(ROW_SCHEMA):
                    raise pa.ArrowInvalid(f"{described.name} has the columns {parquet.schema_arrow.names}")
                # Not iter_batches: it joins row groups until it has its number of rows, whatever their size.
                for group in range(parquet.num_row_groups):
                    for batch in parquet.read_row_group(group, use_threads=False).to_batches():
                        yield from rows_of_batch(batch)

    def _found(self) -> list[SnapshotManifest | SnapshotDamage]:
        return [self._find(name) for name in sorted(self._names(), reverse=True)]

    def _find(self, name: str) -> SnapshotManifest | SnapshotDamage:
        return self._unreadable.get(name) or self._check(name)

    def _names(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        return [path.name for path in self._folder.iterdir() if path.is_dir() and not path.name.startswith(".")]

    def _check(self, name: str) -> SnapshotManifest | SnapshotDamage:
        """Check a snapshot's files, unless they are as they were at the last check."""
        folder = self._folder / name
        seen: object = None
        try:
            seen = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir())
            known = self._checked.get(name)
            if known is not None and known[0] == seen:
                return known[1]
            found = _checked_manifest(folder)
        except (OSError, CorruptSnapshotError) as error:
            damage = SnapshotDamage(str(folder), str(error))
            _LOGGER.warning("snapshot is damaged and will not be used: %s", damage.reason, extra={"place": str(folder)})
            self._checked[name] = (seen, damage)
            return damage
        self._checked[name] = (seen, found)
        return found

    def _prune(self) -> None:
        """Remove whole snapshots beyond `keep`; a failure only leaves more of them."""
        for manifest in self.manifests()[self._keep :]:
            try:
                self._retire(snapshot_name(manifest))
            except OSError as error:
                _LOGGER.warning("an old snapshot cannot be removed: %s", error)

    def _retire(self, name: str) -> None:
        # Renamed first: a crash in the middle of the removal must not leave half a snapshot under a good name.
        doomed = self._free_name(f"{_NEW}retired-{name}")
        self._disk.rename(self._folder / name, doomed)
        self._disk.remove_folder(doomed)
        self._checked.pop(name, None)

    def _prepare(self) -> None:
        """Make the folder; remove what a crash left half written."""
        if not self._folder.is_dir():
            self._disk.make_folder(self._folder)
            self._disk.sync_folder(self._folder.parent)
        for path in sorted(self._folder.iterdir()):
            if path.name.startswith(_NEW):
                self._disk.remove_folder(path)

    def _free_name(self, name: str) -> Path:
        path = self._folder / name
        number = 1
        while path.exists():
            number += 1
            path = self._folder / f"{name}-{number}"
        return path


def _described(file: RowFile) -> SnapshotFile:
    return SnapshotFile(f"{file.table}.parquet", file.table, file.row_count, file.bytes, file.sha256)


def _checked_manifest(folder: Path) -> SnapshotManifest:
    manifest = decode_manifest((folder / MANIFEST_NAME).read_bytes(), place=str(folder))
    if snapshot_name(manifest) != folder.name:
        raise CorruptSnapshotError(f"{folder}: its manifest is that of {snapshot_name(manifest)}")
    for described in manifest.files:
        if os.sep in described.name or described.name.startswith("."):
            raise CorruptSnapshotError(f"{folder}: its manifest names the file {described.name!r}")
        size = (folder / described.name).stat().st_size
        if size != described.bytes:
            raise CorruptSnapshotError(f"{folder / described.name}: {size} bytes, should be {described.bytes}")
        found = _sha256(folder / described.name)
        if found != described.sha256:
            raise CorruptSnapshotError(f"{folder / described.name}: sha256 {found}, should be {described.sha256}")
    if sum(described.rows for described in manifest.files) != manifest.row_count:
        raise CorruptSnapshotError(f"{folder}: its files do not add up to {manifest.row_count} rows")
    return manifest


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
