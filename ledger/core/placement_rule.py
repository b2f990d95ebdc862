"""A cluster's rule for the places of copies: in how many regions, zones and racks each write set must lie.

A place is a path, `/region/zone/rack`; the front may be left out: `/zone/rack`, `/rack`. Zones of one name in two
regions are two zones, and so on. A bookie whose place is unknown, or lacks a level, adds nothing to that level.

Source: BookKeeper's minNumRacksPerWriteQuorum and its zone-aware policy, for the meaning of the minima.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from ledger.core.placement import BookieState
from ledger.errors import NotEnoughBookiesError, UsageError

_PLACE: Final = re.compile(r"(/[A-Za-z0-9._-]{1,64}){1,3}")
_LEVELS: Final = ("regions", "zones", "racks")
_STEPS_MAX: Final = 5_000
"""Bookies tried for one ensemble; beyond it the rule counts as one that cannot be kept."""


class Area(NamedTuple):
    """Region, zone and rack of a bookie, each as the path to it; None where it is unknown."""

    region: str | None = None
    zone: str | None = None
    rack: str | None = None


class PlacementRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Minima for each write set; one that is larger than the write quorum asks for as many as that has bookies.

    A minimum of 1 asks for nothing.

    Attributes:
        regions_min: Regions.
        zones_min: Zones.
        racks_min: Racks.
        is_strict: Rather no ledger, and no other bookie in the place of a failed one, than one against the rule. If
            not, the rule is kept as far as the bookies at hand allow.

    """

    regions_min: int = 1
    zones_min: int = 1
    racks_min: int = 1
    is_strict: bool = True

    @property
    def minima(self) -> tuple[int, int, int]:
        """Minima, by level."""
        return self.regions_min, self.zones_min, self.racks_min


class ClusterPlacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule of a cluster, and where its bookies stand.

    Attributes:
        rule: The rule.
        bookies: Bookie id, or the host part of one -> place.

    """

    rule: PlacementRule = PlacementRule()
    bookies: dict[str, str] = {}

    def place(self, bookie_id: str) -> str | None:
        """Return the place of a bookie; None if nobody said."""
        return self.bookies.get(bookie_id) or self.bookies.get(bookie_id.rpartition(":")[0])

    def area(self, bookie_id: str) -> Area:
        """Return region, zone and rack of a bookie."""
        place = self.place(bookie_id)
        return Area() if place is None else area_of(place)

    def lacking(self, bookies: Sequence[str], write_quorum: int) -> int:
        """Return how many regions, zones and racks the write sets of an ensemble lack together; 0 = it is kept."""
        areas = [self.area(bookie_id) for bookie_id in bookies]
        return sum(
            _lack(self.rule.minima, areas, write_set, write_quorum, len(areas))
            for write_set in _write_sets(len(areas), write_quorum)
        )

    def check(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: A minimum is not 1 to 20, or a place is no path.

        """
        for level, least in zip(_LEVELS, self.rule.minima, strict=True):
            if not 1 <= least <= 20:
                raise UsageError(f"{level}_min = {least}: need 1 to 20")
        for name, place in self.bookies.items():
            if not _PLACE.fullmatch(place):
                raise UsageError(
                    f"the place of {name[:80]!r} is {place[:80]!r}: need /region/zone/rack, /zone/rack or /rack, of "
                    "letters, digits and . _ -"
                )


def area_of(place: str) -> Area:
    """Return what a path says."""
    parts = place.strip("/").split("/")
    region = f"/{parts[-3]}" if len(parts) == 3 else None
    zone = place.rpartition("/")[0] if len(parts) >= 2 else None
    return Area(region, zone, place)


def choose_by_rule(
    count: int, ranked: Sequence[BookieState], placement: ClusterPlacement, write_quorum: int
) -> list[str]:
    """Choose the bookies of a new ensemble, in the order of its positions.

    Args:
        count: Ensemble size.
        ranked: The writable bookies, those first that should rather be taken; suspects are taken last.
        placement: The rule.
        write_quorum: Bookies of one write set.

    Raises:
        NotEnoughBookiesError: There are too few, or the rule is strict and cannot be kept.

    """
    if len(ranked) < count:
        raise NotEnoughBookiesError(f"cannot place a ledger on {count} bookies: {len(ranked)} are writable")
    for minima in _relaxed(placement.rule):
        for candidates in _with_and_without_suspects(ranked, count):
            chosen = _Search(count, candidates, placement, minima, write_quorum).run()
            if chosen is not None:
                return chosen
    raise NotEnoughBookiesError(
        f"cannot place a ledger on {count} of {len(ranked)} writable bookies so that every {write_quorum} that hold an "
        f"entry lie in {_words(placement.rule)}: {_spread_words(ranked, placement)}; start a bookie elsewhere, or "
        "change the rule (rsm cluster set-placement)"
    )


def choose_replacement_by_rule(
    ranked: Sequence[BookieState],
    placement: ClusterPlacement,
    *,
    ensemble: Sequence[str],
    excluded: Collection[str],
    position: int,
    write_quorum: int,
) -> str | None:
    """Choose a bookie for the place of one that failed; None if there is none that the rule allows.

    A strict rule allows a bookie that leaves the ensemble no further from the rule than it was.

    Args:
        ranked: The writable bookies, those first that should rather be taken; suspects are taken last.
        placement: The rule.
        ensemble: As it is: its members are not chosen.
        excluded: Others that are not chosen.
        position: The place.
        write_quorum: Bookies of one write set.

    """
    before = placement.lacking(ensemble, write_quorum)
    best: tuple[tuple[bool, int], str] | None = None
    for bookie in ranked:
        if bookie.bookie_id in ensemble or bookie.bookie_id in excluded:
            continue
        changed = [bookie.bookie_id if place == position else one for place, one in enumerate(ensemble)]
        lacking = placement.lacking(changed, write_quorum)
        if lacking > before and placement.rule.is_strict:
            continue
        cost = (bookie.is_suspect, lacking)
        if best is None or cost < best[0]:
            best = cost, bookie.bookie_id
    return None if best is None else best[1]


def _write_sets(size: int, write_quorum: int) -> list[tuple[int, ...]]:
    return [tuple((first + place) % size for place in range(write_quorum)) for first in range(size)]


def _lack(
    minima: Sequence[int], areas: Sequence[Area | None], write_set: Sequence[int], write_quorum: int, placed: int
) -> int:
    """Return how much a write set lacks even if each place from `placed` on added one at every level."""
    known = [areas[place] for place in write_set if place < placed]
    free = len(write_set) - len(known)
    lacking = 0
    for level, least in enumerate(minima):
        if least == 1:
            continue  # It asks for nothing, wherever the bookies stand.
        found = {area[level] for area in known if area is not None and area[level] is not None}
        lacking += max(0, min(least, write_quorum) - len(found) - free)
    return lacking


def _relaxed(rule: PlacementRule) -> list[tuple[int, int, int]]:
    """Return minima to try one after the other: of a rule that is not strict, ever lower ones, racks first."""
    tried = [rule.minima]
    if not rule.is_strict:
        regions, zones, racks = rule.minima
        tried += [(regions, zones, least) for least in range(racks - 1, 0, -1)]
        tried += [(regions, least, 1) for least in range(zones - 1, 0, -1)]
        tried += [(least, 1, 1) for least in range(regions - 1, 0, -1)]
    return tried


def _with_and_without_suspects(ranked: Sequence[BookieState], count: int) -> list[list[BookieState]]:
    trusted = [bookie for bookie in ranked if not bookie.is_suspect]
    suspects = [bookie for bookie in ranked if bookie.is_suspect]
    everybody = [*trusted, *suspects]
    return [everybody] if not suspects or len(trusted) < count else [trusted, everybody]


class _Search:
    """Search for an ensemble, position by position, that gives up a beginning as soon as no end of it can do.

    Bookies in one area are alike, so that at each position one of each area is tried.
    """

    def __init__(
        self,
        count: int,
        candidates: Sequence[BookieState],
        placement: ClusterPlacement,
        minima: Sequence[int],
        write_quorum: int,
    ) -> None:
        self._count = count
        self._minima = minima
        self._write_quorum = min(write_quorum, count)
        self._sets_of: list[list[tuple[int, ...]]] = [[] for _ in range(count)]
        for write_set in _write_sets(count, self._write_quorum):
            for place in write_set:
                self._sets_of[place].append(write_set)
        # Levels of which nothing is asked do not tell bookies apart.
        asked = [least > 1 for least in minima]
        self._candidates = [
            (Area(*[name if is_asked else None for name, is_asked in zip(area, asked, strict=True)]), bookie.bookie_id)
            for bookie in candidates
            for area in [placement.area(bookie.bookie_id)]
        ]
        self._areas: list[Area | None] = [None] * count
        self._chosen: dict[str, None] = {}
        self._steps = 0

    def run(self) -> list[str] | None:
        for level, least in enumerate(self._minima):
            found = {area[level] for area, _ in self._candidates if area[level] is not None}
            if least > 1 and len(found) < min(least, self._write_quorum):
                return None
        return list(self._chosen) if self._fill(0) else None

    def _fill(self, position: int) -> bool:
        if position == self._count:
            return True
        tried: dict[Area, None] = {}
        for area, bookie_id in self._candidates:
            if area in tried or bookie_id in self._chosen:
                continue
            tried[area] = None
            self._steps += 1
            if self._steps > _STEPS_MAX:
                return False
            self._areas[position] = area
            if any(
                _lack(self._minima, self._areas, write_set, self._write_quorum, position + 1)
                for write_set in self._sets_of[position]
            ):
                continue
            self._chosen[bookie_id] = None
            if self._fill(position + 1):
                return True
            del self._chosen[bookie_id]
        return False


def _words(rule: PlacementRule) -> str:
    parts = [f"{least} {level}" for level, least in zip(_LEVELS, rule.minima, strict=True) if least > 1]
    return ", ".join(parts) or "any place"


def _spread_words(bookies: Sequence[BookieState], placement: ClusterPlacement) -> str:
    areas = [placement.area(bookie.bookie_id) for bookie in bookies]
    counts = [len({area[level] for area in areas if area[level] is not None}) for level in range(len(_LEVELS))]
    known = ", ".join(f"{count} {level}" for level, count in zip(_LEVELS, counts, strict=True))
    unknown = sum(area.rack is None for area in areas)
    return f"they stand in {known}" + (f", and of {unknown} nobody said where" if unknown else "")
