from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from connectors.delta.columns import FollowedTable
from connectors.delta.follower import FollowerTable
from connectors.delta.proof import FollowerShape, follower_evidence, shape_of_before
from connectors.errors import ForeignTableError
from connectors.state.frame import table_rows
from rsm_spark.core.machine import Field, FieldType, TableDescription
from rsm_spark.core.records import pack
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.snapshots.lake_files import files_of_version
from tests.unit.connectors.delta.test_follower import RENAMES, follower, records

_TABLE = TableDescription("map", (Field("key", FieldType.BYTES),), (Field("value", FieldType.INT),))


def test_rows_get_the_bytes_that_the_log_has_columns_that_came_later_included() -> None:
    shape = FollowerShape("t", ("a", "b"), (("c", 0), ("d", 7)))
    batch = pa.RecordBatch.from_pydict(
        {"a": ["x", "y"], "b": [1, 2], "c": [0.5, 1.0], "d": [None, None], "_revision": [6, 7]}
    )
    (found,) = shape.packed([batch])
    assert found.to_pylist() == [
        {"table_name": "t", "key": pack(("x", 1)), "row": pack((0.5,)), "revision": 6},
        {"table_name": "t", "key": pack(("y", 2)), "row": pack((1.0, None)), "revision": 7},
    ]


def test_rows_of_a_history_are_changes_with_their_revision_and_kind() -> None:
    shape = FollowerShape("t", ("a",), (("c", 0), ("d", 7)), is_history=True)
    batch = pa.RecordBatch.from_pydict(
        {
            "a": ["x", "x", "y"],
            "c": [0.5, None, 1.0],
            "d": [None, None, 4],
            "_revision": [6, 7, 8],
            "_fold": ["upsert", "delete", "snapshot"],
        }
    )
    assert shape.columns == ["a", "c", "d", "_revision", "_fold"]
    (found,) = shape.packed([batch])
    assert found.column("key").to_pylist() == [pack(("x",)), pack(("x",)), pack(("y",))]
    assert found.column("row").to_pylist() == [
        pack((6, "upsert", pack((0.5,)))),
        pack((7, "delete", None)),
        pack((8, "snapshot", pack((1.0, 4)))),
    ]


def test_files_of_before_a_column_came_are_read_with_the_others(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    narrow = {"a": ["x", "x"], "c": [1, None], "_fold": ["upsert", "delete"], "_revision": [5, 6]}
    wide = {"a": ["x"], "c": [2], "d": ["new"], "_fold": ["upsert"], "_revision": [8]}
    write_deltalake(place, pa.table(narrow))
    write_deltalake(place, pa.table(wide), mode="append", schema_mode="merge")
    shape = FollowerShape("t", ("a",), (("c", 0), ("d", 7)), is_history=True)
    files = files_of_version(place, 1)
    found = [row for file in files for batch in table_rows(place, file, shape) for row in batch.to_pylist()]
    assert sorted((row["revision"], row["row"]) for row in found) == [
        (5, pack((5, "upsert", pack((1,))))),
        (6, pack((6, "delete", None))),
        (8, pack((8, "upsert", pack((2, "new"))))),
    ]


def test_a_file_that_lacks_a_column_all_its_rows_had_is_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    write_deltalake(place, pa.table({"a": ["x"], "_revision": [5]}))
    (file,) = files_of_version(place, 0)
    with pytest.raises(CorruptSnapshotError, match=r"file part-.*parquet has no column c$"):
        list(table_rows(place, file, FollowerShape("t", ("a",), (("c", 0), ("d", 7)))))


def test_a_history_is_told_from_where_its_rows_were_last_written_over(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    table = FollowerTable(place, log="orders", log_id="00" * 16, table=_TABLE, mode="append")
    table.open()
    assert follower_evidence(place).begun == table.empty_position()
    position = msgspec.structs.replace(table.empty_position(), revision=9, ledger=1, entry=2, row_count=1)
    schema = table.mode.schema(FollowedTable.described(_TABLE))
    row = {"key": b"k", "value": 1, "_fold": "snapshot", "_revision": 3, "_logged_at": None}
    table.begin(position, pa.RecordBatchReader.from_batches(schema, [pa.RecordBatch.from_pylist([row], schema=schema)]))
    table.restate(position)
    evidence = follower_evidence(place)
    assert evidence.shape.is_history
    assert evidence.begun == position
    assert evidence.positions == ((1, position), (2, position))


def test_a_follower_says_what_it_is_and_which_commits_are_nobodys(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    FollowerTable(place, log="orders", log_id="00" * 16, table=_TABLE).open()
    evidence = follower_evidence(place)
    assert evidence.shape == FollowerShape("map", ("key",), (("value", 0),))
    assert [position.revision for _, position in evidence.positions] == [0]
    assert (evidence.shape.is_history, evidence.foreign_versions) == (False, ())
    schema: Any = DeltaTable(place).schema().to_arrow()
    rows = pa.table(
        {"key": [b"k"], "value": [1], "_revision": [1]},
        schema=pa.schema(schema),
    )
    write_deltalake(place, rows, mode="append")
    assert follower_evidence(place).foreign_versions == (DeltaTable(place).version(),)


def test_what_follows_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ForeignTableError, match="there is no Delta table"):
        follower_evidence(str(tmp_path / "nothing"))
    write_deltalake(str(tmp_path / "plain"), pa.table({"a": [1]}))
    with pytest.raises(ForeignTableError, match="follows no log"):
        follower_evidence(str(tmp_path / "plain"))


@pytest.mark.parametrize("mode", ["merge", "append"])
def test_new_names_of_columns_are_no_beginning_and_versions_of_before_are_read_under_theirs(
    tmp_path: Path, mode: str
) -> None:
    place = str(tmp_path / "table")
    table = follower(tmp_path / "table", mode=mode)
    table.apply(records(RENAMES))
    table.flush()
    evidence = follower_evidence(place)
    assert evidence.begun == table.empty_position()
    assert [name for name, _ in evidence.shape.row] == ["said"]
    names = []
    for version in range(evidence.newest_version + 1):
        shape = shape_of_before(place, version, evidence.shape)
        for file in files_of_version(place, version):
            list(table_rows(place, file, shape))
        names.append(shape.row[0][0])
    assert list(dict.fromkeys(names)) == ["value", "text", "said"]
    assert shape == evidence.shape
    renamed = [
        position.revision
        for version, position in evidence.positions
        if version and names[version - 1] != names[version]
    ]
    assert renamed == [2, 5]
