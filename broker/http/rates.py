"""How often one caller may ask: a bucket that fills evenly and is emptied by requests."""

from __future__ import annotations

__all__ = ["TokenBucket"]


class TokenBucket:
    """Takes one token a request; without a token the caller has to wait.

    Args:
        rate_per_s: By which it fills; 0 = there is no limit.
        burst: What it holds at most, and at first.
        now_s: Monotonic time.

    """

    __slots__ = ("_at_s", "_burst", "_level", "_rate")

    def __init__(self, rate_per_s: float, burst: int, now_s: float) -> None:
        self._rate = rate_per_s
        self._burst = float(max(1, burst))
        self._level = self._burst
        self._at_s = now_s

    def take(self, now_s: float) -> float:
        """Take one.

        Returns:
            0.0 if there was one; else the seconds until there will be one, and nothing was taken.

        """
        if not self._rate:
            return 0.0
        level = min(self._burst, self._level + max(0.0, now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if level < 1.0:
            self._level = level
            return (1.0 - level) / self._rate
        self._level = level - 1.0
        return 0.0
