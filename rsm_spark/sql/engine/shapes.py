"""Shapes of tables: which columns make the key and the image of a row, and how rows are read and written by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import apsw

from rsm_spark.core.records import pack
from rsm_spark.sql.engine.faults import SqlRefusal
from rsm_spark.sql.statement_words import without_quoted

Execute = Callable[..., Any]
"""Runs a statement of the replica itself."""

_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_CONSTANT = re.compile(
    r"\s*([+-]?\s*\d+(\.\d*)?([eE][+-]?\d+)?|[+-]?\s*\.\d+([eE][+-]?\d+)?|'([^']|'')*'|[xX]'[0-9a-fA-F]*'|NULL|TRUE|FALSE)\s*",
    re.IGNORECASE,
)
_NO_DEFAULT = object()
"""Stands where a column has no default that is always the same; equal to no value."""
_GENERATED = (2, 3)  # Virtual, stored: of `hidden` in table_xinfo.


class TableShape(NamedTuple):
    """Shape of a table.

    Attributes:
        number: Of the table, for ever.
        name: Of the table now.
        key: Its key columns, as SQL names; the rowid for most tables.
        columns: The other stored columns, in order; generated ones are in no image.
        key_places: Places of the key columns in a whole row; empty = the rowid is not among its columns.
        is_by_rowid: The key is the rowid.
        is_counted: AUTOINCREMENT gives its ids.
        defaults: Of the columns; `_NO_DEFAULT` where it is not always the same.
        unique: Places in the image of the columns of each unique index beside the key; None = of expressions.
        select, remove, insert, scan: SQL by key, and of all rows; rows are read with the key before the columns.
        change: SQL that writes all columns of the row with a key, which comes last; "" = there are none beside the key.
        told_from: Place in a row of SQLite's pre-update hook from which on it has the columns; None = rows are read.
        tells_new: The hook says what a row is going to be as it is read afterwards.

    """

    number: int
    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    key_places: tuple[int, ...]
    is_by_rowid: bool
    is_counted: bool
    defaults: tuple[Any, ...]
    unique: tuple[frozenset[int] | None, ...]
    select: str
    remove: str
    insert: str
    scan: str
    change: str
    told_from: int | None
    tells_new: bool

    def image(self, values: Sequence[Any]) -> bytes:
        """Return the image of a row's values."""
        count = len(values)
        defaults = self.defaults
        while (
            count and type(values[count - 1]) is type(defaults[count - 1]) and values[count - 1] == defaults[count - 1]
        ):
            count -= 1
        return pack(tuple(values[:count]))

    def filled(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of all columns of an image."""
        return (*values, *self.defaults[len(values) :])

    def told(self, row: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the columns of a row as the hook tells it; None = it may be told otherwise than it is read.

        A row that was written before columns were added lacks these, the last one among them.
        """
        if self.told_from is None:
            return None
        values = row[self.told_from :]
        if self.defaults:
            default = self.defaults[-1]
            if default is not None and default is not _NO_DEFAULT and (values[-1] is None or values[-1] == default):
                return None
        return values

    def must_leave_first(self, old: Sequence[Any], new: Sequence[Any]) -> bool:
        """Return whether a changed row may stand in the way of another one that is written before it."""
        return any(places is None or any(old[place] != new[place] for place in places) for places in self.unique)


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def read_shape(execute: Execute, name: str, number: int, sql: str) -> TableShape:
    """Return the shape of a table as it is now.

    Raises:
        SqlRefusal: Its rows cannot be told from each other by any key.

    """
    columns = execute("SELECT cid, name, type, dflt_value, pk, hidden FROM pragma_table_xinfo(?)", (name,)).fetchall()
    listed = execute("SELECT wr, strict FROM pragma_table_list(?) WHERE schema = 'main'", (name,)).fetchall()
    ((without_rowid, is_strict),) = listed
    indexes = execute('SELECT name, "unique", origin FROM pragma_index_list(?)', (name,)).fetchall()
    has_generated = any(column[5] in _GENERATED for column in columns)
    stored = [column for column in columns if column[5] not in _GENERATED]
    primary = [column[1] for column in sorted(stored, key=lambda column: column[4]) if column[4] > 0]
    is_alias = len(primary) == 1 and not without_rowid and not any(origin == "pk" for _, _, origin in indexes)
    if without_rowid and has_generated:
        raise SqlRefusal("refused", f"table {name}: WITHOUT ROWID together with generated columns is not replicated")
    is_declared = bool(without_rowid) or is_alias
    key = tuple(primary) if is_declared else (_rowid_name(name, [column[1] for column in columns]),)
    in_key = set(primary) if is_declared else set()
    others = [column for column in stored if column[1] not in in_key]
    place_of = {column[1]: place for place, column in enumerate(stored)}
    is_by_rowid = not without_rowid
    begin = stored.index(others[0]) if others else len(stored)
    is_in_order = [one[1] for one in others] == [one[1] for one in stored[begin:]]
    table = quoted(name)
    names = tuple(quoted(column[1]) for column in others)
    keys = tuple(quoted(one) for one in key) if is_declared else key
    by_key = " AND ".join(f"{one} IS ?" for one in keys) if without_rowid else f"{keys[0]} = ?"
    return TableShape(
        number=number,
        name=name,
        key=keys,
        columns=names,
        key_places=tuple(place_of[one] for one in key) if is_declared else (),
        is_by_rowid=is_by_rowid,
        is_counted=is_counted(sql),
        defaults=tuple(_default(column[2], column[3], is_strict=bool(is_strict)) for column in others),
        unique=_unique(execute, indexes, [column[1] for column in others]),
        select=f"SELECT {', '.join((*keys, *names))} FROM {table} WHERE {by_key}",
        remove=f"DELETE FROM {table} WHERE {by_key}",
        insert=f"INSERT INTO {table} ({', '.join((*keys, *names))}) "
        f"VALUES ({', '.join('?' * (len(keys) + len(names)))})",
        scan=f"SELECT {', '.join((*keys, *names))} FROM {table} ORDER BY {', '.join(keys)}",
        change=f"UPDATE {table} SET {', '.join(f'{one} = ?' for one in names)} WHERE {by_key}" if names else "",
        told_from=begin if is_by_rowid and is_in_order and not has_generated else None,
        # SQLite keeps a whole number in a column of reals as one, and the hook says so of a row that comes.
        tells_new=not any(_is_real(column[2]) for column in others),
    )


def _is_real(kind: str) -> bool:
    return any(part in kind.upper() for part in ("REAL", "FLOA", "DOUB"))


def _rowid_name(table: str, columns: Sequence[str]) -> str:
    taken = {name.lower() for name in columns}
    for name in _ROWID_NAMES:
        if name not in taken:
            return name
    raise SqlRefusal(
        "refused", f"table {table}: rowid, oid and _rowid_ are columns: name one of them otherwise, or declare a key"
    )


def is_counted(sql: str) -> bool:
    """Return whether the ids of a table that this SQL makes are given by AUTOINCREMENT."""
    return "AUTOINCREMENT" in without_quoted(sql).upper()


def _unique(
    execute: Execute, indexes: Sequence[tuple[str, int, str]], columns: Sequence[str]
) -> tuple[frozenset[int] | None, ...]:
    found: list[frozenset[int] | None] = []
    for name, is_unique, _origin in indexes:
        if not is_unique:
            continue
        parts = [one for (one,) in execute("SELECT name FROM pragma_index_info(?)", (name,)).fetchall()]
        partial = execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchall()
        is_partial = bool(partial) and partial[0][0] is not None and "WHERE" in partial[0][0].upper()
        if is_partial or any(part is None for part in parts):
            found.append(None)
        else:
            found.append(frozenset(columns.index(part) for part in parts if part in columns))
    return tuple(found)


_KNOWN_DEFAULTS: dict[tuple[str, str, bool], Any] = {}
_KNOWN_DEFAULTS_MAX = 10_000


def _default(kind: str, text: str | None, *, is_strict: bool) -> Any:
    """Return what a column holds if nothing is said, if that is always the same."""
    if text is None:
        return None
    if not _CONSTANT.fullmatch(text):
        return _NO_DEFAULT
    known = (kind, text, is_strict)
    if known not in _KNOWN_DEFAULTS:
        if len(_KNOWN_DEFAULTS) >= _KNOWN_DEFAULTS_MAX:
            _KNOWN_DEFAULTS.clear()
        scratch = apsw.Connection(":memory:")
        try:
            # SQLite itself says what its rules of affinity make of it.
            strict = " STRICT" if is_strict else ""
            scratch.execute(
                f"CREATE TABLE one (a INT, b {kind} DEFAULT {text}){strict}; INSERT INTO one (a) VALUES (1)"
            )
            _KNOWN_DEFAULTS[known] = scratch.execute("SELECT b FROM one").fetchall()[0][0]
        except apsw.Error:
            _KNOWN_DEFAULTS[known] = _NO_DEFAULT
        finally:
            scratch.close()
    return _KNOWN_DEFAULTS[known]
