"""A snapshot that a query of a log begins with: its rows in parts, in a fixed order, and where the tail goes on. Pure.

The state after an entry of the log is there as rows; the query delivers them, then the records from the next entry on.
An offset names the table version that holds the snapshot, its revision and the next row: rows are counted over the
files in the order of their names and over the row groups of each, so that every restart means the same rows. A
micro-batch ends inside the snapshot or exactly where it ends: it never holds rows of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from connectors.errors import StartGoneError
from connectors.source.look import LogLook
from connectors.source.offsets import LogOffset, LogPosition, SnapshotOffset
from connectors.source.plan import LogView, MicroBatchLimits
from connectors.source.split import PARTITION_BYTES
from rsm_spark.core.envelope import decode_envelope, entry_hash
from rsm_spark.errors import SnapshotError
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest


class SnapshotPart(NamedTuple):
    """A row group of a snapshot: what is read at once.

    Attributes:
        file: Name of the file, as the table's log writes it.
        group: Its place in the file.
        row_count: Rows in it.
        byte_count: Of its columns, not compressed.

    """

    file: str
    group: int
    row_count: int
    byte_count: int


class SnapshotTask(NamedTuple):
    """Task of a snapshot read: some row groups of one file."""

    file: str
    groups: tuple[int, ...]


class LakePort(Protocol):
    """The snapshots of one log in the lake; `lake_reader.LakeReader` is the real one. Calls may raise SnapshotError."""

    @property
    def place(self) -> str:
        """Path or URI of the table, for errors."""
        ...

    def snapshots(self) -> list[tuple[int, SnapshotManifest]]:
        """Return those that are whole, with the table versions that hold them, newest revision first."""
        ...

    def damaged(self) -> list[SnapshotDamage]:
        """Return what was found damaged."""
        ...

    def scrub(self, manifest: SnapshotManifest) -> SnapshotDamage | None:
        """Read every row and compare what they come to with the manifest; return the damage, if there is any."""
        ...

    def parts(self, version: int) -> list[SnapshotPart]:
        """Return the row groups of a version, in the order of files and groups."""
        ...


class SnapshotPhase(msgspec.Struct, frozen=True):
    """One snapshot, in parts.

    Attributes:
        version: Of the table.
        manifest: Of the snapshot.
        parts: In order.

    """

    version: int
    manifest: SnapshotManifest
    parts: tuple[SnapshotPart, ...]

    @property
    def tail(self) -> LogOffset:
        """Position at which the log goes on."""
        manifest = self.manifest
        return LogOffset(manifest.ledger_id, manifest.entry_id + 1, manifest.revision + 1)

    @property
    def begin(self) -> LogPosition:
        """Position at which the rows begin; the tail if there are none."""
        return self.at(0)

    def at(self, row: int) -> LogPosition:
        """Return the position of a row; behind the last one it is the tail."""
        if row >= self.manifest.row_count:
            return self.tail
        return SnapshotOffset(self.version, self.manifest.revision, row)

    def cut(self, row: int, limits: MicroBatchLimits) -> LogPosition:
        """Return the end of a micro-batch from a row on: the first row group with which a limit is reached."""
        rows = size = 0
        for part in self.between(row, self.manifest.row_count):
            rows, size = rows + part.row_count, size + part.byte_count
            is_full = limits.offsets_max is not None and rows >= limits.offsets_max
            if is_full or (limits.bytes_max is not None and size >= limits.bytes_max):
                break
        return self.at(row + rows)

    def between(self, first: int, end: int) -> Iterator[SnapshotPart]:
        """Yield the row groups that begin at or after a row and before another."""
        row = 0
        for part in self.parts:
            if first <= row < end:
                yield part
            row += part.row_count

    def tasks(self, first: int, end: int, partition_count_min: int | None) -> list[SnapshotTask]:
        """Split rows into what tasks read: row groups of one file, up to about `PARTITION_BYTES`."""
        parts = list(self.between(first, end))
        groups_max = -(-len(parts) // partition_count_min) if partition_count_min else len(parts)
        tasks: list[SnapshotTask] = []
        size = 0
        for part in parts:
            known = tasks[-1] if tasks else SnapshotTask("", ())
            is_full = size + part.byte_count > PARTITION_BYTES or len(known.groups) >= groups_max
            if known.file != part.file or is_full:
                tasks.append(SnapshotTask(part.file, (part.group,)))
                size = part.byte_count
            else:
                tasks[-1] = SnapshotTask(part.file, (*known.groups, part.group))
                size += part.byte_count
        return tasks


def find_phase(
    lake: LakePort, view: LogView, log_id: bytes, end_revision: int, reader: LogLook
) -> tuple[SnapshotPhase | None, list[str]]:
    """Return the newest snapshot to begin with, and why newer ones are not it.

    It is whole, each of its rows was read and its digest compared, the log's own prefix hash is that of its manifest,
    and the log still holds everything behind it.

    Args:
        lake: Of the log.
        view: The log as it is.
        log_id: Its id.
        end_revision: It must not lie behind the record before this one: where the query ends, or what may be read now.
        reader: Of the log.

    """
    reasons = [f"{damage.place}: {damage.reason}" for damage in lake.damaged()]
    for version, manifest in lake.snapshots():
        reason = _unfit(manifest, view, log_id, end_revision, reader)
        phase = None
        if reason is None:
            damage = lake.scrub(manifest)
            phase, reason = (None, damage.reason) if damage else _phase(lake, version, manifest)
        if phase is not None:
            return phase, reasons
        reasons.append(f"revision {manifest.revision}: {reason}")
    return None, reasons


def _phase(lake: LakePort, version: int, manifest: SnapshotManifest) -> tuple[SnapshotPhase | None, str | None]:
    try:
        parts = tuple(lake.parts(version))
    except SnapshotError as error:
        return None, str(error)
    count = sum(part.row_count for part in parts)
    if count != manifest.row_count:
        return None, f"its files hold {count} rows, its manifest says {manifest.row_count}"
    return SnapshotPhase(version, manifest, parts), None


def _unfit(manifest: SnapshotManifest, view: LogView, log_id: bytes, end_revision: int, reader: LogLook) -> str | None:
    """Return why a query cannot begin with a snapshot; None if it can."""
    if manifest.log_id != log_id.hex():
        return f"it is of a log with id {manifest.log_id}, this one has {log_id.hex()}"
    if manifest.contradiction:
        return f"it is contradicted: {manifest.contradiction}"
    if manifest.revision + 1 < view.first_revision:
        return f"records {manifest.revision + 1} to {view.first_revision - 1} behind it have been trimmed"
    if manifest.revision + 1 > end_revision:
        return f"it lies behind record {end_revision - 1}, where this query ends"
    found = _hash_after(manifest, view, reader)
    if found is not None and found.hex() != manifest.prefix_hash:
        return "the log's prefix hash is another one there: it is of another history"
    return None


def _hash_after(manifest: SnapshotManifest, view: LogView, reader: LogLook) -> bytes | None:
    """Return the log's prefix hash behind the last entry of a snapshot; None if nothing is left that tells."""
    index = view.index_of(manifest.ledger_id)
    if index >= 0 and 0 <= manifest.entry_id <= view.spans[index].last_entry_id:
        return entry_hash(reader.payload_at(manifest.ledger_id, manifest.entry_id))
    for span in view.spans:
        if span.last_entry_id >= 0 and span.first_revision == manifest.revision + 1:
            return decode_envelope(reader.payload_at(span.ledger_id, 0)).prefix_hash
    return None


def present_phase(lake: LakePort, log: str, log_id: bytes, position: SnapshotOffset) -> SnapshotPhase:
    """Return the snapshot in which a query stands.

    Raises:
        StartGoneError: It is not there any more, or not whole, or of another log.

    """
    found = lake.snapshots()
    for version, manifest in found:
        if (version, manifest.revision) == (position.version, position.revision) and manifest.log_id == log_id.hex():
            phase, reason = _phase(lake, version, manifest)
            if phase is not None:
                return phase
            raise StartGoneError(f"log {log}: {_gone(lake, position, found)}: {reason}")
    reasons = "; ".join(f"{damage.place}: {damage.reason}" for damage in lake.damaged())
    raise StartGoneError(f"log {log}: {_gone(lake, position, found)}{': ' if reasons else ''}{reasons}")


def _gone(lake: LakePort, position: SnapshotOffset, found: Sequence[tuple[int, SnapshotManifest]]) -> str:
    there = ", ".join(str(manifest.revision) for _, manifest in found) or "none"
    return (
        f"the query stands before row {position.row} of the snapshot at revision {position.revision} (version "
        f"{position.version} of {lake.place}), which is not there any more (there are: {there}). What it has delivered "
        "cannot be completed: start a new query (new checkpoint location) with startingOffsets=snapshot, and keep more "
        "snapshots, or keep their files for longer"
    )


def no_snapshot(lake: LakePort, view: LogView, reasons: Sequence[str]) -> SnapshotError:
    """Return the error of a log whose begin was trimmed and that no snapshot covers."""
    why = "; ".join(reasons) or "there is none"
    return SnapshotError(
        f"log {view.log}: startingOffsets=snapshot finds no snapshot in {lake.place} to begin with ({why}), and the "
        f"log itself begins with record {view.first_revision}. Take one (jobs/snapshot.py), check the option lake, or "
        "start from earliest, without the trimmed records"
    )
