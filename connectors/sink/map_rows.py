"""Rows of a data frame as writes of the map: types are checked before the first row, values before they are sent.

key        binary or string
value      binary or string; null only where `delete` is true
delete     boolean, optional: the key is to go
ttl_ms     integer, optional: the key goes by itself after so long; null or 0 = it stays
expected   binary, string or integer, optional: value or mod revision that the key must have; null = no such key
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from connectors.errors import BadRowError, OptionError
from rsm_spark.map.commands import RowWrite
from rsm_spark.map.row_writes import row_fault

_BYTES = (BinaryType, StringType)
_INTEGERS = (ShortType, IntegerType, LongType)
_COLUMNS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": (_BYTES, "binary or string"),
    "value": (_BYTES, "binary or string"),
    "delete": ((BooleanType,), "boolean"),
    "ttl_ms": (_INTEGERS, "int or bigint"),
    "expected": (_BYTES + _INTEGERS, "binary, string or bigint"),
}
_NEEDED = ("key", "value")
_NAMED_MAX = 10


def check_map_schema(schema: StructType) -> None:
    """Check the columns of a frame that is to be written to the map.

    Raises:
        OptionError: One is missing, of another type, or none of these.

    """
    missing = [name for name in _NEEDED if name not in schema.names]
    if missing:
        more = ", …" if len(schema.names) > _NAMED_MAX else ""
        raise OptionError(
            f"sink ledger, as=map: column {missing[0]} is missing: the frame has "
            f"{', '.join(schema.names[:_NAMED_MAX])}{more}; needed are key and value, optional are delete, ttl_ms and "
            "expected"
        )
    twice = [name for name in _COLUMNS if schema.names.count(name) > 1]
    if twice:
        raise OptionError(
            f"sink ledger, as=map: column {twice[0]} is there more than once: select what is to be written"
        )
    for field in schema:
        if field.name not in _COLUMNS:
            raise OptionError(
                f"sink ledger, as=map: there is no column {field.name}: known are {', '.join(_COLUMNS)}; select what "
                "is to be written"
            )
        kinds, words = _COLUMNS[field.name]
        if not isinstance(field.dataType, kinds):
            raise OptionError(
                f"sink ledger, as=map: column {field.name} is {field.dataType.simpleString()}, it must be {words}: "
                "cast it"
            )


def is_repeatable(names: list[str]) -> bool:
    """Return whether rows of these columns may be written twice: what is written does not hang on what was before."""
    return "expected" not in names


class MapRows:
    """Rows of one task.

    Args:
        part: Number of the partition, for errors.
        prefix_bytes: Of the prefix of conflicts.

    """

    def __init__(self, part: int, prefix_bytes: int) -> None:
        self._part = part
        self._prefix_bytes = prefix_bytes
        self._row_count = 0

    def writes(self, batch: pa.RecordBatch) -> Iterator[RowWrite]:
        """Yield the rows of a batch.

        Raises:
            BadRowError: One of them cannot be written; it is named, and none of the batch was yielded.

        """
        columns = {name: _column(batch.column(name)) for name in batch.schema.names}
        keys, values = columns["key"], columns["value"]
        count = batch.num_rows
        deletes = columns.get("delete") or [None] * count
        lives = columns.get("ttl_ms") or [0] * count
        expected: list[tuple[Any, ...]] = [()] * count
        if "expected" in columns:
            expected = [(one,) for one in columns["expected"]]
        rows: list[RowWrite] = []
        for number, (key, value, delete, ttl_ms, wanted) in enumerate(
            zip(keys, values, deletes, lives, expected, strict=True)
        ):
            if key is None:
                raise self._bad(number, "key", "it is null")
            if value is None and not delete:
                raise self._bad(number, "value", "it is null: a key is removed by a column delete that is true", key)
            row = RowWrite(key, None if delete else value, 0 if delete else ttl_ms or 0, wanted)
            fault = row_fault(row, self._prefix_bytes)
            if fault is not None:
                column = "key" if "a key " in fault else "ttl_ms" if "time to live" in fault else "value"
                raise self._bad(number, column, fault, key)
            rows.append(row)
        self._row_count += count
        yield from rows

    def _bad(self, number: int, column: str, fault: str, key: bytes | None = None) -> BadRowError:
        of_key = "" if key is None else f" (key {key[:60]!r})"
        return BadRowError(
            f"row {self._row_count + number} of partition {self._part}, column {column}{of_key}: {fault}. Nothing of "
            "this row was written, and its batch is not ended"
        )


def _column(column: pa.Array[Any]) -> list[Any]:
    """Return a column as Python values: texts as their UTF-8 bytes."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.view(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    listed: list[Any] = column.to_pylist()
    return listed
