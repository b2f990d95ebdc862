"""A micro-batch of records becomes at most one change per key: the last record wins. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.errors import DeltaSinkError, SinkGapError
from rsm_spark.core.digest import row_term, table_prefix
from rsm_spark.core.machine import Field, FieldType, Fold, TableDescription
from rsm_spark.core.records import pack

__all__ = [
    "DELETED_COLUMN",
    "RECORD_COLUMNS",
    "REVISION_COLUMN",
    "BatchEnd",
    "Changes",
    "fold_records",
    "table_schema",
    "terms_of",
]

REVISION_COLUMN = "_revision"
"""Column of a follower table: revision of the record that last wrote the row."""

DELETED_COLUMN = "_deleted"

RECORD_COLUMNS = ("revision", "ledger_id", "entry_id", "table_name", "fold", "key", "row", "entry_hash")
"""Columns of `rows=records` that the fold needs."""

_ARROW_TYPES: dict[FieldType, pa.DataType] = {
    FieldType.INT: pa.int64(),
    FieldType.FLOAT: pa.float64(),
    FieldType.BOOL: pa.bool_(),
    FieldType.STR: pa.string(),
    FieldType.BYTES: pa.binary(),
}
_DECODER = msgspec.msgpack.Decoder(list[Any])


class BatchEnd(NamedTuple):
    """Last entry of a micro-batch."""

    revision: int
    ledger_id: int
    entry_id: int
    prefix_hash: bytes


class Changes(NamedTuple):
    """What a micro-batch does to a table.

    Attributes:
        rows: One row a key: the table's columns, `_revision` and `_deleted`.
        end: Where the table is afterwards; None if everything had been applied before.

    """

    rows: pa.Table
    end: BatchEnd | None


def table_schema(table: TableDescription) -> pa.Schema:
    """Return the Arrow schema of a follower table: key, other columns, `_revision`."""
    names = [field.name for field in (*table.key, *table.row)]
    if len(set(names)) < len(names) or {REVISION_COLUMN, DELETED_COLUMN} & set(names):
        raise DeltaSinkError(f"table {table.name}: its columns {', '.join(names)} are not unique, or taken by ours")
    fields = [_arrow_field(field, is_key=True) for field in table.key]
    fields += [_arrow_field(field, is_key=False) for field in table.row]
    return pa.schema([*fields, pa.field(REVISION_COLUMN, pa.int64(), nullable=False)])


def _arrow_field(field: Field, *, is_key: bool) -> pa.Field[Any]:
    return pa.field(field.name, _ARROW_TYPES[field.type], nullable=not is_key)


def fold_records(records: pa.Table, table: TableDescription, revision: int) -> Changes:
    """Fold a micro-batch.

    Args:
        records: `RECORD_COLUMNS` of all records of a range of the log, in any order.
        table: The table followed.
        revision: Last record that is in the table already: it and those before are left out.

    Raises:
        SinkGapError: The records do not go on where the table stands, or have a gap.
        DeltaSinkError: A value does not fit its column.

    """
    ordered = records.sort_by("revision")
    revisions = ordered.column("revision").to_numpy()
    new_count = int((revisions > revision).sum())
    if new_count == 0:
        return Changes(_changes_table([], [], [], table), None)
    fresh = ordered.slice(len(revisions) - new_count)
    first, last = int(revisions[-new_count]), int(revisions[-1])
    if first != revision + 1 or last - first + 1 != new_count:
        raise SinkGapError(
            f"the table ends with record {revision}, the micro-batch has {new_count} records {first} to {last}: "
            "records are missing in between"
        )
    tail = fresh.slice(new_count - 1).to_pylist()[0]
    end = BatchEnd(last, tail["ledger_id"], tail["entry_id"], tail["entry_hash"])
    folds = fresh.filter(pc.equal(fresh.column("table_name"), pa.scalar(table.name)))
    keys: list[Any] = folds.column("key").to_pylist()
    # Later records overwrite earlier ones: rows are in the order of revisions.
    last_of = dict(zip(keys, range(len(keys)), strict=True))
    chosen = folds.take(pa.array(last_of.values(), pa.int64()))
    rows: list[bytes | None] = chosen.column("row").to_pylist()
    is_delete = [fold == Fold.DELETE for fold in chosen.column("fold").to_pylist()]
    packed = [None if gone else row for row, gone in zip(rows, is_delete, strict=True)]
    written: list[Any] = chosen.column("revision").to_pylist()
    return Changes(_changes_table(list(last_of), packed, written, table), end)


def _changes_table(
    keys: Sequence[bytes], rows: Sequence[bytes | None], revisions: Sequence[int], table: TableDescription
) -> pa.Table:
    schema = table_schema(table)
    key_columns = _columns(keys, len(table.key), table.name)
    row_columns = _columns(rows, len(table.row), table.name)
    fields = [field.with_nullable(nullable=True) for field in schema] + [pa.field(DELETED_COLUMN, pa.bool_())]
    columns = [*key_columns, *row_columns, list(revisions), [row is None for row in rows]]
    try:
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, fields, strict=True)]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise DeltaSinkError(f"table {table.name}: a value does not fit its described column: {error}") from error
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _columns(packed: Sequence[bytes | None], width: int, table: str) -> list[list[Any]]:
    nothing = [None] * width
    values = [nothing if text is None else _DECODER.decode(text) for text in packed]
    if any(len(value) != width for value in values):
        raise DeltaSinkError(f"table {table}: a record has another number of columns than the machine describes")
    return [list(column) for column in zip(*values, strict=True)] if values else [[] for _ in range(width)]


def terms_of(rows: pa.Table, table: TableDescription) -> int:
    """Return the sum of what these rows add to a digest (not reduced).

    Args:
        rows: The table's key and other columns, by name.
        table: Its description.

    """
    prefix = table_prefix(table.name)
    keys = [rows.column(field.name).to_pylist() for field in table.key]
    others = [rows.column(field.name).to_pylist() for field in table.row]
    packed_keys = [pack(values) for values in zip(*keys, strict=True)]
    packed_rows = [pack(values) for values in zip(*others, strict=True)] if others else [pack(())] * len(packed_keys)
    return sum(row_term(prefix, key, row) for key, row in zip(packed_keys, packed_rows, strict=True))
