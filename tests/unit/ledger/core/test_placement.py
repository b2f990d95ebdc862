"""Ensembles: no bookie twice, suspects last, room and racks as the policy says."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.placement import BookieState, PlacementPolicy, choose_ensemble, choose_replacement
from ledger.errors import NotEnoughBookiesError

POLICIES: tuple[PlacementPolicy, ...] = ("random", "free-space", "rack")


def bookies_of(racks: str) -> list[BookieState]:
    """One bookie per letter, which is its rack."""
    return [BookieState(f"{rack}{i}:1", rack) for i, rack in enumerate(racks)]


def one_rack_write_sets(ensemble: list[str], write_quorum: int) -> int:
    size = len(ensemble)
    return sum(len({ensemble[(e + i) % size][0] for i in range(write_quorum)}) == 1 for e in range(size))


@pytest.mark.parametrize("policy", POLICIES)
@given(count=st.integers(1, 6), extra=st.integers(0, 4), seed=st.integers(0, 999))
def test_an_ensemble_never_holds_a_bookie_twice(policy: PlacementPolicy, count: int, extra: int, seed: int) -> None:
    bookies = bookies_of("abc" * (count + extra))[: count + extra]
    chosen = choose_ensemble(count, [*bookies, *bookies], policy=policy, rng=random.Random(seed))
    assert len(chosen) == len(set(chosen)) == count


@pytest.mark.parametrize("policy", POLICIES)
def test_too_few_bookies_are_named(policy: PlacementPolicy) -> None:
    with pytest.raises(NotEnoughBookiesError, match=r"on 3 bookies: 2 are writable \(a0:1, b1:1\)"):
        choose_ensemble(3, bookies_of("ab"), policy=policy, rng=random.Random(1))


@pytest.mark.parametrize("policy", POLICIES)
def test_suspects_are_taken_last(policy: PlacementPolicy) -> None:
    good = bookies_of("ab")
    bad = [BookieState(f"z{i}:1", "z", 10**12, is_suspect=True) for i in range(3)]
    for seed in range(50):
        rng = random.Random(seed)
        assert {"a0:1", "b1:1"} == set(choose_ensemble(2, [*bad, *good], policy=policy, rng=rng))
        assert {"a0:1", "b1:1"} < set(choose_ensemble(3, [*bad, *good], policy=policy, rng=rng))
        assert choose_replacement([*bad, *good], ensemble=["a0:1"], policy=policy, rng=rng) == "b1:1"


def test_every_bookie_is_as_likely_at_random() -> None:
    rng = random.Random(7)
    seen = Counter(b for _ in range(3000) for b in choose_ensemble(2, bookies_of("abcde"), policy="random", rng=rng))
    assert all(1000 < count < 1400 for count in seen.values())


def test_more_room_is_likelier_but_bounded() -> None:
    rng = random.Random(7)
    bookies = [BookieState(f"b{i}:1", None, room) for i, room in enumerate((100, 100, 100, 10_000, 0))]
    bookies.append(BookieState("unasked:1"))
    seen = Counter(choose_ensemble(1, bookies, policy="free-space", rng=rng)[0] for _ in range(7000))
    assert seen["b4:1"] == 0
    assert 2600 < seen["b3:1"] < 3400  # three of seven parts
    assert all(800 < seen[name] < 1200 for name in ("b0:1", "b1:1", "b2:1", "unasked:1"))


def test_a_full_bookie_is_taken_when_there_is_no_other() -> None:
    bookies = [BookieState("full:1", None, 0), BookieState("room:1", None, 5)]
    assert set(choose_ensemble(2, bookies, policy="free-space", rng=random.Random(1))) == {"full:1", "room:1"}


@pytest.mark.parametrize(
    ("racks", "count", "write_quorum"),
    [
        ("aabb", 2, 2),
        ("aaab", 2, 2),
        ("aaaab", 3, 3),
        ("aabb", 4, 2),
        ("aaaabb", 6, 3),
        ("abc", 3, 2),
        ("aaabbb", 5, 3),
    ],
)
def test_every_write_set_lies_in_two_racks_where_that_is_possible(racks: str, count: int, write_quorum: int) -> None:
    for seed in range(100):
        chosen = choose_ensemble(
            count, bookies_of(racks), policy="rack", rng=random.Random(seed), write_quorum=write_quorum
        )
        assert one_rack_write_sets(chosen, write_quorum) == 0, chosen


def test_one_rack_is_enough_when_there_is_no_other() -> None:
    assert len(choose_ensemble(3, bookies_of("aaa"), policy="rack", rng=random.Random(1))) == 3


@pytest.mark.parametrize("policy", POLICIES)
def test_a_replacement_is_neither_a_member_nor_excluded(policy: PlacementPolicy) -> None:
    bookies = bookies_of("abcd")
    for seed in range(30):
        rng = random.Random(seed)
        found = choose_replacement(bookies, ensemble=["a0:1", "b1:1"], excluded=["c2:1"], policy=policy, rng=rng)
        assert found == "d3:1"
    assert choose_replacement(bookies[:2], ensemble=["a0:1", "b1:1"], policy=policy, rng=random.Random(1)) is None


def test_a_replacement_keeps_the_write_set_in_two_racks() -> None:
    bookies = bookies_of("abaab")  # b1 fails: only b4 leaves two racks
    for seed in range(30):
        rng = random.Random(seed)
        for position in (None, 1):
            found = choose_replacement(
                bookies,
                ensemble=["a0:1", "b1:1"],
                excluded=["b1:1"],
                policy="rack",
                rng=rng,
                position=position,
                write_quorum=2,
            )
            assert found == "b4:1"
