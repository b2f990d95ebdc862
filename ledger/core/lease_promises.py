"""Promises of a bookie to the writers of ledgers: for a while nobody hears that he has fenced the ledger. Sans-IO.

A writer that holds such promises of enough bookies (`ledger.core.read_lease`) knows, without asking, that no recovery
of its ledger has come to its end.

1. A promise counts from when it is given, and lasts `LEASE_MS_MAX` at most, whatever is asked for.
2. A fence is taken when it comes, and from then on nothing more is promised; its answer waits until the promises that
   were given before are over. So it waits for `LEASE_MS_MAX` at most.
3. Promises are kept in memory. What the process before has promised is not known: for `LEASE_MS_MAX` after the start
   the fences of all ledgers wait.
"""

from __future__ import annotations

from typing import Final

LEASE_MS_MAX: Final = 250
"""Longest promise. It is part of the protocol: a bookie that starts waits out what any version may have promised."""
_PROMISES_MAX: Final = 100_000
_PRUNED_MIN: Final = 1024


class LeasePromises:
    """The promises of one bookie.

    Args:
        now: Seconds of a clock that never goes back; that of all calls.

    """

    def __init__(self, now: float) -> None:
        self._over_at = now + LEASE_MS_MAX / 1000  # of what the process before may have promised
        self._until: dict[int, float] = {}
        self._prune_at = _PRUNED_MIN

    def promise(self, ledger_id: int, lease_ms: int, now: float) -> int:
        """Promise that nobody hears of a fence of this ledger, and return for how many milliseconds; 0 = not at all.

        The caller has seen that it is not fenced, in the same step, and that who asks may write it.
        """
        granted_ms = min(lease_ms, LEASE_MS_MAX)
        if granted_ms <= 0 or not self._has_room(now):
            return 0
        self._until[ledger_id] = max(self._until.get(ledger_id, now), now + granted_ms / 1000)
        return granted_ms

    def wait_s(self, ledger_id: int, now: float) -> float:
        """Return for how many seconds nobody may hear of a fence of this ledger; 0 or less = no longer."""
        return max(self._over_at, self._until.get(ledger_id, now)) - now

    def _has_room(self, now: float) -> bool:
        """Forget promises that are over, now and then; return whether there is room for one more."""
        if len(self._until) >= self._prune_at:
            self._until = {ledger_id: until for ledger_id, until in self._until.items() if until > now}
            self._prune_at = min(max(2 * len(self._until), _PRUNED_MIN), _PROMISES_MAX)
        return len(self._until) < _PROMISES_MAX
