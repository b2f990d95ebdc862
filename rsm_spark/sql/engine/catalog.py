"""The catalog: tables, indexes, views and triggers as the log knows them, kept beside SQLite's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rsm_spark.errors import CorruptLogError
from rsm_spark.sql.engine.guard import INTERNAL_PREFIX
from rsm_spark.sql.engine.shapes import Execute, TableShape, is_counted, read_shape
from rsm_spark.sql.records import CatalogRow

CATALOG_TABLE = f"{INTERNAL_PREFIX}catalog"
_SCHEMA = (
    "SELECT name, type, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL "
    f"AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT LIKE '{INTERNAL_PREFIX.replace('_', chr(92) + '_')}%' "
    "ESCAPE '\\' ORDER BY rowid"
)
_PUT = f"INSERT OR REPLACE INTO {CATALOG_TABLE} VALUES (?, ?, ?, ?, ?, ?)"
_GONE = f"DELETE FROM {CATALOG_TABLE} WHERE name = ?"


class CatalogChange(NamedTuple):
    """An object whose row is another one now; None = there is none."""

    name: str
    old: CatalogRow | None
    new: CatalogRow | None


class SqlCatalog:
    """Objects by name, and shapes of tables as they are asked for.

    Args:
        execute: Runs a statement of the replica itself.

    Attributes:
        objects: By name.
        has_counted: AUTOINCREMENT gives the ids of a table.

    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self.has_counted = False
        self.objects: dict[str, CatalogRow] = {}
        self._shapes: dict[str, TableShape] = {}
        self._names: dict[int, str] = {}

    def make(self) -> None:
        """Make the table in which it is kept, if it is not there."""
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {CATALOG_TABLE} (name TEXT PRIMARY KEY, kind TEXT, owner TEXT, sql TEXT, "
            "number INTEGER, place INTEGER) WITHOUT ROWID"
        )

    def load(self) -> None:
        """Read what is kept: at the beginning, and after a rollback."""
        rows = self._execute(f"SELECT name, kind, owner, sql, number, place FROM {CATALOG_TABLE} ORDER BY place")
        self.objects = {name: CatalogRow(*row) for name, *row in rows.fetchall()}
        self._names = {row.number: name for name, row in self.objects.items() if row.kind == "table"}
        self._changed()

    def _changed(self) -> None:
        self._shapes = {}
        self.has_counted = any(is_counted(row.sql) for row in self.objects.values() if row.kind == "table")

    def shape(self, name: str) -> TableShape:
        """Return the shape of a table; as it was when it was asked for first since the schema changed.

        Raises:
            SqlRefusal: Its rows cannot be replicated.

        """
        found = self._shapes.get(name)
        if found is None:
            row = self.objects.get(name)
            if row is None:
                raise CorruptLogError(f"there is no table {name!r} in the catalog")
            found = self._shapes[name] = read_shape(self._execute, name, row.number, row.sql)
        return found

    def shape_of(self, number: int) -> TableShape:
        """Return the shape of the table with this number.

        Raises:
            CorruptLogError: There is none.

        """
        name = self._names.get(number)
        if name is None:
            raise CorruptLogError(f"there is no table with the number {number}")
        return self.shape(name)

    @property
    def tables(self) -> Mapping[int, str]:
        """Names of the tables by their numbers."""
        return self._names

    def forget_shapes(self) -> None:
        """Read shapes again: the schema has changed."""
        self._shapes = {}

    def present(self) -> dict[str, tuple[str, str, str]]:
        """Return (kind, owner, SQL) of what SQLite has now, by name, in the order in which it was made."""
        return {name: (kind, owner, sql) for name, kind, owner, sql in self._execute(_SCHEMA).fetchall()}

    def difference(self, *, is_rename: bool, number: int) -> list[CatalogChange]:
        """Return what SQLite's schema has changed since it was noted: what is gone first.

        Args:
            is_rename: One table has another name now, and keeps its number.
            number: Of a new table.

        """
        now = self.present()
        gone = [name for name in self.objects if name not in now]
        renamed = [name for name in gone if self.objects[name].kind == "table"] if is_rename else []
        place = max((row.place for row in self.objects.values()), default=0)
        changes = [CatalogChange(name, self.objects[name], None) for name in gone]
        for name, (kind, owner, sql) in now.items():
            old = self.objects.get(name)
            if old is not None and (old.kind, old.owner, old.sql) == (kind, owner, sql):
                continue
            origin = self.objects[renamed.pop()] if old is None and kind == "table" and renamed else old
            if origin is None:
                place += 1
                origin = CatalogRow(kind, owner, sql, number if kind == "table" else 0, place)
            changes.append(CatalogChange(name, old, CatalogRow(kind, owner, sql, origin.number, origin.place)))
        return changes

    def put(self, name: str, row: CatalogRow) -> CatalogRow | None:
        """Note an object; return what it was before."""
        self._execute(_PUT, (name, *row))
        old = self.objects.get(name)
        self.objects[name] = row
        if row.kind == "table":
            self._names[row.number] = name
        self._changed()
        return old

    def remove(self, name: str) -> CatalogRow | None:
        """Note that an object is gone; return what it was."""
        self._execute(_GONE, (name,))
        old = self.objects.pop(name, None)
        if old is not None and self._names.get(old.number) == name:
            del self._names[old.number]
        self._changed()
        return old
