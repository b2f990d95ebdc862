from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.machine import MachineDescription, Row
from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.lake_files import LakeFile, read_lake_file, write_lake_file
from rsm_spark.snapshots.manifest import SnapshotManifest


def rows_of(revision: int) -> list[Row]:
    return [Row("map", b"k%d" % n, b"v%d-%d" % (n, revision), revision) for n in range(10)]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = [pa.array(c, field.type) for c, field in zip(zip(*rows, strict=True), ROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def manifest_of(rows: list[Row], log_id: str = "00" * 16) -> SnapshotManifest:
    digest = sum(row_term(table_prefix(row.table), row.key, row.row) for row in rows) % DIGEST_MODULUS
    revision = rows[0].revision
    return SnapshotManifest(
        "orders",
        log_id,
        revision,
        3,
        revision,
        f"{revision:064x}",
        digest_bytes(digest).hex(),
        len(rows),
        1,
        1,
        1,
        MachineDescription("map", 1, (), ()),
    )


def written(place: str, rows: list[Row]) -> list[LakeFile]:
    parts = [[batch_of(rows[:4])], [batch_of(rows[4:9]), batch_of(rows[9:])], []]
    return [file for part in parts if (file := write_lake_file(place, part)) is not None]


def test_files_that_many_wrote_are_one_snapshot(tmp_path: Path) -> None:
    place = lake_place(str(tmp_path), "orders")
    lake = LakeSnapshots(place)
    for revision in (1, 2):
        rows = rows_of(revision)
        lake.write_files(manifest_of(rows), lambda rows=rows: written(place, rows))  # type: ignore[misc]
    fresh = LakeSnapshots(place)
    assert [one.revision for one in fresh.manifests()] == [2, 1]
    assert fresh.damaged() == []
    for manifest in fresh.manifests():
        assert sorted(fresh.read(manifest)) == rows_of(manifest.revision)
        files = fresh.files(manifest)
        assert sorted(file.rows for file in files) == [4, 6]
        batches = [batch for file in files for batch in read_lake_file(place, file, ROW_SCHEMA.names)]
        found = pa.Table.from_batches(batches).sort_by("key").to_pylist()
        assert [tuple(row.values()) for row in found] == rows_of(manifest.revision)


def test_a_snapshot_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    place = lake_place(str(tmp_path), "orders")
    rows = rows_of(5)
    kept = LakeSnapshots(place).write_files(manifest_of(rows), lambda: written(place, rows))

    def never() -> list[LakeFile]:
        raise AssertionError("nothing is to be written")

    assert LakeSnapshots(place).write_files(manifest_of(rows), never) == kept
    with pytest.raises(SnapshotError, match="this table holds snapshots of log orders"):
        LakeSnapshots(place).write_files(manifest_of(rows, "11" * 16), never)


def test_a_file_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    place = lake_place(str(tmp_path), "orders")
    rows = rows_of(5)
    lake = LakeSnapshots(place)
    manifest = lake.write_files(manifest_of(rows), lambda: written(place, rows))
    file = lake.files(manifest)[0]
    (Path(place) / file.name).unlink()
    with pytest.raises(CorruptSnapshotError, match=f"file {file.name} cannot be read"):
        list(read_lake_file(place, file, ROW_SCHEMA.names))
    assert LakeSnapshots(place).manifests() == []
