"""Real bookies and real clients on a simulated network, disks and metadata store, seed by seed.

`make sim SEEDS=10000` runs that many; without, a few dozen. The first seed comes from the commit, so that every
commit looks somewhere else; a failure names its seed, and `run_seed(seed)` on the same commit replays it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from ledger.bookie import handlers
from ledger.core.bookie_ledger import NO_LIMBO
from tests.sim.ledger_scenario import Outcome, run_seed

_ROOT = Path(__file__).resolve().parents[2]
_SEED_COUNT = int(os.environ.get("RSM_SIM_SEEDS", "120"))
_GROUP_COUNT = 6
_REPLAYED_SEEDS = 10
_COUNTED_SHARE_MIN = 0.6


@cache
def _first_seed() -> int:
    command = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return int(found.stdout[:7] or "0", 16)


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("group", range(_GROUP_COUNT))
def test_every_promise_is_kept_whatever_fails(group: int) -> None:
    first = _first_seed()
    seeds = range(first + group, first + _SEED_COUNT, _GROUP_COUNT)
    outcomes: list[Outcome] = []
    for seed in seeds:
        outcome = run_seed(seed)
        assert outcome.broken is None, f"seed {seed}: {outcome.broken}"
        outcomes.append(outcome)
    total = sum((outcome.counts for outcome in outcomes), Counter[str]())
    counted = sum(outcome.is_worth_counting for outcome in outcomes)
    print(f"{counted} of {len(outcomes)} seeds from {first + group} count: {dict(total)}")
    assert counted >= _COUNTED_SHARE_MIN * len(outcomes), "too little was done under faults for this to mean anything"


def test_without_faults_every_append_is_acknowledged() -> None:
    outcome = run_seed(1, has_faults=False)
    assert outcome.broken is None
    assert outcome.counts["acked"] > 100
    assert outcome.counts["reads"] > outcome.counts["acked"]


def test_a_seed_replays_step_by_step_whatever_the_hash_seed() -> None:
    seeds = [str(_first_seed() + number) for number in range(_REPLAYED_SEEDS)]
    command = [sys.executable, "-m", "tests.sim.ledger_scenario"]
    printed = [
        subprocess.run(
            [*command, *order],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed, order in (("1", seeds), ("2", seeds[::-1]))
    ]
    assert sorted(printed[0].splitlines()) == sorted(printed[1].splitlines())


def test_a_bookie_that_denies_what_it_has_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: damage without limbo, so that a loss looks like "never had it" (found by seed 4)."""
    for name in ("missing_entry_status", "missing_ledger_status"):
        honest = getattr(handlers, name)
        monkeypatch.setattr(handlers, name, lambda ledger_id, _limbo, honest=honest: honest(ledger_id, NO_LIMBO))
    broken = next((outcome.broken for outcome in map(run_seed, range(60)) if outcome.broken), None)
    assert broken is not None
    assert broken.startswith("unknown-is-not-absent")
