"""The tables of the history: names, columns, keys, and how a batch of rows goes into each.

tasks, workers       a row that is there is replaced
attempts             what a batch says of an attempt is added to what is known of it
waits, policies      rows are appended: each is one record's own
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.history.rows import AttemptRow, HistoryTask, HistoryWorker, PolicyRow, WaitRow

_TIME = pa.timestamp("us", tz="UTC")
_TYPES: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.binary(),
}
_REVISION_COLUMN = "_revision"


class Writing(StrEnum):
    """Ways to write rows to a table. FILL: a column that is null in a row stays as it was."""

    REPLACE = "replace"
    FILL = "fill"
    APPEND = "append"


class HistoryTable(NamedTuple):
    """One table.

    Attributes:
        name: Also of its folder.
        row: Struct of a row; its fields are the columns.
        keys: Columns of the key.
        writing: How a batch goes in.
        partition: Column that it is partitioned by, or None.
        once: Columns of which the first value that is known stays.
        kept: Columns that stay where a batch has null.
        fields: Names of the struct's fields in the order of the columns.
        schema: The columns.

    """

    name: str
    row: type[msgspec.Struct]
    keys: tuple[str, ...]
    writing: Writing
    partition: str | None
    once: tuple[str, ...]
    kept: tuple[str, ...]
    fields: tuple[str, ...]
    schema: pa.Schema


def _table(
    name: str,
    row: type[msgspec.Struct],
    keys: tuple[str, ...],
    writing: Writing,
    *,
    once: tuple[str, ...] = (),
    kept: tuple[str, ...] = (),
) -> HistoryTable:
    hints = get_type_hints(row)
    # What users look for first stands first.
    own = [field for field in row.__struct_fields__ if field in keys or field not in {"day", "revision"}]
    fields = (*own, *(field for field in ("day", "revision") if field in hints and field not in own))
    columns: list[pa.Field[Any]] = []
    for field in fields:
        column = _REVISION_COLUMN if field == "revision" and field not in keys else field
        columns.append(pa.field(column, _type(field, hints[field]), nullable=field not in keys))
    partition = "day" if "day" in fields else None
    return HistoryTable(name, row, keys, writing, partition, once, kept, fields, pa.schema(columns))


def _type(field: str, hint: Any) -> pa.DataType:
    if field.endswith("_at"):
        return _TIME
    if field == "day":
        return pa.date32()
    known = [kind for kind in _TYPES if hint is kind or kind in getattr(hint, "__args__", ())]
    return _TYPES[known[0]]


HISTORY_TABLES: dict[str, HistoryTable] = {
    table.name: table
    for table in (
        _table("policies", PolicyRow, ("revision",), Writing.APPEND),
        _table("workers", HistoryWorker, ("worker_id", "incarnation"), Writing.REPLACE),
        _table(
            "attempts",
            AttemptRow,
            ("assignment_id",),
            Writing.FILL,
            once=("first_report_at", "late_at", "late_status"),
        ),
        _table("waits", WaitRow, ("assignment_id",), Writing.APPEND),
        _table("tasks", HistoryTask, ("task_id",), Writing.REPLACE, kept=("payload", "result")),
    )
}
"""In the order in which a micro-batch goes into them: see `connectors.history.tables`."""


def to_arrow(rows: Sequence[msgspec.Struct], table: HistoryTable) -> pa.Table:
    """Return rows as columns."""
    arrays: list[Any] = []
    for field, column in zip(table.fields, table.schema, strict=True):
        values = [getattr(row, field) for row in rows]
        if column.type == _TIME:
            arrays.append(pa.array(values, pa.timestamp("ms", tz="UTC")).cast(_TIME))
        else:
            arrays.append(pa.array(values, column.type))
    return pa.Table.from_arrays(arrays, schema=table.schema)


def from_arrow(columns: pa.Table, table: HistoryTable) -> list[Any]:
    """Return columns as rows; columns that are missing are left at their defaults."""
    named: dict[str, list[Any]] = {}
    for field, column in zip(table.fields, table.schema, strict=True):
        if column.name not in columns.column_names:
            continue
        values = columns.column(column.name).cast(column.type)
        if column.type == _TIME:
            values = pc.divide(values.cast(pa.int64()), 1000)
        elif column.type == pa.date32():
            values = values.cast(pa.int32())
        named[field] = values.to_pylist()
    return [table.row(**dict(zip(named, values, strict=True))) for values in zip(*named.values(), strict=True)]
