"""The ids that AUTOINCREMENT has given: SQLite's hooks do not tell of them, and a failover must not give one again."""

from __future__ import annotations

from rsm_spark.core.machine import RowChange
from rsm_spark.core.records import pack
from rsm_spark.sql.engine.catalog import SqlCatalog
from rsm_spark.sql.engine.shapes import Execute, TableShape
from rsm_spark.sql.engine.touched import MadeRecord
from rsm_spark.sql.records import SEQUENCES, SqlRecord


class SequenceTable:
    """The highest id of each table, by its number, beside `sqlite_sequence`.

    Args:
        execute: Runs a statement of the replica itself.
        catalog: Of the tables.

    Attributes:
        values: By the table's number, as the log knows them.

    """

    def __init__(self, execute: Execute, catalog: SqlCatalog) -> None:
        self._execute = execute
        self._catalog = catalog
        self.values: dict[int, int] = {}

    def load(self) -> None:
        """Read what the file has: at the beginning, and after a rollback."""
        self.values = self._present()

    def _present(self) -> dict[int, int]:
        if not self._execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'").fetchall():
            return {}
        objects = self._catalog.objects
        found = self._execute("SELECT name, seq FROM sqlite_sequence").fetchall()
        return {objects[name].number: value for name, value in found if name in objects}

    def take_records(self) -> list[MadeRecord]:
        """Return the records of what SQLite has given since they were taken last."""
        if not self._catalog.has_counted and not self.values:
            return []
        before, self.values = self.values, self._present()
        made = [
            MadeRecord(SqlRecord.SEQUENCE_PUT, (number, value), _change(number, before.get(number), value))
            for number, value in self.values.items()
            if before.get(number) != value
        ]
        return made + [
            MadeRecord(SqlRecord.SEQUENCE_GONE, (number,), _change(number, value, None))
            for number, value in before.items()
            if number not in self.values
        ]

    def hold(self, shape: TableShape) -> None:
        """Set SQLite's own back to the log's: an id that was written is not always one that was given."""
        value = self.values.get(shape.number)
        if value is None:
            self._execute("DELETE FROM sqlite_sequence WHERE name = ?", (shape.name,))
        else:
            self._execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (value, shape.name))

    def put(self, number: int, value: int) -> RowChange:
        """Fold SEQUENCE_PUT."""
        name = self._catalog.shape_of(number).name
        self._execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
        self._execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, value))
        old = self.values.get(number)
        self.values[number] = value
        return _change(number, old, value)

    def remove(self, number: int) -> RowChange:
        """Fold SEQUENCE_GONE: SQLite forgets it with its table."""
        return _change(number, self.values.pop(number, None), None)


def _change(number: int, old: int | None, new: int | None) -> RowChange:
    return RowChange(
        SEQUENCES, pack((number,)), None if old is None else pack((old,)), None if new is None else pack((new,))
    )
