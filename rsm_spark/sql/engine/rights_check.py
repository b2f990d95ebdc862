"""Rights of a caller to all that a statement touches, looked at before the statement is run.

SQLite asks its authorizer (`StatementGuard`) for most of what a statement does, and not for all: of `a NATURAL JOIN b`
and of `JOIN … USING` it does not name the columns that are compared. So the statement is prepared once more, to be
explained: which tables and indexes its program opens is what it touches. The guard hears of that preparation too, so a
statement that is kept prepared for one caller gives nothing to another.

A trigger is run with the rights of whoever fires it, who may have more than its maker. So its maker must have the
rights to fire it, and the maker of a view those to read it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import apsw

from rsm_spark.sql.engine.catalog import CatalogChange
from rsm_spark.sql.engine.faults import MORE_THAN_ONE, SqlRefusal
from rsm_spark.sql.engine.guard import StatementGuard, no_right
from rsm_spark.sql.engine.shapes import quoted
from rsm_spark.sql.records import CatalogRow
from rsm_spark.sql.statement_words import first_word, without_quoted
from rsm_spark.sql.table_rights import TableRights, folded

_NO_VALUES: Any = apsw._null_bindings  # type: ignore[attr-defined]  # As `apsw.ext.query_info` does.
_READS: Final = frozenset({"OpenRead", "ReopenIdx"})
_WRITES: Final = frozenset({"OpenWrite"})
_SEQUENCES: Final = "sqlite_sequence"
_MAIN: Final = 0
_IN_REGISTER: Final = 0x10
"""Operand 5 says that the page is one that the program makes."""
_GENERATED: Final = (2, 3)
_EVENT = re.compile(r"\b(DELETE|INSERT|UPDATE)\b", re.IGNORECASE)
_OWNERS = "SELECT rootpage, tbl_name FROM main.sqlite_schema WHERE rootpage"


class RightsCheck:
    """Looks at statements of callers who have some tables; on one connection, in the transaction that is open.

    Args:
        connection: The one that runs them.
        execute: Runs a statement of the replica itself on it.
        guard: Of the connection.

    """

    def __init__(self, connection: apsw.Connection, execute: Callable[..., Any], guard: StatementGuard) -> None:
        self._connection = connection
        self._execute = execute
        self._guard = guard

    def statement(self, sql: str) -> None:
        """Look at a statement; the guard is not on, and has the caller's rights.

        Raises:
            SqlRefusal: Something of it is beyond them.
            apsw.Error: It is wrong, or is not for clients: `guard.refusal`.

        """
        rights = self._guard.rights
        if rights is None or first_word(sql) == "EXPLAIN":
            return  # What is explained is not run, and the guard hears of all that is shown.
        self._check_opened(rights, self._explained(sql))

    def _explained(self, sql: str) -> list[tuple[Any, ...]]:
        """Prepare a statement, and return its program: address, name of the instruction, its operands 1 to 5."""
        guard = self._guard
        seen = 0

        def _on_statement(_cursor: Any, _sql: str, _bindings: Any) -> bool:
            nonlocal seen
            seen += 1
            if seen > 1:
                raise SqlRefusal("sql", MORE_THAN_ONE)
            return True

        cursor = self._connection.cursor()
        cursor.exec_trace = _on_statement
        guard.begin()
        was_on, guard.is_on = guard.is_on, True
        try:
            program: list[tuple[Any, ...]] = cursor.execute(f"EXPLAIN {sql}", _NO_VALUES, can_cache=False).fetchall()
            return program
        finally:
            guard.is_on = was_on
            cursor.close(force=True)

    def _check_opened(self, rights: TableRights, program: Iterable[tuple[Any, ...]]) -> None:
        guard = self._guard
        opened = [one for one in program if one[4] == _MAIN and one[3] > 1 and not one[6] & _IN_REGISTER]
        read = Counter(one[3] for one in opened if one[1] in _READS)
        written = Counter(one[3] for one in opened if one[1] in _WRITES)
        pages = read | written
        if not pages:
            return
        for page, table in self._execute(f"{_OWNERS} IN ({', '.join(map(str, pages))})"):
            name = folded(table)
            is_own_change = bool(guard.schema_action) and name in (guard.altered, _SEQUENCES)
            # A table with AUTOINCREMENT has its last id read and written: a statement may do no more with them.
            is_counting = name == _SEQUENCES and read[page] <= written[page]
            if is_own_change or is_counting or (not read[page] and name in guard.written):
                continue
            if name.startswith(("sqlite_", "_rsm_")) or not rights.may_read(table):
                raise SqlRefusal("denied", no_right("read", table, "tables_read"))

    def schema(self, changes: Iterable[CatalogChange]) -> None:
        """Look at what a statement has changed of the schema; the guard is not on, and has the caller's rights.

        Raises:
            SqlRefusal: Something of it is beyond them.
            apsw.Error: What it has made is wrong, or beyond them: `guard.refusal`.

        """
        rights = self._guard.rights
        if rights is None:
            return
        for name, *rows in changes:
            for row in rows:
                if row is not None and not rights.may_alter(row.owner):
                    raise SqlRefusal("denied", no_right("alter", row.owner, "tables_schema"))
            made = rows[1]
            if made is None:
                continue
            if made.kind == "table":
                self._check_references(rights, name)
            elif made.kind == "view":
                self._check_made(f"SELECT * FROM {quoted(name)}")
            elif made.kind == "trigger":
                self._check_made(*self._firing(made))

    def _check_references(self, rights: TableRights, table: str) -> None:
        """Look at whom a table refers to: its rows keep those from being deleted."""
        for row in self._execute(f"PRAGMA foreign_key_list({quoted(table)})"):
            if folded(row[2]) != folded(table) and not rights.may_alter(row[2]):
                raise SqlRefusal("denied", no_right("refer to", row[2], "tables_schema"))

    def _check_made(self, *statements: str) -> None:
        guard = self._guard
        known = guard.change
        try:
            for sql in statements:
                self.statement(sql)
        finally:
            guard.change = known

    def _firing(self, trigger: CatalogRow) -> list[str]:
        """Return statements that would fire a trigger."""
        owner = quoted(trigger.owner)
        columns = list(self._execute(f"PRAGMA table_xinfo({owner})"))
        values = ", ".join(f"{quoted(one[1])} = NULL" for one in columns if one[6] not in _GENERATED)
        by_event = {
            "INSERT": f"INSERT INTO {owner} DEFAULT VALUES",
            "UPDATE": f"UPDATE {owner} SET {values}",
            "DELETE": f"DELETE FROM {owner}",
        }
        found = _EVENT.search(without_quoted(trigger.sql))
        return list(by_event.values()) if found is None else [by_event[found[1].upper()]]
