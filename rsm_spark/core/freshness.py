"""Freshness of reads: how new a read must be, and whether a replica's state is that new.

    LINEARIZABLE  what was confirmed before the read was sent; by the leader alone, which proves that it leads
    INDEXED       the same, by any replica: a follower asks the leader how far the log is, and waits until it is there
    SESSION       at least a revision: that which the reader has seen last, so that it never sees time go back
    BOUNDED       at most so many milliseconds, or revisions, behind the leader
    STALE         whatever the replica has applied

1. Only confirmed state is ever read, at one revision, which the answer names.
2. How old a state is, logged time tells: a leader writes an entry at least every 500 ms. What logged time is now, a
   replica cannot know; it takes the larger of two bounds from below: its own clock, and what the leader of the present
   epoch has told, carried on by the monotonic clock. So neither a clock that is behind, nor a leader whose logged time
   is ahead of all clocks, makes an old state look new. An entry says nothing of now: nobody but its leader knows how
   long it took to be confirmed, and to be told to others. So a replica asks the leader once in each epoch; the answer
   is wrong by the time of the question at most. Until it has come, a replica does not know how old its state is.
   Between two leaders logged time may have stood still, so that the clock of one epoch does not tell the age of a state
   from before it: one that was booted again from an old snapshot has to come back to the present epoch first.
3. A bound in revisions holds for the end of the log as the replica knows it, and only while that knowledge is fresh.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

import msgspec

from rsm_spark.core.position import NO_REVISION
from rsm_spark.errors import InvalidCommandError

END_KNOWN_MS = 1_500
"""Age of the newest entry up to which a replica knows the end of the log: three of a leader's idle entries."""

CLOCK_ASKED_S_MAX = 0.5
"""Time in which a leader has to answer what logged time is: with a replica's own clock wrong, this is by how much a
bounded read may exceed its bound."""


class ReadKind(IntEnum):
    LINEARIZABLE = 0
    SESSION = 1
    BOUNDED = 2
    STALE = 3
    INDEXED = 4


class Freshness(msgspec.Struct, frozen=True):
    """Freshness that a read demands.

    Attributes:
        kind: See `ReadKind`.
        min_revision: SESSION: the least revision; 0 = that which the client has seen last.
        max_lag_ms: BOUNDED: age of the state at most; None = `END_KNOWN_MS`, with a bound in revisions.
        max_lag_revisions: BOUNDED: revisions behind the end of the log at most; None = any number.

    Raises:
        InvalidCommandError: A bound is negative, missing, or belongs to another kind.

    """

    kind: ReadKind
    min_revision: int = NO_REVISION
    max_lag_ms: int | None = None
    max_lag_revisions: int | None = None

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        bounds = [bound for bound in (self.max_lag_ms, self.max_lag_revisions) if bound is not None]
        if self.min_revision < 0 or any(bound < 0 for bound in bounds):
            raise InvalidCommandError(f"{self}: a revision or a bound below 0")
        if bool(bounds) != (self.kind is ReadKind.BOUNDED):
            raise InvalidCommandError(f"{self}: a bounded read has max_lag_ms or max_lag_revisions, others have none")
        if self.min_revision and self.kind is not ReadKind.SESSION:
            raise InvalidCommandError(f"{self}: min_revision belongs to session reads")


LINEARIZABLE = Freshness(ReadKind.LINEARIZABLE)
INDEXED = Freshness(ReadKind.INDEXED)
STALE = Freshness(ReadKind.STALE)


def at_least(min_revision: int = NO_REVISION) -> Freshness:
    """Return a session read: at least of this revision, or of that which the client has seen last."""
    return Freshness(ReadKind.SESSION, min_revision)


def bounded(*, max_lag_ms: int | None = None, max_lag_revisions: int | None = None) -> Freshness:
    """Return a read of bounded staleness.

    Args:
        max_lag_ms: Age of the state in ms. A leader with nothing to do writes every 500 ms: below 1,000 such reads
            fail on followers now and then.
        max_lag_revisions: Revisions behind the end of the log.

    """
    return Freshness(ReadKind.BOUNDED, NO_REVISION, max_lag_ms, max_lag_revisions)


class LeaderClock(NamedTuple):
    """Clock of a leader, as it told it.

    Attributes:
        leader_epoch: Its epoch.
        logged_ms: Logged time of an entry that it would have written then.

    """

    leader_epoch: int
    logged_ms: int


class LoggedTimeGauge:
    """Gauge of how far a state is behind the leader in logged time.

    Attributes:
        logged_ms: Logged time of the newest entry of the state; also of one that was booted again, and has less.
        is_known: The leader of the state's epoch has told what logged time is.

    """

    def __init__(self) -> None:
        self.logged_ms: int | None = None
        self.is_known = False
        self._leader_epoch = -1
        self._epoch_logged_ms = 0  # Of the first entry of the present epoch that was seen.
        # Logged time minus monotonic clock is never less, in the present epoch.
        self._offset_ms = 0

    def on_entry(self, leader_epoch: int, logged_ms: int, monotonic_ms: int) -> None:
        """Take note of an entry that was just applied.

        Args:
            leader_epoch: Its epoch.
            logged_ms: Its logged time.
            monotonic_ms: The replica's monotonic clock now.

        """
        offset_ms = logged_ms - monotonic_ms
        # The logged clock of another epoch is another clock.
        if leader_epoch != self._leader_epoch:
            self._leader_epoch, self._offset_ms, self.is_known = leader_epoch, offset_ms, False
            self._epoch_logged_ms = logged_ms
        self._offset_ms = max(self._offset_ms, offset_ms)
        self.logged_ms = logged_ms

    def on_clock(self, clock: LeaderClock, monotonic_ms: int) -> None:
        """Take note of what a leader told, when the answer has come; of another epoch than the state's it says nothing.

        Args:
            clock: Its clock, read after it was asked.
            monotonic_ms: The replica's monotonic clock now.

        """
        if clock.leader_epoch == self._leader_epoch:
            self._offset_ms = max(self._offset_ms, clock.logged_ms - monotonic_ms)
            self.is_known = True

    def lag_ms(self, wall_ms: int, monotonic_ms: int) -> int | None:
        """Return the age of the state in ms, by the bounds known.

        None before the leader of the state's epoch has told its clock, and for a state from before that epoch.
        """
        if self.logged_ms is None or not self.is_known or self.logged_ms < self._epoch_logged_ms:
            return None
        return max(wall_ms, self._offset_ms + monotonic_ms) - self.logged_ms


class ReadVerdict(Enum):
    """SERVE: from the state as it is. WAIT: the revision will come. TOO_STALE: not here, not now."""

    SERVE = "serve"
    WAIT = "wait"
    TOO_STALE = "too stale"


def judge_read(freshness: Freshness, revision: int, known_revision: int, lag_ms: int | None) -> ReadVerdict:
    """Say whether a confirmed state may answer a read that is not linearizable.

    Args:
        freshness: Of the read.
        revision: Of the state.
        known_revision: Highest revision that the replica has heard of.
        lag_ms: See `LoggedTimeGauge.lag_ms`.

    """
    match freshness.kind:
        case ReadKind.STALE:
            return ReadVerdict.SERVE
        case ReadKind.SESSION:
            return ReadVerdict.SERVE if revision >= freshness.min_revision else ReadVerdict.WAIT
        case ReadKind.BOUNDED:
            most_ms = END_KNOWN_MS if freshness.max_lag_ms is None else freshness.max_lag_ms
            if lag_ms is None or lag_ms > most_ms:
                return ReadVerdict.TOO_STALE
            most = freshness.max_lag_revisions
            return ReadVerdict.SERVE if most is None or known_revision - revision <= most else ReadVerdict.TOO_STALE
        case _:
            return ReadVerdict.TOO_STALE
