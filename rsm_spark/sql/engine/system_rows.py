"""System tables on a connection that reads: made for one query, gone with its transaction.

They are temporary tables of that connection: in no file, in no log, and seen by no one else. A table of the log that
has such a name hides them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import apsw
import msgspec

from rsm_spark.core.records import SESSIONS_TABLE
from rsm_spark.sql.engine.writer import KERNEL_TABLE
from rsm_spark.sql.messages import SqlValue
from rsm_spark.sql.system_tables import COLUMNS, SESSIONS, SystemRows, moment, shown_id

SESSIONS_MAX: Final = 10_000
"""Rows of `rsm_sessions`."""
_KEY = msgspec.msgpack.Decoder(tuple[bytes])
_SESSION = msgspec.msgpack.Decoder(tuple[int, int, int, int, list[msgspec.Raw]])
_TAKEN = "SELECT lower(name) FROM main.sqlite_schema WHERE type IN ('table', 'view')"


def make_system_tables(
    connection: apsw.Connection, execute: Callable[[str], Any], names: Iterable[str], rows: SystemRows
) -> frozenset[str]:
    """Make system tables, in the transaction that is open; return the names of those that are there now.

    Args:
        connection: It reads.
        execute: Runs a statement of the replica itself on it, and returns its rows.
        names: Of the tables.
        rows: Of those tables but `rsm_sessions`, which the file has; a table without is empty.

    """
    taken = {name for (name,) in execute(_TAKEN)}
    there = {name for (name,) in execute("SELECT name FROM temp.sqlite_schema WHERE type = 'table'")}
    wanted = [name for name in sorted(names) if name not in taken]
    execute("PRAGMA query_only = OFF")
    try:
        for name in sorted(there & taken):
            execute(f"DROP TABLE temp.{name}")
        for name in wanted:
            if name in there:
                execute(f"DELETE FROM temp.{name}")
            else:
                execute(f"CREATE TEMP TABLE {name} ({COLUMNS[name]})")
            found = _sessions(execute) if name == SESSIONS else rows.get(name, ())
            _insert(connection, name, found)
    finally:
        execute("PRAGMA query_only = ON")
    return frozenset((*there, *wanted)) - taken


def _insert(connection: apsw.Connection, name: str, rows: Iterable[tuple[SqlValue, ...]]) -> None:
    places = ", ".join("?" * (COLUMNS[name].count(",") + 1))
    connection.executemany(f"INSERT INTO temp.{name} VALUES ({places})", rows, can_cache=False)


def _sessions(execute: Callable[[str], Any]) -> list[tuple[SqlValue, ...]]:
    """Return the sessions of clients as the commit has them."""
    found = execute(f"SELECT key, row FROM {KERNEL_TABLE} WHERE name = '{SESSIONS_TABLE}' LIMIT {SESSIONS_MAX}")
    rows: list[tuple[SqlValue, ...]] = []
    for key, row in found:
        (session,) = _KEY.decode(key)
        opened_ms, last_ms, _answered, last_sequence, replies = _SESSION.decode(row)
        rows.append((shown_id(session), moment(opened_ms), moment(last_ms), last_sequence, len(replies)))
    return rows
