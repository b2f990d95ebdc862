"""Kinds of statements as a session of PostgreSQL's protocol tells them apart, and what it says of those done. Pure."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from rsm_spark.sql.messages import SqlResult
from rsm_spark.sql.pg.altering import is_altered_anew
from rsm_spark.sql.pg.lexing import LexedStatement
from rsm_spark.sql.statement_words import reads_only, without_quoted

_COMMANDS: Final = frozenset({
    "SET", "SHOW", "RESET", "DISCARD", "DEALLOCATE", "CLOSE", "LISTEN", "UNLISTEN", "NOTIFY", "LOCK", "COMMENT",
    "GRANT", "REVOKE", "COPY", "CHECKPOINT", "CLUSTER", "DECLARE", "FETCH", "MOVE",
})  # fmt: skip
_TRANSACTIONS: Final = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"})
_OBJECTS: Final = frozenset({"TABLE", "INDEX", "VIEW", "TRIGGER"})
_CHANGES = re.compile(r"\b(INSERT|REPLACE|UPDATE|DELETE)\b", re.IGNORECASE)


class PgStatementKind(Enum):
    """READ: of the tables. SYSTEM: of PostgreSQL's catalog. COMMAND: of the session. TRANSACTION: bounds of one.

    ALTER: of a table, which is to be made anew for it.
    """

    READ = "read"
    SYSTEM = "system"
    WRITE = "write"
    COMMAND = "command"
    ALTER = "alter"
    TRANSACTION = "transaction"


class PgStatement(NamedTuple):
    """One statement, as SQLite gets it.

    Attributes:
        kind: See `PgStatementKind`.
        sql: Of it.
        words: Its first ones, in capitals.
        parameter_count: Of its parameters.
        is_returning: It writes, and has rows.

    """

    kind: PgStatementKind
    sql: str
    words: tuple[str, ...]
    parameter_count: int
    is_returning: bool

    @property
    def has_rows(self) -> bool:
        """True if its answer has rows, be they none."""
        if self.kind is PgStatementKind.COMMAND:
            return self.words[0] in ("SHOW", "FETCH")
        return self.kind in (PgStatementKind.READ, PgStatementKind.SYSTEM) or self.is_returning


def statement_of(lexed: LexedStatement, sql: str) -> PgStatement:
    """Return a statement.

    Args:
        lexed: As it came.
        sql: As SQLite gets it.

    """
    word = lexed.words[0] if lexed.words else ""
    is_returning = False
    if word in _COMMANDS:
        kind, sql = PgStatementKind.COMMAND, lexed.foreign_sql
    elif word in _TRANSACTIONS or lexed.words[:2] == ("PREPARE", "TRANSACTION"):
        kind, sql = PgStatementKind.TRANSACTION, lexed.foreign_sql
    elif lexed.words[:2] == ("ALTER", "TABLE") and is_altered_anew(lexed.foreign_sql):
        kind, sql = PgStatementKind.ALTER, lexed.foreign_sql
    elif reads_only(sql):
        kind = PgStatementKind.SYSTEM if lexed.is_of_system else PgStatementKind.READ
    else:
        kind = PgStatementKind.WRITE
        is_returning = "RETURNING" in lexed.all_words
    return PgStatement(kind, sql, lexed.words, lexed.parameter_count, is_returning)


def tag_of_rows(statement: PgStatement, count: int) -> str:
    """Return what a client is told when a query is done.

    Args:
        statement: The query.
        count: Rows that it has brought.

    """
    return "EXPLAIN" if statement.words[:1] == ("EXPLAIN",) else f"SELECT {count}"


def tag_of(statement: PgStatement, result: SqlResult) -> str:
    """Return what a client is told when a statement is done."""
    words = statement.words or ("",)
    if statement.kind in (PgStatementKind.READ, PgStatementKind.SYSTEM):
        return tag_of_rows(statement, len(result.rows))
    verb = words[0]
    if verb == "WITH":
        found = _CHANGES.search(without_quoted(statement.sql))
        verb = "SELECT" if found is None else found[1].upper()
    count = len(result.rows) if statement.is_returning else result.row_count
    if verb in ("INSERT", "REPLACE"):
        return f"INSERT 0 {count}"
    if verb in ("UPDATE", "DELETE"):
        return f"{verb} {count}"
    what = next((word for word in words[1:] if word in _OBJECTS), "")
    return f"{verb} {what}".strip()
