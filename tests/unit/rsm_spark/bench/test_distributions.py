"""YCSB's distributions: the shares that the formulas promise, and the keys that YCSB itself makes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rsm_spark.bench.distributions import THETA, Latest, RecordNumbers, ScrambledZipfian, Zipfian, fnv64
from rsm_spark.bench.workloads import WORKLOADS, StepKind, key_of, value_of

DRAWS = 40_000


def test_keys_are_those_of_ycsb() -> None:
    assert [key_of(number) for number in range(3)] == [
        b"user6284781860667377211", b"user8517097267634966620", b"user1820151046732198393",
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1_000])
def test_a_zipfian_number_is_drawn_as_often_as_its_rank_says(count: int) -> None:
    rng, zipfian = random.Random(1), Zipfian(count)
    drawn = Counter(zipfian.draw(rng) for _ in range(DRAWS))
    zeta = sum(1 / n**THETA for n in range(1, count + 1))
    assert set(drawn) <= set(range(count))
    for number in range(min(count, 2)):  # These are drawn exactly; the rest by a formula that comes close.
        assert drawn[number] / DRAWS == pytest.approx(1 / (number + 1) ** THETA / zeta, abs=0.01)
    first_tenth = sum(1 / n**THETA for n in range(1, count // 10 + 2)) / zeta
    assert sum(drawn[n] for n in range(count // 10 + 1)) / DRAWS == pytest.approx(first_tenth, abs=0.03)


def test_a_zipfian_that_grows_draws_like_one_that_was_made_larger() -> None:
    grown = Zipfian(10)
    grown.draw(random.Random(2), 500)
    made = Zipfian(500)
    assert [grown.draw(random.Random(n)) for n in range(99)] == [made.draw(random.Random(n)) for n in range(99)]


def test_scrambled_zipfian_makes_a_few_records_popular_that_lie_anywhere() -> None:
    rng, chooser = random.Random(3), ScrambledZipfian(RecordNumbers(1_000))
    drawn = Counter(chooser.choose(rng) for _ in range(DRAWS))
    (hottest, count), *_ = drawn.most_common()
    assert hottest == fnv64(0) % 1_000
    assert count / DRAWS == pytest.approx(1 / 26.469, abs=0.01)
    assert len(drawn) > 900
    assert max(drawn) <= 999


def test_scrambled_zipfian_chooses_no_record_that_is_not_inserted_yet() -> None:
    rng, numbers = random.Random(4), RecordNumbers(100)
    chooser = ScrambledZipfian(numbers, expected_count=200)
    assert max(chooser.choose(rng) for _ in range(2_000)) < 100
    for _ in range(100):
        numbers.acknowledge(numbers.take())
    assert max(chooser.choose(rng) for _ in range(2_000)) >= 100


def test_latest_prefers_what_was_inserted_last() -> None:
    rng, numbers = random.Random(5), RecordNumbers(1_000)
    chooser = Latest(numbers)
    before = Counter(chooser.choose(rng) for _ in range(DRAWS))
    assert before.most_common(1)[0][0] == 999
    numbers.acknowledge(numbers.take())
    after = Counter(chooser.choose(rng) for _ in range(DRAWS))
    assert after.most_common(1)[0][0] == 1_000
    assert after[1_000] == pytest.approx(before[999], rel=0.1)


def test_a_record_can_be_chosen_once_all_below_it_are_inserted() -> None:
    numbers = RecordNumbers(2)
    first, second, third = (numbers.take() for _ in range(3))
    assert (first, second, third) == (2, 3, 4)
    numbers.acknowledge(third)
    numbers.acknowledge(second)
    assert numbers.inserted_count == 2
    numbers.acknowledge(first)
    assert numbers.inserted_count == 5


@pytest.mark.parametrize(
    ("letter", "reads", "updates", "inserts"),
    [("a", 0.5, 0.5, 0), ("b", 0.95, 0.05, 0), ("c", 1, 0, 0), ("d", 0.95, 0, 0.05)],
)  # fmt: skip
def test_workloads_mix_operations_as_ycsb_does(letter: str, reads: float, updates: float, inserts: float) -> None:
    workload, numbers, rng = WORKLOADS[letter], RecordNumbers(1_000), random.Random(6)
    chooser = workload.chooser(numbers, 10_000)
    kinds = Counter(workload.next_step(rng, chooser, numbers).kind for _ in range(10_000))
    for kind, share in ((StepKind.READ, reads), (StepKind.UPDATE, updates), (StepKind.INSERT, inserts)):
        assert kinds[kind] / 10_000 == pytest.approx(share, abs=0.02)


def test_a_record_has_the_size_asked_for() -> None:
    assert [len(value_of(random.Random(7), size)) for size in (1, 256, 1_000)] == [1, 256, 1_000]
