"""Values and types of the DB-API: what is sent for Python's values, and which kind a column is of. Pure."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from rsm_spark.sql.dbapi.errors import InterfaceError
from rsm_spark.sql.messages import SqlValue

Parameters = Sequence[Any] | Mapping[str, Any]
"""Values of ``?`` in order, or of ``:name`` by name."""

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802 - the DB-API's name
    """Return the local day of a time in seconds since 1970."""
    return dt.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802
    """Return the local time of day of a time in seconds since 1970."""
    return dt.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802
    """Return the local time of a time in seconds since 1970."""
    return dt.datetime(*time.localtime(ticks)[:6])  # noqa: DTZ001 - local, as the DB-API says


class ColumnKind:
    """A kind of columns: equal to the declared types of its columns, as SQLite understands them.

    Args:
        name: Of it.

    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __eq__(self, other: object) -> bool:
        """Return whether a column with this declared type is of this kind."""
        return kind_of(other) == self._name if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        """Return the same for the same kind."""
        return hash(self._name)

    def __repr__(self) -> str:
        """Return its name."""
        return self._name


def kind_of(declared: str) -> str:
    """Return the name of the kind of a declared type."""
    words = declared.upper()
    if any(word in words for word in ("DATE", "TIME")):
        return "DATETIME"
    if any(word in words for word in ("INT", "REAL", "FLOA", "DOUB", "NUM", "DEC", "BOOL")):
        return "NUMBER"
    return "BINARY" if "BLOB" in words or "BINARY" in words else "STRING"


STRING = ColumnKind("STRING")
BINARY = ColumnKind("BINARY")
NUMBER = ColumnKind("NUMBER")
DATETIME = ColumnKind("DATETIME")
ROWID = ColumnKind("ROWID")


def sent(parameters: Parameters) -> tuple[SqlValue, ...] | dict[str, SqlValue]:
    """Return parameters as SQLite keeps them: times and days as ISO text, decimals and UUIDs as text.

    Raises:
        InterfaceError: They are no sequence and no mapping, or of a type that cannot be kept.

    """
    if isinstance(parameters, Mapping):
        return {name: _sent(value) for name, value in parameters.items()}
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        kind = type(parameters).__name__
        raise InterfaceError(f"parameters are a sequence or a mapping, not {kind}: write (value,)")
    return tuple(map(_sent, parameters))


def _sent(value: Any) -> SqlValue:
    match value:
        case None:
            return None
        case str():
            return str.__str__(value)  # Of a kind of its own too; so for numbers: enumerations, numpy's.
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case bytes():
            return bytes(value)
        case bytearray() | memoryview():
            return bytes(value)
        case dt.datetime():
            return value.isoformat(" ")
        case dt.date() | dt.time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
    raise InterfaceError(f"a value of type {type(value).__name__} cannot be kept: {value!r:.100}")
