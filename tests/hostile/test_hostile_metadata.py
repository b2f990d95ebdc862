"""What whoever may write ZooKeeper's nodes or a lake's commits can make of those who read them: an error, no more."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from rsm_spark.core.chain import decode_chain
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.delta_log import CommitLog
from rsm_spark.snapshots.lake_files import read_lake_file, write_lake_file

BOMB_MIB = 512


def _bomb() -> bytes:
    """A node's worth of bytes that inflate to far more."""
    deflating = zlib.compressobj(9)
    parts = [deflating.compress(b" " * (1 << 20)) for _ in range(BOMB_MIB)]
    return b"".join([*parts, deflating.flush()])


def test_a_chain_that_inflates_without_end_costs_little_and_is_refused() -> None:
    bomb = _bomb()
    assert len(bomb) < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(CorruptLogError, match="log orders: .* inflates beyond"):
            decode_chain(bomb, log_name="orders")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 128 << 20


@pytest.mark.parametrize("cut", [1, 100])
def test_a_chain_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(CorruptLogError, match="cut short"):
        decode_chain(zlib.compress(b"{}" * 1_000)[:-cut], log_name="orders")


def _value(kind: pa.DataType) -> object:
    return (
        b"k" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "t" if pa.types.is_string(kind) else 1
    )


@pytest.mark.parametrize(
    "name",
    [
        "../secret/part.parquet",
        "%2e%2e/secret/part.parquet",
        "a/../../secret/part.parquet",
        "{outside}",
        "file://{outside}",
    ],
)
def test_a_lake_file_outside_its_table_is_not_read(tmp_path: Path, name: str) -> None:
    row = pa.RecordBatch.from_pylist([{field.name: _value(field.type) for field in ROW_SCHEMA}], ROW_SCHEMA)
    secret, table = tmp_path / "secret", tmp_path / "table"
    file = write_lake_file(str(secret), [row])
    assert file is not None
    (secret / file.name).rename(secret / "part.parquet")
    columns = ROW_SCHEMA.names
    assert list(read_lake_file(str(secret), replace(file, name="part.parquet"), columns))
    (table / "_delta_log").mkdir(parents=True)
    hostile = name.format(outside=secret / "part.parquet")
    with pytest.raises(CorruptSnapshotError, match="does not lie in its table"):
        list(read_lake_file(str(table), replace(file, name=hostile), columns))
    (table / "link.parquet").symlink_to(secret / "part.parquet")
    with pytest.raises(CorruptSnapshotError, match="out of the table"):
        list(read_lake_file(str(table), replace(file, name="link.parquet"), columns))
    commit = {"add": {"path": hostile, "size": (secret / "part.parquet").stat().st_size}}
    (table / "_delta_log" / f"{0:020d}.json").write_text(json.dumps(commit))
    (newest,) = CommitLog(table).commits(1)
    assert newest.missing == (hostile,)
