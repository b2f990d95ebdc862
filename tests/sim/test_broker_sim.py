"""Brokers, workers and clients under faults, in virtual time, seed by seed: every promise of the broker holds.

`make sim SEEDS=10000` runs that many; without, as many as `_BOX_S` seconds hold, and at least `_SEEDS_MIN`. The first
seed comes from the commit; a failure says what happened last, and the command that replays it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.broker_plants import sends_assignments_before_they_are_confirmed
from tests.sim.broker_scenario import run_seed
from tests.sim.ledger_seeds import Hunt, first_seed, hunt

_ROOT = Path(__file__).resolve().parents[2]
_SEEDS = os.environ.get("RSM_SIM_SEEDS")
_SEEDS_MIN = 60
_BOX_S = 15.0
_SEEDS_OF_ALL = 2_000
_FAR = 1 << 28
"""First seeds are below it: the long run looks where no short one does."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _judge(found: Hunt, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{found}")
    assert found.broken is None, found.broken.report()
    assert not found.is_mostly_idle, "too little was done under faults for this to mean anything"


@pytest.mark.timeout(24 * 3600)
def test_every_promise_of_the_broker_is_kept_whatever_fails(capsys: pytest.CaptureFixture[str]) -> None:
    wanted, box_s = (int(_SEEDS), 0.0) if _SEEDS else (_SEEDS_MIN, _BOX_S)
    found = hunt(first_seed(), wanted, box_s=box_s, what="broker", run=run_seed)
    _judge(found, capsys)
    # All of it was tried: else silence means nothing.
    for what in ("at_most_once_starts", "given back", "late ends", "requeued", "committed", "rolled back", "replayed"):
        assert found.counts[what], f"no seed had any of {what!r}"
    for what in ("entries_unheard", "entries_lost", "purged", "slots taken", "workers died", "cancels asked"):
        assert found.counts[what], f"no seed had any of {what!r}"


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@pytest.mark.skipif(_SEEDS is not None, reason="RSM_SIM_SEEDS says how many")
def test_every_promise_of_the_broker_is_kept_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    _judge(hunt(_FAR + first_seed(), _SEEDS_OF_ALL, what="broker", run=run_seed), capsys)


def test_without_faults_every_task_ends_and_none_is_run_twice_but_for_its_own_failures() -> None:
    outcome = run_seed(1, has_faults=False)
    assert outcome.broken is None, outcome.report()
    assert outcome.counts["promotions"] == 1
    assert outcome.counts["ended"] >= 20
    assert not outcome.counts["late ends"]
    assert not outcome.counts["workers died"]
    assert not outcome.counts["unknown"]


@pytest.mark.parametrize("seed_count", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_seeds_of_the_broker_replay_step_by_step_whatever_the_hash_seed(seed_count: int) -> None:
    seeds = [str(first_seed() + number) for number in range(seed_count)]
    command = [sys.executable, "-m", "tests.sim.broker_scenario", "--signatures"]
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


def test_a_failure_of_the_broker_says_what_happened_and_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sends_assignments_before_they_are_confirmed(monkeypatch)
    broken = next(outcome for outcome in map(run_seed, range(40)) if outcome.broken)
    report = broken.report()
    assert f"seed {broken.seed} breaks confirmed-first" in report
    assert "claims epoch" in report
    assert f"tests.sim.broker_scenario {broken.seed}" in report
