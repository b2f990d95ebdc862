"""Filters of a query become bounds of entries, as far as they are such. Pure.

A filter that is taken must hold for every row that is delivered: Spark does not look at it again. So only what the
tasks check exactly is taken; what merely helps to leave entries out (`IN`) is used and left to Spark as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from connectors.source.entry_bounds import EntryBounds, Interval
from connectors.source.options import BadRecords, Rows, SourceOptions

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ENTRY_NAMES: Final = ("ledger_id", "entry_id", "revision", "leader_epoch")
_NAMES: Final[Mapping[Rows, Mapping[str, str]]] = {
    Rows.RAW: {name: name for name in _ENTRY_NAMES} | {"logged_at": "logged_ms"},
    Rows.RECORDS: {name: name for name in _ENTRY_NAMES} | {"logged_at": "logged_ms"},
    Rows.KAFKA: {"offset": "revision", "timestamp": "logged_ms"},
    Rows.TABLE: {"_revision": "revision", "_logged_at": "logged_ms"},
}
_LEDGER_NAMES: Final[Mapping[Rows, Mapping[str, str]]] = {
    Rows.RAW: {"ledger_id": "ledger_id", "entry_id": "entry_id"},
    Rows.KAFKA: {"partition": "ledger_id", "offset": "entry_id"},
}
_TIMES: Final = "logged_ms"


def push_filters(filters: Sequence[Filter], options: SourceOptions) -> tuple[EntryBounds, list[Filter]]:
    """Return what the filters say of entries, and which filters are left to Spark.

    Args:
        filters: All of them hold for a row that is asked for.
        options: Of the query. With badRecords=column all filters are left to Spark as well: a row that tells of an
            error has nulls where others have what the filter is about.

    """
    names = _NAMES[options.rows] if options.is_logs else _LEDGER_NAMES[options.rows]
    bounds = EntryBounds()
    left: list[Filter] = []
    for one in filters:
        found = _interval(one, names)
        if found is not None:
            name, interval, is_exact = found
            bounds = msgspec.structs.replace(bounds, **{name: getattr(bounds, name) & interval})
            if is_exact and options.bad_records == BadRecords.FAIL:
                continue
        left.append(one)
    return bounds, left


def _interval(one: Filter, names: Mapping[str, str]) -> tuple[str, Interval, bool] | None:
    """Return what a filter bounds, to what, and whether that is all that it says."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    name = names.get(attribute[0]) if len(attribute) == 1 else None
    if name is None:
        return None
    if isinstance(one, In):
        scaled = [_scaled(value, name) for value in one.value]
        known = [value for value in scaled if value is not None]
        if not known or len(known) < len(scaled):
            return None
        return name, Interval(min(low for low, _ in known), max(high for _, high in known)), False
    value = _scaled(getattr(one, "value", None), name)
    if value is None:
        return None
    floor, ceiling = value
    match one:
        case EqualTo() | EqualNullSafe():
            # Nothing was logged between two milliseconds: then the interval is empty.
            return name, Interval(ceiling, floor), True
        case GreaterThan():
            return name, Interval(low=floor + 1), True
        case GreaterThanOrEqual():
            return name, Interval(low=ceiling), True
        case LessThan():
            return name, Interval(high=ceiling - 1), True
        case LessThanOrEqual():
            return name, Interval(high=floor), True
    return None


def _scaled(value: Any, name: str) -> tuple[int, int] | None:
    """Return a value in the unit of the bound, rounded down and up; None if it is none."""
    if name != _TIMES:
        return (value, value) if type(value) is int else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    microseconds = (value - _EPOCH) // _MICROSECOND
    return microseconds // 1000, -(-microseconds // 1000)
