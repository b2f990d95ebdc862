"""Types of columns: a value as a machine sees it, and as the log holds it. Pure.

    type            in Python                    in the log (msgpack)
    int, float, bool, str, bytes   the same      the same
    decimal(p,s)    `decimal.Decimal`            text with exactly s digits behind the point: "12.50"
    timestamp       `datetime`, with a zone      int: microseconds since 1970 UTC
    date            `datetime.date`              int: days since 1970
    uuid            `uuid.UUID`                  16 bytes
    json            None, bool, int, float, str, list, dict   text: keys sorted, no spaces
    list(type)      `list`                       array

Each value has one form in the log only: keys are found by their bytes, and the digest is one of bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple
from uuid import UUID

from rsm_spark.core.machine import Field, FieldType

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)

Convert = Callable[[Any], Any]
Converts = tuple[Convert | None, ...]
"""Conversion of each column; None = none."""


class ColumnType(NamedTuple):
    """Form of a column's values in Python and in the log.

    Attributes:
        given: Type of a value as the machine gives it, exactly.
        kept: Type of what the log holds.
        to_log: Makes one the other; raises ValueError with what is wrong. None = they are the same.
        from_log: The way back; raises ValueError.

    """

    given: type
    kept: type
    to_log: Convert | None = None
    from_log: Convert | None = None


_PLAIN: Final = {
    FieldType.INT: ColumnType(int, int),
    FieldType.FLOAT: ColumnType(float, float),
    FieldType.BOOL: ColumnType(bool, bool),
    FieldType.STR: ColumnType(str, str),
    FieldType.BYTES: ColumnType(bytes, bytes),
}


def column_type(field: Field) -> ColumnType:
    """Return the form of a column's values."""
    match field.type:
        case FieldType.DECIMAL:
            return _decimals(field.precision, field.scale)
        case FieldType.TIMESTAMP:
            return ColumnType(datetime, int, _microseconds, _timestamp)
        case FieldType.DATE:
            return ColumnType(date, int, _days, _date)
        case FieldType.UUID:
            return ColumnType(UUID, bytes, _uuid_bytes, _uuid)
        case FieldType.JSON:
            return ColumnType(object, str, _json_text, _json_value)
        case FieldType.LIST:
            return _lists(field.item)
    return _PLAIN[field.type]


def _decimals(precision: int, scale: int) -> ColumnType:
    limit = Decimal(10) ** (precision - scale)

    def to_log(value: Any) -> str:
        if type(value) is not Decimal or not value.is_finite():
            raise ValueError("it is no finite Decimal")
        if abs(value) >= limit:
            raise ValueError(f"it has more than {precision - scale} digits before the point")
        text = f"{value:.{scale}f}"
        if Decimal(text) != value:
            raise ValueError(f"it has more than {scale} digits behind the point: round it")
        return text if value else f"{0:.{scale}f}"  # There is no negative zero.

    def from_log(text: str) -> Decimal:
        try:
            return Decimal(text)
        except InvalidOperation:
            raise ValueError(f"{text!r} is no decimal number") from None

    return ColumnType(Decimal, str, to_log, from_log)


def _microseconds(value: Any) -> int:
    if type(value) is not datetime:
        raise ValueError("it is no datetime")
    if value.tzinfo is None:
        raise ValueError("it has no time zone: say which, such as tzinfo=UTC")
    return (value - _EPOCH) // _MICROSECOND


def _timestamp(value: int) -> datetime:
    try:
        return _EPOCH + value * _MICROSECOND
    except OverflowError:
        raise ValueError(f"{value} microseconds are beyond the years 1 to 9999") from None


def _days(value: Any) -> int:
    if type(value) is not date:  # A datetime is a date too, for Python.
        raise ValueError("it is no date")
    return value.toordinal() - _EPOCH_DAY


def _date(value: int) -> date:
    try:
        return date.fromordinal(value + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise ValueError(f"{value} days are beyond the years 1 to 9999") from None


def _uuid_bytes(value: Any) -> bytes:
    if type(value) is not UUID:
        raise ValueError("it is no UUID")
    return value.bytes


def _uuid(value: bytes) -> UUID:
    return UUID(bytes=value)


def _json_text(value: Any) -> str:
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if json.loads(text) != value:  # Keys that are no strings, tuples: they would come back as something else.
        raise ValueError("it is no JSON: keys are strings, sequences are lists")
    return text


def _json_value(text: str) -> Any:
    return json.loads(text)


def _lists(item: Field) -> ColumnType:
    kind = column_type(item)

    def to_log(value: Any) -> list[Any]:
        if type(value) is not list:
            raise ValueError("it is no list")
        if kind.to_log is not None:
            return [kind.to_log(one) for one in value]
        for one in value:
            if type(one) is not kind.given:
                raise ValueError(f"it holds a value of type {type(one).__name__}")
        return list(value)

    def from_log(value: list[Any]) -> list[Any]:
        return value if kind.from_log is None else [kind.from_log(one) for one in value]

    return ColumnType(list, list, to_log, from_log)


def converts_of(fields: Sequence[Field], *, to_log: bool) -> Converts | None:
    """Return the conversion of each field, to or from the log; None if there is none at all."""
    kinds = [column_type(field) for field in fields]
    converts = tuple(kind.to_log if to_log else kind.from_log for kind in kinds)
    return converts if any(converts) else None


def converted(values: tuple[Any, ...], converts: Converts) -> tuple[Any, ...]:
    """Return values by place after their conversion, as many as there are of both; None stays.

    Raises:
        ValueError: A value does not fit; it says why.

    """
    return tuple(
        value if value is None or convert is None else convert(value)
        for value, convert in zip(values, converts, strict=False)
    )


def text_of(field: Field, value: Any) -> Any:
    """Return a value of the log as people read it, and as JSON holds it: times in ISO 8601, ids in their usual form.

    Bytes, and what does not fit its column, stay as they are.
    """
    if field.type is FieldType.LIST and type(value) is list:
        return [text_of(field.item, one) for one in value]
    show = _TEXTS.get(field.type)
    try:
        return value if show is None or value is None else show(value)
    except (TypeError, ValueError, AttributeError):
        return value


_TEXTS: Final[dict[FieldType, Convert]] = {
    FieldType.TIMESTAMP: lambda value: _timestamp(value).isoformat(),
    FieldType.DATE: lambda value: _date(value).isoformat(),
    FieldType.UUID: lambda value: str(_uuid(value)),
    FieldType.JSON: _json_value,
}


def default_in_log(field: Field) -> Any:
    """Return what the log would hold of a column's default."""
    convert = column_type(field).to_log
    return field.default if field.default is None or convert is None else convert(field.default)
