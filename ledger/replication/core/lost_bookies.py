"""Lost bookies: not registered for a grace period, so that a restart moves no data.

    registered  writable or read-only           -> nowhere
    missing     for less than the delay         -> `_missing_since`
    lost        for the delay or longer         -> `_missing_since`

A bookie may be known without ever having been seen: ledgers name it, or a cookie does. Its time runs from when it was
first found missing by this auditor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


class LostBookies:
    """Missing bookies as one auditor knows them. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._missing_since: dict[str, float] = {}
        self._registered: frozenset[str] = frozenset()

    def observe(self, known: Iterable[str], registered: Collection[str], now_s: float) -> list[str]:
        """Take what the metadata store shows now; return the bookies that are back after they were missing, sorted.

        Args:
            known: Every bookie that ledgers or cookies name.
            registered: Those that serve now.
            now_s: Now.

        """
        back = sorted(bookie_id for bookie_id in self._missing_since if bookie_id in registered)
        for bookie_id in back:
            del self._missing_since[bookie_id]
        for bookie_id in sorted({*known, *self._registered, *self._missing_since}):
            if bookie_id not in registered:
                self._missing_since.setdefault(bookie_id, now_s)
        self._registered = frozenset(registered)
        return back

    def forget(self, known: Collection[str]) -> None:
        """Forget the missing bookies that nothing names any more."""
        for bookie_id in [bookie_id for bookie_id in self._missing_since if bookie_id not in known]:
            del self._missing_since[bookie_id]

    def lost(self, now_s: float, delay_s: float) -> list[str]:
        """Return the bookies that have been missing for `delay_s`, sorted."""
        return sorted(bookie_id for bookie_id, since in self._missing_since.items() if now_s - since >= delay_s)

    def next_loss_s(self, now_s: float, delay_s: float) -> float | None:
        """Return in how many seconds the next missing bookie will count as lost; None if none is waited for."""
        waits = [since + delay_s - now_s for since in self._missing_since.values() if now_s - since < delay_s]
        return min(waits, default=None)

    def validate(self) -> None:
        assert not self._missing_since.keys() & self._registered
