"""The fifth answer: the flights as rows of an SQL table, loaded and asked over PostgreSQL's port by psycopg.

Each flight is a row, in the order of the year; what the map keeps as running accounts is summed up by one statement.
Rows go in at one replica and are asked for at the other one, whichever leads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from rsm_demo.child import ChildFailedError
from rsm_demo.flights import read_flights
from rsm_spark.errors import RsmError

_TABLE: Final = (
    "CREATE TABLE flight (number INTEGER PRIMARY KEY, tail TEXT, dest TEXT, cancelled INTEGER, delay INTEGER)"
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
_AGAIN_S: Final = 0.1
_LEADER_S_MAX: Final = 300.0


class SqlAnswer(msgspec.Struct, frozen=True):
    """Rows that were loaded, how long that took, and the answer: tail number -> [where, flights, cancelled, delay]."""

    loaded: int
    seconds: float
    rows: dict[str, Any]


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


def _asked(places: Sequence[str], log: str, limit: int | None) -> SqlAnswer:
    try:
        import psycopg  # noqa: PLC0415 - of the extra `demo`
    except ImportError:
        raise RsmError("psycopg is not installed: pip install 'rsm-spark[demo]'") from None
    rows = [
        (number, flight.tail, flight.dest, int(flight.is_cancelled), flight.delay_minutes)
        for number, flight in enumerate(read_flights(limit), 1)
    ]
    first, last = (_place(place) | {"dbname": log, "user": "demo", "autocommit": True} for place in places)
    try:
        with psycopg.connect(**first) as pg:
            _until_led(lambda: pg.execute(_TABLE), psycopg.OperationalError)
            pg.execute("SET rsm.copy = 'batches'")
            began_s = time.monotonic()
            with pg.cursor() as cursor, cursor.copy(_COPY) as copy:
                for row in rows:
                    copy.write_row(row)
            seconds = time.monotonic() - began_s
        with psycopg.connect(**last) as pg:
            found = pg.execute(_ASKED).fetchall()
    except psycopg.Error as error:
        raise ChildFailedError(f"the SQL tables of {log}: {error.sqlstate} {error}") from error
    return SqlAnswer(len(rows), round(seconds, 2), {tail: account for tail, *account in found})


def _until_led(make: Any, error_type: type[Exception]) -> None:
    """Make the table once a replica leads: a new log has no leader for a moment."""
    end_s = time.monotonic() + _LEADER_S_MAX
    while True:
        try:
            make()
        except error_type as error:
            if getattr(error, "sqlstate", None) != "57P03" or time.monotonic() > end_s:
                raise
            time.sleep(_AGAIN_S)
        else:
            return


def _place(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"host": host, "port": int(port)}
