"""What tests of every simulation do with many seeds: as many as are wanted, judged, and replayed.

`make sim SEEDS=10000` runs that many; without, as many as the effort says (`tests.sets`). The first seed comes from the
commit, so that every commit looks somewhere else; a failure says what happened last, and the command that replays it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sets import examples
from tests.sim.ledger_seeds import Hunt, first_seed

_ROOT = Path(__file__).resolve().parents[2]
_SEEDS = os.environ.get("RSM_SIM_SEEDS")
SEEDS_OF_ALL = 2_000
FAR = 1 << 28
"""First seeds are below it: the long run looks where no short one does."""
unless_counted = pytest.mark.skipif(_SEEDS is not None, reason="RSM_SIM_SEEDS says how many")


def wanted_seeds(at_effort_1: int, *, share: int = 1) -> int:
    """Return how many seeds to run; where `make sim` says how many, one in `share`."""
    return int(_SEEDS) // share if _SEEDS else examples(at_effort_1)


def assert_kept(found: Hunt, capsys: pytest.CaptureFixture[str]) -> None:
    """Fail if a promise was broken, or too little was done."""
    with capsys.disabled():
        print(f"\n{found}")
    assert found.broken is None, found.broken.report()
    assert not found.is_mostly_idle, "too little was done under faults for this to mean anything"


def assert_replayed(scenario: str, seed_count: int) -> None:
    """Fail if seeds take other steps in another process, with another hash seed and after other seeds."""
    seeds = [str(first_seed() + number) for number in range(seed_count)]
    command = [sys.executable, "-m", f"tests.sim.{scenario}", "--signatures"]
    runs = [
        subprocess.Popen(
            [*command, *order],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed, order in (("1", seeds), ("2", seeds[::-1]))
    ]
    printed = [run.communicate()[0].splitlines() for run in runs]
    assert all(run.returncode == 0 for run in runs)
    assert len(printed[0]) == seed_count
    assert sorted(printed[0]) == sorted(printed[1])
