"""SQL tables as typed tables of the lake: rows of a snapshot by the columns that the SQL of its catalog declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from rsm_spark.core.machine import Field, Row
from rsm_spark.core.row_tables import RowTable
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.sql.engine.column_kinds import CONVERTS, ValueKind, kind_of, type_of
from rsm_spark.sql.engine.past_tables import PastTable, past_table
from rsm_spark.sql.records import CATALOG, ROWS, CatalogRow

_decode = msgspec.msgpack.decode


class SqlRowTables:
    """Tables of one state; see `RowTables`."""

    def __init__(self) -> None:
        self._catalog: dict[int, tuple[str, CatalogRow]] = {}
        self._known: dict[int, PastTable] = {}
        # By table, the types of the values in each column.
        self._kinds: dict[int, list[set[ValueKind]]] = {}

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
                seen.add(kind_of(value))
        return table.name

    def name_of(self, row: Row) -> str | None:
        """Return the name of a row's table."""
        return self._table(_decode(row.key)[0]).name if row.table == ROWS else None

    def tables(self) -> Mapping[str, RowTable]:
        """Return the tables of the catalog."""
        found: dict[str, RowTable] = {}
        for number in sorted(self._catalog):
            table = self._table(number)
            kinds: Sequence[set[ValueKind]] = self._kinds.get(number) or [set()] * len(table.columns)
            types = [type_of(declared, seen) for declared, seen in zip(table.declared, kinds, strict=True)]
            fields = tuple(Field(name, kind, nullable=True) for name, kind in zip(table.columns, types, strict=True))
            converts = tuple(map(CONVERTS.get, types))
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
