"""Three replicas rolled from version to version of their machine, and back, under faults, seed by seed; planted bugs.

Versions are raised by leaders and by operators, forced too, while replicas of before live; leaders are killed just as
they raise. Every promise of `tests.sim.test_replica_sim` holds, and those of `rsm_spark.testing.version_witness`; and
`migrated-once`: a row of before is migrated once, and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from tests.sim import version_plants as plants
from tests.sim.judged_seeds import FAR, SEEDS_OF_ALL, assert_kept, assert_replayed, unless_counted, wanted_seeds
from tests.sim.ledger_seeds import first_seed, hunt
from tests.sim.outcome import SeedOutcome
from tests.sim.planted_bugs import find
from tests.sim.version_scenario import run_version_seed

_SEEDS_AT_EFFORT_1 = 10
_TROUBLE_S = 25.0
_FORCED: Mapping[str, float] = {"back_rate": 0.3, "order_rate": 0.5, "force_rate": 1.0, "ambush_rate": 1.0}
_PATIENT: Mapping[str, float] = {"back_rate": 0.0, "order_rate": 0.0, "ambush_rate": 0.0}


def _run_on_bookies(seed: int) -> SeedOutcome:
    return run_version_seed(seed, _TROUBLE_S, on_bookies=True)


@pytest.mark.alone
@pytest.mark.timeout(24 * 3600)
def test_every_promise_is_kept_while_versions_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert_kept(hunt(first_seed(), wanted_seeds(_SEEDS_AT_EFFORT_1), what="versions", run=run_version_seed), capsys)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@unless_counted
def test_every_promise_is_kept_while_versions_change_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert_kept(hunt(FAR + first_seed(), SEEDS_OF_ALL, what="versions", run=run_version_seed), capsys)
    on_bookies = hunt(FAR + first_seed(), SEEDS_OF_ALL // 10, what="versions on bookies", run=_run_on_bookies)
    assert_kept(on_bookies, capsys)


def test_upgrades_downgrades_and_forced_raises_happen() -> None:
    counts: Counter[str] = Counter()
    for seed in range(8):
        outcome = run_version_seed(seed, _TROUBLE_S, rates=_FORCED)
        assert outcome.broken is None, outcome.report()
        counts += outcome.counts
    print(dict(counts))
    for name in ("upgrade", "downgrade", "forced raise", "leader killed as it raised"):
        assert counts[name] > 1, name


def test_seeds_replay_step_by_step() -> None:
    assert_replayed("version_scenario", 3)


class _Hunt(NamedTuple):
    """How a bug is looked for.

    Attributes:
        name: The invariant by which it must be found.
        rates: Of the upgrade.
        known: The seed that has found it before.

    """

    name: str
    rates: Mapping[str, float]
    known: int = 0


_BUDGET = 60
_HUNTS: dict[Callable[[pytest.MonkeyPatch], None], _Hunt] = {
    plants.logs_what_only_the_code_knows: _Hunt("no-crash", _PATIENT),
    plants.describes_its_own_version_at_once: _Hunt("raised-by-all", _PATIENT, known=27),
    plants.raises_without_asking: _Hunt("raised-by-all", _PATIENT, known=27),
    plants.raises_amid_a_ledger: _Hunt("described", _PATIENT, known=2),
    plants.fills_rows_as_it_folds: _Hunt("same-state", _PATIENT),
    plants.forgets_which_rows_are_migrated: _Hunt("migrated-once", _PATIENT, known=15),
    plants.answers_before_it_is_raised: _Hunt("acked-is-durable", _FORCED, known=1),
    plants.lets_an_old_replica_lead: _Hunt("no-old-leader", _FORCED, known=29),
    plants.replays_a_raise_and_leads: _Hunt("no-crash", _FORCED, known=11),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", list(_HUNTS), ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = _HUNTS[plant]
    plant(monkeypatch)
    find(
        lambda seed: run_version_seed(seed, _TROUBLE_S, rates=wanted.rates), _BUDGET,
        known=wanted.known, name=wanted.name,
    )  # fmt: skip
