r"""A text of statements, as PostgreSQL's clients write it, cut into statements for SQLite. Pure.

What is spelled otherwise letter by letter is spelled SQLite's way here: `$1` becomes `?1`, `E'a\n'` and `$$a$$` become
plain texts. All else is left as it is; whether a statement needs more is told by its words.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rsm_spark.sql.limits import PARAMETERS_MAX
from rsm_spark.sql.pg.faults import SYNTAX, TOO_LARGE, PgFault

STATEMENTS_MAX: Final = 1_000
"""Statements of one text."""
_WORDS_KEPT: Final = 4

_TOKEN = re.compile(
    r"""
    (?P<space>\s++|--[^\n]*+)
  | (?P<comment>/\*)
  | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*+')
  | (?P<text>'(?:[^']|'')*+')
  | (?P<name>"(?:[^"]|"")*+")
  | (?P<dollar>\$(?:[A-Za-z_][A-Za-z_0-9]*+)?\$)
  | (?P<parameter>\$[0-9]++)
  | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z_0-9$\x80-\U0010ffff]*+)
  | (?P<number>[0-9][0-9A-Za-z_.]*+)
  | (?P<operator>::|(?:(?!--|/\*)[-+*/<>=~!@\#%^&|?])++)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|''", re.DOTALL)
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_FOREIGN_WORDS: Final = frozenset({
    "ILIKE", "SERIAL", "BIGSERIAL", "SMALLSERIAL", "IDENTITY", "INTERVAL", "EXTRACT", "NOW", "DATE_TRUNC", "TO_CHAR",
    "STRING_AGG", "ANY", "SIMILAR", "LATERAL", "TRUNCATE", "ONLY", "PUBLIC", "SHARE", "OVERLAY", "GREATEST",
    "LEAST", "BOOL_AND", "BOOL_OR", "POSITION", "LOCALTIMESTAMP", "CHAR_LENGTH", "CHARACTER_LENGTH", "ARRAY",
    "ARRAY_AGG", "LOCKED", "NOWAIT", "FETCH", "TRANSACTION_TIMESTAMP", "CLOCK_TIMESTAMP", "STATEMENT_TIMESTAMP",
    "STRPOS", "BTRIM", "GEN_RANDOM_UUID", "CONCURRENTLY", "VARCHAR_PATTERN_OPS", "TEXT_PATTERN_OPS",
    "BPCHAR_PATTERN_OPS", "UNNEST", "ZONE", "DATE_BIN", "DATE_PART", "TO_TIMESTAMP",
})  # fmt: skip
_FOREIGN_CALLS: Final = frozenset({"LEFT", "RIGHT"})
"""Words that are foreign before a parenthesis alone."""
_FOREIGN_LITERALS: Final = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ"})
"""Words that are foreign before a text alone."""
_FOREIGN_OPERATORS: Final = frozenset({"::", "~", "~*", "!~", "!~*", "~~", "~~*", "!~~", "!~~*"})
_COMPARISONS: Final = frozenset({"<", "<=", ">", ">="})
_ISO_MOMENT = re.compile(r"'\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)'")
"""A moment as ISO 8601 writes it: foreign where something is compared with it."""
_SYSTEM_FUNCTIONS: Final = frozenset({
    "VERSION", "CURRENT_SCHEMA", "CURRENT_SCHEMAS", "CURRENT_DATABASE", "CURRENT_USER", "SESSION_USER", "CURRENT_ROLE",
    "CURRENT_CATALOG", "CURRENT_SETTING", "SET_CONFIG", "FORMAT_TYPE", "OBJ_DESCRIPTION", "COL_DESCRIPTION",
    "SHOBJ_DESCRIPTION", "HAS_TABLE_PRIVILEGE", "HAS_SCHEMA_PRIVILEGE", "HAS_DATABASE_PRIVILEGE", "INFORMATION_SCHEMA",
    "TXID_CURRENT", "INET_SERVER_ADDR", "INET_SERVER_PORT",
})  # fmt: skip


class LexedStatement(NamedTuple):
    """One statement.

    Attributes:
        sql: Of it, without the semicolon.
        foreign_sql: The same for sqlglot: parameters are `:p1`.
        words: Its first ones, in capitals.
        all_words: All of them that stand outside of texts, names in quotes and comments.
        parameter_count: Greatest number of its parameters.
        is_foreign: It may be spelled in a way that is not SQLite's.
        is_of_system: It asks for what PostgreSQL keeps in its system catalog.

    """

    sql: str
    foreign_sql: str
    words: tuple[str, ...]
    all_words: frozenset[str]
    parameter_count: int
    is_foreign: bool
    is_of_system: bool


class _Cut:
    """The statement that is being read."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.foreign_parts: list[str] = []
        self.last_word = ""
        self.last_operator = ""
        self.words: list[str] = []
        self.all_words: set[str] = set()
        self.parameter_count = 0
        self.is_foreign = False
        self.is_empty = True
        # Of the body of a trigger: ";", then END, then ";" is its end.
        self.ended = ""

    @property
    def is_trigger(self) -> bool:
        words = [word for word in self.words[:3] if word not in ("TEMP", "TEMPORARY")]
        return words[:2] == ["CREATE", "TRIGGER"]

    def space(self, text: str) -> None:
        self.parts.append(text)
        self.foreign_parts.append(text)

    def add(self, text: str, *, is_word: bool = False, foreign: str = "") -> None:
        self.parts.append(text)
        self.foreign_parts.append(foreign or text)
        self.is_empty = False
        self.last_operator = ""
        if not is_word:
            self.ended = self.last_word = ""
            return
        word = self.last_word = text.upper()
        self.ended = "; END" if word == "END" and self.ended == ";" else ""
        if len(self.words) < _WORDS_KEPT:
            self.words.append(word)
        self.all_words.add(word)

    def statement(self) -> LexedStatement:
        words = self.all_words
        is_foreign = self.is_foreign or not words.isdisjoint(_FOREIGN_WORDS)
        is_foreign = is_foreign or ("DISTINCT" in words and "ON" in words) or {"FOR", "UPDATE"} <= words
        is_foreign = is_foreign or {"INSERT", "SELECT", "CONFLICT"} <= words
        is_foreign = is_foreign or (self.words[:1] == ["DROP"] and not words.isdisjoint(("CASCADE", "RESTRICT")))
        is_of_system = not words.isdisjoint(_SYSTEM_FUNCTIONS) or any(word.startswith("PG_") for word in words)
        return LexedStatement(
            "".join(self.parts).strip(), "".join(self.foreign_parts).strip(), tuple(self.words), frozenset(words),
            self.parameter_count, is_foreign, is_of_system,
        )  # fmt: skip


def statements_of(text: str) -> list[LexedStatement]:
    """Return the statements of a text; those that are empty are none.

    Raises:
        PgFault: A text or a comment has no end, or there are too many statements.

    """
    found: list[LexedStatement] = []
    cut = _Cut()
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None
        kind, content, at = str(token.lastgroup), token.group(), token.end()
        if kind == "other" and content == ";":
            if not cut.is_trigger or cut.ended == "; END":
                _finish(cut, found)
                cut = _Cut()
                continue
            cut.add(";")
            cut.ended = ";"
        elif kind == "space":
            cut.space(content)
        elif kind == "comment":
            at = _end_of_comment(text, at)
            cut.space(" ")
        elif kind == "dollar":
            end = text.find(content, at)
            if end < 0:
                raise PgFault(SYNTAX, f"a text that begins with {content} has no end")
            cut.add(_quoted(text[at:end]))
            at = end + len(content)
        else:
            _add(cut, kind, content)
    _finish(cut, found)
    return found


def _finish(cut: _Cut, found: list[LexedStatement]) -> None:
    if cut.is_empty:
        return
    if len(found) >= STATEMENTS_MAX:
        raise PgFault(TOO_LARGE, f"a text has at most {STATEMENTS_MAX} statements")
    found.append(cut.statement())


def _add(cut: _Cut, kind: str, content: str) -> None:
    match kind:
        case "parameter":
            number = int(content[1:10])
            if not 1 <= number <= PARAMETERS_MAX:
                raise PgFault(SYNTAX, f"there is no parameter {content}: the first is $1, the last ${PARAMETERS_MAX}")
            cut.parameter_count = max(cut.parameter_count, number)
            cut.add(f"?{number}", foreign=f":p{number}")  # sqlglot takes $1,$2 for a text
        case "escaped":
            cut.add(_quoted(_ESCAPE.sub(_unescaped, content[2:-1])))
        case "operator":
            cut.is_foreign = cut.is_foreign or content in _FOREIGN_OPERATORS
            cut.add(content)
            cut.last_operator = content
        case "text":
            is_compared = cut.last_operator in _COMPARISONS or cut.last_word == "BETWEEN"
            cut.is_foreign = cut.is_foreign or cut.last_word in _FOREIGN_LITERALS
            cut.is_foreign = cut.is_foreign or (is_compared and _ISO_MOMENT.fullmatch(content) is not None)
            cut.add(content)
        case "other" if content == "(":
            cut.is_foreign = cut.is_foreign or cut.last_word in _FOREIGN_CALLS
            cut.add(content)
        case "other" if content in "'\"":
            raise PgFault(SYNTAX, f"a text that begins with {content} has no end")
        case _:
            cut.add(content, is_word=kind == "word")


def _end_of_comment(text: str, at: int) -> int:
    """Return where a comment ends; comments stand in comments."""
    depth = 1
    while depth:
        end, begin = text.find("*/", at), text.find("/*", at)
        if end < 0:
            raise PgFault(SYNTAX, "a comment has no end")
        if 0 <= begin < end:
            depth, at = depth + 1, begin + 2
        else:
            depth, at = depth - 1, end + 2
    return at


def _unescaped(found: re.Match[str]) -> str:
    octal, hexadecimal, short, long, letter = found.groups()
    if octal is not None:
        return chr(int(octal, 8))
    code = hexadecimal or short or long
    if code is not None:
        number = int(code, 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000 or not number:
            raise PgFault(SYNTAX, f"{found.group()} is no letter")
        return chr(number)
    return "'" if letter is None else _LETTERS.get(letter, letter)


def _quoted(text: str) -> str:
    if "\0" in text:
        raise PgFault(SYNTAX, "a text has a NUL")
    return "'" + text.replace("'", "''") + "'"
