"""Time for which the oldest pending entry of a writer has waited, as told by looks at it.

A writer that stood still itself has not listened: a look that comes late begins the time anew, so that answers that
wait in its sockets are read before anybody is called silent.
"""

from __future__ import annotations

from typing import Final

_LATE: Final = 0.5
"""Part of the limit that two looks may lie apart; beyond it, whoever looks stood still."""


class HeadTimer:
    """Looks at the oldest pending entry at intervals; times are loop time."""

    def __init__(self) -> None:
        self._head: int | None = None
        self._since_s = 0.0
        self._looked_s = 0.0

    def reset(self) -> None:
        """Begin anew: somebody else owes the entry now."""
        self._head = None

    def has_stood(self, head: int | None, now: float, limit_s: float) -> bool:
        """Tell whether the same entry has been the oldest for `limit_s` at all looks; None: nothing is pending."""
        is_late = now - self._looked_s > _LATE * limit_s
        self._looked_s = now
        if head is None or head != self._head or is_late:
            self._head, self._since_s = head, now
        return head is not None and now - self._since_s >= limit_s
