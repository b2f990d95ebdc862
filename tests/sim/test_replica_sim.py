"""Three replicas under faults, in virtual time, seed by seed: every promise of the log holds, then they converge.

`make sim SEEDS=10000` runs that many; without, as many as `_BOX_S` seconds hold, and at least `_SEEDS_MIN`. Most
seeds are on the twin of the ledger, which is as bad to its users as a ledger may be; some on the real client and real
bookies. The first seed comes from the commit; a failure says what happened last, and the command that replays it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rsm_spark.core.freshness import LoggedTimeGauge
from tests.sim.ledger_seeds import Hunt, first_seed, hunt
from tests.sim.replica_plants import replies_before_confirmation
from tests.sim.replica_scenario import run_seed, run_seed_on_bookies

_ROOT = Path(__file__).resolve().parents[2]
_SEEDS = os.environ.get("RSM_SIM_SEEDS")
_SEEDS_MIN = 200
_BOX_S = 35.0
_SEEDS_ON_BOOKIES_MIN = 20
_BOX_ON_BOOKIES_S = 20.0
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
def test_every_promise_is_kept_whatever_fails(capsys: pytest.CaptureFixture[str]) -> None:
    wanted, box_s = (int(_SEEDS), 0.0) if _SEEDS else (_SEEDS_MIN, _BOX_S)
    _judge(hunt(first_seed(), wanted, box_s=box_s, what="replica", run=run_seed), capsys)


@pytest.mark.timeout(24 * 3600)
def test_every_promise_is_kept_on_real_bookies(capsys: pytest.CaptureFixture[str]) -> None:
    wanted, box_s = (int(_SEEDS) // 5, 0.0) if _SEEDS else (_SEEDS_ON_BOOKIES_MIN, _BOX_ON_BOOKIES_S)
    _judge(hunt(first_seed(), wanted, box_s=box_s, what="replica on bookies", run=run_seed_on_bookies), capsys)


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@pytest.mark.skipif(_SEEDS is not None, reason="RSM_SIM_SEEDS says how many")
def test_every_promise_is_kept_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    _judge(hunt(_FAR + first_seed(), _SEEDS_OF_ALL, what="replica", run=run_seed), capsys)
    on_bookies = hunt(_FAR + first_seed(), _SEEDS_OF_ALL // 5, what="replica on bookies", run=run_seed_on_bookies)
    _judge(on_bookies, capsys)


def test_without_faults_every_command_is_acknowledged() -> None:
    outcome = run_seed(1, has_faults=False)
    assert outcome.broken is None, outcome.report()
    assert outcome.counts["acked"] > 300
    assert outcome.counts["epochs"] <= 3
    assert all(outcome.counts[f"reads {kind}"] for kind in ("linearizable", "session", "bounded", "stale"))


@pytest.mark.parametrize("scenario", ["replica_scenario", "map_scenario"])
@pytest.mark.parametrize("seed_count", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_seeds_replay_step_by_step_whatever_the_hash_seed_and_whatever_ran_before(
    seed_count: int, scenario: str
) -> None:
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


def test_a_failure_says_what_happened_and_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    replies_before_confirmation(monkeypatch)
    broken = next(outcome for outcome in map(run_seed, range(60)) if outcome.broken)
    report = broken.report()
    assert f"seed {broken.seed} breaks acked-is-durable" in report
    assert "FAULT" in report or "role" in report
    assert f"tests.sim.replica_scenario {broken.seed}" in report


def test_an_epoch_that_is_read_late_is_not_taken_for_new_by_a_clock_that_is_behind() -> None:
    gauge = LoggedTimeGauge()
    # Logged at 20,000 of this clock.
    gauge.on_entry(leader_epoch=7, logged_ms=100_000, monotonic_ms=50_000, is_timely=False)
    lag_ms = gauge.lag_ms(wall_ms=100_000 - 3_600_000, monotonic_ms=50_000)
    assert lag_ms is None or lag_ms >= 30_000
