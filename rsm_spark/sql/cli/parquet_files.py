"""Parquet files that are imported and exported; the one file of the commands that knows Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ledger.errors import UsageError
from rsm_spark.sql.cli.column_values import Affinity, affinity_of, checked_rows, created
from rsm_spark.sql.messages import SqlValue

_BATCH_ROWS: Final = 4_096


class ParquetRows:
    """Rows of a Parquet file. Days and times are ISO texts, in UTC where they have a zone; decimals are texts.

    Args:
        path: Of it.

    Raises:
        UsageError: It is none, or a column has a type that SQL has not.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._schema = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise UsageError(f"{path}: {error}") from None
        self.columns: Sequence[str] = self._schema.names
        self._types = [_declared(path, field) for field in self._schema]

    def rows(self, types: Sequence[str]) -> Iterator[tuple[SqlValue, ...]]:
        """Iterate over its rows; see `FileRows.rows`."""
        return checked_rows(self._path, self.columns, self._values(), types)

    def _values(self) -> Iterator[tuple[SqlValue, ...]]:
        try:
            with pq.ParquetFile(self._path) as file:
                for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                    columns = [[_plain(value) for value in _listed(column)] for column in batch.columns]
                    yield from zip(*columns, strict=True)
        except (pa.ArrowException, OSError) as error:
            raise UsageError(f"{self._path}: {error}") from None

    def create(self, table: str) -> str:
        """Return the statement that makes a table for them."""
        return created(table, self.columns, self._types)


def _declared(path: Path, field: Any) -> str:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    for is_kind, declared in (
        (pa.types.is_boolean, "BOOLEAN"), (pa.types.is_integer, "INTEGER"), (pa.types.is_floating, "REAL"),
        (pa.types.is_string, "TEXT"), (pa.types.is_large_string, "TEXT"), (pa.types.is_binary, "BLOB"),
        (pa.types.is_large_binary, "BLOB"), (pa.types.is_fixed_size_binary, "BLOB"), (pa.types.is_date, "DATE"),
        (pa.types.is_time, "TIME"), (pa.types.is_timestamp, "TIMESTAMP"), (pa.types.is_decimal, "NUMERIC"),
        (pa.types.is_null, ""),
    ):  # fmt: skip
        if is_kind(kind):
            return declared
    raise UsageError(
        f"{path}: the column {field.name} is {kind}, which SQL does not have: leave it out, or make it a text"
    )


def _listed(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz))  # Nanoseconds that are not zero are refused.
    elif pa.types.is_time64(column.type) and column.type.unit == "ns":
        column = column.cast(pa.time64("us"))
    return column.to_pylist()  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    if isinstance(value, datetime):
        return (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat(sep=" ")
    return str(value) if isinstance(value, Decimal) else value.isoformat()


class ParquetSink:
    """A Parquet file that is written. For one thread.

    Args:
        path: Of it.
        columns: Name and declared type of each.
        first: First rows: where a column has no type that says more, their values do.

    """

    def __init__(self, path: Path, columns: Sequence[tuple[str, str]], first: Sequence[Sequence[SqlValue]]) -> None:
        self._schema = pa.schema([
            (name, _arrow_type(declared, [row[place] for row in first]))
            for place, (name, declared) in enumerate(columns)
        ])  # fmt: skip
        self._writer = pq.ParquetWriter(path, self._schema)
        self._count = 0

    def put(self, rows: Sequence[Sequence[SqlValue]]) -> None:
        """Write rows.

        Raises:
            UsageError: A value is none of its column.

        """
        arrays = []
        for place, field in enumerate(self._schema):
            values = [row[place] for row in rows]
            if pa.types.is_floating(field.type):
                values = [float(value) if isinstance(value, int) else value for value in values]
            try:
                arrays.append(pa.array(values, field.type))
            except (pa.ArrowException, TypeError) as error:
                raise UsageError(
                    f"column {field.name}, rows from {self._count + 1} on: not all values are {field.type} ({error}): "
                    "CAST them in a --query"
                ) from None
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._count += len(rows)

    def close(self) -> None:
        """End the file."""
        self._writer.close()


def _arrow_type(declared: str, values: Sequence[SqlValue]) -> Any:
    match affinity_of(declared):
        case Affinity.INTEGER:
            return pa.int64()
        case Affinity.REAL:
            return pa.float64()
        case Affinity.TEXT:
            return pa.string()
        case Affinity.BLOB if declared:
            return pa.binary()
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int, float}:
        return pa.int64() if kinds == {int} else pa.float64()
    return pa.binary() if kinds == {bytes} else pa.string()
