"""Choice of the bookies of a ledger: for a new ensemble, and for the place of one that failed.

Three policies, all random, so that load spreads and a bad choice is not made twice:

    random       every writable bookie is as likely as any other
    free-space   the more room, the likelier; at most three times as likely as the median, so that a new, empty bookie
                 does not get every ledger
    rack         every write set lies in at least two racks, where the bookies at hand allow it

In all of them a bookie is never taken twice, and a suspect one (its connection failed lately, it gave errors) only when
there are not enough others: better an ensemble with a doubtful bookie than none.

A bookie whose rack is unknown counts as being in one more rack, together with all others of which none is known.

Source: BookKeeper's RackawareEnsemblePlacementPolicy and its weighted selection, for the meaning of the policies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from ledger.errors import NotEnoughBookiesError

PlacementPolicy: TypeAlias = Literal["random", "free-space", "rack"]

_WEIGHT_MULTIPLE_MAX: Final = 3
"""A bookie counts as having at most this many times the median's room."""


class Randomness(Protocol):
    """Part of `random.Random` that the choice needs."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


class BookieState(msgspec.Struct, frozen=True):
    """State of a writable bookie at the time an ensemble is chosen.

    Attributes:
        bookie_id: The bookie.
        rack: Where it stands; None if nobody said.
        free_bytes: Room on its disks; None if it has not been asked.
        is_suspect: It failed lately: the last to be taken.

    """

    bookie_id: str
    rack: str | None = None
    free_bytes: int | None = None
    is_suspect: bool = False


def choose_ensemble(
    count: int,
    bookies: Sequence[BookieState],
    *,
    policy: PlacementPolicy = "random",
    rng: Randomness,
    write_quorum: int | None = None,
) -> list[str]:
    """Choose the bookies of a new ensemble, in the order of its positions.

    Args:
        count: Ensemble size.
        bookies: The writable bookies; one that is listed twice counts once.
        policy: See the module.
        rng: Randomness.
        write_quorum: Bookies of one write set, for the rack policy; without it, the whole ensemble is one.

    Raises:
        NotEnoughBookiesError: There are fewer than `count`.

    """
    candidates = list({bookie.bookie_id: bookie for bookie in bookies}.values())
    if len(candidates) < count:
        names = ", ".join(bookie.bookie_id for bookie in candidates) or "none"
        raise NotEnoughBookiesError(
            f"cannot place a ledger on {count} bookies: {len(candidates)} are writable ({names}); start more, or ask "
            "for a smaller ensemble"
        )
    ranked = ranked_bookies(candidates, policy, rng)
    if policy == "rack":
        ranked = _alternating(ranked)
    chosen = sorted(ranked, key=lambda bookie: bookie.is_suspect)[:count]  # stable: the policy's order stays
    if policy == "rack":
        chosen = _spread(chosen, write_quorum or count)
    return [bookie.bookie_id for bookie in chosen]


def choose_replacement(
    bookies: Sequence[BookieState],
    *,
    ensemble: Sequence[str],
    excluded: Collection[str] = (),
    policy: PlacementPolicy = "random",
    rng: Randomness,
    position: int | None = None,
    write_quorum: int | None = None,
) -> str | None:
    """Choose a bookie for the place of one that failed; None if there is none.

    Args:
        bookies: The writable bookies.
        ensemble: The ensemble as it is; none of its members is chosen.
        excluded: Others that must not be chosen: those that have failed.
        policy: See the module.
        rng: Randomness.
        position: Which place of the ensemble, for the rack policy; without it, a rack that no other member is in
            is as good as any place can ask for.
        write_quorum: Bookies of one write set, for the rack policy; without it, the whole ensemble is one.

    """
    taken = {*ensemble, *excluded}
    candidates = list({bookie.bookie_id: bookie for bookie in bookies if bookie.bookie_id not in taken}.values())
    ranked = ranked_bookies(candidates, policy, rng)
    if policy == "rack":
        rack_of = {bookie.bookie_id: bookie.rack for bookie in bookies}
        ranked.sort(key=_rack_cost(rack_of, ensemble, excluded, position, write_quorum or len(ensemble)))
    ranked.sort(key=lambda bookie: bookie.is_suspect)
    return ranked[0].bookie_id if ranked else None


def ranked_bookies(bookies: Sequence[BookieState], policy: PlacementPolicy, rng: Randomness) -> list[BookieState]:
    """Return the bookies in random order, those with more room likely to be first if the policy says so.

    A sample without replacement by weight: the largest `u ** (1 / weight)` first (Efraimidis and Spirakis).
    """
    weights = _weights(bookies) if policy == "free-space" else [1.0] * len(bookies)
    keys = [rng.random() ** (1 / weight) if weight > 0 else -rng.random() for weight in weights]
    return [bookie for _, bookie in sorted(zip(keys, bookies, strict=True), key=lambda pair: -pair[0])]


def _weights(bookies: Sequence[BookieState]) -> list[float]:
    """Return how likely each bookie is to be chosen, relative to the median; one not asked yet counts as median."""
    known = sorted(bookie.free_bytes for bookie in bookies if bookie.free_bytes is not None)
    median = known[len(known) // 2] if known else 0
    if median <= 0:
        return [1.0] * len(bookies)
    return [
        1.0 if bookie.free_bytes is None else min(bookie.free_bytes / median, float(_WEIGHT_MULTIPLE_MAX))
        for bookie in bookies
    ]


def _alternating(ranked: Sequence[BookieState]) -> list[BookieState]:
    """Take one bookie of each rack in turn, suspects after all others."""
    turns: list[tuple[bool, int, int]] = []
    seen: dict[tuple[bool, str | None], int] = {}
    for rank, bookie in enumerate(ranked):
        turn = seen.setdefault((bookie.is_suspect, bookie.rack), 0)
        seen[bookie.is_suspect, bookie.rack] = turn + 1
        turns.append((bookie.is_suspect, turn, rank))
    return [ranked[rank] for _, _, rank in sorted(turns)]


def _spread(chosen: list[BookieState], write_quorum: int) -> list[BookieState]:
    """Order the ensemble so that few write sets lie in one rack: swap two places as long as that helps."""
    spread = list(chosen)
    cost = _one_rack_count([bookie.rack for bookie in spread], write_quorum)
    has_improved = cost > 0
    while has_improved:
        has_improved = False
        for left, right in combinations(range(len(spread)), 2):
            spread[left], spread[right] = spread[right], spread[left]
            swapped = _one_rack_count([bookie.rack for bookie in spread], write_quorum)
            if swapped < cost:
                cost = swapped
                has_improved = True
            else:
                spread[left], spread[right] = spread[right], spread[left]
    return spread


def _one_rack_count(racks: Sequence[str | None], write_quorum: int) -> int:
    """Count the write sets that lie in a single rack."""
    size = len(racks)
    return sum(len({racks[(first + i) % size] for i in range(write_quorum)}) == 1 for first in range(size))


def _rack_cost(
    rack_of: Mapping[str, str | None],
    ensemble: Sequence[str],
    excluded: Collection[str],
    position: int | None,
    write_quorum: int,
) -> Callable[[BookieState], tuple[int, int]]:
    """Return how bad a candidate is: write sets left in one rack, then members that share its rack."""
    racks = [rack_of.get(bookie_id) for bookie_id in ensemble]
    others = [
        rack
        for place, (bookie_id, rack) in enumerate(zip(ensemble, racks, strict=True))
        if place != position and bookie_id not in excluded
    ]

    def cost(bookie: BookieState) -> tuple[int, int]:
        if position is None:
            return 0, others.count(bookie.rack)
        changed = [bookie.rack if place == position else rack for place, rack in enumerate(racks)]
        return _one_rack_count(changed, write_quorum), others.count(bookie.rack)

    return cost
