"""A snapshot in the lake, made from the log alone: the work behind `jobs/snapshot.py`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from connectors.spark.access import DriverAccess
from connectors.spark.look import LogLook
from connectors.spark.options import parse_options
from connectors.spark.plan import LogView, locate_revision
from connectors.spark.replay import Checkpoint, RowSum, fold_state, last_checkpoint, sum_rows, verify_links
from rsm_spark.core.envelope import Envelope, decode_envelope
from rsm_spark.core.machine import MachineDescription
from rsm_spark.errors import CorruptLogError, LogError, MissingLogError, SnapshotError
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.manifest import SnapshotManifest

__all__ = ["SnapshotSummary", "snapshot_log"]


class SnapshotSummary(msgspec.Struct, frozen=True):
    """What was made and proved.

    Attributes:
        place: The Delta table.
        manifest: Of the snapshot.
        entries_verified: Entries whose links were checked.
        checkpoint_revision: Revision of the leader's last checkpoint, whose digest this fold came to as well; None if
            none was logged yet.
        seconds: All in all.

    """

    place: str
    manifest: SnapshotManifest
    entries_verified: int
    checkpoint_revision: int | None
    seconds: float


class _Goal(msgspec.Struct, frozen=True):
    """The entry after which the snapshot is taken."""

    log: str
    log_id: bytes
    ledger_id: int
    entry_id: int
    envelope: Envelope
    ledger_ids: tuple[int, ...]
    machine: MachineDescription


def snapshot_log(
    spark: SparkSession,
    log: str,
    lake: str,
    *,
    revision: int | None = None,
    source: dict[str, str] | None = None,
    storage_options: dict[str, str] | None = None,
) -> SnapshotSummary:
    """Fold the log, check it, and write the state to the lake.

    Args:
        spark: Session.
        log: Name of the log.
        lake: Folder or URI of the lake, see `rsm_spark.snapshots.lake.lake_place`.
        revision: Take the state right after this record, or after the last entry that ends before it; None = the
            newest.
        source: Further options of the source.
        storage_options: For `deltalake`.

    Raises:
        MissingLogError: The beginning of the log has been trimmed.
        CorruptLogError, ForkedLogError: The log is not one unbroken history.
        SnapshotError: The fold contradicts the leader's checkpoint, or the lake cannot be written.

    """
    began = time.monotonic()
    options = {**(source or {}), "log": log}
    goal = _goal(options, revision)
    end = {log: {"ledger": goal.ledger_id, "entry": goal.entry_id + 1}}
    bounds = {**options, "startingOffsets": "earliest", "endingOffsets": msgspec.json.encode(end).decode()}
    entries = spark.read.format("ledger").options(**bounds, rows="raw").load()
    records = spark.read.format("ledger").options(**bounds, rows="records").load()
    records = records.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        prefix_hash, count = verify_links(entries, list(goal.ledger_ids), goal.log_id), entries.count()
        state = fold_state(records, goal.envelope.last_revision).persist(StorageLevel.MEMORY_AND_DISK)
        checkpoint = last_checkpoint(records, goal.envelope.last_revision)
        if checkpoint is not None:
            _compare(checkpoint, sum_rows(fold_state(records, checkpoint.revision)), log)
        manifest = _write(state, goal, prefix_hash, lake, storage_options)
    finally:
        records.unpersist()
    seconds = round(time.monotonic() - began, 3)
    at = None if checkpoint is None else checkpoint.revision
    return SnapshotSummary(lake_place(lake, log), manifest, count, at, seconds)


def _goal(options: dict[str, str], revision: int | None) -> _Goal:
    access = DriverAccess(parse_options(options, is_stream=False))
    try:
        look = LogLook(options["log"], access)
        view = look.look()
        ledger_id, entry_id = _entry_at(look, view, revision)
        machine = look.description_at(view, ledger_id)
        if machine is None:
            raise CorruptLogError(f"log {look.log}: its machine is not described in its first entry")
        envelope = decode_envelope(look.payload_at(ledger_id, entry_id))
        ledger_ids = tuple(span.ledger_id for span in view.spans)
        return _Goal(look.log, look.log_id, ledger_id, entry_id, envelope, ledger_ids, machine)
    finally:
        access.close()


def _entry_at(look: LogLook, view: LogView, revision: int | None) -> tuple[int, int]:
    """Return the last entry that ends at or before a record; states exist only at the end of entries."""
    last = view.end.revision - 1
    wanted = last if revision is None else revision
    if view.first_revision > 1:
        raise MissingLogError(
            f"log {view.log}: records 1 to {view.first_revision - 1} have been trimmed, so the state cannot be folded "
            "from the log alone",
            first_revision=1,
            last_revision=view.first_revision - 1,
        )
    if not 1 <= wanted <= last:
        raise LogError(f"log {view.log}: there is no record {wanted} to take a snapshot at: it holds 1 to {last}")
    place = locate_revision(view, wanted, look.last_revision_at)
    if look.last_revision_at(place.ledger_id, place.entry_id) == wanted:
        return place.ledger_id, place.entry_id
    before = (
        look.last_revision_at(place.ledger_id, place.entry_id - 1)
        if place.entry_id
        else view.spans[view.index_of(place.ledger_id)].first_revision - 1
    )
    return _entry_at(look, view, before)


def _compare(checkpoint: Checkpoint, found: RowSum, log: str) -> None:
    if found != (checkpoint.digest, checkpoint.row_count):
        raise SnapshotError(
            f"log {log}: at revision {checkpoint.revision} its leader logged digest {checkpoint.digest}, "
            f"{checkpoint.row_count} rows; folding the log gives {found.digest}, {found.row_count} rows: one of "
            "the two is wrong, no snapshot was written"
        )


def _write(
    state: DataFrame, goal: _Goal, prefix_hash: bytes, lake: str, storage_options: dict[str, str] | None
) -> SnapshotManifest:
    total = sum_rows(state)
    manifest = SnapshotManifest(
        log_name=goal.log,
        log_id=goal.log_id.hex(),
        revision=goal.envelope.last_revision,
        ledger_id=goal.ledger_id,
        entry_id=goal.entry_id,
        prefix_hash=prefix_hash.hex(),
        digest=total.digest,
        row_count=total.row_count,
        leader_epoch=goal.envelope.leader_epoch,
        logged_ms=goal.envelope.logged_ms,
        created_ms=time.time_ns() // 1_000_000,
        machine=goal.machine,
    )
    store = LakeSnapshots(lake_place(lake, goal.log), storage_options=storage_options)
    return store.write_batches(manifest, _batches(state))


def _batches(state: DataFrame) -> Iterator[pa.RecordBatch]:
    """Collect the rows; a snapshot must fit the driver, as it must fit the replica that boots from it."""
    rows: Any = state.select(*ROW_SCHEMA.names).toArrow()
    yield from rows.cast(ROW_SCHEMA).to_batches(max_chunksize=16_384)
