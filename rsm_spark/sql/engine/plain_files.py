"""Plain files of SQLite, that `rsm sql import` reads and `rsm sql export` writes: no replica's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from ledger.errors import UsageError
from rsm_spark.sql.engine.shapes import quoted


class PlainFile:
    """One file. For one thread.

    Args:
        path: Of it.
        may_write: Make it, empty.

    Raises:
        UsageError: It is none of SQLite's.

    """

    def __init__(self, path: Path, *, may_write: bool = False) -> None:
        self._path = path
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if may_write else apsw.SQLITE_OPEN_READONLY
        try:
            self._connection = apsw.Connection(str(path), flags=flags)
            self._connection.execute("SELECT count(*) FROM sqlite_schema")
        except apsw.Error as error:
            raise UsageError(f"{path}: SQLite cannot open it: {error}") from None
        # All that is read shows one commit; all that is written is there at the end, or nothing is.
        self._connection.execute("BEGIN")

    def tables(self) -> list[str]:
        return [name for (name,) in self._query("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Return name and declared type of the columns that are written, not generated."""
        return self._query("SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))

    def schema_of(self, table: str) -> str:
        """Return the statement that makes a table."""
        return str(self._query("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,))[0][0])

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of a table.

        Raises:
            UsageError: The file is damaged.

        """
        names = ", ".join(map(quoted, columns))
        try:
            yield from self._connection.execute(f"SELECT {names} FROM {quoted(table)}")
        except apsw.Error as error:
            raise UsageError(f"{self._path}: the table {table} cannot be read: {error}") from None

    def _query(self, sql: str, parameters: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def run(self, sql: str) -> None:
        """Run a statement that changes the schema.

        Raises:
            UsageError: It fails.

        """
        try:
            self._connection.execute(sql)
        except apsw.Error as error:
            raise UsageError(f"{self._path}: {error}, at {sql:.200}") from None

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows."""
        names, places = ", ".join(map(quoted, columns)), ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {quoted(table)} ({names}) VALUES ({places})", rows)

    def set_sequence(self, table: str, value: int) -> None:
        """Set the highest id that AUTOINCREMENT gave."""
        self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        self._connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, value))

    def keep(self) -> None:
        """Keep what was written: it is durable."""
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close it; what was written and not kept is gone."""
        self._connection.close()
