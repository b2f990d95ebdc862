"""SQLite alone: what the tables have to be like."""

from __future__ import annotations

import apsw


class PlainSqlite:
    """SQLite in memory, each transaction done or undone whole."""

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        for name, value in (
            (apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1),
            (apsw.SQLITE_DBCONFIG_DQS_DML, 0),
            (apsw.SQLITE_DBCONFIG_DQS_DDL, 0),
            (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        ):
            self.connection.config(name, value)

    def run(self, statements: list[str]) -> str:
        """Run a transaction; return what failed, "" = nothing."""
        self.connection.execute("BEGIN")
        try:
            for statement in statements:
                self.connection.execute(statement)
            self.connection.execute("COMMIT")
        except apsw.Error as error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            return str(error)
        return ""

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each table."""
        found = self.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
        info = "SELECT name FROM pragma_table_info(?)"
        return {
            name: [column for (column,) in self.connection.execute(info, (name,))]
            for name in map(str, (one for (one,) in found))
            if not name.startswith("sqlite_")
        }
