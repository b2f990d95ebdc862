"""Partitioned logs under faults: keys keep their order while the log grows. The ledger is a twin, all else is real."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.judged_seeds import assert_replayed
from tests.sim.ledger_seeds import first_seed
from tests.sim.partition_scenario import (
    run_batched_seed,
    run_finished_seed,
    run_partition_seed,
    run_produced_seed,
    run_shared_seed,
)

_SEEDS = 2


@pytest.mark.parametrize("seed_count", [_SEEDS, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_keys_keep_their_order_whatever_fails(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = run_partition_seed(first_seed() + number)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts)
    print(dict(counts))
    for name in ("acked", "seen", "writers"):
        assert counts[name] > 5 * seed_count, f"too few {name} for this to mean anything"
    if seed_count > _SEEDS:  # Of a few seeds all may be spent on other trouble.
        assert counts["growths"] >= seed_count


@pytest.mark.parametrize("seed_count", [1, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_record_of_a_producer_is_there_once_whoever_grows_the_log(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = run_produced_seed(first_seed() + number)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts)
    assert counts["produced"] >= seed_count, "too few records of producers for this to mean anything"


@pytest.mark.parametrize("seed_count", [1, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_row_of_a_batch_is_there_once_whoever_grows_the_log(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = run_batched_seed(first_seed() + number)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts)
    print(dict(counts))
    assert counts["batched"] >= seed_count, "too few batches for this to mean anything"


@pytest.mark.parametrize("seed_count", [1, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_each_partition_shows_finished_batches_whole_whatever_fails(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = run_finished_seed(first_seed() + number)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts)
    print(dict(counts))
    assert counts["finished"] >= 10 * seed_count, "too few rows of finished batches for this to mean anything"


@pytest.mark.parametrize("seed_count", [1, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_readers_that_share_a_subscription_keep_the_order_of_keys_among_them(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = run_shared_seed(first_seed() + number)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts)
    assert counts["shared"] >= 10 * seed_count, "too few records of the shared subscription for this to mean anything"


@pytest.mark.parametrize("seed", [12, 22])
def test_a_writer_whose_claim_was_lost_while_it_opened_appends_nothing(seed: int) -> None:
    """Another one had claimed the layout, opened the partitions and grown the log before this one came to them."""
    outcome = run_partition_seed(seed)
    assert outcome.broken is None, outcome.report()


def test_a_seed_takes_the_same_steps_in_every_process() -> None:
    assert_replayed("partition_scenario", 2)
