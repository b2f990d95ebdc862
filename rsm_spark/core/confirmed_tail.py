"""The newest confirmed entries of a log, as its leader keeps them for followers. No IO, no clock.

1. Only what the leader has counted as confirmed is here, in the log's order, without a gap.
2. Few bytes and few entries: the oldest go first. Whoever needs one that has gone reads the log.
3. Who asks names the last entry that it has. It is told what follows that very entry, or that this is not known here.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import NamedTuple

from rsm_spark.core.envelope import Envelope
from rsm_spark.core.position import LogPosition
from rsm_spark.core.seal import ForeignEntryError
from rsm_spark.core.state import StateTip
from rsm_spark.errors import CorruptLogError, ForkedLogError

TAIL_BYTES_MAX = 8 * 1024 * 1024
TAIL_COUNT_MAX = 1_024
TOLD_BYTES_MAX = 256 * 1024
"""Of one answer, unless its first entry is longer: what a follower applies in a few ms, and one frame easily takes."""
TOLD_COUNT_MAX = 256


class ConfirmedEntry(NamedTuple):
    """An entry that its leader says is confirmed, and where it lies."""

    position: LogPosition
    payload: bytes


class TailStatus(IntEnum):
    """TOLD: what follows, if anything does. NOT_HELD: read the log. NOT_LEADER: ask somebody else."""

    TOLD = 0
    NOT_HELD = 1
    NOT_LEADER = 2


class ToldEntries(NamedTuple):
    """A leader's answer to who asks for confirmed entries.

    Attributes:
        status: See `TailStatus`.
        leader_epoch: Of the leader that answers: its word counts for ledgers of this epoch alone.
        entries: In the log's order; empty = nothing was confirmed while the question waited.

    """

    status: TailStatus
    leader_epoch: int = 0
    entries: tuple[ConfirmedEntry, ...] = ()


class ConfirmedTail:
    """See the module.

    Args:
        after: Last entry before the first that will be added; None = the log is empty.

    """

    def __init__(self, after: LogPosition | None) -> None:
        self._entries: deque[ConfirmedEntry] = deque()
        # Serial number of each entry, and of the one before the first. Invariant: those of `_entries` are consecutive
        # from `_first` on, and the one before has `_first` - 1.
        self._serials: dict[LogPosition | None, int] = {after: -1}
        self._before: LogPosition | None = after
        self._first = 0
        self._byte_count = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def byte_count(self) -> int:
        """Bytes of the entries that are kept."""
        return self._byte_count

    def add(self, position: LogPosition, payload: bytes) -> None:
        """Keep the next entry that is confirmed."""
        entries = self._entries
        self._serials[position] = self._first + len(entries)
        entries.append(ConfirmedEntry(position, payload))
        self._byte_count += len(payload)
        while self._byte_count > TAIL_BYTES_MAX or len(entries) > TAIL_COUNT_MAX:
            gone = entries.popleft()
            self._byte_count -= len(gone.payload)
            del self._serials[self._before]
            self._before = gone.position
            self._first += 1

    def after(self, position: LogPosition) -> tuple[ConfirmedEntry, ...] | None:
        """Return entries that follow the one at a position, as many as one answer takes; None = not known here."""
        serial = self._serials.get(position)
        if serial is None:
            return None
        begin = serial + 1 - self._first
        found: list[ConfirmedEntry] = []
        byte_count = 0
        for index in range(begin, min(len(self._entries), begin + TOLD_COUNT_MAX)):
            entry = self._entries[index]
            byte_count += len(entry.payload)
            if found and byte_count > TOLD_BYTES_MAX:
                break
            found.append(entry)
        return tuple(found)


def check_told(envelope: Envelope, tip: StateTip, log_id: bytes, ledger_epoch: int, told_epoch: int) -> None:
    """Refuse an entry that a leader told if it cannot be the next one of this history.

    It holds the hash of all that is before it, so one that passes continues the history that the state has. That it is
    the entry that the log holds, the leader's word says, and its seal, if the log has a key.

    Args:
        envelope: Of the entry.
        tip: After the entry before it.
        log_id: That an entry at this revision bears.
        ledger_epoch: Epoch in which its ledger was made, as the chain says.
        told_epoch: Of the leader that told it.

    Raises:
        ForkedLogError: It continues another history.
        CorruptLogError: It is not what its place demands, or not this leader's to tell.

    """
    at = f"entry at revision {envelope.first_revision} of epoch {envelope.leader_epoch}"
    if ledger_epoch != told_epoch:
        raise CorruptLogError(f"{at} lies in a ledger of epoch {ledger_epoch}, a leader of epoch {told_epoch} told it")
    if envelope.log_id != log_id or envelope.prefix_hash != tip.prefix_hash:
        raise ForkedLogError(f"{at} does not continue the history of this state, which is at revision {tip.revision}")
    if envelope.first_revision != tip.revision + 1:
        raise CorruptLogError(f"{at} was told where revision {tip.revision + 1} must follow")
    if tip.is_sealed and not envelope.key_id:
        raise ForeignEntryError(f"{at} has no seal, those before it have one: no leader of this log wrote it")
    if not tip.leader_epoch <= envelope.leader_epoch <= told_epoch or envelope.logged_ms < tip.logged_ms:
        raise CorruptLogError(
            f"{at}, logged at {envelope.logged_ms}, was told after {tip.leader_epoch}, {tip.logged_ms}"
        )
