"""Bookies that failed a moment ago: asked last by readers, left out of new ensembles while there are enough others."""

from __future__ import annotations

from typing import Final

_STRIKES_MAX: Final = 3
"""Answers that say "my disk fails", or none at all, of a bookie that is connected: so many put it into quarantine."""


class Quarantine:
    """Suspected bookies, each with the end of its suspicion. Times are loop time.

    Args:
        quarantine_s: How long a bookie stays suspected after its last failure, and how long a strike counts.

    """

    def __init__(self, quarantine_s: float) -> None:
        self._quarantine_s = quarantine_s
        # Bookie -> end. Invariant: ends lie at most `quarantine_s` ahead.
        self._until: dict[str, float] = {}
        # Bookie -> (strikes, when the last one was).
        self._strikes: dict[str, tuple[int, float]] = {}

    def fail(self, bookie_id: str, now: float) -> None:
        """Suspect a bookie that could not be reached, was silent, or spoke nonsense."""
        self._until[bookie_id] = now + self._quarantine_s
        self._strikes.pop(bookie_id, None)

    def strike(self, bookie_id: str, now: float) -> None:
        """Count a failed answer; several make the bookie a suspect. All of one moment count as one."""
        count, last = self._strikes.get(bookie_id, (0, now))
        if count and now == last:
            return
        count = count + 1 if now - last < self._quarantine_s else 1
        self._strikes[bookie_id] = (count, now)
        if count >= _STRIKES_MAX:
            self.fail(bookie_id, now)

    def suspects(self, now: float) -> frozenset[str]:
        """Return those who are in quarantine. For look-ups only."""
        if not self._until:
            return frozenset()
        for bookie_id, end in list(self._until.items()):
            if now >= end:
                del self._until[bookie_id]
        return frozenset(self._until)
