"""The hunt for a planted bug: which seeds are tried, and when it is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sets import hunt_order
from tests.sim.outcome import SeedOutcome


def find(run: Callable[[int], SeedOutcome], budget: int, *, known: int = 0, name: str = "") -> SeedOutcome:
    """Run seeds below `budget` until one breaks a promise; return what it came to.

    Args:
        run: Runs one seed of a simulation into which the bug is planted.
        budget: Seeds within which it must be found, else the simulation proves nothing.
        known: The seed that has found it before.
        name: The invariant by which it must be found; "" = any.

    """
    for seed in hunt_order(budget, known):
        outcome = run(seed)
        if outcome.broken is not None:
            print(f"found by seed {seed}: {outcome.broken}")
            assert name in ("", outcome.broken.partition(":")[0])
            return outcome
    return pytest.fail(f"{budget} seeds found nothing")
