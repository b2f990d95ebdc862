"""The rows that changes come to, and rows of one table with its own columns. Arrow in, Arrow out; no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from connectors.errors import OptionError
from connectors.source.arrow import column_of, repeated
from connectors.spark_types import spark_type
from connectors.state.blocks import KeyedChanges, keyed_changes
from connectors.state.parts import merge_parts
from rsm_spark.core.machine import MachineDescription, TableDescription
from rsm_spark.core.records import SESSIONS_TABLE
from rsm_spark.errors import CorruptLogError
from rsm_spark.snapshots.column_arrays import arrow_array, arrow_type

ROWS_DDL = "table_name string, key binary, row binary, revision bigint"
ROW_COLUMNS = [(name, kind) for name, kind in (part.split(" ") for part in ROWS_DDL.split(", "))]
_ROW_FIELDS: list[pa.Field[Any]] = [
    pa.field("table_name", pa.string()),
    pa.field("key", pa.binary()),
    pa.field("row", pa.binary()),
    pa.field("revision", pa.int64()),
]
ROWS_ARROW = pa.schema(_ROW_FIELDS)
"""Rows of a state: canonical bytes of key and other columns, and the revision of the record that last wrote the row."""

_REVISION = "_revision"
_ROWS_PER_BATCH = 10_000
_VALUES = msgspec.msgpack.Decoder(list[Any])


def read_rows(blocks: Iterable[pa.RecordBatch], *, with_gone: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the rows that changes come to, in `ROWS_ARROW`.

    Args:
        blocks: As for `blocks.keyed_changes`.
        with_gone: Also yield keys whose last change is a delete, with a null row.

    Raises:
        CorruptLogError: A session goes on that is not open.

    """
    for changes in keyed_changes(blocks):
        ends = np.append(np.flatnonzero(~changes.is_same), len(changes.revisions) - 1)
        for first in range(0, len(ends), _ROWS_PER_BATCH):
            yield _rows_of(changes, ends, slice(first, first + _ROWS_PER_BATCH), with_gone=with_gone)


def _rows_of(changes: KeyedChanges, ends: NDArray[np.int64], some: slice, *, with_gone: bool) -> pa.RecordBatch:
    """Return the rows of some of the keys.

    Args:
        changes: Of all keys.
        ends: The last one of each key.
        some: Which of these.
        with_gone: See `read_rows`.

    """
    places = column_of(ends[some], pa.int64())
    rows = changes.rows.take(places)
    if changes.table == SESSIONS_TABLE:
        begins = np.insert(ends[:-1] + 1, 0, 0)
        parts: list[Any] = changes.rows.to_pylist()
        ranges = zip(begins[some].tolist(), ends[some].tolist(), strict=True)
        rows = column_of([merge_parts(parts[begin : end + 1]) for begin, end in ranges], pa.binary())
    columns = [
        repeated(changes.table, len(rows)),
        changes.keys.take(places),
        rows,
        column_of(changes.revisions[ends[some]], pa.int64()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=ROWS_ARROW)
    return batch if with_gone else batch.filter(rows.is_valid())


class TypedTable(msgspec.Struct, frozen=True):
    """One table of a machine with its own columns; pickled to tasks.

    Attributes:
        table: Its description.

    """

    table: TableDescription

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Names and types of its columns in Spark's words, `_revision` last."""
        fields = (*self.table.key, *self.table.row)
        return [*((field.name, spark_type(field)) for field in fields), (_REVISION, "bigint")]

    @property
    def ddl(self) -> str:
        """The same as Spark writes columns."""
        return ddl_of(self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The same for Arrow."""
        fields = [pa.field(field.name, arrow_type(field)) for field in (*self.table.key, *self.table.row)]
        return pa.schema([*fields, pa.field(_REVISION, pa.int64())])

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of this table with its columns; columns that a row did not have yet are null.

        Args:
            batches: In `ROWS_ARROW`, of any tables.

        Raises:
            CorruptLogError: A row has more columns than are described, or a value does not fit its column.

        """
        keys, others = len(self.table.key), len(self.table.row)
        schema = self.schema
        fields = (*self.table.key, *self.table.row)
        for batch in batches:
            mine = batch.filter(pc.equal(batch.column("table_name"), pa.scalar(self.table.name)))
            if not mine.num_rows:
                continue
            columns = _columns(mine.column("key").to_pylist(), keys, self.table.name)
            columns += _columns(mine.column("row").to_pylist(), others, self.table.name)
            try:
                arrays = [arrow_array(field, column) for field, column in zip(fields, columns, strict=True)]
            except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
                raise CorruptLogError(
                    f"table {self.table.name}: a value does not fit its described column: {error}"
                ) from error
            yield pa.RecordBatch.from_arrays([*arrays, mine.column("revision")], schema=schema)


def _columns(packed: list[Any], width: int, table: str) -> list[Any]:
    values = [_VALUES.decode(text) for text in packed]
    for value in values:
        if len(value) != width:
            if len(value) > width:
                raise CorruptLogError(
                    f"table {table}: a row has {len(value)} columns, {width} are described: its machine was changed "
                    "meanwhile; read the rows without naming the table"
                )
            value.extend([None] * (width - len(value)))
    return [list(column) for column in zip(*values, strict=True)]


def ddl_of(columns: Iterable[tuple[str, str]]) -> str:
    """Return columns as Spark writes them."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns)


def typed_table(machine: MachineDescription, name: str) -> TypedTable:
    """Return a table by its name.

    Raises:
        OptionError: The machine has none of that name; the message lists those it has.
        CorruptLogError: Its columns cannot be told apart.

    """
    for table in machine.tables:
        if table.name == name:
            names = [field.name for field in (*table.key, *table.row)]
            if len({*names, _REVISION}) <= len(names):
                raise CorruptLogError(f"table {name}: its columns {', '.join(names)} are not unique, or taken by ours")
            return TypedTable(table)
    known = ", ".join(table.name for table in machine.tables) or "none"
    raise OptionError(f"option table: machine {machine.name} has no table {name}: its tables are {known}")
