"""What the code does, step by step, is what the model allows."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.model.code_traces import Replayer
from tests.sim import replica_plants as plants
from tests.sim.ledger_seeds import first_seed
from tests.sim.replica_scenario import Outcome, Scenario, run_seed

_TROUBLE_S = 25.0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _replay(seed: int, counts: Counter[str], *, told: bool | None = None) -> Outcome:
    with ExitStack() as stack:
        replayers: list[Replayer] = []

        def watch(scenario: Scenario) -> None:
            replayer = Replayer(scenario.cluster.ghosts, [host.name for host in scenario.cluster.hosts])
            assert scenario.world is not None
            scenario.world.listeners.append(replayer.on_ledger)
            scenario.cluster.listeners.append(replayer.on_replica)
            scenario.chain.listeners.append(replayer.on_chain)
            stack.enter_context(replayer.recorded())
            replayers.append(replayer)
            scenario.lacs = None  # What is broken, the model is to find.

        outcome = run_seed(seed, _TROUBLE_S, watch=watch, told=told)
        counts.update(replayers[0].counts)
        return outcome


@pytest.mark.parametrize("seed_count", [20, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_every_step_of_the_code_is_one_that_the_model_allows(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = _replay(first_seed() + number, counts)
        assert outcome.broken is None, outcome.report()
    print(dict(counts))
    assert counts.total() > 500 * seed_count
    for name in ("elect", "written", "write_failed", "fence", "close", "roll", "add_failed", "apply", "boot", "crash"):
        assert counts[name], f"no trace has a step {name}"


@pytest.mark.parametrize(
    "plant",
    [
        plants.proposes_again_before_the_end_is_known,
        plants.writes_the_chain_from_a_fresh_version,
        plants.writes_entries_though_the_chain_write_failed,
        plants.takes_over_without_a_claim,
        plants.does_not_recover_the_last_ledger,
        plants.empty_entry_vouches_for_itself,
        plants.follower_takes_the_successor_for_the_end,
        plants.follower_applies_above_confirmed,
        plants.confirms_without_an_acknowledgement,
    ],
    ids=lambda plant: plant.__name__,
)
def test_the_model_does_not_allow_what_broken_rules_do(plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    # Told entries show some of it sooner: a follower stops before the model has its say.
    found = (_replay(seed, Counter(), told=False).broken for seed in range(20))
    assert next(broken for broken in found if broken).startswith("model: ")
