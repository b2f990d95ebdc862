"""Cursors in SQL of PostgreSQL's clients: DECLARE, FETCH, MOVE and CLOSE, as they are written. Pure.

A cursor is a portal with a name of its client's: it goes forward alone. What it does is the session's.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rsm_spark.sql.pg.faults import NOT_SUPPORTED, SYNTAX, PgFault

CURSORS_MAX: Final = 100
"""Of one connection; those of which there is more than was read count among the results of its client, too."""
CURSOR_WORDS: Final = frozenset({"DECLARE", "FETCH", "MOVE", "CLOSE"})
BACKWARD: Final = "55000"
_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_\x80-\U0010ffff][\w$]*)'
_DECLARE = re.compile(
    rf"DECLARE\s+(?P<name>{_NAME})\s+(?P<ways>(?:(?:BINARY|INSENSITIVE|ASENSITIVE|NO\s+SCROLL|SCROLL)\s+)*)"
    r"CURSOR\s+(?P<hold>(?:WITH|WITHOUT)\s+HOLD\s+)?FOR\b(?P<query>.+)",
    re.IGNORECASE | re.DOTALL,
)
_STEP = re.compile(
    r"(?P<verb>FETCH|MOVE)\s+(?:(?P<way>NEXT|PRIOR|FIRST|LAST|(?:ABSOLUTE|RELATIVE)\s+[+-]?\d{1,18}"
    r"|(?P<turn>FORWARD|BACKWARD)(?:\s+(?P<turns>ALL|[+-]?\d{1,18}))?|(?P<count>ALL|[+-]?\d{1,18}))"
    rf"\s+(?:(?:FROM|IN)\s+)?|(?:FROM|IN)\s+)?(?P<name>{_NAME})",
    re.IGNORECASE,
)
_CLOSE = re.compile(rf"CLOSE\s+(?P<name>{_NAME})", re.IGNORECASE)
_PARAMETER = re.compile(r"('(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"|--[^\n]*+)|(?<!:):p([0-9]+)\b")


class DeclaredCursor(NamedTuple):
    """A DECLARE.

    Attributes:
        name: Of the cursor.
        is_held: It outlives its transaction.
        query: Whose rows it shows, with parameters as they came: `$1`.

    """

    name: str
    is_held: bool
    query: str


class CursorStep(NamedTuple):
    """A FETCH or a MOVE.

    Attributes:
        name: Of the cursor.
        rows_max: So many rows at most; 0 = all that are left.
        is_move: They are passed over.

    """

    name: str
    rows_max: int
    is_move: bool


def declared_cursor(sql: str) -> DeclaredCursor:
    """Return what a DECLARE says.

    Args:
        sql: Of it; its parameters are `:p1`.

    Raises:
        PgFault: It says what is not served, or is none.

    """
    found = _DECLARE.fullmatch(sql.strip())
    if found is None:
        raise PgFault(SYNTAX, "a cursor is written: DECLARE name [NO SCROLL] CURSOR [WITH HOLD] FOR SELECT …")
    ways = found["ways"].upper().split()
    if "BINARY" in ways:
        raise PgFault(NOT_SUPPORTED, "BINARY cursors are not served: ask for values in binary when you FETCH")
    if "SCROLL" in ways and "NO" not in ways:
        raise PgFault(NOT_SUPPORTED, "SCROLL is not served: a cursor goes forward; to see rows again declare it anew")
    is_held = (found["hold"] or "").upper().split()[:1] == ["WITH"]
    return DeclaredCursor(_named(found["name"]), is_held, _PARAMETER.sub(_as_it_came, found["query"]).strip())


def cursor_step(sql: str) -> CursorStep:
    """Return what a FETCH or a MOVE says.

    Raises:
        PgFault: It goes backward, or is none.

    """
    found = _STEP.fullmatch(sql.strip())
    if found is None:
        raise PgFault(
            SYNTAX, "it is written: FETCH [NEXT | n | ALL | FORWARD n | FORWARD ALL] FROM name; MOVE likewise"
        )
    way = (found["way"] or "NEXT").upper().split()[0]
    count = (found["turns"] or found["count"] or "1").upper()
    if way in ("PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "BACKWARD") or (count != "ALL" and int(count) < 1):
        raise PgFault(BACKWARD, "a cursor goes forward alone, by one row at least: to see rows again declare it anew")
    rows_max = 0 if count == "ALL" else int(count)
    return CursorStep(_named(found["name"]), rows_max, found["verb"].upper() == "MOVE")


def closed_cursor(sql: str) -> str:
    """Return which cursor a CLOSE names; "" = all.

    Raises:
        PgFault: It names none.

    """
    found = _CLOSE.fullmatch(sql.strip())
    if found is None:
        raise PgFault(SYNTAX, "it is written: CLOSE name, or CLOSE ALL")
    return "" if found["name"].upper() == "ALL" else _named(found["name"])


def _named(text: str) -> str:
    return text[1:-1].replace('""', '"') if text[0] == '"' else text.lower()


def _as_it_came(found: re.Match[str]) -> str:
    return found[1] or f"${found[2]}"
