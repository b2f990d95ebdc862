"""Brokers, workers and clients under faults, in virtual time, seed by seed: every promise of the broker holds."""

from __future__ import annotations

import pytest

from tests.sim.broker_plants import sends_assignments_before_they_are_confirmed
from tests.sim.broker_scenario import BOUND, LOCKED, run_seed
from tests.sim.judged_seeds import FAR, SEEDS_OF_ALL, assert_kept, assert_replayed, unless_counted, wanted_seeds
from tests.sim.ledger_seeds import first_seed, hunt

_SEEDS_AT_EFFORT_1 = 26


@pytest.mark.alone
@pytest.mark.timeout(24 * 3600)
def test_every_promise_of_the_broker_is_kept_whatever_fails(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = wanted_seeds(_SEEDS_AT_EFFORT_1)
    found = hunt(first_seed(), wanted, what="broker", run=run_seed)
    assert_kept(found, capsys)
    # All of it was tried: else silence means nothing.
    for what in ("at_most_once_starts", "given back", "late ends", "requeued", "committed", "rolled back", "replayed"):
        assert found.counts[what], f"no seed had any of {what!r}"
    for what in ("entries_unheard", "entries_lost", "purged", "slots taken", "workers died", "cancels asked"):
        assert found.counts[what], f"no seed had any of {what!r}"
    assert found.counts["payloads_gone"], "in no seed a payload left"


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@unless_counted
def test_every_promise_of_the_broker_is_kept_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert_kept(hunt(FAR + first_seed(), SEEDS_OF_ALL, what="broker", run=run_seed), capsys)


def test_without_faults_every_task_ends_and_none_is_run_twice_but_for_its_own_failures() -> None:
    outcome = run_seed(1, has_faults=False)
    assert outcome.broken is None, outcome.report()
    assert outcome.counts["promotions"] == 1
    assert outcome.counts["ended"] >= 20
    assert not outcome.counts["late ends"]
    assert not outcome.counts["workers died"]
    assert not outcome.counts["unknown"]


def test_tenants_lift_no_ban_keep_their_quota_and_reach_no_worker_that_is_not_theirs_whatever_fails() -> None:
    outcomes = [run_seed(seed, faults={"kill_leader": 15.0}, work={**LOCKED, **BOUND}) for seed in range(6)]
    assert not [outcome.report() for outcome in outcomes if outcome.broken is not None]
    assert sum(outcome.counts["ended"] for outcome in outcomes) >= 100
    assert sum(outcome.counts["bound_starts"] for outcome in outcomes) >= 20


@pytest.mark.parametrize("seed_count", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_seeds_of_the_broker_replay_step_by_step_whatever_the_hash_seed(seed_count: int) -> None:
    assert_replayed("broker_scenario", seed_count)


def test_a_failure_of_the_broker_says_what_happened_and_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sends_assignments_before_they_are_confirmed(monkeypatch)
    broken = next(outcome for outcome in map(run_seed, range(40)) if outcome.broken)
    report = broken.report()
    assert f"seed {broken.seed} breaks confirmed-first" in report
    assert "claims epoch" in report
    assert f"tests.sim.broker_scenario {broken.seed}" in report
