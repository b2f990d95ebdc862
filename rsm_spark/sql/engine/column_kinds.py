r"""Types of a column of an SQL table, by what it declares and what it holds. Pure.

SQLite gives a value its own type, whatever its column declares. So a column has the declared type where all its values
are of it, or else the one that its values have. Where they are mixed it is text: numbers as SQL writes them, bytes as
``\x`` and hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, Final

from rsm_spark.core.machine import FieldType

_EXACT: Final = 1 << 53
"""Integers up to here are floats without loss."""


class ValueKind(Enum):
    """Kind of a value; LONG is an integer that no float holds exactly."""

    BIT = "bit"
    INTEGER = "integer"
    LONG = "long"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"


def kind_of(value: Any) -> ValueKind:
    """Return the kind of a value that is not null."""
    match value:
        case int():
            return ValueKind.BIT if value in {0, 1} else ValueKind.INTEGER if abs(value) <= _EXACT else ValueKind.LONG
        case float():
            return ValueKind.FLOAT
        case str():
            return ValueKind.TEXT
    return ValueKind.BYTES


_INTEGERS: Final = frozenset({ValueKind.BIT, ValueKind.INTEGER, ValueKind.LONG})
_NUMBERS: Final = frozenset({ValueKind.BIT, ValueKind.INTEGER, ValueKind.FLOAT})


def type_of(declared: str, seen: Collection[ValueKind]) -> FieldType:
    """Return the type of a column by what it declares and what it holds."""
    wanted, seen = _declared(declared), frozenset(seen)
    if not seen:
        return wanted
    if seen == {ValueKind.BIT} and wanted is FieldType.BOOL:
        return FieldType.BOOL
    if seen <= _INTEGERS and (wanted is not FieldType.FLOAT or ValueKind.LONG in seen):
        return FieldType.INT
    if seen <= _NUMBERS:
        return FieldType.FLOAT
    return FieldType.BYTES if seen == {ValueKind.BYTES} else FieldType.STR


def _declared(declared: str) -> FieldType:
    """Return the type that a declared one means, by SQLite's rules of affinity; text where it means none."""
    upper = declared.upper()
    for words, kind in (
        (("BOOL",), FieldType.BOOL), (("INT",), FieldType.INT), (("CHAR", "CLOB", "TEXT"), FieldType.STR),
        (("BLOB",), FieldType.BYTES), (("REAL", "FLOA", "DOUB"), FieldType.FLOAT),
    ):  # fmt: skip
        if any(word in upper for word in words):
            return kind
    return FieldType.STR


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case bytes():
            return "\\x" + value.hex()
    return repr(value)


CONVERTS: Final[dict[FieldType, Callable[[Any], Any]]] = {
    FieldType.BOOL: bool,
    FieldType.FLOAT: float,
    FieldType.STR: _text,
}
"""Functions that make a value one of its column's type; none where it is one already."""
