"""Text that made a table of SQLite, taken apart: columns, their clauses, constraints. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from rsm_spark.sql.pg.faults import PgFault

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s++|--[^\n]*+|/\*.*?\*/)
  | (?P<text>'(?:[^']|'')*+')
  | (?P<name>"(?:[^"]|"")*+"|`[^`]*+`|\[[^\]]*+\])
  | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z_0-9$\x80-\U0010ffff]*+)
  | (?P<other>[0-9][0-9A-Za-z_.]*+|::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CLAUSES: Final = frozenset({
    "CONSTRAINT", "PRIMARY", "NOT", "UNIQUE", "CHECK", "DEFAULT", "COLLATE", "REFERENCES", "GENERATED", "AS",
})  # fmt: skip
_OF_TABLE: Final = frozenset({"CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"})
_WHOLE: Final = frozenset({"INT", "INTEGER", "BIGINT", "SMALLINT", "INT2", "INT4", "INT8", "SERIAL", "BIGSERIAL"})
_NO_COLUMN: Final = "42703"


class SqlToken(NamedTuple):
    """A piece of SQL, spaces and comments too.

    Attributes:
        kind: "space", "text", "name" in quotes, "word", "other".
        text: As it stands there.

    """

    kind: str
    text: str

    @property
    def word(self) -> str:
        """It, in capitals, if it is no name in quotes and no text."""
        return self.text.upper() if self.kind in ("word", "other") else ""

    @property
    def name(self) -> str:
        """It as the name that it says."""
        if self.kind == "word":
            return self.text
        inside = self.text[1:-1]
        return inside.replace('""', '"') if self.text.startswith('"') else inside


SqlTokens = list[SqlToken]


def tokens_of(sql: str) -> SqlTokens:
    """Return the pieces of SQL, all of its letters."""
    return [SqlToken(str(one.lastgroup), one.group()) for one in _TOKEN.finditer(sql)]


def said_of(tokens: Iterable[SqlToken]) -> SqlTokens:
    """Return pieces without spaces and comments."""
    return [one for one in tokens if one.kind != "space"]


def text_of(tokens: Iterable[SqlToken]) -> str:
    """Return pieces as SQL, without comments."""
    return "".join(" " if one.text.startswith(("--", "/*")) else one.text for one in tokens).strip()


def split(tokens: Sequence[SqlToken]) -> list[SqlTokens]:
    """Return what stands between the commas outside of parentheses."""
    parts: list[SqlTokens] = [[]]
    depth = 0
    for one in tokens:
        depth += (one.text == "(") - (one.text == ")")
        if one.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(one)
    return parts


class TableText:
    """Text that made a table: its columns and constraints."""

    def __init__(self, sql: str) -> None:
        tokens = tokens_of(sql)
        begin = next(place for place, one in enumerate(tokens) if one.text == "(")
        depth = 0
        for end in range(begin, len(tokens)):
            depth += (tokens[end].text == "(") - (tokens[end].text == ")")
            if depth == 0:
                break
        self.items = split(tokens[begin + 1 : end])
        self._tail = text_of(tokens[end + 1 :])

    def sql(self, name: str) -> str:
        """Return the text that makes such a table of this name."""
        return f"CREATE TABLE {quoted(name)} ({', '.join(map(text_of, self.items))}) {self._tail}".strip()

    def columns(self) -> list[str]:
        """Return the names of the columns that are stored."""
        found = [item for item in self.items if said_of(item)[0].word not in _OF_TABLE]
        return [said_of(item)[0].name for item in found if not _clause(item, ("GENERATED", "AS"))]

    def column(self, name: str) -> int:
        """Return the place of a column.

        Raises:
            PgFault: There is none of this name.

        """
        for place, item in enumerate(self.items):
            first = said_of(item)[0]
            if first.word not in _OF_TABLE and first.name.lower() == name.lower():
                return place
        raise PgFault(_NO_COLUMN, f"no such column: {name}")

    def change(self, name: str, clauses: Sequence[str], text: str) -> None:
        """Put a clause of a column in place of another one, or behind all; "" = take it away."""
        place = self.column(name)
        parts = _clauses(self.items[place])
        kept = [part for part in parts[1:] if not _is_clause(part, clauses)]
        joined = [one for part in (parts[0], *kept) for one in part]
        self.items[place] = [*joined, *tokens_of(f" {text}")] if text else joined

    def retype(self, name: str, kind: str) -> None:
        """Give a column another type."""
        place = self.column(name)
        parts = _clauses(self.items[place])
        if any(one.word == "AUTOINCREMENT" for one in self.items[place]) and kind.upper() in _WHOLE:
            return  # It has 64 bits already.
        first = said_of(parts[0])[0]
        rest = [one for part in parts[1:] for one in part]
        self.items[place] = [first, *tokens_of(f" {kind} "), *rest]

    def drop_column(self, name: str) -> None:
        """Take a column away, and the constraints that name it."""
        del self.items[self.column(name)]
        self.items = [item for item in self.items if not (said_of(item)[0].word in _OF_TABLE and has_name(item, name))]

    def drop_constraint(self, name: str) -> bool:
        """Take a constraint away; return whether it was there."""
        for place, item in enumerate(self.items):
            parts = [item] if said_of(item)[0].word in _OF_TABLE else _clauses(item)
            for part in parts:
                said = said_of(part)
                if said[0].word != "CONSTRAINT" or said[1].name.lower() != name.lower():
                    continue
                if part is item:
                    del self.items[place]
                else:
                    self.items[place] = [one for kept in parts if kept is not part for one in kept]
                return True
        return False


def _clauses(item: SqlTokens) -> list[SqlTokens]:
    """Return a column's name and type, and each of its clauses."""
    parts: list[SqlTokens] = [[]]
    said = said_of(item)
    following = {id(one): after.word for one, after in pairwise(said)}
    depth, of_clause, before = 0, 0, ""
    for one in item:
        depth += (one.text == "(") - (one.text == ")")
        if one.kind != "space" and depth == 0:
            if of_clause:
                of_clause -= 1  # `CONSTRAINT name` is of the clause behind it.
            elif one.word in _CLAUSES and before != "SET" and following.get(id(one)) != "DEFERRABLE":
                parts.append([])
                of_clause = 2 if one.word == "CONSTRAINT" else 0
            before = one.word
        parts[-1].append(one)
    return parts


def _is_clause(part: SqlTokens, words: Sequence[str]) -> bool:
    said = said_of(part)
    first = said[2] if said and said[0].word == "CONSTRAINT" and len(said) > 2 else said[0] if said else None
    return first is not None and first.word in words


def _clause(item: SqlTokens, words: Sequence[str]) -> bool:
    return any(_is_clause(part, words) for part in _clauses(item)[1:])


def has_name(tokens: Iterable[SqlToken], name: str) -> bool:
    """Return whether a name, of any case, is among pieces."""
    return any(one.kind in ("word", "name") and one.name.lower() == name.lower() for one in tokens)


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'
