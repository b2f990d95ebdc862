"""Many seeds of the ledger simulation, on every processor, in the order of their numbers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.sim.ledger_scenario import run_seed
from tests.sim.outcome import SeedOutcome

__all__ = ["Hunt", "first_seed", "hunt"]

_ROOT = Path(__file__).resolve().parents[2]
_COUNTED_SHARE_MIN = 0.5


@cache
def first_seed() -> int:
    """Return the first seed: of the commit, so that every commit looks somewhere else."""
    command = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return int(found.stdout[:7] or "0", 16)


@dataclass
class Hunt:
    """What many seeds came to.

    Attributes:
        what: Of which simulation.
        run: How many were run.
        counted: How many of them were worth counting.
        counts: Of all, by name.
        broken: The outcome of the lowest seed that broke a promise.

    """

    first: int
    what: str = "ledger"
    run: int = 0
    counted: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    broken: SeedOutcome | None = None

    def take(self, outcome: SeedOutcome) -> None:
        """Add the outcome of the next seed."""
        self.run += 1
        self.counted += outcome.is_worth_counting
        self.counts += outcome.counts
        if outcome.broken is not None:
            self.broken = outcome

    @property
    def is_mostly_idle(self) -> bool:
        """Whether so many seeds had to be replaced that the scenario itself is at fault."""
        return self.counted < _COUNTED_SHARE_MIN * self.run

    def __str__(self) -> str:
        """Say what was run."""
        done = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return f"{self.what} simulation: {self.counted} seeds count of {self.run} from {self.first}: {done}"


def hunt(
    first: int,
    wanted: int,
    *,
    what: str = "ledger",
    run: Callable[[int], SeedOutcome] = run_seed,
) -> Hunt:
    """Run seeds until `wanted` of them count; stop at the first broken promise.

    A seed that does not count is replaced by the next one; none is begun that is not needed for that. No clock decides
    anything: a run can be had again.
    """
    found = Hunt(first, what)
    waiting: deque[Future[SeedOutcome]] = deque()
    next_seed = first
    while found.broken is None and found.counted < wanted:
        while len(waiting) < min(2 * _processors(), wanted - found.counted):
            waiting.append(_pool().submit(run, next_seed))
            next_seed += 1
        found.take(waiting.popleft().result())
    for rest in waiting:
        rest.cancel()
    return found


def _processors() -> int:
    return os.cpu_count() or 1


@cache
def _pool() -> ProcessPoolExecutor:
    """Return processes that have imported everything once; they end with this one."""
    return ProcessPoolExecutor(_processors(), multiprocessing.get_context("spawn"), _be_quiet)


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)
