"""Rows of a snapshot in a real lake on the disk, as rows of each kind."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.errors import StartGoneError
from connectors.source.entry_bounds import EntryBounds, Interval
from connectors.source.inputs import read_input
from connectors.source.lake_reader import LakeReader
from connectors.source.options import Rows
from connectors.source.row_plan import RowPlan
from connectors.source.schema import KAFKA_COLUMNS, RECORD_COLUMNS, RowColumn
from connectors.source.snapshot_rows import SnapshotPartition
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.machine import Field, FieldType, MachineDescription, Row, TableDescription, encode_description
from rsm_spark.core.records import pack
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.manifest import SnapshotManifest

MACHINE = MachineDescription(
    "stock",
    1,
    (
        TableDescription("items", (Field("name", FieldType.STR),), (Field("count", FieldType.INT),)),
        TableDescription("notes", (Field("id", FieldType.INT),), (Field("text", FieldType.BYTES),)),
    ),
    (),
)
ROWS = [
    Row("items", pack(("apple",)), pack((3,)), 7),
    Row("items", pack(("pear",)), pack((0,)), 12),
    Row("notes", pack((5,)), pack((b"hello",)), 9),
    Row("_sessions", pack((bytes(16),)), pack((0, 0, 0, 0, [])), 1),
]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    digest = sum(row_term(table_prefix(row.table), row.key, row.row) for row in ROWS) % DIGEST_MODULUS
    manifest = SnapshotManifest(
        "stock", "ab" * 16, 12, 3, 4, "cd" * 32, digest_bytes(digest).hex(), len(ROWS), 1, 5_000, 6_000, MACHINE
    )
    LakeSnapshots(lake_place(str(tmp_path), "stock")).write(manifest, ROWS)
    return tmp_path


def partition(lake: Path, plan: RowPlan, bounds: EntryBounds | None = None) -> SnapshotPartition:
    reader = LakeReader(str(lake), "stock", {})
    (part,) = reader.parts(0)
    assert part.row_count == len(ROWS)
    description = encode_description(MACHINE)
    return SnapshotPartition(
        reader.place, part.file, (part.group,), "stock", 12, 5_000, description, plan, bounds, {"key": "hush"}
    )


def plan(rows: Rows, *columns: RowColumn, table: str = "") -> RowPlan:
    return RowPlan(rows, tuple((name, kind, was) for name, kind, was in columns), table)


def read(lake: Path, chosen: RowPlan, bounds: EntryBounds | None = None) -> list[dict[str, Any]]:
    """Read as a task does: the partition was pickled on its way."""
    part = pickle.loads(pickle.dumps(partition(lake, chosen, bounds)))  # noqa: S301 - our own
    batches = list(read_input(part))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_a_lake_says_which_versions_hold_whole_snapshots(lake: Path) -> None:
    reader = LakeReader(str(lake), "stock", {})
    ((version, manifest),) = reader.snapshots()
    assert (version, manifest.revision, reader.damaged(), reader.scrub(manifest)) == (0, 12, [], None)
    assert LakeReader(str(lake), "bills", {}).snapshots() == []


def test_rows_are_upserts_without_their_records(lake: Path) -> None:
    rows = read(lake, plan(Rows.RECORDS, *RECORD_COLUMNS))
    assert [(row["table_name"], row["key"], row["row"], row["revision"]) for row in rows] == [tuple(r) for r in ROWS]
    known = {"log", "table_name", "key", "row", "revision", "fold", "logged_at"}
    for row in rows:
        assert (row["log"], row["fold"], row["logged_at"]) == ("stock", "upsert", datetime.fromtimestamp(5, UTC))
        assert {name for name, value in row.items() if value is not None} == known


def test_only_the_columns_of_the_query_are_there_in_its_order(lake: Path) -> None:
    chosen = plan(Rows.RECORDS, RowColumn("revision", "bigint"), RowColumn("_error", "string"))
    assert read(lake, chosen)[0] == {"revision": 7, "_error": None}


def test_rows_of_a_table_are_typed(lake: Path) -> None:
    columns = (
        RowColumn("name", "string"),
        RowColumn("count", "bigint"),
        RowColumn("_fold", "string"),
        RowColumn("_revision", "bigint"),
    )
    assert read(lake, plan(Rows.TABLE, *columns, table="items")) == [
        {"name": "apple", "count": 3, "_fold": "upsert", "_revision": 7},
        {"name": "pear", "count": 0, "_fold": "upsert", "_revision": 12},
    ]


def test_rows_in_kafkas_columns_are_those_of_the_machine(lake: Path) -> None:
    rows = read(lake, plan(Rows.KAFKA, *KAFKA_COLUMNS))
    assert [(row["key"], row["value"], row["offset"]) for row in rows] == [
        (b"apple", pack((3,)), 7),
        (b"pear", pack((0,)), 12),
        (pack((5,)), b"hello", 9),
    ]


@pytest.mark.parametrize(
    ("bounds", "revisions"),
    [
        (EntryBounds(), [7, 12, 9, 1]),
        (EntryBounds(revision=Interval(8, 12)), [12, 9]),
        (EntryBounds(logged_ms=Interval(low=5_000)), [7, 12, 9, 1]),
        (EntryBounds(logged_ms=Interval(low=5_001)), []),
        (EntryBounds(ledger_id=Interval(3, 3)), []),
        (EntryBounds(leader_epoch=Interval(low=1)), []),
    ],
)
def test_filters_that_were_taken_over_hold_for_snapshots(lake: Path, bounds: EntryBounds, revisions: list[int]) -> None:
    found = read(lake, plan(Rows.RECORDS, RowColumn("revision", "bigint")), bounds)
    assert [row["revision"] for row in found] == revisions


def test_a_file_that_is_gone_is_an_error_that_says_what_to_do(lake: Path) -> None:
    part = partition(lake, plan(Rows.RECORDS, *RECORD_COLUMNS))
    (Path(part.place) / part.file).unlink()
    with pytest.raises(StartGoneError, match=r"the snapshot at revision 12.*Start a new query"):
        list(read_input(part))


def test_secrets_of_the_lake_are_not_in_the_text_of_a_partition(lake: Path) -> None:
    assert "hush" not in repr(partition(lake, plan(Rows.RECORDS)))
