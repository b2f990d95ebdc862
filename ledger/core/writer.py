"""Sans-IO writer of one ledger: batches of appends and of bookies' answers in, effects out.

1. Every fact that decides an acknowledgement lives in `LedgerWriter`; the shell only seals, sends, receives, sleeps.
2. Entries are confirmed in entry-id order, though bookies answer in any order.
3. `last_add_confirmed` never moves back and never passes `last_add_pushed`.
4. The first failure freezes the writer for good: no entry is confirmed any more, whatever answers still come.
   What is above `last_add_confirmed` is then unknown, not lost: the ledger's closed end decides.
5. A position whose bookie failed gets what it has not answered for again, with the same bytes, when it is back:
   all pending entries, and those confirmed without it as far as the shell still has their bytes.
6. A bookie that stays away gives its place to another (see `ledger.core.ensemble_change`): at once when it refused an
   entry, or when the ack quorum cannot be reached without it; else when it has stored nothing for `change_after_s`.
7. A bookie that owes the oldest entry for `silence_s`, though another one has stored it, is treated as one that failed
   if the ack quorum needs it, as long as that helps: a spare takes its place, or, where there is none and the writer
   `rolls`, the ledger ends while an ack quorum of its bookies is well. If all of them owe it, it is waited for: then
   the network or the disks are slow, not one bookie.

    pending    it or an earlier entry lacks answers  -> `last_stored` < id <= `last_add_pushed`
    stored     on an ack quorum, as are all before   -> id <= `last_stored`
    confirmed  acknowledged, and durable             -> id <= `last_add_confirmed`, which is `last_stored`
"""

# Longer than 400 lines: adds, failures and changes of ensemble decide on one window.

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

import msgspec

from ledger.core.ack_window import AckWindow
from ledger.core.ensemble_health import EnsembleHealth
from ledger.core.fence_check import FenceCheck, FenceChecks
from ledger.core.head_timer import HeadTimer
from ledger.core.metadata import NO_ENTRY
from ledger.core.quorum import QuorumConfig
from ledger.core.read_lease import ReadLease
from ledger.core.writer_effects import (
    ChangeEnsemble,
    ConfirmEntries,
    Effect,
    FailPending,
    ResendEntries,
    SendEntries,
    UseEnsemble,
)
from ledger.errors import LedgerClosedError, LedgerError, QuorumLostError

_SPARE_RETRY_S: Final = 5.0
"""Pause before another look for a spare bookie, while the quorum holds without one."""


class _Change(msgspec.Struct):
    """A change of ensemble that is under way; the positions are known once spares have been found."""

    positions: tuple[int, ...] = ()


class LedgerWriter:
    """State of one open ledger as its only writer sees it.

    Attributes:
        quorum: Replication.
        bookies: The ensemble as the metadata hold it.
        failure: Why the writer is frozen; None while it is not.
        change_after_s: How long a bookie may stay away before another takes its place, while the ack quorum holds;
            None: the ensemble never changes.
        silence_s: How long a bookie may owe the oldest entry that another has stored; None: as long as it likes.
        rolls: The caller goes on in a new ledger, on the bookies that are well, when this one ends.
        may_change_ensemble: Whether `change_after_s` and `silence_s` may be set.
        lease: Promises of the bookies.

    """

    may_change_ensemble: ClassVar[bool] = True

    def __init__(self, ledger_id: int, quorum: QuorumConfig, bookies: Sequence[str]) -> None:
        self.ledger_id = ledger_id
        self.quorum = quorum
        self.bookies = tuple(bookies)
        self.failure: LedgerError | None = None
        self.change_after_s: float | None = None
        self.silence_s: float | None = None
        self.rolls = False
        self._head_timer = HeadTimer()
        self._window = AckWindow(quorum)
        # Cumulative lengths of the pending entries, oldest first. Invariant: as many as there are pending entries.
        self._lengths: deque[int] = deque()
        self._pushed_length = 0
        self._stored_length = 0
        # Invariant: while neither frozen nor changing, every pending entry can reach an ack quorum without those
        # positions that are failed.
        self._health = EnsembleHealth(quorum)
        self._change: _Change | None = None
        self._checks = FenceChecks(quorum)
        self.lease = ReadLease(quorum)
        self._spare_failure = ""  # why the last change found no bookie; empty if none was sought since
        self._spare_retry_at: float | None = None

    @property
    def last_add_pushed(self) -> int:
        """Highest entry that got an id, or `NO_ENTRY`."""
        return self._window.pushed

    @property
    def last_stored(self) -> int:
        """Highest entry that is on an ack quorum together with all before it, or `NO_ENTRY`."""
        return self._window.confirmed

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry that was acknowledged and is durable, or `NO_ENTRY`."""
        return self._window.confirmed

    @property
    def last_confirmable(self) -> int:
        """Highest entry that can be confirmed before further ones are appended."""
        return self._window.pushed

    @property
    def stored_length(self) -> int:
        """Payload bytes of all entries up to `last_stored`."""
        return self._stored_length

    @property
    def confirmed_length(self) -> int:
        """Payload bytes of all confirmed entries."""
        return self._stored_length

    @property
    def pending_count(self) -> int:
        """Entries that wait for answers."""
        return self._window.pending_count

    @property
    def pending_bytes(self) -> int:
        """Payload bytes of the entries that wait for answers."""
        return self._pushed_length - self._stored_length

    @property
    def keep_from(self) -> int:
        """The first entry whose bytes a bookie may still have to be sent again."""
        return self._health.keep_from(self._window.confirmed)

    @property
    def is_waiting(self) -> bool:
        """True if the bookies owe an answer to the oldest pending entry."""
        return self._window.pending_count > 0

    # --- entries

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
        return [SendEntries(first_entry_id, self.last_add_confirmed, lengths), *self._check_quorum()]

    def on_stored(self, position: int, entry_ids: Sequence[int]) -> list[Effect]:
        """Count one bookie's answers, ascending; acknowledge every entry that is now ready, in order."""
        if self.failure is not None:
            return []
        if self._change is not None and position in self._change.positions:
            return []  # its word does not count any more: the metadata may name another by now
        if entry_ids:
            self._health.answer(position, entry_ids[-1])
        before = self._window.confirmed
        if not self._window.store(position, entry_ids):
            return []
        return self._confirm(before)

    # --- bookies

    def on_position_failed(
        self, position: int, reason: str, now: float = 0.0, *, is_refusal: bool = False
    ) -> list[Effect]:
        """Go on without a bookie if every pending entry can reach its ack quorum; else have it replaced.

        Args:
            position: Whose bookie failed.
            reason: What was seen.
            now: Loop time.
            is_refusal: It answered, and did not take an entry: waiting for it will not help.

        """
        if self.failure is not None:
            return []
        self._health.fail(position, reason, now, self._window.pushed, is_refusal=is_refusal)
        return self._check_quorum()

    def on_position_restored(self, position: int) -> list[Effect]:
        """Send a bookie that answers again what it has missed."""
        if self.failure is not None:
            return []
        if self._change is not None and position in self._change.positions:
            return []
        self._health.restore(position, self._window.confirmed)
        missing = [*self._missed(position), *self._missing(position)]
        if missing:
            return [ResendEntries(position, missing)]
        self._health.clear_doubt(position)
        return []

    def on_tick(self, now: float) -> list[Effect]:
        """Notice that a bookie is silent or has stayed away for too long, or that it is time to look for a spare again.

        Called several times within `silence_s`.
        """
        if self.failure is not None or self._change is not None:
            return []
        self._look_for_silence(now)
        if not self._health.has_doubts and not self._health.silent:
            return []
        if self._spare_retry_at is not None and now < self._spare_retry_at:
            return []
        self._spare_retry_at = None
        return self._begin_change() if self.positions_to_change(now) else []

    # --- change of ensemble; the order is: ChangeEnsemble, hold, (release, hold)*, on_ensemble_changed

    def positions_to_change(self, now: float) -> dict[int, str]:
        """Return the positions whose bookies should be replaced, with the reasons, ascending.

        Once one has to go, so do all that fail at that moment: several in one change.
        """
        if self.failure is not None or self.change_after_s is None:
            return {}
        is_pending = self._window.pending_count > 0
        due = self._health.overdue(now, self.change_after_s, self._window.pushed, is_pending=is_pending)
        if self._is_kept_waiting():
            due += self._health.silent
        if not due and self._window.stuck(self._health.failed_mask) is None:
            return {}
        return self._health.reasons(due)

    def is_silent(self, position: int) -> bool:
        """Return whether the position's bookie owes an entry that another has stored."""
        return position in self._health.silent

    def has_refused(self, position: int) -> bool:
        """Return whether the position's bookie answered and did not take an entry."""
        return self._health.has_refused(position)

    def hold(self, positions: Iterable[int]) -> int:
        """Take the positions' answers back, let `last_add_confirmed` stand, and return where the new segment begins.

        From here until the metadata store has answered, nobody knows which ensemble the metadata name.
        """
        assert self._change is not None
        self._change.positions = tuple(positions)
        for position in self._change.positions:
            self._window.drop(position)
        self._checks.exclude(self._change.positions)
        self.lease.exclude(self._change.positions)
        self._window.hold()
        return self._window.confirmed + 1

    def release(self) -> list[Effect]:
        """Go on confirming while the change is undecided: only what counts in both ensembles is counted."""
        return self._release() if self.failure is None else []

    def on_ensemble_changed(self, bookies: Sequence[str]) -> list[Effect]:
        """Use the ensemble that the metadata now hold.

        Its new members lack all entries of the new segment, those too that become confirmed now: they are sent first.
        """
        if self.failure is not None or self._change is None:
            return []
        positions = self._change.positions
        self._change = None
        self._spare_failure = ""
        self._spare_retry_at = None
        self.bookies = tuple(bookies)
        self._checks.void()
        self.lease.void()
        self._health.replace(positions, self._window.confirmed)
        self._head_timer.reset()
        resends = [ResendEntries(position, missing) for position in positions if (missing := self._missing(position))]
        return [UseEnsemble(self.bookies, positions), *resends, *self._release(), *self._check_quorum()]

    def on_no_spare(self, reason: str, now: float) -> list[Effect]:
        """Go on with the bookies there are, and look again later; give up if the ack quorum needs another one."""
        if self.failure is not None or self._change is None:
            return []
        self._change = None
        self._health.lose()
        self._spare_failure = reason
        self._spare_retry_at = now + _SPARE_RETRY_S
        return self._check_quorum(is_last_hope_gone=True)

    def on_change_dropped(self) -> list[Effect]:
        """Leave the ensemble as it is: the bookies answered again before anything was written."""
        if self.failure is not None or self._change is None:
            return []
        self._change = None
        return self._check_quorum()

    # --- fence checks and leases

    def begin_check(self, mute: Iterable[int] = ()) -> FenceCheck:
        """Begin a check whether the ledger is fenced; bookies are to be asked after that, as it says.

        Args:
            mute: Positions whose bookies do not know the question.

        """
        leaving = () if self._change is None else self._change.positions
        check = self._checks.begin((*mute, *leaving))
        if self.failure is not None:
            check.void()
        return check

    def on_promise(self, position: int, term: int, asked_at: float, lease_ms: int) -> None:
        """Take a bookie's promise to let nobody hear of a fence.

        Args:
            position: Whose bookie it is.
            term: `lease.term` when it was asked.
            asked_at: The writer's clock before it was asked, seconds.
            lease_ms: What it promised, at most what it was asked for.

        """
        is_leaving = self._change is not None and position in self._change.positions
        if self.failure is None and term == self.lease.term and not is_leaving:
            self.lease.grant(position, asked_at, lease_ms)

    # --- the end

    def freeze(self, error: LedgerError) -> list[Effect]:
        """Stop for good: fenced by one bookie, refused, out of time, closed. Only the first reason counts."""
        if self.failure is not None:
            return []
        self.failure = error
        self._checks.void()
        self.lease.void()
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
        assert NO_ENTRY <= self.last_add_confirmed <= self.last_stored <= self.last_add_pushed
        assert self.confirmed_length <= self._stored_length <= self._pushed_length
        self._validate_lengths()
        self._health.validate()
        if self.failure is None and self._change is None:
            assert not self._window.is_held
            assert self._window.stuck(self._health.failed_mask) is None

    # --- inside

    def _look_for_silence(self, now: float) -> None:
        """Note the bookies that keep the oldest entry waiting; none as long as nobody has stored it."""
        if self.silence_s is None:
            return
        head = self._window.confirmed + 1 if self.is_waiting else None
        if not self._head_timer.has_stood(head, now, self.silence_s):
            return
        stored, owing = self._window.head()
        reason = f"has not stored entry {head} for {self.silence_s:g} s, while others have"
        for position in range(self.quorum.ensemble_size) if stored else ():
            if owing >> position & 1 and position not in self._health.failed:
                self._health.silent[position] = reason

    def _is_kept_waiting(self) -> bool:
        """Return whether a pending entry cannot reach its ack quorum without those that are silent."""
        return bool(self._health.silent) and self._window.stuck(self._health.away_mask) is not None

    def _validate_lengths(self) -> None:
        assert len(self._lengths) == self._window.pending_count

    def _confirm(self, before: int) -> list[Effect]:
        """Account for the entries that are now stored, those after `before`."""
        popleft = self._lengths.popleft
        for _ in range(self._window.confirmed - before):
            self._stored_length = popleft()
        return [ConfirmEntries(self._window.confirmed)]

    def _missing(self, position: int) -> list[int]:
        """Return the pending entries that the position has to be sent again."""
        return self._window.missing(position)

    def _missed(self, position: int) -> list[int]:
        """Return the entries that were confirmed without the position's answer."""
        return self._health.missed(position, self._window.confirmed)

    def _release(self) -> list[Effect]:
        before = self._window.confirmed
        return self._confirm(before) if self._window.release() else []

    def _begin_change(self) -> list[Effect]:
        self._change = _Change()
        return [ChangeEnsemble()]

    def _check_quorum(self, *, is_last_hope_gone: bool = False) -> list[Effect]:
        """Begin a change if one is needed and possible; give up if the ack quorum is out of reach for good."""
        if self._change is not None:
            return []  # what a change under way does not mend, its end will look at
        if is_last_hope_gone and self.rolls and self._is_kept_waiting() and self._can_roll():
            return self.freeze(self._quorum_lost(f"entry {self._window.confirmed + 1} is kept from its ack quorum"))
        if not self._health.failed:
            return []
        entry_id = self._window.stuck(self._health.failed_mask)
        if entry_id is None:
            may_change = self.change_after_s is not None and self._spare_retry_at is None
            return self._begin_change() if may_change and self._health.has_refused() else []
        if self.change_after_s is not None and not is_last_hope_gone:
            return self._begin_change()
        return self.freeze(self._quorum_lost(f"entry {entry_id} cannot reach its ack quorum"))

    def _can_roll(self) -> bool:
        """Return whether the bookies that are well can make the next ledger."""
        return self.quorum.ensemble_size - self._health.away_mask.bit_count() >= self.quorum.ack_quorum

    def _quorum_lost(self, what: str) -> QuorumLostError:
        away = self._health.failed | self._health.silent
        seen = "; ".join(
            f"{bookie}: {away.get(position, 'no failure seen')}" for position, bookie in enumerate(self.bookies)
        )
        spare = f"; no bookie to take a failed one's place: {self._spare_failure}" if self._spare_failure else ""
        return QuorumLostError(
            f"ledger {self.ledger_id}: {what} of {self.quorum.ack_quorum} bookies ({seen}{spare}). Entries up to "
            f"{self.last_add_confirmed} are confirmed, later ones are unknown until the ledger is closed: close it "
            "and go on in a new one",
            ledger_id=self.ledger_id,
        )
