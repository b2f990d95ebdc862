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

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from io import BufferedReader, BufferedWriter
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from rsm_spark.core.machine import Row
from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.snapshots.checks import KEEP_MIN, MANIFEST_NAME, RowCheck, checked_manifest, snapshot_name
from rsm_spark.snapshots.columns import RowFile, rows_of_file, steps_of
from rsm_spark.snapshots.disk import SnapshotDisk
from rsm_spark.snapshots.incoming import INCOMING, IncomingSnapshot
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotFile, SnapshotManifest, encode_manifest
from rsm_spark.snapshots.pace import Pace

_NEW = ".new-"
_LENT_S = 60.0
_TABLE_OF = attrgetter("table")

_LOGGER = logging.getLogger(__name__)


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
        pace: Called between small steps of long work, so that the event loop of the process is not held up.

    Raises:
        SnapshotError: `keep` is below `KEEP_MIN`.

    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int = KEEP_MIN,
        disk: SnapshotDisk | None = None,
        pace: Callable[[], Callable[[], None]] = Pace,
    ) -> None:
        if keep < KEEP_MIN:
            raise SnapshotError(f"{folder}: asked to keep {keep} snapshots: keep at least {KEEP_MIN}")
        self._folder = folder
        self._keep = keep
        self._disk = disk or SnapshotDisk()
        self._pace = pace
        self._protected: frozenset[int] = frozenset()
        # Calls come from several threads. `_writing` is held while a snapshot is written, `_looking` while names are
        # looked at or changed: a folder that is being removed must not be taken for a damaged one.
        self._writing = threading.Lock()
        self._looking = threading.RLock()
        # Folder name -> until when (monotonic seconds) a peer that copies it may come back for the next file.
        self._lent: dict[str, float] = {}
        # Folder name -> what a full check found, valid while the files' sizes and times are the same.
        self._checked: dict[str, tuple[object, SnapshotManifest | SnapshotDamage]] = {}
        # Snapshots whose rows turned out wrong while they were read.
        self._unreadable: dict[str, SnapshotDamage] = {}

    def write(self, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
        """Write a snapshot; see `SnapshotStore`. One that is there already, and whole, is left as it is."""
        with self._writing:
            return self._write(manifest, rows)

    def _write(self, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
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
            self._appear(made, whole, is_replaced=present is not None)
        except (OSError, pa.ArrowException) as error:
            raise SnapshotError(
                f"{target}: snapshot at revision {manifest.revision} cannot be written: {error}"
            ) from error
        self._prune()
        return whole

    def protect(self, revisions: frozenset[int]) -> None:
        """Keep the snapshots of these revisions, whatever newer ones come; replaces what was named before."""
        with self._looking:
            self._protected = revisions

    def protected_manifests(self) -> list[SnapshotManifest]:
        """Return the whole snapshots that are protected; see `SnapshotStore`."""
        manifests = self.manifests()
        with self._looking:  # Nothing that is protected is retired from here on, see `_prune`.
            names = set(self._names())
            return [one for one in manifests if one.revision in self._protected and snapshot_name(one) in names]

    def receive(self, manifest: SnapshotManifest) -> IncomingSnapshot:
        """Begin, or go on with, the arrival of a peer's snapshot; what arrived of others is forgotten.

        Raises:
            SnapshotError: The disk fails, or the manifest is not to be trusted.

        """
        incoming = IncomingSnapshot(self._folder, manifest, self._disk)
        try:
            for path in sorted(self._folder.iterdir()):
                if path.name.startswith(INCOMING) and path != incoming.folder:
                    self._disk.remove_folder(path)
        except OSError as error:
            raise SnapshotError(f"{self._folder}: what arrived before cannot be removed: {error}") from error
        return incoming

    def check_arrived(self, incoming: IncomingSnapshot) -> None:
        """Read the rows of a sealed arrival back.

        Raises:
            CorruptSnapshotError: They are not what the manifest says. It is forgotten.

        """
        manifest = incoming.manifest
        check, pace = RowCheck(), self._pace()
        try:
            rows = self._rows(incoming.folder, manifest)
            for step in steps_of(rows):
                check.add(step)
                pace()
            difference = check.difference(manifest)
        except (OSError, pa.ArrowException) as error:
            difference = f"files that cannot be read: {error}"
        if difference is not None:
            incoming.discard()
            raise CorruptSnapshotError(f"snapshot at revision {manifest.revision} has {difference}")

    def install(self, incoming: IncomingSnapshot) -> SnapshotManifest:
        """Make a sealed arrival a snapshot; one that is there already, and whole, is left as it is.

        Raises:
            SnapshotError: The disk fails.

        """
        name = snapshot_name(incoming.manifest)
        target = self._folder / name
        try:
            present = self._find(name) if target.exists() else None
            if isinstance(present, SnapshotManifest):
                incoming.discard()
                return present
            self._appear(incoming.folder, incoming.manifest, is_replaced=present is not None)
        except OSError as error:
            raise SnapshotError(f"{target}: the snapshot that arrived cannot be kept: {error}") from error
        self._prune()
        return incoming.manifest

    def lend(self, manifest: SnapshotManifest, file: str) -> tuple[BufferedReader, int] | None:
        """Open a file for a peer that copies the snapshot, and keep the snapshot for a minute more.

        Returns:
            The open file and its size; None if there is no such snapshot or no such file in it.

        """
        name = snapshot_name(manifest)
        self._lent[name] = time.monotonic() + _LENT_S
        try:
            described = next(one for one in manifest.files if one.name == file)
            return (self._folder / name / described.name).open("rb"), described.bytes
        except (OSError, StopIteration):
            return None

    def scrub(self, manifest: SnapshotManifest) -> SnapshotDamage | None:
        """Read every byte of a snapshot again, whatever was found before; return the damage, if there is any."""
        name = snapshot_name(manifest)
        with self._looking:
            self._checked.pop(name, None)
            if not (self._folder / name).is_dir():
                return SnapshotDamage(str(self._folder / name), "is gone")
            found = self._find(name)
        return found if isinstance(found, SnapshotDamage) else None

    def manifests(self) -> list[SnapshotManifest]:
        """Return the whole snapshots, newest first; see `SnapshotStore`."""
        with self._looking:
            return [found for found in self._found() if isinstance(found, SnapshotManifest)]

    def damaged(self) -> list[SnapshotDamage]:
        """Return the damaged snapshots, newest first."""
        with self._looking:
            return [found for found in self._found() if isinstance(found, SnapshotDamage)]

    def known(self) -> KnownSnapshots:
        """Return what the last checks found, without looking at the disk: quick enough for an event loop."""
        found = dict(sorted({name: one for name, (_, one) in list(self._checked.items())}.items(), reverse=True))
        found.update(self._unreadable)
        return KnownSnapshots(
            [one for one in found.values() if isinstance(one, SnapshotManifest)],
            [one for one in found.values() if isinstance(one, SnapshotDamage)],
        )

    def condemn(self, manifest: SnapshotManifest, reason: str) -> None:
        """Note that the rows of a snapshot are wrong; it stays where it is."""
        name = snapshot_name(manifest)
        self._unreadable[name] = SnapshotDamage(str(self._folder / name), reason)

    def read(self, manifest: SnapshotManifest, *, is_summed: bool = True) -> Iterator[Row]:
        """Iterate over a snapshot's rows; see `SnapshotStore`. Holds one row group at a time."""
        folder = self._folder / snapshot_name(manifest)
        check = RowCheck()
        difference: str | None = None
        try:
            rows = self._rows(folder, manifest)
            if is_summed:
                yield from check.passing(rows)
                difference = check.difference(manifest)
            else:
                yield from rows
        except (OSError, pa.ArrowException) as error:
            difference = f"files that cannot be read: {error}"
        if difference is not None:
            self.condemn(manifest, f"has {difference}")
            raise CorruptSnapshotError(f"{folder}: snapshot has {difference}")

    def _write_files(self, made: Path, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
        check, pace = RowCheck(), self._pace()
        tables: dict[str, tuple[RowFile, BufferedWriter]] = {}
        with ExitStack() as open_files:
            try:
                source = check.passing(rows)
                for step in steps_of(source):
                    for table_name, members in groupby(step, _TABLE_OF):
                        entry = tables.get(table_name)
                        if entry is None:
                            file = open_files.enter_context(self._disk.create(made / f"{table_name}.parquet"))
                            entry = tables[table_name] = (RowFile(table_name, file), file)
                        entry[0].add(list(members))
                    pace()
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

    def _appear(self, made: Path, whole: SnapshotManifest, *, is_replaced: bool) -> None:
        """Give a whole snapshot its name; a damaged one of that name stays, as evidence, under another.

        Every byte of it was hashed on its way to the disk, or read back: it is not read once more, for as long as its
        files are as they are now. That would take a minute for tables of 10 GB, and peers wait for the list meanwhile.
        """
        name = snapshot_name(whole)
        target = self._folder / name
        with self._looking:
            if is_replaced:
                self._disk.rename(target, self._free_name(f".damaged-{name}"))
            self._disk.rename(made, target)
            self._disk.sync_folder(self._folder)
            self._unreadable.pop(name, None)
            self._checked[name] = (_files_of(target), whole)

    def _rows(self, folder: Path, manifest: SnapshotManifest) -> Iterator[Row]:
        for described in manifest.files:
            yield from rows_of_file(folder / described.name)

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
            seen = _files_of(folder)
            known = self._checked.get(name)
            if known is not None and known[0] == seen:
                return known[1]
            found = checked_manifest(folder)
        except (OSError, CorruptSnapshotError) as error:
            damage = SnapshotDamage(str(folder), str(error))
            _LOGGER.warning("snapshot is damaged and will not be used: %s", damage.reason, extra={"place": str(folder)})
            self._checked[name] = (seen, damage)
            return damage
        self._checked[name] = (seen, found)
        return found

    def _prune(self) -> None:
        """Remove whole snapshots beyond `keep`; a failure only leaves more of them."""
        now_s = time.monotonic()
        for name in [name for name, until_s in list(self._lent.items()) if until_s <= now_s]:
            self._lent.pop(name, None)
        for manifest in self.manifests()[self._keep :]:
            name = snapshot_name(manifest)
            try:
                with self._looking:
                    if manifest.revision in self._protected or name in self._lent:
                        continue
                    doomed = self._retire(name)
                self._disk.remove_folder(doomed)
            except OSError as error:
                _LOGGER.warning("an old snapshot cannot be removed: %s", error)

    def _retire(self, name: str) -> Path:
        """Take a snapshot's name away; return the folder to remove."""
        # Renamed first: a crash in the middle of the removal must not leave half a snapshot under a good name.
        doomed = self._free_name(f"{_NEW}retired-{name}")
        with self._looking:
            self._disk.rename(self._folder / name, doomed)
            self._checked.pop(name, None)
        return doomed

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


def table_rows(folder: Path, manifest: SnapshotManifest, table: str) -> Iterator[Row]:
    """Iterate over the rows of one table of a snapshot, in the order of its files. Holds one row group at a time.

    Raises:
        OSError, pa.ArrowException: A file cannot be read.

    """
    for described in manifest.files:
        if described.table == table:
            yield from rows_of_file(folder / described.name)


def _files_of(folder: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of each file."""
    return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir())


def _described(file: RowFile) -> SnapshotFile:
    return SnapshotFile(f"{file.table}.parquet", file.table, file.row_count, file.bytes, file.sha256)
