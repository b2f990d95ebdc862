"""Rows of a frame as writes of the map; a bad one is named, and nothing of its batch is handed on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from connectors.errors import BadRowError, OptionError
from connectors.sink.map_rows import MapRows, check_map_schema, is_repeatable
from rsm_spark.map.commands import RowWrite
from rsm_spark.map.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def _batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_all_columns_of_all_types_are_taken() -> None:
    check_map_schema(_schema(key=StringType(), value=BinaryType()))
    check_map_schema(
        _schema(key=BinaryType(), value=StringType(), delete=BooleanType(), ttl_ms=IntegerType(), expected=LongType())
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (_schema(key=StringType()), "column value is missing"),
        (_schema(key=IntegerType(), value=StringType()), "column key is int, it must be binary or string"),
        (_schema(key=StringType(), value=DoubleType()), "column value is double"),
        (_schema(key=StringType(), value=StringType(), delete=StringType()), "column delete is string"),
        (_schema(key=StringType(), value=StringType(), ttl_ms=DoubleType()), "column ttl_ms is double"),
        (_schema(key=StringType(), value=StringType(), amount=LongType()), "there is no column amount"),
        (StructType([StructField(name, StringType()) for name in ("key", "value", "key")]), "more than once"),
        (
            StructType([StructField(f"c{number}", StringType()) for number in range(10_000)]),
            "column key is missing",
        ),
    ],
    ids=range(8),
)
def test_a_frame_of_other_columns_is_refused_before_its_first_row(schema: StructType, words: str) -> None:
    with pytest.raises(OptionError, match=words) as refused:
        check_map_schema(schema)
    assert len(str(refused.value)) < 1_000


def test_rows_become_writes() -> None:
    batch = _batch(
        key=["a", "b", "c"],
        value=[b"1", None, b"3"],
        delete=[False, True, None],
        ttl_ms=[None, None, 500],
        expected=[b"0", None, b"2"],
    )
    assert list(MapRows(0, 0).writes(batch)) == [
        RowWrite(b"a", b"1", 0, (b"0",)),
        RowWrite(b"b", None, 0, (None,)),
        RowWrite(b"c", b"3", 500, (b"2",)),
    ]
    assert list(MapRows(0, 0).writes(_batch(key=[b"k"], value=["ü"]))) == [RowWrite(b"k", "ü".encode())]
    assert not is_repeatable(batch.schema.names)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"key": None, "value": b"v"}, "row 3 of partition 2, column key: it is null"),
        ({"key": b"k", "value": None}, "row 3 of partition 2, column value .key b'k'.: it is null"),
        ({"key": b"", "value": b"v"}, "row 3 of partition 2, column key .key b''.: a key has 1 to"),
        ({"key": bytes(KEY_BYTES_MAX + 1), "value": b"v"}, "column key .*: a key has 1 to"),
        ({"key": bytes(KEY_BYTES_MAX), "value": b"v"}, "column key .*: a key with the prefix of conflicts"),
        ({"key": b"k", "value": bytes(VALUE_BYTES_MAX + 1)}, "column value .*: a value has at most"),
        ({"key": b"k", "value": bytes(10_000_000)}, "column value .*: a value has at most"),
        ({"key": b"k", "value": b"v", "ttl_ms": -1}, "column ttl_ms .*: a time to live"),
    ],
    ids=range(8),
)
def test_a_bad_row_is_named_and_nothing_of_its_batch_is_handed_on(row: dict[str, Any], words: str) -> None:
    rows = MapRows(2, 10)
    assert len(list(rows.writes(_batch(key=[b"a", b"b"], value=[b"1", b"2"])))) == 2
    good = {"key": b"g", "value": b"v"} | ({"ttl_ms": 5} if "ttl_ms" in row else {})
    bad = _batch(**{name: [good[name], value] for name, value in row.items()})
    with pytest.raises(BadRowError, match=words):
        next(rows.writes(bad))
