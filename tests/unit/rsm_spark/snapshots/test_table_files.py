"""Files of Delta tables: bounded by bytes, in the order of their rows, and told of in the table's log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable

from rsm_spark.snapshots import table_files
from rsm_spark.snapshots.table_files import add_table_files, opened_table, write_table_files

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("id", pa.int64()), ("word", pa.string()), ("text", pa.string()), ("v", pa.binary())
]  # fmt: skip
SCHEMA = pa.schema(_FIELDS)
PROPERTIES = CommitProperties()


def batches(count: int = 40, size: int = 100_000) -> Iterator[pa.RecordBatch]:
    """Yield rows that cannot be compressed, two at a time."""
    rng = random.Random(1)
    for first in range(0, count, 2):
        rows = [
            {"id": n, "word": None if n % 2 else f"w{n:03}", "text": "x" * n, "v": rng.randbytes(size)}
            for n in (first, first + 1)
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def add(place: str, files: list[table_files.TableFile], mode: str = "overwrite") -> DeltaTable:
    add_table_files(place, opened_table(place), files, SCHEMA, mode=mode, properties=PROPERTIES)
    return DeltaTable(place)


def test_files_and_their_row_groups_end_by_bytes_and_are_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "FILE_BYTES", 1_000_000)
    monkeypatch.setattr(table_files, "ROW_GROUP_BYTES", 300_000)
    place = str(tmp_path / "t")
    files = write_table_files(place, SCHEMA, batches())
    assert len(files) == 4
    assert [file.name for file in files] == sorted(file.name for file in files)
    seen: list[int] = []
    for file in files:
        with pq.ParquetFile(tmp_path / "t" / file.name) as parquet:
            assert {parquet.metadata.row_group(one).num_rows for one in range(parquet.num_row_groups)} <= {2, 4}
            seen += parquet.read(["id"])["id"].to_pylist()
    assert seen == list(range(40))
    table = add(place, files)
    assert sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist()) == seen
    more = add(place, write_table_files(place, SCHEMA, batches(2, 10)), mode="append")
    assert more.to_pyarrow_table(columns=["id"]).num_rows == 42
    assert add(place, []).to_pyarrow_table().num_rows == 0, "all of it was replaced by nothing"


def test_the_tables_log_says_what_is_in_a_file(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    add(place, write_table_files(place, SCHEMA, batches(40, 10)))
    (said,) = pa.table(DeltaTable(place).get_add_actions(flatten=True)).to_pylist()
    assert (said["num_records"], said["null_count.word"], said["null_count.id"]) == (40, 20, 0)
    assert (said["min.id"], said["max.id"], said["min.word"], said["max.word"]) == (0, 39, "w000", "w038")
    assert said.get("max.text") is None, "its texts are too long"


def test_rows_that_break_off_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "FILE_BYTES", 100_000)
    monkeypatch.setattr(table_files, "ROW_GROUP_BYTES", 100_000)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(20)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_table_files(str(tmp_path / "t"), SCHEMA, broken())
    assert list((tmp_path / "t").iterdir()) == []
    assert write_table_files(str(tmp_path / "t"), SCHEMA, []) == []
