"""Followers that are told confirmed entries by their leader: every promise holds, and planted bugs are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.sim import tail_plants as plants
from tests.sim.judged_seeds import FAR, SEEDS_OF_ALL, assert_kept, unless_counted, wanted_seeds
from tests.sim.ledger_seeds import first_seed, hunt
from tests.sim.outcome import SeedOutcome
from tests.sim.planted_bugs import find
from tests.sim.replica_scenario import run_seed

_SEEDS_AT_EFFORT_1 = 12
_TROUBLE_S = 25.0

Plant = Callable[[pytest.MonkeyPatch], None]

_DEPOSED: dict[str, Any] = {"cut_bookies": 4.0, "elect_wrongly": 4.0, "kill_leader": 3.0, "ambush": 3.0}


class _TailHunt(NamedTuple):
    """Seeds within which a bug must be found, the trouble that it needs, and the seed that has found it before."""

    budget: int
    faults: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    known: int = 0


_HUNTS: dict[Plant, _TailHunt] = {
    plants.leader_tells_what_is_only_sent: _TailHunt(40, _DEPOSED, known=1),
    plants.leader_passes_over_what_it_has_lost: _TailHunt(40),
    plants.follower_believes_whoever_tells: _TailHunt(60, _DEPOSED, {"roll_s": 2.0}, known=1),
    plants.follower_waits_for_its_leader_alone: _TailHunt(40, _DEPOSED),
}


def run_told_seed(seed: int) -> SeedOutcome:
    """Run one seed in which leaders tell."""
    return run_seed(seed, _TROUBLE_S, told=True)


@pytest.mark.timeout(24 * 3600)
def test_every_promise_is_kept_while_leaders_tell(capsys: pytest.CaptureFixture[str]) -> None:
    found = hunt(first_seed(), wanted_seeds(_SEEDS_AT_EFFORT_1), what="told entries", run=run_told_seed)
    assert_kept(found, capsys)
    counts: Counter[str] = found.counts
    assert counts["told"] > counts["entries"] // 4, "followers had their entries from bookies after all"


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@unless_counted
def test_every_promise_is_kept_while_leaders_tell_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert_kept(hunt(FAR + first_seed(), SEEDS_OF_ALL, what="told entries", run=run_told_seed), capsys)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", _HUNTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    hunted = _HUNTS[plant]
    plant(monkeypatch)
    find(
        lambda seed: run_seed(seed, _TROUBLE_S, faults=hunted.faults, settings=hunted.settings, beats=False, told=True),
        hunted.budget,
        known=hunted.known,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_is_silent_about_what_it_has_lost_does_no_harm(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plants.leader_says_nothing_follows_what_it_has_lost(monkeypatch)
    outcome = run_seed(seed, _TROUBLE_S, told=True)
    assert outcome.broken is None, outcome.report()


@pytest.mark.parametrize("told", [True, False])
def test_without_faults_followers_are_told_nearly_everything_or_nothing(told: bool) -> None:
    outcome = run_seed(1, has_faults=False, told=told)
    assert outcome.broken is None, outcome.report()
    if told:
        assert outcome.counts["told"] > outcome.counts["entries"]  # By each of two followers.
    else:
        assert not outcome.counts["told"]
