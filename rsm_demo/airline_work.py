"""The work of two airlines: what one airline's flights of half a day from one airport came to, one task each."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rsm_demo.flights import airline_flights

AIRLINES = ("UA", "DL")
RUNS_VARIABLE = "RSM_DEMO_RUNS"
TASK_TYPE = "half-day"


class AirlineWork(NamedTuple):
    """One task: flights of an airline, from an airport, in half a day ("2013-07-04 am")."""

    airline: str
    airport: str
    half_day: str

    def payload(self) -> bytes:
        """Return it as a task carries it."""
        return json.dumps(self).encode()


@cache
def half_days() -> dict[AirlineWork, tuple[int, int]]:
    """Return (flights, delay minutes) of every half day on which an airline flew."""
    found: dict[AirlineWork, tuple[int, int]] = {}
    for airline, airport, half_day, delay in airline_flights(AIRLINES):
        work = AirlineWork(airline, airport, half_day)
        flights, minutes = found.get(work, (0, 0))
        found[work] = flights + 1, minutes + delay
    return found


def airline_work(airline: str) -> list[AirlineWork]:
    """Return all tasks of an airline, by airport and time."""
    return sorted(work for work in half_days() if work.airline == airline)


def account(results: list[bytes]) -> tuple[int, int]:
    """Add up what tasks answered: flights, delay minutes."""
    pairs = [json.loads(result) for result in results]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def runs_noted(folder: Path) -> Counter[int]:
    """Return how often each task ran, as the runs have noted it themselves."""
    return Counter(int(line) for path in sorted(folder.glob("*.runs")) for line in path.read_text().split())
