"""The tasks of the demonstration: what one airline's flights of half a day from one airport came to.

Workers import this module (`rsm worker run --tasks rsm_demo.airline_tasks`). Each run notes itself in the folder that
`RSM_DEMO_RUNS` names, so that somebody else can count what really ran.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from broker.worker import TaskContext, task
from rsm_demo.flights import airline_flights

__all__ = ["AIRLINES", "RUNS_VARIABLE", "TASK_TYPE", "Work", "account", "airline_work", "runs_noted"]

AIRLINES = ("UA", "DL")
RUNS_VARIABLE = "RSM_DEMO_RUNS"
TASK_TYPE = "half-day"
RUN_S = 0.04
"""What a run waits, as for a service elsewhere."""


class Work(NamedTuple):
    """One task: flights of an airline, from an airport, in half a day ("2013-07-04 am")."""

    airline: str
    airport: str
    half_day: str

    def payload(self) -> bytes:
        """Return it as a task carries it."""
        return json.dumps(self).encode()


@cache
def _half_days() -> dict[Work, tuple[int, int]]:
    """Return (flights, delay minutes) of every half day on which an airline flew."""
    found: dict[Work, tuple[int, int]] = {}
    for airline, airport, half_day, delay in airline_flights(AIRLINES):
        work = Work(airline, airport, half_day)
        flights, minutes = found.get(work, (0, 0))
        found[work] = flights + 1, minutes + delay
    return found


def airline_work(airline: str) -> list[Work]:
    """Return all tasks of an airline, by airport and time."""
    return sorted(work for work in _half_days() if work.airline == airline)


def account(results: list[bytes]) -> tuple[int, int]:
    """Add up what tasks answered: flights, delay minutes."""
    pairs = [json.loads(result) for result in results]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


@task(TASK_TYPE)
async def half_day(context: TaskContext, payload: bytes) -> bytes:
    """Answer flights and delay minutes of one piece of work."""
    folder = os.environ.get(RUNS_VARIABLE)
    if folder:
        with (Path(folder) / f"{os.getpid()}.runs").open("a") as runs:
            runs.write(f"{context.task_id}\n")
    await asyncio.sleep(RUN_S)
    return json.dumps(_half_days()[Work(*json.loads(payload))]).encode()


def runs_noted(folder: Path) -> Counter[int]:
    """Return how often each task ran, as the runs have noted it themselves."""
    return Counter(int(line) for path in sorted(folder.glob("*.runs")) for line in path.read_text().split())


if RUNS_VARIABLE in os.environ:
    _half_days()  # A worker reads the flights before it asks for tasks, not within the first of them.
