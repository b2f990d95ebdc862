"""Values of a file as values of a column: what its declared type takes, and what it refuses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from ledger.errors import UsageError
from rsm_spark.sql.limits import VALUE_BYTES_MAX
from rsm_spark.sql.messages import SqlValue

_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_INT64: Final = 1 << 63
_SHOWN: Final = 40


class Affinity(StrEnum):
    """SQLite's affinity of a column, by its declared type."""

    INTEGER = "INTEGER"
    REAL = "REAL"
    TEXT = "TEXT"
    BLOB = "BLOB"
    NUMERIC = "NUMERIC"


def affinity_of(declared: str) -> Affinity:
    """Return the affinity of a declared type, by SQLite's rules."""
    upper = declared.upper()
    if "INT" in upper:
        return Affinity.INTEGER
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return Affinity.TEXT
    if "BLOB" in upper or not upper:
        return Affinity.BLOB
    if any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        return Affinity.REAL
    return Affinity.NUMERIC


def from_text(text: str, declared: str) -> SqlValue:
    r"""Return what a text of a CSV file is in a column.

    A column of bytes takes ``\x`` and hexadecimal digits; one without a type, or of another kind, takes the text: what
    is a number for it SQLite decides.

    Raises:
        ValueError: It is none of that type; says so.

    """
    match affinity_of(declared):
        case Affinity.INTEGER:
            if _INTEGER.fullmatch(text):
                return checked(int(text), declared)
            raise ValueError(_none(text, declared))
        case Affinity.REAL:
            try:
                return checked(float(text), declared)
            except ValueError:
                raise ValueError(_none(text, declared)) from None
        case Affinity.BLOB if text.startswith("\\x"):
            try:
                return checked(bytes.fromhex(text[2:]), declared)
            except ValueError:
                raise ValueError(_none(text, declared)) from None
    return checked(text, declared)


def checked(value: Any, declared: str) -> SqlValue:
    """Return a value that a column takes as it is.

    Raises:
        ValueError: It does not, or the value is none of SQLite's; says so.

    """
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("NaN is no value of SQLite: it would become NULL")
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise ValueError(f"{value} has more than 64 bits")
    if isinstance(value, str | bytes):
        size = len(value.encode()) if isinstance(value, str) else len(value)
        if size > VALUE_BYTES_MAX:
            raise ValueError(f"it has {size} bytes, more than the {VALUE_BYTES_MAX} of a value")
    affinity = affinity_of(declared)
    is_number = isinstance(value, int | float)
    if affinity is Affinity.INTEGER and not (isinstance(value, int) or (is_number and value.is_integer())):
        if value is not None:
            raise ValueError(_none(value, declared))
    elif affinity is Affinity.REAL and value is not None and not is_number:
        raise ValueError(_none(value, declared))
    return int(value) if isinstance(value, bool) else value


def _none(value: Any, declared: str) -> str:
    text = repr(value)
    return f"{text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'} is no {declared.upper()}"


def type_of_texts(texts: TextCounts) -> str:
    """Return the declared type of a column that has only such texts."""
    if texts.count and texts.integers == texts.count:
        return "INTEGER"
    return "REAL" if texts.count and texts.numbers == texts.count else "TEXT"


class TextCounts:
    """Counts what the texts of one column could be.

    Attributes:
        count: Texts.
        integers: That are integers of 64 bits.
        numbers: That are finite numbers.

    """

    def __init__(self) -> None:
        self.count = self.integers = self.numbers = 0

    def add(self, text: str) -> None:
        """Count one. A number with a zero in front is a text, as of a postcode."""
        self.count += 1
        digits = text.lstrip("+-")
        if digits.startswith("0") and digits[1:2].isdigit():
            return
        if _INTEGER.fullmatch(text):
            is_small = -_INT64 <= int(text) < _INT64
            self.integers += is_small
            self.numbers += is_small
            return
        try:
            self.numbers += math.isfinite(float(text))
        except ValueError:
            return


def checked_rows(
    path: Path, columns: Sequence[str], rows: Iterator[tuple[SqlValue, ...]], types: Sequence[str]
) -> Iterator[tuple[SqlValue, ...]]:
    """Iterate over rows whose values their columns take.

    Raises:
        UsageError: One does not.

    """
    for number, row in enumerate(rows, 1):
        values: list[SqlValue] = []
        for place, value in enumerate(row):
            try:
                values.append(checked(value, types[place]))
            except ValueError as error:
                raise UsageError(f"{path}: row {number}, column {columns[place]}: {error}") from None
        yield tuple(values)


def created(table: str, columns: Sequence[str], types: Sequence[str]) -> str:
    """Return CREATE TABLE of columns."""
    defined = ", ".join(f"{quoted_word(name)} {kind}".rstrip() for name, kind in zip(columns, types, strict=True))
    return f"CREATE TABLE {quoted_word(table)} ({defined})"


def quoted_word(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
