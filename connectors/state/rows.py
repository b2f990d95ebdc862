"""The rows that sorted changes come to, and rows of one table with its own columns. Arrow in, Arrow out; no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.errors import OptionError
from connectors.spark_types import spark_type
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
_VALUES = msgspec.msgpack.Decoder(list[Any])


def read_rows(batches: Iterable[pa.RecordBatch], *, with_gone: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the rows that changes come to, in `ROWS_ARROW`.

    Args:
        batches: Changes with the columns of `ROWS_ARROW`, all of a key together, sorted by table, key and revision.
        with_gone: Also yield keys whose last change is a delete, with a null row.

    Raises:
        CorruptLogError: A session goes on that is not open.

    """
    held: pa.Table | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch]).select(ROWS_ARROW.names).cast(ROWS_ARROW)
        table = table if held is None else pa.concat_tables([held, table])
        if not table.num_rows:
            continue
        # What may go on in the next batch waits for it: the last key's changes.
        border = _begin_of_last(table)
        held = table.slice(border)
        if border:
            yield from _rows_of(table.slice(0, border).combine_chunks(), with_gone=with_gone)
    if held is not None:
        yield from _rows_of(held.combine_chunks(), with_gone=with_gone)


def _same_as_next(table: pa.Table) -> Any:
    """Return for each row but the last whether the next one is of the same key."""
    count = table.num_rows - 1
    same = [
        pc.equal(table.column(name).slice(0, count), table.column(name).slice(1, count)).to_numpy()
        for name in ("table_name", "key")
    ]
    return same[0] & same[1]


def _begin_of_last(table: pa.Table) -> int:
    borders = np.flatnonzero(~_same_as_next(table))
    return int(borders[-1]) + 1 if len(borders) else 0


def _rows_of(table: pa.Table, *, with_gone: bool) -> Iterator[pa.RecordBatch]:
    ends = np.append(np.flatnonzero(~_same_as_next(table)), table.num_rows - 1)
    last = table.take(ends)
    is_session = pc.equal(table.column("table_name"), pa.scalar(SESSIONS_TABLE)).to_numpy()
    if is_session.any():
        rows: list[Any] = last.column("row").to_pylist()
        begins = np.insert(ends[:-1] + 1, 0, 0)
        parts: list[Any] = table.column("row").to_pylist()
        for place in np.flatnonzero(is_session[ends]):
            rows[place] = merge_parts(parts[begins[place] : ends[place] + 1])
        last = last.set_column(last.schema.get_field_index("row"), _ROW_FIELDS[2], pa.array(rows, pa.binary()))
    if not with_gone:
        last = last.filter(last.column("row").is_valid())
    yield from last.combine_chunks().to_batches()


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
