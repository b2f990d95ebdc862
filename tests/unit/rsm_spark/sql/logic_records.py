"""Records of sqllogictest's files: statements that succeed or fail, and queries with the answers that they have.

The format is public: https://www.sqlite.org/sqllogictest. A value is shown as an integer, as a number with
three digits, or as a text; many values as their number and their MD5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

_SQLITE = apsw.Connection(":memory:")


class LogicRecord(NamedTuple):
    """One record.

    Attributes:
        place: File and line.
        sql: Of it.
        fails: A statement that has to fail; None = a query.
        types: Of a query's columns: "I", "R", "T" each.
        sort: "nosort", "rowsort", "valuesort".
        answer: Lines that are expected; None = the file says none.

    """

    place: str
    sql: str
    fails: bool | None
    types: str = ""
    sort: str = "nosort"
    answer: tuple[str, ...] | None = None


def records_of(path: Path) -> Iterator[LogicRecord]:
    """Iterate over the records of a file that are meant for SQLite."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    at = 0
    while at < len(lines):
        is_ours = True
        while at < len(lines) and (not lines[at].strip() or lines[at].startswith(("#", "skipif", "onlyif"))):
            word, _, which = lines[at].partition(" ")
            which = which.split("#")[0].strip()
            is_ours = is_ours and not (word == "skipif" and which == "sqlite")
            is_ours = is_ours and not (word == "onlyif" and which != "sqlite")
            at += 1
        end = at
        while end < len(lines) and lines[end].strip():
            end += 1
        block, first = lines[at:end], at + 1
        at = end
        if not block or not is_ours:
            continue
        words = block[0].split()
        if words[0] == "halt":
            return
        if words[0] == "statement":
            yield LogicRecord(f"{path.name}:{first}", "\n".join(block[1:]), words[1] != "ok")
        elif words[0] == "query":
            middle = block.index("----") if "----" in block else len(block)
            answer = tuple(block[middle + 1 :]) if middle < len(block) else None
            sort = words[2] if words[2:] else "nosort"
            yield LogicRecord(f"{path.name}:{first}", "\n".join(block[1:middle]), None, words[1], sort, answer)


def shown(rows: Sequence[Sequence[Any]], types: str, sort: str) -> list[str]:
    """Return the values of a result as a file has them."""
    lines = [[_shown(value, kind) for value, kind in zip(row, types, strict=True)] for row in rows]
    if sort == "rowsort":
        lines.sort()
    values = [value for line in lines for value in line]
    return sorted(values) if sort == "valuesort" else values


def _shown(value: Any, kind: str) -> str:
    if value is None:
        return "NULL"
    if kind == "I":
        return str(_integer(value))
    if kind == "R":
        # SQLite's own digits: fewer of a large number than Python shows.
        return str(_SQLITE.execute("SELECT printf('%.3f', ?)", (value,)).get)
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return "".join(letter if " " <= letter <= "~" else "@" for letter in text) or "(empty)"


def _integer(value: Any) -> int:
    if isinstance(value, int | float):
        return int(value)
    text = str(value).strip()
    digits = text[:1] if text[:1] in ("+", "-") else ""
    for letter in text[len(digits) :]:
        if not letter.isdigit():
            break
        digits += letter
    return int(digits) if digits.strip("+-") else 0


def agrees(answer: Sequence[str], values: Sequence[str]) -> bool:
    """Return whether values are those that a file expects."""
    if len(answer) == 1 and " values hashing to " in answer[0]:
        digest = hashlib.md5("".join(f"{value}\n" for value in values).encode(), usedforsecurity=False).hexdigest()
        return answer[0] == f"{len(values)} values hashing to {digest}"
    return list(answer) == list(values)
