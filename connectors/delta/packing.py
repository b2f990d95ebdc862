"""Rows between the log's bytes and Arrow's columns, and back with the same bytes. Pure.

All values of a column are decoded in one go, no list is made a row: a merge of 100,000 keys passes here three times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from connectors.delta.columns import REVISION_COLUMN, FollowedTable, listed_fields
from connectors.errors import DeltaSinkError
from rsm_spark.core.column_types import column_type
from rsm_spark.core.digest import row_term, table_prefix
from rsm_spark.core.machine import Field
from rsm_spark.core.records import pack
from rsm_spark.snapshots.column_arrays import arrow_array, converted, to_log

_DECODER = msgspec.msgpack.Decoder(list[Any])
_LONG_HEAD = b"\xdd"  # msgpack: an array with four bytes of length
_NIL = b"\xc0"
_FIX_ARRAY_MAX = 15


class PackedRows(NamedTuple):
    """Rows of one table as the log has them; three lists of the same length.

    Attributes:
        keys: msgpack arrays of their keys.
        rows: msgpack arrays of their other columns; None = no row.
        revisions: Of the records that wrote them.

    """

    keys: list[bytes]
    rows: list[bytes | None]
    revisions: list[int]

    def select(self, numbers: Sequence[int]) -> PackedRows:
        """Return some of them, by their places in the lists."""
        if len(numbers) == len(self.keys):
            return self
        keys, rows, revisions = self
        return PackedRows([keys[n] for n in numbers], [rows[n] for n in numbers], [revisions[n] for n in numbers])


def arrow_columns(followed: FollowedTable, packed: PackedRows) -> list[pa.Array[Any]]:
    """Return key and other columns of rows of the log; null where there is no row, or where it lacks the column.

    Raises:
        DeltaSinkError: A row does not have the described number of columns, or a value does not fit.

    """
    width = len(followed.row)
    if followed.width_at(0) == width:
        bodies = _bodies(followed.name, packed.rows, packed.revisions, width)
    else:
        bodies = [
            _widened(followed, row, revision, width)
            for row, revision in zip(packed.rows, packed.revisions, strict=True)
        ]
    columns = _columns(bodies, width)
    fields = [column.field for column in followed.row]
    return key_columns(followed, packed) + [
        _array(followed.name, field, column, is_key=False) for field, column in zip(fields, columns, strict=True)
    ]


def key_columns(followed: FollowedTable, packed: PackedRows) -> list[pa.Array[Any]]:
    """Return the key columns of rows of the log.

    Raises:
        DeltaSinkError: A key does not have the described number of columns, or a value does not fit.

    """
    width = len(followed.key)
    columns = _columns(_bodies(followed.name, packed.keys, packed.revisions, width), width)
    return [
        _array(followed.name, field, column, is_key=True) for field, column in zip(followed.key, columns, strict=True)
    ]


def _bodies(table: str, packed: Sequence[bytes | None], revisions: Sequence[int], width: int) -> list[bytes]:
    """Return what follows the heads of msgpack arrays, all of which have so many elements."""
    head = _array_head(width)
    length = len(head)
    for number, one in enumerate(packed):
        if one is not None and not one.startswith(head):
            raise DeltaSinkError(
                f"table {table}: a key or row of record {revisions[number]} has {len(msgspec.msgpack.decode(one))} "
                f"columns, the machine describes {width}"
            )
    nothing = _NIL * width
    return [nothing if one is None else one[length:] for one in packed]


def _widened(followed: FollowedTable, row: bytes | None, revision: int, width: int) -> bytes:
    present = width if row is None else followed.width_at(revision)
    return _bodies(followed.name, [row], [revision], present)[0] + _NIL * (width - present)


def _array_head(count: int) -> bytes:
    return bytes((0x90 | count,)) if count <= _FIX_ARRAY_MAX else b"\xdc" + count.to_bytes(2, "big")


def _columns(bodies: Sequence[bytes], width: int) -> list[list[Any]]:
    """Decode the elements of arrays of the same length; return them by place."""
    flat = _DECODER.decode(b"".join((_LONG_HEAD, (len(bodies) * width).to_bytes(4, "big"), *bodies)))
    return [flat[place::width] for place in range(width)]


def _array(table: str, field: Field, values: Sequence[Any], *, is_key: bool) -> pa.Array[Any]:
    # Exactly this one: 1 where a float is described would come back as 1.0, which has other bytes.
    strange = {type(value) for value in values} - {column_type(field).kept}
    if not is_key:
        strange.discard(type(None))
    if strange:
        raise DeltaSinkError(
            f"table {table}: a value does not fit its described column {listed_fields([field])}: it is of type "
            f"{', '.join(sorted(kind.__name__ for kind in strange))}"
        )
    try:
        return arrow_array(field, values)
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
        raise DeltaSinkError(
            f"table {table}: a value does not fit its described column {listed_fields([field])}: {error}"
        ) from error


def packed_rows(followed: FollowedTable, rows: pa.Table) -> PackedRows:
    """Return rows of a Delta table as the log has them; the inverse of `arrow_columns`.

    Args:
        followed: The table.
        rows: Its columns and `_revision`, by name.

    """
    count = rows.num_rows
    revisions: list[Any] = rows.column(REVISION_COLUMN).to_pylist()
    keys = _packed([_in_log(field, rows) for field in followed.key], count)
    columns = [_in_log(column.field, rows) for column in followed.row]
    packed: list[bytes | None] = []
    if followed.width_at(0) == len(followed.row):
        packed += _packed(columns, count)
    else:
        values: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
        packed += [pack(row[: followed.width_at(at)]) for row, at in zip(values, revisions, strict=True)]
    return PackedRows(keys, packed, revisions)


def _in_log(field: Field, rows: pa.Table) -> Sequence[Any]:
    return converted(rows.column(field.name).to_pylist(), to_log(field))


def _packed(columns: Sequence[Sequence[Any]], count: int) -> list[bytes]:
    return list(map(pack, zip(*columns, strict=True))) if columns else [pack(())] * count


def terms_of(rows: pa.Table, followed: FollowedTable) -> int:
    """Return the sum of what the rows of a Delta table add to a digest (not reduced)."""
    prefix, packed = table_prefix(followed.name), packed_rows(followed, rows)
    return sum(row_term(prefix, key, row) for key, row in zip(packed.keys, packed.rows, strict=True) if row is not None)
