"""Faults as PostgreSQL's clients know them: a code of five letters (SQLSTATE) and words. Pure.

* `PgFault`         a statement, or a connection, is refused
    * `PgFatalFault`     and the connection ends
    * `PgSlowFault`      it takes longer than it may; a part of it may not
"""

from __future__ import annotations

import re
from typing import Final

from rsm_spark import errors as e
from rsm_spark.sql.errors import SqlError
from rsm_spark.sql.messages import SqlFault

PROTOCOL_VIOLATION: Final = "08P01"
NOT_SUPPORTED: Final = "0A000"
BAD_TEXT: Final = "22021"
BAD_VALUE: Final = "22P02"
BAD_PARAMETER: Final = "22023"
ABORTED: Final = "25P02"
NO_TRANSACTION: Final = "25P01"
HAS_TRANSACTION: Final = "25001"
READ_ONLY: Final = "25006"
NO_STATEMENT: Final = "26000"
BAD_AUTHORIZATION: Final = "28000"
BAD_PASSWORD: Final = "28P01"  # noqa: S105 - a code
NO_PORTAL: Final = "34000"
NO_DATABASE: Final = "3D000"
RETRY: Final = "40001"
DENIED: Final = "42501"
SYNTAX: Final = "42601"
NO_OBJECT: Final = "42704"
HAS_STATEMENT: Final = "42P05"
HAS_PORTAL: Final = "42P03"
MEMORY: Final = "53200"
OVERLOADED: Final = "53000"
TOO_MANY: Final = "53300"
TOO_LARGE: Final = "54000"
CANCELLED: Final = "57014"
SHUT_DOWN: Final = "57P01"
NOT_NOW: Final = "57P03"
INTERNAL: Final = "XX000"


class PgFault(Exception):  # noqa: N818 - it is told to a client, never raised to one
    """A statement is refused.

    Args:
        code: SQLSTATE.
        text: What was seen, and what to do.
        table: Of a constraint that it breaks; "" = none is known.
        column: The same.

    """

    def __init__(self, code: str, text: str, *, table: str = "", column: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.table = table
        self.column = column


class PgFatalFault(PgFault):
    """A connection is refused, and ends."""


class PgSlowFault(PgFault):
    """A statement, or a transaction, takes longer than it may; nothing of it was done."""


_CONSTRAINT = re.compile(r"^(UNIQUE|NOT NULL|CHECK|FOREIGN KEY|PRIMARY KEY) constraint failed(?:: ([^.,]+)\.([^.,]+))?")
_CONSTRAINTS = {
    "UNIQUE": "23505", "PRIMARY KEY": "23505", "NOT NULL": "23502", "CHECK": "23514", "FOREIGN KEY": "23503",
}  # fmt: skip
_WORDS = (
    ("no such table", "42P01"),
    ("no such column", "42703"),
    ("has no column", "42703"),
    ("no such function", "42883"),
    ("wrong number of arguments", "42883"),
    ("ambiguous column", "42702"),
    ("duplicate column", "42701"),
    ("already exists", "42P07"),
    ("already another table", "42P07"),
    ("no such index", NO_OBJECT),
    ("no such view", NO_OBJECT),
    ("no such trigger", NO_OBJECT),
    ("misuse of aggregate", "42803"),
    ("ncorrect number of bindings", PROTOCOL_VIOLATION),
    ("has no value", PROTOCOL_VIOLATION),
    ("syntax error", SYNTAX),
    ("unrecognized token", SYNTAX),
    ("incomplete input", SYNTAX),
    ("more than one statement", SYNTAX),
    ("values for", SYNTAX),
)


def fault_of(fault: SqlFault) -> PgFault:
    """Return what PostgreSQL's clients are told of a fault of a statement."""
    text = fault.text
    match fault.kind:
        case "constraint":
            found = _CONSTRAINT.match(text)
            if found is None:
                return PgFault("42804" if "mismatch" in text else "23000", text)
            return PgFault(_CONSTRAINTS[found[1]], text, table=found[2] or "", column=found[3] or "")
        case "refused":
            is_denied = any(words in text for words in ("reads only", "not for clients", "replica's own"))
            return PgFault(DENIED if is_denied else NOT_SUPPORTED, text)
        case "denied":
            return PgFault(DENIED, text)
        case "limit":
            if "takes longer" in text:
                return PgSlowFault(CANCELLED, text)
            return PgFault(CANCELLED if "cancelled" in text else TOO_LARGE, text)
        case "conflict" | "aborted":
            return PgFault(RETRY, text)
        case "expected":
            return PgFault("P0002", text)
        case _:
            return PgFault(next((code for words, code in _WORDS if words in text), "42000"), text)


_ERRORS: tuple[tuple[type[Exception], str], ...] = (
    (e.OutcomeUnknownError, "08007"),
    (e.OverloadedError, OVERLOADED),
    (e.InvalidCommandError, TOO_LARGE),
    (e.AccessDeniedError, DENIED),
    (e.NoLeaderError, NOT_NOW),
    (e.NotLeaderError, NOT_NOW),
    (e.TooStaleError, NOT_NOW),
    (e.NotReadyError, NOT_NOW),
    (e.ConnectionLostError, "08006"),
)


def fault_of_error(error: Exception) -> PgFault:
    """Return what PostgreSQL's clients are told of an error of this system."""
    if isinstance(error, SqlError):
        return fault_of(SqlFault(error.kind, str(error), error.statement))
    code = next((code for kind, code in _ERRORS if isinstance(error, kind)), INTERNAL)
    return PgFault(code, str(error) or type(error).__name__)
