"""Savepoints of an interactive transaction: the client's names, and SQLite's own for them."""

from __future__ import annotations

import re

from rsm_spark.sql.engine.faults import SqlRefusal
from rsm_spark.sql.limits import SAVEPOINTS_MAX
from rsm_spark.sql.statement_words import first_word

_WORDS = frozenset({"SAVEPOINT", "RELEASE", "ROLLBACK"})
_STATEMENT = re.compile(
    r"""(?:\s|--[^\n]*\n|/\*.*?\*/)*
    (?:(?P<make>SAVEPOINT)|(?P<release>RELEASE)(?:\s+SAVEPOINT(?=\s))?|ROLLBACK(?:\s+TRANSACTION)?\s+TO(?:\s+SAVEPOINT(?=\s))?)
    \s+(?P<name>[A-Za-z_][A-Za-z0-9_$]*|"(?:[^"]|"")+")\s*;?\s*""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


class SavepointStack:
    """Open savepoints, innermost last.

    A client's names would meet those of the replica itself, so SQLite is told others.
    """

    def __init__(self) -> None:
        self._names: list[str] = []

    @property
    def depth(self) -> int:
        """Open savepoints."""
        return len(self._names)

    @property
    def opening(self) -> list[str]:
        """SQL that opens them on another connection."""
        return [f"SAVEPOINT _client{place}" for place in range(len(self._names))]

    def sql_of(self, sql: str) -> str:
        """Return what SQLite is to run for a statement of savepoints, and note it; "" = it is none of them.

        Raises:
            SqlRefusal: There is no savepoint of that name, or too many are open.

        """
        if first_word(sql) not in _WORDS:
            return ""
        found = _STATEMENT.fullmatch(sql)
        if found is None:
            return ""
        name = found["name"].strip('"').replace('""', '"').lower()
        names = self._names
        if found["make"]:
            if len(names) >= SAVEPOINTS_MAX:
                raise SqlRefusal("refused", f"more than {SAVEPOINTS_MAX} savepoints are open")
            names.append(name)
            return f"SAVEPOINT _client{len(names) - 1}"
        place = next((place for place in reversed(range(len(names))) if names[place] == name), None)
        if place is None:
            raise SqlRefusal("sql", f"no such savepoint: {name}")
        if found["release"]:
            del names[place:]
            return f"RELEASE _client{place}"
        del names[place + 1 :]
        return f"ROLLBACK TO _client{place}"
