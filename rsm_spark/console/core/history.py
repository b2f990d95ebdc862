"""History of a cluster: one sample a minute of the last day, in a ring. Pure.

What it holds is bounded: 1,440 samples, each with a few numbers for the cluster and two for each of at most 50 logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from rsm_spark.console.core.view import ConsoleView

STEP_MS = 60_000
SAMPLES_MAX = 24 * 60
LOGS_MAX = 50


class HistoryRow(msgspec.Struct, frozen=True, array_like=True):
    """Cluster at one minute.

    Attributes:
        at_ms: Begin of the minute, ms since 1970.
        bookies: That serve.
        missing: That do not, and have a cookie or are named by a ledger.
        lacking: Ledgers that lack copies.
        lacking_entries: Entries that lack copies.
        warnings: How many there were.
        logs: By name: revision, and records that the last of its replicas is behind.
        problem: The cluster could not be looked at.
        waiting: Tasks that wait, of all brokers.

    """

    at_ms: int
    bookies: int
    missing: int
    lacking: int
    lacking_entries: int
    warnings: int
    logs: dict[str, tuple[int, int]]
    problem: bool = False
    waiting: int = 0


def sample_of(view: ConsoleView) -> HistoryRow:
    """Return what is remembered of a view."""
    missing = sum(one.state == "missing" for one in view.bookies)
    copies = view.copies
    return HistoryRow(
        at_ms=view.at_ms // STEP_MS * STEP_MS,
        bookies=len(view.bookies) - missing,
        missing=missing,
        lacking=0 if copies is None else copies.lacking_count,
        lacking_entries=0 if copies is None else copies.entry_count,
        warnings=len(view.warnings),
        logs={
            log.log: (log.revision, max((one.behind for one in log.replicas), default=0))
            for log in view.logs[:LOGS_MAX]
            if not log.problem
        },
        problem=bool(view.problem),
        waiting=sum(one.waiting for one in view.tasks),
    )


class HistoryRing:
    """Samples of the last day, one a minute at most, oldest first.

    Args:
        samples: Of before; those that do not rise in time are left out.

    """

    def __init__(self, samples: Iterable[HistoryRow] = ()) -> None:
        self._samples: deque[HistoryRow] = deque(maxlen=SAMPLES_MAX)
        for one in samples:
            self.add(one)

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self._samples)

    def is_due(self, at_ms: int) -> bool:
        """Return whether this minute has no sample yet."""
        return not self._samples or at_ms // STEP_MS * STEP_MS > self._samples[-1].at_ms

    def add(self, sample: HistoryRow) -> bool:
        """Remember a sample; return whether it was one of a new minute. A clock that was set back adds nothing."""
        if not self.is_due(sample.at_ms):
            return False
        self._samples.append(sample)
        return True

    def since(self, at_ms: int) -> list[HistoryRow]:
        """Return the samples from a moment on; those of more than a day before the newest are left out."""
        if not self._samples:
            return []
        first_ms = max(at_ms, self._samples[-1].at_ms - SAMPLES_MAX * STEP_MS)
        return [one for one in self._samples if one.at_ms >= first_ms]
