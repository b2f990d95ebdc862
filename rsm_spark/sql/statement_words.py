"""Kinds of statements, by their words. Pure.

A word may mislead: SQLite itself decides what a statement does. This says only which way it is sent, what is cached.
"""

from __future__ import annotations

import re
from enum import StrEnum

_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*([A-Za-z]+)", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CHANGES = re.compile(r"\b(INSERT|REPLACE|UPDATE|DELETE)\b", re.IGNORECASE)
_TO = re.compile(r"\bTO\b", re.IGNORECASE)
_OF_ROWS = frozenset({"SELECT", "VALUES", "WITH", "INSERT", "REPLACE", "UPDATE", "DELETE"})
_OF_READS = frozenset({"SELECT", "VALUES", "EXPLAIN", "PRAGMA"})


def first_word(sql: str) -> str:
    """Return the first word of a statement, in capitals; "" = there is none."""
    found = _FIRST_WORD.match(sql)
    return "" if found is None else found[1].upper()


def without_quoted(sql: str) -> str:
    """Return SQL without texts, quoted names and comments."""
    return _QUOTED.sub(" ", sql)


def is_of_rows(sql: str) -> bool:
    """Return whether a statement certainly leaves the schema alone."""
    return first_word(sql) in _OF_ROWS


class TransactionWord(StrEnum):
    """Effect of a statement on the transaction that it stands in."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    NOTHING = ""


def transaction_word(sql: str) -> TransactionWord:
    """Return what a statement does to the transaction that it stands in; ROLLBACK TO a savepoint does nothing to it."""
    match first_word(sql):
        case "BEGIN":
            return TransactionWord.BEGIN
        case "COMMIT" | "END":
            return TransactionWord.COMMIT
        case "ROLLBACK" if not _TO.search(without_quoted(sql)):
            return TransactionWord.ROLLBACK
    return TransactionWord.NOTHING


def reads_only(sql: str) -> bool:
    """Return whether a statement is to be sent as a query."""
    word = first_word(sql)
    return word in _OF_READS or (word == "WITH" and _CHANGES.search(without_quoted(sql)) is None)
