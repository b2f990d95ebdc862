"""Rate of one caller: a bucket that fills evenly and is emptied by requests, their tasks or their bytes."""

from __future__ import annotations


class TokenBucket:
    """Takes tokens for what is sent; without enough of them the caller has to wait.

    Args:
        rate_per_s: By which it fills; 0 = there is no limit.
        burst: What it holds at most, and at first.
        now_s: Monotonic time.

    """

    __slots__ = ("__weakref__", "_at_s", "_burst", "_level", "_rate")

    def __init__(self, rate_per_s: float, burst: int, now_s: float) -> None:
        self._rate = rate_per_s
        self._burst = float(max(1, burst))
        self._level = self._burst
        self._at_s = now_s

    def take(self, now_s: float, amount: float = 1.0) -> float:
        """Take so many.

        More than the bucket holds are given once it is full; then it is empty for as long as they are worth.

        Returns:
            0.0 if there were enough; else the seconds until there will be, and nothing was taken.

        """
        if not self._rate:
            return 0.0
        level = min(self._burst, self._level + max(0.0, now_s - self._at_s) * self._rate)
        self._at_s = now_s
        wanted = min(amount, self._burst)
        if level < wanted:
            self._level = level
            return (wanted - level) / self._rate
        self._level = level - amount
        return 0.0
