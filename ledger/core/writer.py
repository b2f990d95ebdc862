"""Sans-IO writer of one ledger: batches of appends and of bookies' answers in, effects out.

1. Every fact that decides an acknowledgement lives in `LedgerWriter`; the shell only seals, sends, receives, sleeps.
2. Entries are confirmed in entry-id order, though bookies answer in any order.
3. `last_add_confirmed` never moves back and never passes `last_add_pushed`.
4. The first failure freezes the writer for good: no entry is confirmed any more, whatever answers still come.
   What is above `last_add_confirmed` is then unknown, not lost: the ledger's closed end decides.
5. A position whose bookie failed gets its pending entries again, with the same bytes, when it answers again.

    pending    it or an earlier entry lacks answers  -> `last_add_confirmed` < id <= `last_add_pushed`
    confirmed  acknowledged to the caller            -> id <= `last_add_confirmed`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from ledger.core.ack_window import AckWindow
from ledger.core.metadata import NO_ENTRY
from ledger.core.quorum import QuorumConfig
from ledger.errors import LedgerClosedError, LedgerError, QuorumLostError

__all__ = ["ConfirmEntries", "Effect", "FailPending", "LedgerWriter", "ResendEntries", "SendEntries"]


class SendEntries(msgspec.Struct, frozen=True):
    """Seal the payloads and send each to its write set.

    Attributes:
        first_entry_id: Id of the first; the others follow.
        last_add_confirmed: To go into every header.
        lengths: Cumulative payload bytes, one per entry.

    """

    first_entry_id: int
    last_add_confirmed: int
    lengths: list[int]


class ResendEntries(msgspec.Struct, frozen=True):
    """Send these entries to this position again, with the bytes that were sealed before."""

    position: int
    entry_ids: list[int]


class ConfirmEntries(msgspec.Struct, frozen=True, gc=False):
    """Acknowledge all entries up to this one (inclusive); their bytes are not needed any more."""

    last_entry_id: int


class FailPending(msgspec.Struct, frozen=True):
    """Fail every pending append: the writer is frozen."""

    error: LedgerError


Effect: TypeAlias = SendEntries | ResendEntries | ConfirmEntries | FailPending


class LedgerWriter:
    """State of one open ledger as its only writer sees it.

    Attributes:
        quorum: Replication.
        bookies: The ensemble, for messages.
        confirmed_length: Payload bytes of all confirmed entries.
        failure: Why the writer is frozen; None while it is not.

    """

    def __init__(self, ledger_id: int, quorum: QuorumConfig, bookies: Sequence[str]) -> None:
        self.ledger_id = ledger_id
        self.quorum = quorum
        self.bookies = tuple(bookies)
        self.confirmed_length = 0
        self.failure: LedgerError | None = None
        self._window = AckWindow(quorum)
        # Cumulative lengths of the pending entries, oldest first. Invariant: as many as there are pending entries.
        self._lengths: deque[int] = deque()
        self._pushed_length = 0
        # position -> what was seen. Invariant: while not frozen, every pending entry can reach an ack quorum
        # without these positions.
        self._failed: dict[int, str] = {}

    @property
    def last_add_pushed(self) -> int:
        """Highest entry that got an id, or `NO_ENTRY`."""
        return self._window.pushed

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry that was acknowledged, or `NO_ENTRY`."""
        return self._window.confirmed

    @property
    def pending_count(self) -> int:
        """Entries that wait for answers."""
        return self._window.pending_count

    @property
    def pending_bytes(self) -> int:
        """Payload bytes of the entries that wait for answers."""
        return self._pushed_length - self.confirmed_length

    def append(self, payload_bytes: Iterable[int]) -> list[Effect]:
        """Give payloads of these sizes the next entry ids and send them.

        Raises:
            LedgerError: The writer is frozen; this is the failure that froze it, again.

        """
        if self.failure is not None:
            raise self.failure
        lengths: list[int] = []
        length = self._pushed_length
        for size in payload_bytes:
            length += size
            lengths.append(length)
        first_entry_id = self._window.pushed + 1
        self._window.push(len(lengths))
        self._lengths.extend(lengths)
        self._pushed_length = length
        return [SendEntries(first_entry_id, self._window.confirmed, lengths), *self._check_quorum()]

    def on_stored(self, position: int, entry_ids: Iterable[int]) -> list[Effect]:
        """Count one bookie's answers; acknowledge every entry that is now ready, in order."""
        if self.failure is not None:
            return []
        before = self._window.confirmed
        if not self._window.store(position, entry_ids):
            return []
        for _ in range(self._window.confirmed - before):
            self.confirmed_length = self._lengths.popleft()
        return [ConfirmEntries(self._window.confirmed)]

    def on_position_failed(self, position: int, reason: str) -> list[Effect]:
        """Go on without a bookie for now, if every pending entry can reach its ack quorum without it."""
        if self.failure is not None:
            return []
        self._failed[position] = reason
        return self._check_quorum()

    def on_position_restored(self, position: int) -> list[Effect]:
        """Send a bookie that answers again what it has missed of the pending entries."""
        if self.failure is not None:
            return []
        self._failed.pop(position, None)
        missing = self._window.missing(position)
        return [ResendEntries(position, missing)] if missing else []

    def freeze(self, error: LedgerError) -> list[Effect]:
        """Stop for good: fenced by one bookie, refused, out of time, closed. Only the first reason counts."""
        if self.failure is not None:
            return []
        self.failure = error
        return [FailPending(error)]

    def close(self) -> list[Effect]:
        """Stop because the caller closes the ledger; pending appends fail."""
        return self.freeze(LedgerClosedError(f"ledger {self.ledger_id} is closed", ledger_id=self.ledger_id))

    def time_out(self, seconds: float) -> list[Effect]:
        """Stop because the oldest pending entry has waited for its ack quorum for `seconds`."""
        entry_id = self._window.confirmed + 1
        return self.freeze(self._quorum_lost(f"entry {entry_id} has no ack quorum after {seconds:g} s"))

    def validate(self) -> None:
        """Check the invariants; the simulator calls this after every event."""
        self._window.validate()
        assert NO_ENTRY <= self.last_add_confirmed <= self.last_add_pushed
        assert len(self._lengths) == self._window.pending_count
        assert self.confirmed_length <= self._pushed_length
        assert self.failure is not None or self._window.stuck(self._failed_mask()) is None

    def _failed_mask(self) -> int:
        return sum(1 << position for position in self._failed)

    def _check_quorum(self) -> list[Effect]:
        if not self._failed:
            return []
        entry_id = self._window.stuck(self._failed_mask())
        if entry_id is None:
            return []
        return self.freeze(self._quorum_lost(f"entry {entry_id} cannot reach its ack quorum"))

    def _quorum_lost(self, what: str) -> QuorumLostError:
        seen = "; ".join(
            f"{bookie}: {self._failed.get(position, 'no failure seen')}" for position, bookie in enumerate(self.bookies)
        )
        return QuorumLostError(
            f"ledger {self.ledger_id}: {what} of {self.quorum.ack_quorum} bookies ({seen}). Entries up to "
            f"{self.last_add_confirmed} are confirmed, later ones are unknown until the ledger is closed: close it "
            "and go on in a new one",
            ledger_id=self.ledger_id,
        )
