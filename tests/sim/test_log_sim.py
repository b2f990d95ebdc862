"""Plain logs under faults: one log for all readers, whoever writes. The ledger is a twin, all else is real."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.judged_seeds import assert_replayed
from tests.sim.ledger_seeds import first_seed
from tests.sim.log_scenario import run_log_seed

_SEEDS = 6


@pytest.mark.parametrize(
    "seed_count", [_SEEDS, pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_readers_see_one_log_whatever_fails(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = run_log_seed(first_seed() + number)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts)
    print(dict(counts))
    for name in ("acked", "denied", "seen", "writers"):
        assert counts[name] > 10 * seed_count, f"too few {name} for this to mean anything"
    assert counts["truncations"] > seed_count // 2


def test_a_seed_takes_the_same_steps_in_every_process() -> None:
    assert_replayed("log_scenario", 1)
