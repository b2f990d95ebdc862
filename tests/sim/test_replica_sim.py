"""Three replicas under faults, in virtual time, seed by seed: every promise of the log holds, then they converge.

Most seeds are on the twin of the ledger, which is as bad to its users as a ledger may be; some on the real client and
real bookies.
"""

from __future__ import annotations

import pytest

from rsm_spark.core.freshness import LoggedTimeGauge
from tests.sim.judged_seeds import FAR, SEEDS_OF_ALL, assert_kept, assert_replayed, unless_counted, wanted_seeds
from tests.sim.ledger_seeds import first_seed, hunt
from tests.sim.replica_plants import replies_before_confirmation
from tests.sim.replica_scenario import run_seed, run_seed_on_bookies

_SEEDS_AT_EFFORT_1 = 28
_SEEDS_ON_BOOKIES_AT_EFFORT_1 = 5


@pytest.mark.alone
@pytest.mark.timeout(24 * 3600)
def test_every_promise_is_kept_whatever_fails(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = wanted_seeds(_SEEDS_AT_EFFORT_1)
    assert_kept(hunt(first_seed(), wanted, what="replica", run=run_seed), capsys)


@pytest.mark.alone
@pytest.mark.timeout(24 * 3600)
def test_every_promise_is_kept_on_real_bookies(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = wanted_seeds(_SEEDS_ON_BOOKIES_AT_EFFORT_1, share=5)
    assert_kept(hunt(first_seed(), wanted, what="replica on bookies", run=run_seed_on_bookies), capsys)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@unless_counted
def test_every_promise_is_kept_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert_kept(hunt(FAR + first_seed(), SEEDS_OF_ALL, what="replica", run=run_seed), capsys)
    on_bookies = hunt(FAR + first_seed(), SEEDS_OF_ALL // 5, what="replica on bookies", run=run_seed_on_bookies)
    assert_kept(on_bookies, capsys)


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
    assert_replayed(scenario, seed_count)


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
    gauge.on_entry(leader_epoch=7, logged_ms=100_000, monotonic_ms=50_000)
    lag_ms = gauge.lag_ms(wall_ms=100_000 - 3_600_000, monotonic_ms=50_000)
    assert lag_ms is None or lag_ms >= 30_000
