"""Dates and times that come with a zone and without a type, for columns that have none. Pure.

pgjdbc sends what is set as a date or a time so, `2026-01-02 +00`, and leaves the type to the server: PostgreSQL takes
that of the column, and drops the zone where the column has none. So do we, for the rows of an INSERT.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rsm_spark.sql.pg.values import DATE, TIME, TIMESTAMP, spread

_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_\x80-\U0010ffff][\w$]*)'
_ROW = r"\(\s*+\?[0-9]++(?:\s*+,\s*+\?[0-9]++)*+\s*+\)"
_INSERT = re.compile(
    rf"INSERT\s+INTO\s+(?P<table>{_NAME})\s*(?:\((?P<columns>[^()?']+)\)\s*)?VALUES\s*+"
    rf"(?P<rows>{_ROW}(?:\s*+,\s*+{_ROW})*+)",
    re.IGNORECASE,
)
_ROWS = re.compile(_ROW)
_NUMBER = re.compile(r"[0-9]+")
_MOMENT_BYTES_MAX: Final = 40
_MOMENT = re.compile(
    rb"(?:(?P<day>\d{4,6}-\d\d-\d\d)(?: (?=\d))?)?(?P<time>\d\d:\d\d:\d\d(?:\.\d{1,9})?)? ?[+-]\d\d(?::?\d\d){0,2}"
)


def zoned_places(types: Sequence[int], formats: Sequence[int], values: Sequence[bytes | None]) -> list[int]:
    """Return which values look like a date or a time with a zone, and have no type.

    Args:
        types: Of the parameters; 0 = not said.
        formats: As they came.
        values: The same.

    """
    found = [
        place
        for place, (kind, value) in enumerate(zip(types, values, strict=False))
        if kind == 0 and value is not None and len(value) <= _MOMENT_BYTES_MAX and _MOMENT.fullmatch(value)
    ]
    if not found or not any(formats):
        return found
    forms = spread(formats, len(values), "values")
    return [place for place in found if forms[place] == 0]


def inserted_columns(sql: str) -> tuple[str, dict[int, int]] | None:
    """Return a query with the columns that an INSERT fills, and of each parameter the place of its column.

    Args:
        sql: A statement as SQLite gets it.

    Returns:
        None if it is no INSERT whose rows are parameters alone.

    """
    found = _INSERT.match(sql)
    if found is None:
        return None
    places: dict[int, int] = {}
    for row in _ROWS.findall(found["rows"]):
        for place, number in enumerate(_NUMBER.findall(row)):
            if places.setdefault(int(number) - 1, place) != place:
                return None
    return f"SELECT {found['columns'] or '*'} FROM {found['table']}", places  # noqa: S608 - the client's own words


def without_zone(kind: int, value: bytes) -> bytes:
    """Return a date or a time as a column of a type keeps it; as it came, if that type has a zone, or is another."""
    found = _MOMENT.fullmatch(value)
    assert found is not None
    day, time = found["day"] or b"", found["time"] or b""
    if kind == DATE and day:
        return day
    if kind == TIMESTAMP and day:
        return day + b" " + (time or b"00:00:00")
    return time if kind == TIME and time else value
