"""Real bookies and real clients on a simulated network, disks and metadata store, seed by seed.

`make sim SEEDS=10000` runs that many; without, as many as `_BOX_S` seconds hold, and at least `_SEEDS_MIN`. The first
seed comes from the commit, so that every commit looks somewhere else; a failure says what happened last, and the
command that replays it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.bookie import handlers
from ledger.core.bookie_ledger import NO_LIMBO
from tests.sim.ledger_scenario import run_seed
from tests.sim.ledger_seeds import Hunt, first_seed, hunt

_ROOT = Path(__file__).resolve().parents[2]
_SEEDS = os.environ.get("RSM_SIM_SEEDS")
_SEEDS_MIN = 200
_BOX_S = 60.0
_SEEDS_OF_ALL = 2_000
_FAR = 1 << 28
"""First seeds are below it: the long run looks where no short one does."""


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _judge(found: Hunt, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{found}")
    assert found.broken is None, found.broken.report()
    assert not found.is_mostly_idle, "too little was done under faults for this to mean anything"


@pytest.mark.timeout(24 * 3600)
def test_every_promise_is_kept_whatever_fails(capsys: pytest.CaptureFixture[str]) -> None:
    found = hunt(first_seed(), int(_SEEDS)) if _SEEDS else hunt(first_seed(), _SEEDS_MIN, box_s=_BOX_S)
    _judge(found, capsys)


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@pytest.mark.skipif(_SEEDS is not None, reason="RSM_SIM_SEEDS says how many")
def test_every_promise_is_kept_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    _judge(hunt(_FAR + first_seed(), _SEEDS_OF_ALL), capsys)


def test_without_faults_every_append_is_acknowledged() -> None:
    outcome = run_seed(1, has_faults=False)
    assert outcome.broken is None, outcome.report()
    assert outcome.counts["acked"] > 100
    assert outcome.counts["reads"] > outcome.counts["acked"]


@pytest.mark.parametrize("seed_count", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_seeds_replay_step_by_step_whatever_the_hash_seed_and_whatever_ran_before(seed_count: int) -> None:
    seeds = [str(first_seed() + number) for number in range(seed_count)]
    command = [sys.executable, "-m", "tests.sim.ledger_scenario", "--signatures"]
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


def test_a_failure_says_what_happened_and_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: damage without limbo, so that a loss looks like "never had it"."""
    for name in ("missing_entry_status", "missing_ledger_status"):
        honest = getattr(handlers, name)
        monkeypatch.setattr(handlers, name, lambda ledger_id, _limbo, honest=honest: honest(ledger_id, NO_LIMBO))
    broken = next(outcome for outcome in map(run_seed, range(60)) if outcome.broken)
    report = broken.report()
    assert f"seed {broken.seed} breaks unknown-is-not-absent" in report
    assert "FAULT" in report
    assert f"tests.sim.ledger_scenario {broken.seed}" in report
