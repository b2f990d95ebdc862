"""Plain SQLite that is fed by the changes of a log: a copy of its tables, if the feed tells all, once."""

from __future__ import annotations

from typing import Any

import apsw

from rsm_spark.core.envelope import body_of, decode_envelope
from rsm_spark.core.records import decode_records
from rsm_spark.sql.feed.events import SqlChange
from rsm_spark.sql.feed.telling import ToldTables
from rsm_spark.sql.table_rights import TableRights
from tests.unit.rsm_spark.sql.sql_pair import Contents, contents_of


def feed_of(
    payloads: list[bytes], begin: int = 1, tables: tuple[str, ...] = (), rights: TableRights | None = None
) -> list[SqlChange]:
    """Return the changes that a whole log tells."""
    teller = ToldTables({}, tables, rights)
    found: list[SqlChange] = []
    for payload in payloads:
        at = decode_envelope(payload)
        found += teller.tell(decode_records(body_of(payload)), at.first_revision, at.logged_ms, begin)
    return found


def without_sequences(contents: Contents) -> Contents:
    """Return what a feed tells of: it does not tell which ids AUTOINCREMENT has given."""
    return {name: rows for name, rows in contents.items() if name != "sqlite_sequence"}


class FedCopy:
    """See the module. Rows of a transaction are written together, those that were first gone: they may swap values.

    A row is told again in a transaction only behind a statement of the schema, which need not have changed anything.
    """

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        for option in (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, apsw.SQLITE_DBCONFIG_ENABLE_FKEY,
                       apsw.SQLITE_DBCONFIG_DQS_DML, apsw.SQLITE_DBCONFIG_DQS_DDL):  # fmt: skip
            self.connection.config(option, 0)
        self.connection.execute("PRAGMA ignore_check_constraints = ON")
        self.revision = 0
        self._waiting: list[SqlChange] = []

    def take(self, change: SqlChange) -> None:
        assert change.revision > self.revision, f"revision {change.revision} is told again"
        assert change.transaction >= change.revision
        self.revision = change.revision
        if change.kind == "schema":
            self._write()
            self.connection.execute(change.sql)
        else:
            self._waiting.append(change)
        if change.is_last:
            self._write()

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        last: dict[tuple[Any, ...], SqlChange] = {}
        for change in waiting:
            place = (change.table, *change.key.items())
            found = last[place].new if place in last else self._remove(change)
            assert not change.is_old_known or found == change.old, (found, change)
            last[place] = change
        for change in last.values():
            if change.new is not None:
                row = change.key | change.new
                names = ", ".join(map(quoted, row))
                self.connection.execute(
                    f"INSERT INTO {quoted(change.table)} ({names}) VALUES ({', '.join('?' * len(row))})",
                    tuple(row.values()),
                )

    def _remove(self, change: SqlChange) -> dict[str, Any] | None:
        told = change.new if change.new is not None else change.old or change.key
        by_key = " AND ".join(f"{quoted(name)} IS ?" for name in change.key)
        values = tuple(change.key.values())
        columns = ", ".join(map(quoted, told))
        table = quoted(change.table)
        found = self.connection.execute(f"SELECT {columns} FROM {table} WHERE {by_key}", values).fetchall()
        self.connection.execute(f"DELETE FROM {table} WHERE {by_key}", values)
        assert len(found) <= 1
        return dict(zip(told, found[0], strict=True)) if found else None

    def contents(self) -> Contents:
        return without_sequences(contents_of(self.connection))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
