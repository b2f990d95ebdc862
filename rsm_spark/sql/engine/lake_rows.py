r"""SQL tables as typed tables of the lake: rows of a snapshot by the columns that the SQL of its catalog declares.

SQLite gives a value its own type, whatever its column declares. So a column has the declared type where all its values
are of it, or else the one that its values have. Where they are mixed it is text: numbers as SQL writes them, bytes as
``\x`` and hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

import msgspec

from rsm_spark.core.machine import Field, FieldType, Row
from rsm_spark.core.row_tables import RowTable
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.sql.engine.past_tables import PastTable, past_table
from rsm_spark.sql.records import CATALOG, ROWS, CatalogRow

_decode = msgspec.msgpack.decode
_EXACT: Final = 1 << 53
"""Integers up to here are floats without loss."""


class _Kind(Enum):
    """Kind of a value; LONG is an integer that no float holds exactly."""

    BIT = "bit"
    INTEGER = "integer"
    LONG = "long"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"


class SqlRowTables:
    """Tables of one state; see `RowTables`."""

    def __init__(self) -> None:
        self._catalog: dict[int, tuple[str, CatalogRow]] = {}
        self._known: dict[int, PastTable] = {}
        # By table, the types of the values in each column.
        self._kinds: dict[int, list[set[_Kind]]] = {}

    def look(self, row: Row) -> str | None:
        """Take note of an object, or of the types of a row's values."""
        if row.table == CATALOG:
            found = CatalogRow(*_decode(row.row))
            if found.kind == "table":
                self._catalog[found.number] = (_decode(row.key)[0], found)
            return None
        if row.table != ROWS:
            return None
        number, key = _decode(row.key)
        table = self._table(number)
        kinds = self._kinds.get(number)
        if kinds is None:
            kinds = self._kinds[number] = [set() for _ in table.columns]
        for seen, value in zip(kinds, _values(table, key, row.row), strict=True):
            if value is not None:
                seen.add(_kind(value))
        return table.name

    def name_of(self, row: Row) -> str | None:
        """Return the name of a row's table."""
        return self._table(_decode(row.key)[0]).name if row.table == ROWS else None

    def tables(self) -> Mapping[str, RowTable]:
        """Return the tables of the catalog."""
        found: dict[str, RowTable] = {}
        for number in sorted(self._catalog):
            table = self._table(number)
            kinds: Sequence[set[_Kind]] = self._kinds.get(number) or [set()] * len(table.columns)
            types = [_type(declared, seen) for declared, seen in zip(table.declared, kinds, strict=True)]
            fields = tuple(Field(name, kind, nullable=True) for name, kind in zip(table.columns, types, strict=True))
            converts = tuple(map(_CONVERTS.get, types))
            found[table.name] = RowTable(table.name, fields, partial(_typed, table, converts), has_revisions=False)
        return found

    def _table(self, number: int) -> PastTable:
        found = self._known.get(number)
        if found is None:
            if number not in self._catalog:
                raise CorruptSnapshotError(f"a row is of table {number}, which is not in the catalog before it")
            name, row = self._catalog[number]
            found = self._known[number] = past_table(name, number, row.sql)
        return found


def _values(table: PastTable, key: bytes, image: bytes) -> tuple[Any, ...]:
    """Return the values of a row in the order of the columns."""
    (packed,) = _decode(image)
    return tuple(table.row_of(key, table.values_of(packed)).values())


def _typed(table: PastTable, converts: Sequence[Callable[[Any], Any] | None], row: Row) -> tuple[Any, ...]:
    _, key = _decode(row.key)
    return tuple(
        value if value is None or convert is None else convert(value)
        for value, convert in zip(_values(table, key, row.row), converts, strict=True)
    )


def _kind(value: Any) -> _Kind:
    match value:
        case int():
            return _Kind.BIT if value in {0, 1} else _Kind.INTEGER if abs(value) <= _EXACT else _Kind.LONG
        case float():
            return _Kind.FLOAT
        case str():
            return _Kind.TEXT
    return _Kind.BYTES


_INTEGERS: Final = frozenset({_Kind.BIT, _Kind.INTEGER, _Kind.LONG})
_NUMBERS: Final = frozenset({_Kind.BIT, _Kind.INTEGER, _Kind.FLOAT})


def _type(declared: str, seen: set[_Kind]) -> FieldType:
    """Return the type of a column by what it declares and what it holds."""
    wanted = _declared(declared)
    if not seen:
        return wanted
    if seen == {_Kind.BIT} and wanted is FieldType.BOOL:
        return FieldType.BOOL
    if seen <= _INTEGERS and (wanted is not FieldType.FLOAT or _Kind.LONG in seen):
        return FieldType.INT
    if seen <= _NUMBERS:
        return FieldType.FLOAT
    return FieldType.BYTES if seen == {_Kind.BYTES} else FieldType.STR


def _declared(declared: str) -> FieldType:
    """Return the type that a declared one means, by SQLite's rules of affinity; text where it means none."""
    upper = declared.upper()
    for words, kind in (
        (("BOOL",), FieldType.BOOL), (("INT",), FieldType.INT), (("CHAR", "CLOB", "TEXT"), FieldType.STR),
        (("BLOB",), FieldType.BYTES), (("REAL", "FLOA", "DOUB"), FieldType.FLOAT),
    ):  # fmt: skip
        if any(word in upper for word in words):
            return kind
    return FieldType.STR


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case bytes():
            return "\\x" + value.hex()
    return repr(value)


_CONVERTS: Final[dict[FieldType, Callable[[Any], Any]]] = {
    FieldType.BOOL: bool,
    FieldType.FLOAT: float,
    FieldType.STR: _text,
}
