"""Health of an ensemble's bookies as their writer sees it: who fails, since when, and what each may lack.

Nothing here decides an acknowledgement; it decides who is sent what again, and who gives its place to another.

    well     it stores entries                                    -> in neither `failed` nor `_doubts`
    failed   it cannot be sent to, or refused                     -> in `failed` and `_doubts`
    doubted  it is sent to again, and has stored nothing since    -> in `_doubts` only
    lost     failed, and no other bookie takes its place for now  -> in `_unkept` too: nothing is kept for it
    silent   it can be sent to, and owes what another has stored  -> in `silent`; it may be in `_doubts`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ledger.core.metadata import NO_ENTRY
from ledger.core.quorum import QuorumConfig, write_set

_MISSED_MAX: Final = 65_536
"""Confirmed entries that a bookie is sent again at most."""


class _Doubt(msgspec.Struct):
    """Doubt about a position: its place goes to another bookie unless it stores an entry first."""

    since_s: float
    pushed: int  # the highest entry then: a bookie that misses nothing may stay away
    reason: str
    is_final: bool


class EnsembleHealth:
    """State of all positions.

    Attributes:
        failed: Position -> what was seen, for those that cannot be sent to.
        silent: Position -> what was seen, for those that do not answer for the oldest entry. They are sent to.

    """

    def __init__(self, quorum: QuorumConfig) -> None:
        self.failed: dict[int, str] = {}
        self.silent: dict[int, str] = {}
        self._quorum = quorum
        # Invariant: whoever is in `failed` is in here.
        self._doubts: dict[int, _Doubt] = {}
        # The highest entry that each position has answered for. Bookies answer in order: it may lack what is above.
        self._answered = [NO_ENTRY] * quorum.ensemble_size
        # For look-ups only.
        self._unkept: set[int] = set()

    @property
    def has_doubts(self) -> bool:
        """True if a position is not well."""
        return bool(self._doubts)

    @property
    def failed_mask(self) -> int:
        """Bit p: position p is in `failed`."""
        return sum(1 << position for position in self.failed)

    @property
    def away_mask(self) -> int:
        """Bit p: position p is in `failed` or `silent`."""
        return sum(1 << position for position in {*self.failed, *self.silent})

    def keep_from(self, confirmed: int) -> int:
        """Return the first entry, at most the one after `confirmed`, that may still have to be sent again."""
        if not self._unkept:
            return min(confirmed, *self._answered) + 1
        kept = [entry_id for position, entry_id in enumerate(self._answered) if position not in self._unkept]
        return min([confirmed, *kept]) + 1

    def missed(self, position: int, confirmed: int) -> list[int]:
        """Return the entries up to `confirmed` that were confirmed without the position's answer, ascending."""
        entry_ids = range(max(self._answered[position] + 1, confirmed + 1 - _MISSED_MAX), confirmed + 1)
        if self._quorum.write_quorum == self._quorum.ensemble_size:
            return list(entry_ids)
        return [entry_id for entry_id in entry_ids if position in write_set(entry_id, self._quorum)]

    def fail(self, position: int, reason: str, now: float, pushed: int, *, is_refusal: bool) -> None:
        """Note a failure; a refusal is final unless an entry is stored after all."""
        self.failed[position] = reason
        self.silent.pop(position, None)
        doubt = self._doubts.setdefault(position, _Doubt(now, pushed, reason, is_refusal))
        doubt.reason = reason
        doubt.is_final |= is_refusal

    def restore(self, position: int, confirmed: int) -> None:
        """Note that a position can be sent to again."""
        self.failed.pop(position, None)
        if position in self._unkept:
            self._unkept.discard(position)
            self._answered[position] = confirmed

    def clear_doubt(self, position: int) -> None:
        """Note that a position that can be sent to is well: it stored an entry, or lacks none."""
        if position not in self.failed:
            self._doubts.pop(position, None)

    def answer(self, position: int, entry_id: int) -> None:
        """Note that a position has stored an entry."""
        if self.silent:
            self.silent.pop(position, None)
        if self._doubts:
            self.clear_doubt(position)
        self._answered[position] = max(self._answered[position], entry_id)

    def replace(self, positions: Iterable[int], confirmed: int) -> None:
        """Begin anew with other bookies, which get everything after `confirmed`."""
        for position in positions:
            self.failed.pop(position, None)
            self.silent.pop(position, None)
            self._doubts.pop(position, None)
            self._unkept.discard(position)
            self._answered[position] = confirmed

    def lose(self) -> None:
        """Keep nothing confirmed any more for those that fail: there is nobody to take their places."""
        self._unkept.update(self.failed)

    def has_refused(self, position: int | None = None) -> bool:
        """Return whether the position's bookie (without one: any) answered and did not take an entry."""
        if position is None:
            return any(doubt.is_final for doubt in self._doubts.values())
        doubt = self._doubts.get(position)
        return doubt is not None and doubt.is_final

    def overdue(self, now: float, limit_s: float, pushed: int, *, is_pending: bool) -> list[int]:
        """Return the positions that refused, or have stored nothing for `limit_s` though there was something to."""
        return [
            position
            for position, doubt in self._doubts.items()
            if doubt.is_final or (now - doubt.since_s >= limit_s and (pushed > doubt.pushed or is_pending))
        ]

    def reasons(self, positions: Iterable[int]) -> dict[int, str]:
        """Return what was seen of these positions and of all that fail, ascending."""
        return {
            position: self.failed.get(position) or self.silent.get(position) or self._doubts[position].reason
            for position in sorted({*positions, *self.failed})
        }

    def validate(self) -> None:
        assert self.failed.keys() <= self._doubts.keys()
        assert not self.failed.keys() & self.silent.keys()
        assert all(position < self._quorum.ensemble_size for position in self._doubts)
