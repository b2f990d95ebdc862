"""`startingOffsets=snapshot` on a real lake: the rows of a snapshot, then the tail, each exactly once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.envelope import decode_envelope
from rsm_spark.core.machine import Row, encode_description
from rsm_spark.core.records import KernelRecord, Record, pack
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.lake_files import LakeFile, write_lake_file
from rsm_spark.snapshots.manifest import SnapshotManifest
from tests.spark.conftest import MACHINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def take_snapshot(log: Any, lake: Path) -> SnapshotManifest:
    """Write the state of a log as it is now, in two files."""
    ledger_id, entry_id, payload = log.entries[-1]
    rows = [Row("map", pack((key,)), pack((value,)), revision) for key, (value, revision) in log.state.items()]
    rows.append(Row("_sessions", pack((bytes(16),)), pack((0, 0, 0, 0, [])), 1))
    digest = sum(row_term(table_prefix(row.table), row.key, row.row) for row in rows) % DIGEST_MODULUS
    manifest = SnapshotManifest(
        log_name=log.name,
        log_id=log.log_id.hex(),
        revision=log.revision,
        ledger_id=ledger_id,
        entry_id=entry_id,
        prefix_hash=hashlib.sha256(payload).hexdigest(),
        digest=digest_bytes(digest).hex(),
        row_count=len(rows),
        leader_epoch=1,
        logged_ms=decode_envelope(payload).logged_ms,
        created_ms=0,
        machine=MACHINE,
    )
    place = lake_place(str(lake), log.name)
    table = pa.Table.from_pylist([row._asdict() | {"table_name": row.table} for row in rows], schema=ROW_SCHEMA)
    halves = (table.slice(0, len(rows) // 2), table.slice(len(rows) // 2))

    def files() -> list[LakeFile]:
        written = [write_lake_file(place, half.to_batches()) for half in halves]
        return [file for file in written if file is not None]

    return LakeSnapshots(place).write_files(manifest, files)


def describe(log: Any) -> None:
    """Begin a ledger as a leader does."""
    log.append([Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(MACHINE),))])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def newest_rows(frame: DataFrame) -> dict[bytes, tuple[bytes, int]]:
    """Fold rows of the source: the last revision of each key of the table."""
    state: dict[bytes, tuple[bytes, int]] = {}
    for row in frame.where("table_name = 'map'").orderBy("revision").collect():
        key = msgspec.msgpack.decode(bytes(row.key))[0]
        state.pop(key, None)
        if row.fold == "upsert":
            state[key] = (msgspec.msgpack.decode(bytes(row.row))[0], row.revision)
    return state


def test_a_batch_reads_a_snapshot_and_its_tail_as_the_state(spark: SparkSession, log: Any, lake: Path) -> None:
    log.fill(4)
    log.roll()
    describe(log)
    taken = take_snapshot(log, lake)
    log.delete(b"key-1", b"key-2")
    log.fill(1, keys=3)
    log.trim(1)
    frame = spark.read.format("ledger").options(**log.options(startingOffsets="snapshot", lake=lake)).load().cache()
    assert newest_rows(frame) == log.state
    rows = frame.where("entry_id IS NULL").collect()
    assert len(rows) == taken.row_count
    assert {row.logged_at.timestamp() for row in rows} == {taken.logged_ms / 1000}
    assert {row.table_name for row in rows} == {"map", "_sessions"}
    tail = frame.where("entry_id IS NOT NULL")
    assert [row.revision for row in tail.orderBy("revision").collect()] == list(
        range(taken.revision + 1, log.revision + 1)
    )


def test_a_stream_goes_on_inside_a_snapshot_after_a_restart_and_then_in_the_log(
    spark: SparkSession, log: Any, lake: Path, tmp_path: Path
) -> None:
    log.fill(4)
    taken = take_snapshot(log, lake)
    log.fill(2)
    batches: list[list[Any]] = []

    def keep(frame: DataFrame, batch_id: int) -> None:
        batches.append(frame.select("entry_id", "table_name", "key", "revision").collect())
        if len(batches) == 2:
            raise RuntimeError("the query ends in the middle")

    def run() -> None:
        options = log.options(startingOffsets="snapshot", lake=lake, maxOffsetsPerTrigger=1)
        writer = spark.readStream.format("ledger").options(**options).load().writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)

    with pytest.raises(Exception, match="ends in the middle"):
        run()
    take_snapshot(log, lake)
    run()
    kinds = [{row.entry_id is None for row in batch} for batch in batches]
    assert all(len(kind) == 1 for kind in kinds), "no micro-batch mixes rows of the snapshot and of the tail"
    assert kinds[:3] == [{True}] * 3, "the second one, which failed, was run again inside the snapshot"
    del batches[1]
    rows = [row for batch in batches for row in batch]
    assert sum(row.entry_id is None for row in rows) == taken.row_count, "of the first snapshot, each once"
    tail = [row.revision for row in rows if row.entry_id is not None]
    assert tail == list(range(taken.revision + 1, log.revision + 1))


def test_a_damaged_snapshot_is_not_begun_with(spark: SparkSession, log: Any, lake: Path) -> None:
    log.fill(1)
    take_snapshot(log, lake)
    reader = spark.read.format("ledger").options(**log.options(startingOffsets="snapshot", lake=lake))
    for file in Path(lake_place(str(lake), log.name)).glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20])
    assert reader.load().where("entry_id IS NULL").count() == 0, "damaged: the whole log says the same"
    log.roll()
    log.fill(1)
    log.trim(1)
    with pytest.raises(Exception, match="finds no snapshot in .* to begin with") as caught:
        reader.load().count()
    assert "jobs/snapshot.py" in str(caught.value)
