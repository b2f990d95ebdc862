"""The fifth answer: the flights as rows of an SQL table, loaded and asked over PostgreSQL's port by psycopg.

Each flight is a row, in the order of the year; what the map keeps as running accounts is summed up by one statement.
Rows go in at one replica and are asked for at the other one, whichever leads. Beside it is a table of the airlines'
totals, which Spark writes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from rsm_demo.child import ChildFailedError
from rsm_demo.flights import read_flights
from rsm_spark.errors import RsmError

TOTALS: Final = "airline"
"""Table of the airlines' totals."""

_TABLE: Final = (
    "CREATE TABLE flight "
    "(number INTEGER PRIMARY KEY, tail TEXT, dest TEXT, cancelled INTEGER, delay INTEGER, airline TEXT)"
)
_COPY: Final = "COPY flight FROM STDIN"
_ASKED: Final = """
SELECT account.tail, coalesce(flown.dest, ''), account.flights, account.cancelled, account.delay
FROM (
    SELECT tail, count(*) AS flights, sum(cancelled) AS cancelled, sum(delay) AS delay,
           max(CASE WHEN cancelled = 0 THEN number END) AS last
    FROM flight GROUP BY tail
) AS account LEFT JOIN flight AS flown ON flown.number = account.last
ORDER BY account.tail
"""
_TOTALS_TABLE: Final = (
    f"CREATE TABLE {TOTALS} (airline TEXT PRIMARY KEY, flights INTEGER, cancelled INTEGER, delay INTEGER)"
)
_WRITTEN_TOTALS: Final = f"SELECT airline, flights, cancelled, delay FROM {TOTALS}"  # noqa: S608 - a name of ours
_SUMMED_TOTALS: Final = "SELECT airline, count(*), sum(cancelled), sum(delay) FROM flight GROUP BY airline"
_AGAIN_S: Final = 0.1
_LEADER_S_MAX: Final = 300.0


class SqlAnswer(msgspec.Struct, frozen=True):
    """Rows that were loaded, how long that took, and the answer: tail number -> [where, flights, cancelled, delay]."""

    loaded: int
    seconds: float
    rows: dict[str, Any]


class TotalsAnswer(msgspec.Struct, frozen=True):
    """Totals by airline: as Spark has written them, and as SQL sums the flights up."""

    written: dict[str, Any]
    summed: dict[str, Any]


async def from_sql(places: Sequence[str], log: str, limit: int | None) -> SqlAnswer:
    """Load the flights at the first of these ports, ask at the last.

    Args:
        places: "host:port" of PostgreSQL's ports of the replicas.
        log: Name of their log.
        limit: Only the first flights.

    Raises:
        RsmError: psycopg is not installed.
        ChildFailedError: The tables cannot be written or asked.

    """
    return await asyncio.to_thread(_asked, places, log, limit)


async def make_totals(place: str, log: str) -> None:
    """Make the table of the airlines' totals, at one of these ports.

    Raises:
        ChildFailedError: It cannot be made.

    """
    await asyncio.to_thread(_made, place, log)


async def from_totals(place: str, log: str) -> TotalsAnswer:
    """Ask for the airlines' totals, at one of these ports.

    Raises:
        ChildFailedError: The tables cannot be asked.

    """
    return await asyncio.to_thread(_totals, place, log)


def _asked(places: Sequence[str], log: str, limit: int | None) -> SqlAnswer:
    rows = [
        (number, flight.tail, flight.dest, int(flight.is_cancelled), flight.delay_minutes, flight.airline)
        for number, flight in enumerate(read_flights(limit), 1)
    ]
    with _connected(places[0], log) as pg:
        _until_led(lambda: pg.execute(_TABLE))
        pg.execute("SET rsm.copy = 'batches'")
        began_s = time.monotonic()
        with pg.cursor() as cursor, cursor.copy(_COPY) as copy:
            for row in rows:
                copy.write_row(row)
        seconds = time.monotonic() - began_s
    with _connected(places[-1], log) as pg:
        found = pg.execute(_ASKED).fetchall()
    return SqlAnswer(len(rows), round(seconds, 2), {tail: account for tail, *account in found})


def _made(place: str, log: str) -> None:
    with _connected(place, log) as pg:
        _until_led(lambda: pg.execute(_TOTALS_TABLE))


def _totals(place: str, log: str) -> TotalsAnswer:
    with _connected(place, log) as pg:
        written, summed = (pg.execute(text).fetchall() for text in (_WRITTEN_TOTALS, _SUMMED_TOTALS))
    return TotalsAnswer(*({row[0]: row for row in rows} for rows in (written, summed)))


@contextmanager
def _connected(place: str, log: str) -> Iterator[Any]:
    try:
        import psycopg  # noqa: PLC0415 - of the extra `demo`
    except ImportError:
        raise RsmError("psycopg is not installed: pip install 'rsm-spark[demo]'") from None
    host, _, port = place.rpartition(":")
    try:
        with psycopg.connect(host=host, port=int(port), dbname=log, user="demo", autocommit=True) as pg:
            yield pg
    except psycopg.Error as error:
        raise ChildFailedError(f"the SQL tables of {log}: {error.sqlstate} {error}") from error


def _until_led(make: Callable[[], object]) -> None:
    """Make a table once a replica leads: there is no leader for a moment when replicas have started."""
    end_s = time.monotonic() + _LEADER_S_MAX
    while True:
        try:
            make()
        except Exception as error:
            if getattr(error, "sqlstate", None) != "57P03" or time.monotonic() > end_s:
                raise
            time.sleep(_AGAIN_S)
        else:
            return
