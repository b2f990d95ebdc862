"""Faults of a client's statement: SQLite's errors, and what this package refuses, in words.

* `SqlRefusal`      a statement is not done
* `SqlFaultError`   so its transaction is not
"""

from __future__ import annotations

import re

import apsw

from rsm_spark.sql.engine.guard import NO_RIGHT
from rsm_spark.sql.messages import SqlFault
from rsm_spark.sql.system_tables import COLUMNS
from rsm_spark.sql.table_rights import RIGHTS_ARE_IN_A_FILE


class SqlRefusal(Exception):  # noqa: N818 - it is told to a client, never raised to one
    """A statement is not done.

    Args:
        kind: See `SqlFault`.
        text: The same.

    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (apsw.ConstraintError, "constraint"),
    (apsw.TooBigError, "limit"),
    (apsw.NoMemError, "limit"),
    (apsw.FullError, "limit"),
    (apsw.SQLError, "sql"),
    (apsw.BindingsError, "sql"),
    (apsw.MismatchError, "constraint"),
    (apsw.RangeError, "sql"),
)
_TEXT_CHARS_MAX = 1_000
_NO_ROOM = (
    "the disk of the leader is full, nothing was done: make room there, or try again: another replica may lead soon"
)
_SYSTEM = re.compile(rf"no such table: (?:main\.)?(?:{'|'.join(COLUMNS)})", re.IGNORECASE)
_SYSTEM_TEXT = ": system tables are read by queries, not by statements that write, and not by views"
_GRANTS = re.compile(r'near "(?:GRANT|REVOKE)": syntax error', re.IGNORECASE)
MORE_THAN_ONE = "this is more than one statement: send each on its own, or all as a transaction"


def fault_of(error: Exception, refusal: str, statement: int) -> SqlFault:
    """Return what a client is told of an error.

    Args:
        error: Raised while its statement was run.
        refusal: What the guard said of it; "" = nothing.
        statement: Its place in the transaction.

    """
    if isinstance(error, SqlRefusal):
        return SqlFault(error.kind, error.text[:_TEXT_CHARS_MAX], statement)
    if isinstance(error, UnicodeError):
        return SqlFault("refused", "a text is not UTF-8: keep it as a BLOB", statement)
    if isinstance(error, apsw.AuthError) or refusal:
        kind = "denied" if refusal.startswith(NO_RIGHT) else "refused"
        return SqlFault(kind, refusal or str(error), statement)
    if isinstance(error, apsw.FullError):
        return SqlFault("limit", _NO_ROOM, statement)
    kind = next((kind for one, kind in _KINDS if isinstance(error, one)), "sql")
    text = str(error)[:_TEXT_CHARS_MAX]
    if _GRANTS.match(text):
        return SqlFault("refused", RIGHTS_ARE_IN_A_FILE, statement)
    return SqlFault(kind, text + _SYSTEM_TEXT if _SYSTEM.fullmatch(text) else text, statement)


def is_full(error: BaseException) -> bool:
    """Return whether an error says that the disk has no room: the index of the WAL has a word of its own for it."""
    is_of_index = isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    return is_of_index or isinstance(error, apsw.FullError)


def is_statements_own(error: Exception) -> bool:
    """Return whether an error is one of the statement, not of the disk or of this package."""
    if isinstance(error, SqlRefusal | OverflowError | TypeError | ValueError):
        return True
    if isinstance(error, apsw.IOError | apsw.CorruptError | apsw.NotADBError | apsw.CantOpenError):
        return False
    return isinstance(error, apsw.Error)


_SURVIVED = frozenset({"sql", "constraint", "refused", "denied", "expected"})


def is_survived(error: Exception, fault: SqlFault) -> bool:
    """Return whether an interactive transaction may go on after a statement that failed so: it would fail so again."""
    return is_statements_own(error) and not isinstance(error, apsw.InterruptError) and fault.kind in _SURVIVED


class SqlFaultError(Exception):
    """A client's transaction failed, and nothing of it was done.

    Attributes:
        fault: What the client is told.

    """

    def __init__(self, fault: SqlFault) -> None:
        super().__init__(fault.text)
        self.fault = fault
