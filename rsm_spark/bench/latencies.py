"""Latencies of one kind of operation, every one of them kept."""

from __future__ import annotations

from array import array

import msgspec


class LatencySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of latencies; all zero if there were none.

    Attributes:
        count: Operations that succeeded.
        failed: Operations that did not; they are in no other figure.
        mean_ms: Mean.
        p50_ms: Half are at most this; and so on.
        p95_ms: See above.
        p99_ms: See above.
        p999_ms: See above.
        max_ms: The highest.

    """

    count: int
    failed: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Latencies:
    """Takes latencies; 8 bytes each.

    Attributes:
        failed: Operations that did not succeed.

    """

    def __init__(self) -> None:
        self.failed = 0
        self._seconds = array("d")

    def __len__(self) -> int:
        """Return how many succeeded."""
        return len(self._seconds)

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def summary(self) -> LatencySummary:
        """Return count, mean and percentiles (nearest rank: a latency that was measured)."""
        ordered = sorted(self._seconds)
        count = len(ordered)

        def share(per_mille: int) -> float:
            if not count:
                return 0.0
            rank = -(-count * per_mille // 1000)
            return round(ordered[max(rank, 1) - 1] * 1000, 3)

        return LatencySummary(
            count=count,
            failed=self.failed,
            mean_ms=round(sum(ordered) / count * 1000, 3) if count else 0.0,
            p50_ms=share(500),
            p95_ms=share(950),
            p99_ms=share(990),
            p999_ms=share(999),
            max_ms=share(1000),
        )
