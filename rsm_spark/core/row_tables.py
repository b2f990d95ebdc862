"""Typed tables that the rows of a state are: those that its machine describes, or that it keeps in them. Pure.

Rows are looked at twice, in the same order: first so that it is known which tables and columns there are, then for
their values. A machine whose described tables are not what people ask for, as that of SQL tables, says itself what they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from rsm_spark.core.column_types import default_in_log
from rsm_spark.core.machine import Field, MachineDescription, Row, TableDescription
from rsm_spark.errors import CorruptSnapshotError

_decode = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class RowTable(NamedTuple):
    """A typed table.

    Attributes:
        name: Of it.
        fields: Its columns, key columns first where they are described so.
        values: Returns the values of a row by column, as the log holds them.
        has_revisions: A row's revision is that of the record that wrote it last.

    """

    name: str
    fields: tuple[Field, ...]
    values: Callable[[Row], tuple[Any, ...]]
    has_revisions: bool = True


class RowTables(Protocol):
    """The typed tables of one state."""

    def look(self, row: Row) -> str | None:
        """Take note of a row, the first time; return the name of its table, None = it is in none.

        Raises:
            CorruptSnapshotError: The row is none of this machine.

        """
        ...

    def tables(self) -> Mapping[str, RowTable]:
        """Return the tables by name, those without rows too; to be asked when all rows were looked at."""
        ...

    def name_of(self, row: Row) -> str | None:
        """Return the name of a row's table, the second time."""
        ...


@runtime_checkable
class TabledMachine(Protocol):
    """A machine that keeps tables in its rows which its description does not tell. Optional."""

    def row_tables(self) -> RowTables:
        """Return the tables of a state, not yet known."""
        ...


class DescribedTables:
    """Tables as a machine describes them; the kernel's own rows are in none.

    A row that was written before a column came has its default. A column that was dropped is left out.

    Args:
        description: Of the machine.

    """

    def __init__(self, description: MachineDescription) -> None:
        self._tables = {table.name: _described(table) for table in description.tables}

    def look(self, row: Row) -> str | None:
        """Return the name of its table."""
        return self.name_of(row)

    def tables(self) -> Mapping[str, RowTable]:
        """Return the described tables."""
        return self._tables

    def name_of(self, row: Row) -> str | None:
        """Return the name of its table."""
        return row.table if row.table in self._tables else None


def _described(table: TableDescription) -> RowTable:
    fields, defaults = (*table.key, *table.row), tuple(map(default_in_log, table.row))
    kept = [place for place, field in enumerate(fields) if not field.dropped]

    def values(row: Row) -> tuple[Any, ...]:
        key, others = _decode(row.key), _decode(row.row)
        if len(key) != len(table.key):
            raise CorruptSnapshotError(f"a row of table {table.name} has {len(key)} key columns, not {len(table.key)}")
        whole = (*key, *others, *defaults[len(others) :])
        return tuple(whole[place] for place in kept)

    return RowTable(table.name, tuple(fields[place] for place in kept), values)
