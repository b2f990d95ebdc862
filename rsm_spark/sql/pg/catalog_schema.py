"""Tables, views, columns, indexes and references of the SQL tables, as the statements of a client find them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

_SQL = """
SELECT 'object', m.name, m.type, m.tbl_name, m.sql, NULL, NULL, NULL, NULL FROM sqlite_schema m
WHERE m.tbl_name {own} AND m.type IN ('table', 'view', 'index', 'trigger')
UNION ALL
SELECT 'column', m.name, x.cid, x.name, x.type, x."notnull", x.dflt_value, x.pk, x.hidden
FROM sqlite_schema m, pragma_table_xinfo(m.name) x WHERE m.tbl_name {own} AND m.type IN ({kinds})
UNION ALL
SELECT 'index', m.name, l.name, l."unique", l.origin, l.partial, NULL, NULL, NULL
FROM sqlite_schema m, pragma_index_list(m.name) l WHERE m.tbl_name {own} AND m.type = 'table'
UNION ALL
SELECT 'part', l.name, x.seqno, x.name, x."desc", NULL, NULL, NULL, NULL
FROM sqlite_schema m, pragma_index_list(m.name) l, pragma_index_xinfo(l.name) x
WHERE m.tbl_name {own} AND m.type = 'table' AND x.key
UNION ALL
SELECT 'reference', m.name, f.id, f.seq, f."table", f."from", f."to", f.on_update, f.on_delete
FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.tbl_name {own} AND m.type = 'table'
"""
_NAMES = r"NOT LIKE '\_rsm\_%' ESCAPE '\' AND m.tbl_name NOT LIKE 'sqlite\_%' ESCAPE '\'"
SCHEMA_SQL: Final = _SQL.format(own=_NAMES, kinds="'table', 'view'")
"""Asks for all of it."""
TABLES_SQL: Final = _SQL.format(own=_NAMES, kinds="'table'")
"""The same without the columns of views, one of which may be of a table that is no more."""
_OWNER: Final = {"object": 3}
"""Place of the table's name in a row; 1 in the others."""
_AUTO = re.compile(r"sqlite_autoindex_(.+)_\d+")


_Objects = dict[str, tuple[Any, ...]]
_ByTable = dict[tuple[str, str], list[tuple[Any, ...]]]


class CatalogColumn(NamedTuple):
    """A column: its name, its declared type, and what else is said of it."""

    name: str
    kind: str
    is_required: bool
    default: str | None
    is_generated: bool


class CatalogIndex(NamedTuple):
    """An index; `origin`: "c" = made by CREATE INDEX, "u" = of UNIQUE, "pk" = of the primary key."""

    name: str
    columns: tuple[str, ...]
    is_unique: bool
    origin: str
    sql: str


class CatalogForeignKey(NamedTuple):
    """A foreign key."""

    name: str
    columns: tuple[str, ...]
    table: str
    others: tuple[str, ...]
    on_update: str
    on_delete: str


class CatalogTable(NamedTuple):
    """A table or a view.

    Attributes:
        name: Of it.
        is_view: It is one.
        sql: That made it.
        columns: In order.
        key: Columns of its primary key.
        is_numbered: Its key is given by itself: INTEGER PRIMARY KEY.
        indexes: Of it, that of its key too.
        references: Of it.
        triggers: Names and SQL.

    """

    name: str
    is_view: bool
    sql: str
    columns: tuple[CatalogColumn, ...]
    key: tuple[str, ...]
    is_numbered: bool
    indexes: tuple[CatalogIndex, ...]
    references: tuple[CatalogForeignKey, ...]
    triggers: tuple[tuple[str, str], ...]


def shown_rows(rows: Iterable[tuple[Any, ...]], is_shown: Callable[[str], bool]) -> list[tuple[Any, ...]]:
    """Return those rows of `SCHEMA_SQL` that tell of some tables, of their indexes and triggers.

    Args:
        rows: All of them.
        is_shown: Says of a table or a view whether it is one of them.

    """
    found = list(rows)
    parts = {row[2] for row in found if row[0] == "index" and is_shown(row[1])}
    return [row for row in found if (row[1] in parts if row[0] == "part" else is_shown(row[_OWNER.get(row[0], 1)]))]


def catalog_of(rows: Iterable[tuple[Any, ...]]) -> list[CatalogTable]:
    """Return the tables and views that the rows of `SCHEMA_SQL` tell of, by name."""
    objects: dict[str, tuple[Any, ...]] = {}
    by_table: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for row in rows:
        if row[0] == "object":
            objects[row[1]] = row
        by_table.setdefault((row[0], row[1]), []).append(row)
    found = []
    for name, row in sorted(objects.items()):
        if row[2] in ("table", "view"):
            found.append(_table(name, row, objects, by_table))
    by_name = {table.name.lower(): table for table in found}
    return [table._replace(references=tuple(_resolved(one, by_name) for one in table.references)) for table in found]


def _table(
    name: str,
    row: tuple[Any, ...],
    objects: dict[str, tuple[Any, ...]],
    by: dict[tuple[str, str], list[tuple[Any, ...]]],
) -> CatalogTable:
    told = sorted((one for one in by.get(("column", name), []) if one[8] != 1), key=lambda one: one[2])
    key = tuple(one[3] for one in sorted((one for one in told if one[7]), key=lambda one: one[7]))
    columns = tuple(
        CatalogColumn(one[3], one[4] or "", bool(one[5] or one[7]), one[6], one[8] in (2, 3)) for one in told
    )
    kinds = {column.name: column.kind.upper() for column in columns}
    by_rowid = "WITHOUT ROWID" not in (row[4] or "").upper()
    is_numbered = len(key) == 1 and kinds[key[0]] == "INTEGER" and by_rowid
    indexes = [_index(name, one, objects, by) for one in by.get(("index", name), [])]
    if key and not any(index.origin == "pk" for index in indexes):
        indexes.insert(0, CatalogIndex(f"{name}_pkey", key, is_unique=True, origin="pk", sql=""))
    references: dict[int, list[tuple[Any, ...]]] = {}
    for one in by.get(("reference", name), []):
        references.setdefault(one[2], []).append(one)
    triggers = tuple(
        (other, one[4] or "") for other, one in sorted(objects.items()) if one[2] == "trigger" and one[3] == name
    )
    return CatalogTable(
        name, row[2] == "view", row[4] or "", columns, key, is_numbered,
        tuple(sorted(indexes, key=lambda index: (index.origin != "pk", index.name))),
        tuple(_reference(name, parts) for _, parts in sorted(references.items())), triggers,
    )  # fmt: skip


def _index(
    table: str,
    row: tuple[Any, ...],
    objects: dict[str, tuple[Any, ...]],
    by: dict[tuple[str, str], list[tuple[Any, ...]]],
) -> CatalogIndex:
    name, origin = row[2], row[4]
    parts = sorted(by.get(("part", name), []), key=lambda one: one[2])
    columns = tuple(one[3] or "" for one in parts)
    if _AUTO.fullmatch(name):
        name = f"{table}_pkey" if origin == "pk" else f"{table}_{'_'.join(columns)}_key"
    sql = objects[row[2]][4] if row[2] in objects else ""
    return CatalogIndex(name, columns, bool(row[3]), origin, sql or "")


def _reference(table: str, parts: list[tuple[Any, ...]]) -> CatalogForeignKey:
    parts = sorted(parts, key=lambda one: one[3])
    columns = tuple(one[5] for one in parts)
    others = tuple(one[6] for one in parts if one[6] is not None)
    return CatalogForeignKey(
        f"{table}_{'_'.join(columns)}_fkey", columns, parts[0][4], others, parts[0][7], parts[0][8]
    )


def _resolved(one: CatalogForeignKey, tables: dict[str, CatalogTable]) -> CatalogForeignKey:
    """Name the columns that a reference to a whole key leaves out."""
    other = tables.get(one.table.lower())
    return one._replace(
        table=one.table if other is None else other.name,
        others=one.others or (other.key if other is not None else one.columns),
    )
