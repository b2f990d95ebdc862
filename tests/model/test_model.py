"""A model of take-over, group commit, chain, trimming and versions: it holds, and each broken rule is found.

It has no code in common with the product, whose traces are replayed on it (`test_code_traces`).
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

from tests.model.explorer import begin, search, shrink, walk
from tests.model.world import INC, ODD, READ, World

_WALK_MOVES = 150_000
_WALK_MOVES_OF_ALL = 3_000_000
_BUDGET = {
    "elect": 6,
    "lease": 4,
    "lost": 4,
    "fail": 4,
    "down": 3,
    "crash": 2,
    "auto": 3,
    "resend": 6,
    "roll": 2,
    "snap": 6,
    "trim": 2,
    "disk": 1,
    "orphan": 3,
    "version": 5,
    "raise": 2,
    "force": 1,
}
_SCRIPT = ((INC, READ, ODD, INC, READ), (ODD, INC, READ, INC), ())
ONE, TWO, READER = ((INC,),), ((INC,), (INC,)), ((INC,), (READ,))


class Small(NamedTuple):
    """A world in which a bug shows, and in how many moves at least."""

    length: int
    script: tuple[tuple[int, ...], ...]
    budget: dict[str, Any]
    names: tuple[int, ...] = (0, 1)
    codes: tuple[int, ...] = ()


PLANTS: dict[str, Small] = {
    "again_at_once": Small(12, ONE, {"elect": 1, "fail": 1}),
    "failed_is_not_applied": Small(11, ONE, {"elect": 1, "fail": 1}),
    "fresh_version": Small(15, ONE, {"elect": 1, "fail": 1}),
    "no_claim": Small(6, ONE, {"elect": 1, "fail": 1}),
    "entry_first": Small(8, ONE, {"elect": 1, "fail": 1}),
    "read_at_once": Small(18, READER, {"elect": 1}),
    "read_joins_what_was_sent": Small(22, ((INC,), (INC,), (READ,)), {"elect": 1}),
    "no_at_once": Small(18, ((INC, ODD), (INC,)), {"elect": 1}),
    "replies_lost": Small(19, ONE, {"elect": 1, "resend": 1}),
    "above_lac": Small(7, ONE, {"elect": 1}),
    "successor_ends": Small(6, ONE, {"elect": 1}, names=(0, 1, 2)),
    "not_rebuilt": Small(7, ONE, {"elect": 1, "down": 1}),
    "orphan_own": Small(5, ONE, {"elect": 1, "lost": 1, "fail": 1}),
    "orphan_early": Small(6, ONE, {"elect": 1, "fail": 1}),
    "no_fence": Small(8, ONE, {"elect": 1}),
    "late_ack": Small(6, ONE, {"elect": 1, "fail": 1}),
    "reply_early": Small(4, ONE, {"elect": 1}),
    "one_copy": Small(15, ONE, {"elect": 1, "roll": 1, "snap": 1, "trim": 1, "disk": 1}),
    # What the text once left open.
    "no_is_not_logged": Small(8, ((ODD,), (INC,)), {"resend": 1}),
    # Reads without an entry.
    "check_ignored": Small(20, READER, {"elect": 1}),
    "check_before_the_read": Small(21, ((INC,), (READ,), (READ,)), {"elect": 1}),
    "check_ahead": Small(19, ((INC,), (READ, READ)), {"elect": 1}),
    "check_of_a_former_ledger": Small(24, READER, {"elect": 1, "roll": 1}),
    # Leases of reads.
    "fence_not_waited_for": Small(21, READER, {"elect": 1, "lease": 1}),
    "promise_forgotten": Small(22, READER, {"elect": 1, "lease": 1}),
    "counted_from_the_answer": Small(22, READER, {"elect": 1, "lease": 1}),
    "granted_when_fenced": Small(21, READER, {"elect": 1, "lease": 1}),
    "looked_before_a_pause": Small(21, ((INC,), (READ,), (READ,)), {"elect": 1, "lease": 1}),
    "lease_of_a_former_ledger": Small(25, READER, {"elect": 1, "lease": 1, "roll": 1}),
    # Versions of a machine.
    "not_narrowed": Small(6, ONE, {}, codes=(2, 1)),
    "raised_unasked": Small(9, ONE, {"raise": 1}, codes=(2, 1)),
    "old_leads": Small(18, ONE, {"elect": 1, "force": 1}, codes=(2, 1)),
    "raised_twice": Small(19, ONE, {"elect": 1, "raise": 1, "down": 1}, codes=(2, 2)),
    "mine_by_name": Small(16, ONE, {"elect": 2}, names=(7, 8, 8)),
}


@pytest.mark.parametrize("bug", list(PLANTS))
def test_a_broken_rule_is_found_by_its_shortest_trace(bug: str) -> None:
    small = PLANTS[bug]
    found = search(lambda: begin(World({bug}, small.script, small.names, small.codes, **small.budget)))
    print(found)
    assert found.broken is not None
    assert len(found.trace) == small.length
    assert found.broken.partition(":")[0] in {
        "no-gap",
        "single-writer",
        "once-per-session",
        "acked-is-durable",
        "denied",
        "stale",
        "foldable",
        "raised-by-all",
        "raised-once",
        "no-old-leader",
    }


@pytest.mark.parametrize(
    ("script", "budget"),
    [
        (ONE, {"elect": 1, "fail": 1}),
        (ONE, {"elect": 1, "lost": 1}),
        (READER, {"elect": 1}),
        (READER, {"elect": 1, "roll": 1}),
        (READER, {"elect": 1, "lease": 1}),
        (((ODD,), (INC,)), {"resend": 1}),
        (ONE, {"elect": 1, "down": 1}),
        (ONE, {"elect": 1, "auto": 1}),
        (ONE, {"elect": 1, "roll": 1}),
    ],
    ids=str,
)
def test_the_rules_hold_in_every_state_of_a_small_world(
    script: tuple[tuple[int, ...], ...], budget: dict[str, Any]
) -> None:
    found = search(lambda: begin(World((), script, **budget)))
    print(found)
    assert found.broken is None, str(found)
    assert found.is_complete


@pytest.mark.parametrize(
    ("codes", "budget"),
    [
        ((2, 2), {"elect": 1, "raise": 1}),
        ((2, 1), {"elect": 1, "force": 1}),
        ((2, 2), {"version": 1, "raise": 1}),
        ((1, 1), {"elect": 1, "version": 1}),
    ],
    ids=str,
)
def test_the_rules_of_versions_hold_in_every_state_of_a_small_world(
    codes: tuple[int, ...], budget: dict[str, Any]
) -> None:
    found = search(lambda: begin(World((), ONE, codes=codes, **budget)))
    print(found)
    assert found.broken is None, str(found)
    assert found.is_complete


def _walk(moves_wanted: int, seed: str) -> None:
    done = number = 0
    while done < moves_wanted:
        rng = random.Random(f"{seed}.{number}")
        # Some ingredients are left out of every walk, so that the others get room.
        budget = {name: rng.choice((0, most)) for name, most in _BUDGET.items()} | {"elect": rng.choice((1, 2, 3, 6))}
        names = tuple(range(rng.choice((2, 3))))
        codes = tuple(rng.choice((1, 1, 2)) for _ in names)

        def make(
            budget: dict[str, Any] = budget, names: tuple[int, ...] = names, codes: tuple[int, ...] = codes
        ) -> World:
            return begin(World((), _SCRIPT, names, codes, **budget))

        found = walk(make, rng, rng.choice((60, 120, 200, 300)))
        if found.broken:
            trace = found.trace if "convergence" in found.broken else shrink(make, found)
            pytest.fail(f"walk {seed}.{number}, {budget}: {found._replace(trace=trace)}")
        done += found.count
        number += 1
    print(f"{done} moves in {number} walks")


def test_the_rules_hold_on_random_walks_and_calm_brings_progress() -> None:
    _walk(_WALK_MOVES, "walk")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_rules_hold_on_millions_of_moves() -> None:
    _walk(_WALK_MOVES_OF_ALL, "far")
