"""Check whether a history of calls on a map is linearizable, key by key, revisions included.

    verdict = check_history(calls, state_count_max=1_000_000)
    assert verdict.is_linearizable, verdict.explain()

A history is linearizable if every call can be given an instant between its begin and its end so that the map, taken
through the calls in that order, gives exactly the replies that were given. A map is linearizable if each of its keys
is (Herlihy and Wing, 1990: locality), so keys are judged one by one. A call whose outcome is unknown may take effect at
any instant after its begin, or never; one that certainly was not applied does not belong into a history.

The search is Wing and Gong's with Lowe's memory of what was tried: from a configuration (calls that have taken effect,
state of the key) go on with every call that began before the first end of those that are left. Known outcomes are tried
before unknown ones, so that a good history is walked almost straight. Where replies name revisions, they are part of
the state, which leaves hardly any choice; nothing of it is needed.

Pure and deterministic: the same calls give the same verdict after the same number of configurations.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rsm_spark.testing.history import CallerCall, Kind, is_write, shown
from rsm_spark.testing.key_model import ABSENT, KeyState, carry_out, revision_limit

STATE_COUNT_MAX = 1_000_000
"""Configurations a key may cost: some seconds and some hundred MiB at the worst, far beyond any good history."""

_EXPLAINED_CALLS = 6


class CheckOutcome(enum.StrEnum):
    """Outcome of a check."""

    LINEARIZABLE = "linearizable"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    """The budget ran out first. For whoever asks, this is a failure."""


class CheckReport(NamedTuple):
    """The outcome of a check.

    Attributes:
        finding: The outcome.
        key: The key that decided it, if not linearizable.
        state_count: Configurations looked at, all keys together.
        reason: What could not be explained, and after what.

    """

    finding: CheckOutcome
    key: Hashable = None
    state_count: int = 0
    reason: str = ""

    @property
    def is_linearizable(self) -> bool:
        """True if it certainly is; a check that ran out of budget has failed."""
        return self.finding is CheckOutcome.LINEARIZABLE

    def explain(self) -> str:
        """Return the finding in words."""
        if self.is_linearizable:
            return f"linearizable ({self.state_count} configurations)"
        return f"key {self.key!r}: {self.finding} after {self.state_count} configurations: {self.reason}"


def check_history(calls: Iterable[CallerCall], *, state_count_max: int = STATE_COUNT_MAX) -> CheckReport:
    """Judge a history, starting from an empty map.

    Args:
        calls: In any order. Those that certainly were not applied, and reads without a reply, are left out by the
            caller (the latter are harmless).
        state_count_max: Configurations that one key may cost.

    """
    by_key: dict[Hashable, list[CallerCall]] = {}
    for call in calls:
        by_key.setdefault(call.key, []).append(call)
    state_count = 0
    for key, its_calls in by_key.items():
        search = _Search(its_calls, state_count_max)
        finding = search.run()
        state_count += search.tried.count
        if finding is not CheckOutcome.LINEARIZABLE:
            return CheckReport(finding, key, state_count, search.explain())
    return CheckReport(CheckOutcome.LINEARIZABLE, state_count=state_count)


def check_revision_order(calls: Iterable[CallerCall]) -> CheckReport:
    """Judge the writes of all keys together: revisions are unique, and none is lower than one that was over before.

    With it, keys that are linearizable one by one are so together, as far as writes go.
    """
    writes = sorted(
        (call for call in calls if is_write(call)), key=lambda call: (call.reply.revision or 0) if call.reply else 0
    )
    latest: CallerCall | None = None
    last_revision = 0
    for call in writes:
        assert call.reply is not None
        assert call.reply.revision is not None
        if call.reply.revision == last_revision:
            return CheckReport(
                CheckOutcome.VIOLATED, call.key, len(writes), f"{shown(call)}: its revision was given twice"
            )
        last_revision = call.reply.revision
        if latest is not None and call.ended_s < latest.began_s:
            reason = f"{shown(call)} was over before {shown(latest)} began, and has the higher revision"
            return CheckReport(CheckOutcome.VIOLATED, call.key, len(writes), reason)
        if latest is None or call.began_s > latest.began_s:
            latest = call
    return CheckReport(CheckOutcome.LINEARIZABLE, state_count=len(writes))


class _Place(NamedTuple):
    """A configuration. Equal ones have the same future.

    Attributes:
        first: All calls of known outcome below this index have taken effect, the one at it has not.
        mask: Bit n: that at `first` + n has.
        rank: All calls of known outcome below this place in the order of their limits have taken effect.
        unknown_mask: Bit n: the n-th call of unknown outcome has.
        state: Of the key.

    """

    first: int
    mask: int
    rank: int
    unknown_mask: int
    state: KeyState

    def has(self, index: int) -> bool:
        """Return whether this call of known outcome has taken effect."""
        return index < self.first or bool(self.mask >> (index - self.first) & 1)


class _Tried:
    """Configurations that were tried.

    One is not worth trying if another with the same known calls and the same state has used no more of the unknown
    ones: whatever the former could do, the latter could.
    """

    def __init__(self) -> None:
        self.count = 0
        self._by_known: dict[Hashable, list[tuple[int, int]]] = {}

    def add(self, place: _Place) -> bool:
        """Return whether it is worth trying; it counts as tried from now on."""
        state = place.state
        used, revision = place.unknown_mask, state.revision
        known = (place.first, place.mask, state.value, revision if state.is_exact else -1)
        before = self._by_known.setdefault(known, [])
        if any(mask & ~used == 0 and lowest <= revision for mask, lowest in before):
            return False
        before[:] = [one for one in before if used & ~one[0] or revision > one[1]]
        before.append((used, revision))
        self.count += 1
        return True


class _Search:
    """The search of one key's history.

    Args:
        calls: Of this key.
        state_count_max: Most configurations.

    Attributes:
        tried: Configurations reached so far.

    """

    def __init__(self, calls: Sequence[CallerCall], state_count_max: int) -> None:
        self._known = sorted((c for c in calls if c.reply is not None), key=lambda c: (c.began_s, c.ended_s))
        unknown = (c for c in calls if c.reply is None and c.kind is not Kind.GET)
        self._unknown = sorted(unknown, key=lambda c: c.began_s)
        self._twins = self._find_twins()
        # Calls that must take effect before the key's revision passes their limit, the lowest limit first.
        limits = (
            (limit, index) for index, call in enumerate(self._known) if (limit := revision_limit(call)) is not None
        )
        self._limits = sorted(limits, key=lambda one: (one[0], is_write(self._known[one[1]])))
        self._state_count_max = state_count_max
        self._path: list[CallerCall] = []
        self._deepest: tuple[int, _Place, list[CallerCall]] = (-1, _Place(0, 0, 0, 0, ABSENT), [])
        self.tried = _Tried()

    def run(self) -> CheckOutcome:
        """Search, depth first."""
        start = _Place(0, 0, 0, 0, ABSENT)
        self.tried.add(start)
        stack = [(start, self._successors(start))]
        while stack:
            place, successors = stack[-1]
            if place.first == len(self._known):
                return CheckOutcome.LINEARIZABLE
            self._note(place)
            for call, successor in successors:
                if self.tried.add(successor):
                    self._path.append(call)
                    stack.append((successor, self._successors(successor)))
                    break
            else:
                stack.pop()
                if self._path:
                    self._path.pop()
            if self.tried.count >= self._state_count_max:
                return CheckOutcome.UNKNOWN
        return CheckOutcome.VIOLATED

    def explain(self) -> str:
        """Say how far the search came and what stood in its way."""
        _, place, path = self._deepest
        before = "; ".join(shown(call) for call in path) or "nothing"
        left = [self._known[index] for index in self._open(place)]
        return (
            f"{place.first + place.mask.bit_count()} of {len(self._known)} calls can be put in an order, which ends "
            f"with [{before}] and leaves the key at {place.state}; next must be one of "
            f"[{'; '.join(shown(call) for call in left[:_EXPLAINED_CALLS])}]{self._owed(place)}"
        )

    def _owed(self, place: _Place) -> str:
        """Name the call left that needs the key at the lowest revision: often it is the one that is wrong."""
        if place.rank == len(self._limits):
            return ""
        limit, index = self._limits[place.rank]
        return f"; not behind revision {limit}: [{shown(self._known[index])}]"

    def _note(self, place: _Place) -> None:
        progress = place.first + place.mask.bit_count()
        if progress > self._deepest[0]:
            self._deepest = progress, place, self._path[-_EXPLAINED_CALLS:]

    def _find_twins(self) -> list[int]:
        """Return, for each call of unknown outcome, the one before it that does the same, or -1.

        Of such only the first that is left needs to be tried: it could do so whenever the other could.
        """
        last: dict[Hashable, int] = {}
        twins = []
        for index, call in enumerate(self._unknown):
            same = (call.kind, call.argument, call.expected, call.by_revision)
            twins.append(last.get(same, -1))
            last[same] = index
        return twins

    def _open(self, place: _Place) -> Iterator[int]:
        """Yield the calls of known outcome that may be next: those that began before the first end of all left."""
        known, first, mask = self._known, place.first, place.mask
        end_s = math.inf
        for index in range(first, len(known)):
            call = known[index]
            if call.began_s > end_s:
                return
            if not mask >> (index - first) & 1:
                end_s = min(end_s, call.ended_s)
                yield index

    def _successors(self, place: _Place) -> Iterator[tuple[CallerCall, _Place]]:
        known, state = self._known, place.state
        end_s = math.inf
        for index in self._open(place):
            call = known[index]
            end_s = min(end_s, call.ended_s)
            after = carry_out(state, call)
            if after is not None:
                successor = self._with(place, index, after)
                if self._is_within_limits(successor):
                    yield call, successor
        for index, call in enumerate(self._unknown):
            if call.began_s > end_s:
                break
            twin = self._twins[index]
            if place.unknown_mask >> index & 1 or (twin >= 0 and not place.unknown_mask >> twin & 1):
                continue
            after = carry_out(state, call)
            if after is not None and after != state:
                successor = place._replace(unknown_mask=place.unknown_mask | 1 << index, state=after)
                if self._is_within_limits(successor):
                    yield call, successor

    def _is_within_limits(self, place: _Place) -> bool:
        return place.rank == len(self._limits) or place.state.revision <= self._limits[place.rank][0]

    def _with(self, place: _Place, index: int, state: KeyState) -> _Place:
        """Return the place with one more call of known outcome done."""
        mask = place.mask | 1 << (index - place.first)
        done = (~mask & (mask + 1)).bit_length() - 1  # Ones at the low end.
        after = _Place(place.first + done, mask >> done, place.rank, place.unknown_mask, state)
        rank = place.rank
        while rank < len(self._limits) and after.has(self._limits[rank][1]):
            rank += 1
        return after if rank == place.rank else after._replace(rank=rank)
