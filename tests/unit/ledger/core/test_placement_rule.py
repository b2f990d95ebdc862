"""The rule for places: kept by every choice where it can be, and refused in words where it cannot."""

from __future__ import annotations

import random
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.placement import BookieState
from ledger.core.placement_rule import (
    Area,
    ClusterPlacement,
    PlacementRule,
    area_of,
    choose_by_rule,
    choose_replacement_by_rule,
)
from ledger.errors import NotEnoughBookiesError, UsageError

_PLACES = st.sampled_from(
    ["/e/a/1", "/e/a/2", "/e/b/1", "/f/a/1", "/f/b/1", "/f/b/2", "/a/1", "/b/1", "/1", "/2", None]
)
_RULES = st.builds(
    PlacementRule,
    regions_min=st.integers(1, 2),
    zones_min=st.integers(1, 3),
    racks_min=st.integers(1, 4),
    is_strict=st.booleans(),
)


def _cluster(places: list[str | None], rule: PlacementRule) -> tuple[ClusterPlacement, list[BookieState]]:
    names = [f"b{number}:3181" for number in range(len(places))]
    known = {name: place for name, place in zip(names, places, strict=True) if place is not None}
    return ClusterPlacement(rule=rule, bookies=known), [BookieState(name) for name in names]


def _lacks(placement: ClusterPlacement, ensemble: list[str], write_quorum: int) -> int:
    """Count what is lacking, by the words of the rule."""
    total = 0
    for first in range(len(ensemble)):
        copies = [placement.area(ensemble[(first + n) % len(ensemble)]) for n in range(write_quorum)]
        for level, least in enumerate(placement.rule.minima):
            found = {area[level] for area in copies} - {None}
            total += max(0, min(least, write_quorum) - len(found)) if least > 1 else 0
    return total


def test_a_path_is_a_place() -> None:
    assert area_of("/e/a/1") == Area("/e", "/e/a", "/e/a/1")
    assert area_of("/a/1") == Area(None, "/a", "/a/1")
    assert area_of("/1") == Area(None, None, "/1")
    placement = ClusterPlacement(bookies={"h": "/1", "h:2": "/2", "shelf": "/3"})
    assert [placement.place(one) for one in ("h:1", "h:2", "shelf", "x:1")] == ["/1", "/2", "/3", None]


@given(places=st.lists(_PLACES, min_size=1, max_size=6), rule=_RULES, data=st.data())
def test_an_ensemble_keeps_the_rule_if_any_does(places: list[str | None], rule: PlacementRule, data) -> None:
    placement, bookies = _cluster(places, rule)
    count = data.draw(st.integers(1, min(4, len(places))))
    write_quorum = data.draw(st.integers(1, count))
    random.Random(data.draw(st.integers(0, 99))).shuffle(bookies)
    names = [bookie.bookie_id for bookie in bookies]
    can = any(
        _lacks(placement, list(one), write_quorum) == 0
        for chosen in combinations(names, count)
        for one in permutations(chosen)
    )
    if not can and rule.is_strict:
        with pytest.raises(NotEnoughBookiesError, match="every .* that hold an entry lie in"):
            choose_by_rule(count, bookies, placement, write_quorum)
        return
    chosen = choose_by_rule(count, bookies, placement, write_quorum)
    assert len(chosen) == len(set(chosen)) == count
    assert set(chosen) <= set(names)
    assert placement.lacking(chosen, write_quorum) == _lacks(placement, chosen, write_quorum)
    if can:
        assert _lacks(placement, chosen, write_quorum) == 0


@given(places=st.lists(_PLACES, min_size=2, max_size=7), rule=_RULES, data=st.data())
def test_a_replacement_leaves_the_ensemble_no_further_from_the_rule(
    places: list[str | None], rule: PlacementRule, data
) -> None:
    placement, bookies = _cluster(places, rule)
    count = data.draw(st.integers(1, len(places) - 1))
    write_quorum = data.draw(st.integers(1, count))
    names = [bookie.bookie_id for bookie in bookies]
    ensemble = names[:count]
    position = data.draw(st.integers(0, count - 1))
    excluded = data.draw(st.lists(st.sampled_from(names), max_size=2))
    chosen = choose_replacement_by_rule(
        bookies, placement, ensemble=ensemble, excluded=excluded, position=position, write_quorum=write_quorum
    )

    def lacks(name: str) -> int:
        return _lacks(placement, [*ensemble[:position], name, *ensemble[position + 1 :]], write_quorum)

    before = _lacks(placement, ensemble, write_quorum)
    free = [name for name in names[count:] if name not in excluded]
    allowed = [name for name in free if lacks(name) <= before] if rule.is_strict else free
    if chosen is None:
        assert not allowed
    else:
        assert chosen in allowed
        assert lacks(chosen) == min(map(lacks, allowed))


def test_suspects_are_taken_only_for_the_rule() -> None:
    places: list[str | None] = ["/a", "/a", "/b"]
    placement, bookies = _cluster(places, PlacementRule(racks_min=2))
    suspected = [BookieState(one.bookie_id, is_suspect=one.bookie_id != "b0:3181") for one in bookies]
    assert choose_by_rule(1, suspected, placement, 1) == ["b0:3181"]
    assert choose_by_rule(2, suspected, placement, 2) == ["b0:3181", "b2:3181"]


def test_a_large_cluster_takes_no_time_that_counts() -> None:
    places: list[str | None] = [f"/r{n % 3}/z{n % 7}/k{n}" for n in range(300)]
    placement, bookies = _cluster(places, PlacementRule(regions_min=3, zones_min=3, racks_min=5))
    chosen = choose_by_rule(9, bookies, placement, 5)
    assert _lacks(placement, chosen, 5) == 0
    one_region: list[str | None] = [f"/r/z{n % 7}/k{n}" for n in range(300)]
    placement, bookies = _cluster(one_region, PlacementRule(regions_min=2))
    with pytest.raises(NotEnoughBookiesError, match="they stand in 1 regions"):
        choose_by_rule(9, bookies, placement, 5)


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (ClusterPlacement(rule=PlacementRule(racks_min=0)), "racks_min = 0"),
        (ClusterPlacement(rule=PlacementRule(zones_min=21)), "zones_min = 21"),
        (ClusterPlacement(bookies={"b": "a"}), "need /region/zone/rack"),
        (ClusterPlacement(bookies={"b": "/a/b/c/d"}), "need /region/zone/rack"),
        (ClusterPlacement(bookies={"b": "/a b"}), "need /region/zone/rack"),
    ],
)
def test_what_cannot_be_meant_is_refused(placement: ClusterPlacement, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        placement.check()
