r"""COPY of PostgreSQL's clients: the command, and rows as lines of text or CSV. Pure.

Text: values between tabs, `\N` = NULL, `\t`, `\n` and so on for what would end a value or a line. CSV: an empty
value without quotes = NULL. What comes is cut into rows as it comes; a row that is not whole yet waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rsm_spark.sql.pg.cut_rows import BAD_COPY, CutRows
from rsm_spark.sql.pg.faults import BAD_TEXT, NOT_SUPPORTED, SYNTAX, PgFault

_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_\x80-\U0010ffff][\w$]*)'
_COMMAND = re.compile(
    rf"COPY\s+(?:(?:{_NAME}\s*\.\s*)?(?P<table>{_NAME})\s*(?:\((?P<columns>[^)]*)\))?|\((?P<query>.*)\))\s*"
    r"(?P<way>FROM\s+STDIN|TO\s+STDOUT)\s*(?:WITH\b)?\s*(?P<options>.*)",
    re.IGNORECASE | re.DOTALL,
)
_OPTION = re.compile(
    r"\s*,?\s*(?P<name>FORMAT|DELIMITER|NULL|HEADER|QUOTE|ESCAPE|ENCODING|CSV|BINARY|TEXT)\b\s*(?:AS\s+)?"
    r"(?P<value>'(?:[^']|'')*'|true|false|on|off|text|csv|binary|[01]\b)?",
    re.IGNORECASE,
)
_ESCAPES: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_BACKSLASH = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_TO_ESCAPE = re.compile(rb"[\\\b\f\n\r\t\v]")
_ESCAPED: Final = {value: b"\\" + key for key, value in _ESCAPES.items()} | {b"\\": b"\\\\"}


class CopyCommand(NamedTuple):
    """A COPY.

    Attributes:
        table: Name of the table, as it is quoted; "" = it is of a query.
        columns: As they are written; "" = all.
        query: Whose rows are copied; "" = those of the table.
        is_in: Rows come from the client.
        is_csv: They are CSV.
        is_binary: They are neither text nor CSV, and the attributes below say nothing.
        delimiter: Between values.
        null: Text of NULL.
        quote: Of CSV.
        has_header: The first line has the names of columns.

    """

    table: str
    columns: str
    query: str
    is_in: bool
    is_csv: bool
    delimiter: bytes
    null: bytes
    quote: bytes
    has_header: bool
    is_binary: bool = False

    @property
    def select(self) -> str:
        """The query whose rows are copied out, or whose columns are copied in."""
        return self.query or f"SELECT {self.columns or '*'} FROM {self.table}"  # noqa: S608 - the client's own words


def copy_command(sql: str) -> CopyCommand:
    """Return what a COPY says.

    Raises:
        PgFault: It says what is not served, or nothing.

    """
    found = _COMMAND.fullmatch(sql.strip())
    if found is None:
        raise PgFault(SYNTAX, "COPY is written: COPY table (columns) FROM STDIN, or TO STDOUT, WITH (FORMAT csv, …)")
    is_in = found["way"].upper().startswith("FROM")
    if is_in and found["query"]:
        raise PgFault(SYNTAX, "COPY FROM STDIN goes into a table")
    options = _options(found["options"].strip().removeprefix("(").removesuffix(")"))
    form = options.get("format", "csv" if "csv" in options else "binary" if "binary" in options else "text").lower()
    is_binary = form == "binary"
    if is_binary and not set(options) <= {"format", "binary", "encoding"}:
        raise PgFault(SYNTAX, "COPY in binary has no delimiter, no text of NULL, no header and no quotes")
    is_csv = form == "csv"
    delimiter, quote = (
        options.get("delimiter", "," if is_csv else "\t").encode(), options.get("quote", '"').encode(),
    )  # fmt: skip
    if options.get("escape", quote.decode()) != quote.decode():
        raise PgFault(NOT_SUPPORTED, "COPY: in CSV a quote is escaped by itself")
    if options.get("encoding", "utf8").lower() not in ("utf8", "utf-8", "unicode"):
        raise PgFault(NOT_SUPPORTED, "COPY: texts are UTF-8")
    if len(delimiter) != 1 or len(quote) != 1 or delimiter in (b"\n", b"\r", b"\\", quote):
        raise PgFault("22023", "COPY: delimiter and quote are one letter each, of ASCII, and not the same")
    return CopyCommand(
        found["table"] or "", (found["columns"] or "").strip(), (found["query"] or "").strip(), is_in, is_csv,
        delimiter, options.get("null", "" if is_csv else "\\N").encode(), quote,
        options.get("header", "false").lower() in ("", "true", "on", "1"), is_binary,
    )  # fmt: skip


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while text[at:].strip(" ,\n\t"):
        one = _OPTION.match(text, at)
        if one is None or one.end() == at:
            raise PgFault(NOT_SUPPORTED, f"COPY: this is not served: {text[at:].strip():.60}")
        value = one["value"] or ""
        if value.startswith("'"):
            value = value[1:-1].replace("''", "'")
        found[one["name"].lower()] = value
        at = one.end()
    return found


class CopyRows(CutRows):
    """Cuts text or CSV into rows.

    Args:
        command: How they are written.
        columns: Of each row.

    """

    def __init__(self, command: CopyCommand, columns: int) -> None:
        super().__init__("line")
        self._command = command
        self._columns = columns
        self._skips = command.has_header
        self._is_over = False
        delimiter, quote = re.escape(command.delimiter), re.escape(command.quote)
        self._field = re.compile(
            rb"(?:" + quote + rb"((?:[^" + quote + rb"]|" + quote * 2 + rb")*+)" + quote + rb"|([^" + delimiter + quote
            + rb"\r\n]*+))(" + delimiter + rb"|\r?\n|\Z)"
        )  # fmt: skip

    def _cut(self, text: bytes, *, is_last: bool) -> Iterator[list[bytes | None]]:
        cut = self._csv_rows if self._command.is_csv else self._text_rows
        for row in cut(text, is_last=is_last):
            if self._skips:
                self._skips = False
                continue
            self.count += 1
            if len(row) != self._columns:
                raise PgFault(BAD_COPY, f"line {self.count} has {len(row)} values, not {self._columns}")
            yield row

    def _text_rows(self, text: bytes, *, is_last: bool) -> Iterator[list[bytes | None]]:
        *lines, self._left = text.split(b"\n")
        if is_last and self._left:
            lines.append(self._left)
            self._left = b""
        for line in lines:
            bare = line.removesuffix(b"\r")
            if bare == b"\\.":
                self._is_over = True
            if self._is_over:
                return
            yield [self._text_value(value) for value in bare.split(self._command.delimiter)]

    def _text_value(self, value: bytes) -> bytes | None:
        if value == self._command.null:
            return None
        return _BACKSLASH.sub(_unescaped, value) if b"\\" in value else value

    def _csv_rows(self, text: bytes, *, is_last: bool) -> Iterator[list[bytes | None]]:
        at, row_at = 0, 0
        row: list[bytes | None] = []
        while at < len(text) and not self._is_over:
            found = self._field.match(text, at)
            end = None if found is None else found[3]
            if found is None or (not end and not is_last) or (end == b"\r" and not is_last):
                if is_last or (
                    found is None and text.count(self._command.quote, row_at) % 2 == 0 and b"\n" in text[at:]
                ):
                    raise PgFault(BAD_COPY, f"line {self.count + 1}: a quote stands in a value, or has no end")
                break
            quoted, plain = found[1], found[2]
            if quoted is not None:
                row.append(quoted.replace(self._command.quote * 2, self._command.quote))
            else:
                row.append(None if plain == self._command.null else plain)
            at = found.end()
            if end == self._command.delimiter:
                if at < len(text) or not is_last:
                    continue
                row.append(None)
            if row == [b"\\."]:
                self._is_over = True
                break
            row_at = at
            yield row
            row = []
        self._left = b"" if self._is_over else text[row_at:]


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = found.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    return _ESCAPES.get(letter, letter)


def copied_row(command: CopyCommand, values: Sequence[bytes | None]) -> bytes:
    """Return a row as it is copied out."""
    return command.delimiter.join(_copied_value(command, value) for value in values) + b"\n"


def _copied_value(command: CopyCommand, value: bytes | None) -> bytes:
    if value is None:
        return command.null
    if not command.is_csv:
        escaped = _TO_ESCAPE.sub(lambda found: _ESCAPED[found[0]], value)
        return escaped if command.delimiter == b"\t" else escaped.replace(command.delimiter, b"\\" + command.delimiter)
    special = (command.delimiter, command.quote, b"\n", b"\r")
    if value in (command.null, b"\\.") or any(one in value for one in special):
        return command.quote + value.replace(command.quote, command.quote * 2) + command.quote
    return value


def checked_utf8(content: bytes, line: int) -> bytes:
    """Return a value that is UTF-8.

    Raises:
        PgFault: It is not.

    """
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise PgFault(BAD_TEXT, f"line {line}: a value is not UTF-8: {error}") from None
    return content
