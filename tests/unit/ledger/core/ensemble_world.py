"""A world for ensemble changes: bookies, a metadata store that loses replies, a recoverer; one random step at a time.

The writer's core and the change's core are the product's; everything else here is the simplest thing that could be.
After every step the promises are checked against what the store and the bookies hold, as the TLA+ model states them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from ledger.core.coverage import is_covered
from ledger.core.ensemble_change import ChangeFailed, ChangeSettled, EnsembleChange, Verdict, WriteMetadata
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig, write_set
from ledger.core.writer import LedgerWriter
from ledger.core.writer_effects import (
    ChangeEnsemble,
    ConfirmEntries,
    Effect,
    FailPending,
    ResendEntries,
    SendEntries,
    UseEnsemble,
)

__all__ = ["BrokenPromiseError", "EnsembleWorld", "metadata_of"]

BOOKIES = tuple(f"b{number}" for number in range(7))


class BrokenPromiseError(AssertionError):
    """What must never happen has happened."""


def metadata_of(quorum: QuorumConfig, *segments: Segment) -> LedgerMetadata:
    """Metadata of an open ledger."""
    first = Segment(0, BOOKIES[: quorum.ensemble_size])
    return LedgerMetadata(quorum, LedgerState.OPEN, segments or (first,), DigestType.CRC32C, b"")


class EnsembleWorld:
    """One ledger, its writer, and all that can go wrong."""

    def __init__(self, quorum: QuorumConfig, rng: random.Random) -> None:
        self.rng = rng
        self.quorum = quorum
        self.stored = metadata_of(quorum)
        self.version = 0
        self.seen, self.seen_version = self.stored, 0  # what the writer holds for settled
        self.core = LedgerWriter(1, quorum, self.stored.segments[-1].bookies)
        self.core.change_after_s = 1.0
        self.core.silence_s = 1.2
        self.core.rolls = True
        self.holding: dict[str, set[int]] = {bookie: set() for bookie in BOOKIES}
        self.fenced: set[str] = set()
        self.down: set[str] = set()
        self.adds: list[tuple[str, int]] = []  # on their way
        self.answers: list[tuple[str, int]] = []
        self.late_writes: list[WriteMetadata] = []  # sent, no reply will come, may yet be applied
        self.change: EnsembleChange | None = None
        self.spares: dict[int, str] = {}
        self.sent: WriteMetadata | None = None
        self.must_read = False
        self.is_choosing = False
        self.now = 0.0
        self.end: int | None = None  # as a recovery found it
        self.confirmed = -1
        self.changes = 0
        self.moved_boundaries = 0

    # --- steps

    def step(self) -> None:
        """Do one random thing and check everything."""
        steps = [
            (self._append, 4),
            (self._deliver_add, 12),
            (self._deliver_answer, 12),
            (self._fail, 1),
            (self._heal, 1),
            (self._choose, 4),
            (self._reply, 3),
            (self._lose_reply, 1),
            (self._apply_late, 1),
            (self._read, 3),
            (self._release, 1),
            (self._tick, 1),
        ]
        (step,) = self.rng.choices([step for step, _ in steps], [weight for _, weight in steps])
        step()
        self.check()

    def _append(self) -> None:
        if self.core.failure is None and self.core.pending_count < 12:
            self.carry_out(self.core.append([1] * self.rng.randint(1, 3)))

    def _deliver_add(self) -> None:
        if self.adds:
            bookie, entry_id = self.adds.pop(self.rng.randrange(len(self.adds)))
            if bookie not in self.down and bookie not in self.fenced:
                self.holding[bookie].add(entry_id)
                self.answers.append((bookie, entry_id))

    def _deliver_answer(self) -> None:
        if self.answers:
            bookie, entry_id = self.answers.pop(self.rng.randrange(len(self.answers)))
            if bookie in self.core.bookies:
                self.carry_out(self.core.on_stored(self.core.bookies.index(bookie), [entry_id]))

    def _fail(self) -> None:
        """Fail one bookie of the ensemble, or several at once; the answers that it has sent still arrive."""
        for bookie in self.rng.sample(self.core.bookies, self.rng.choice([1, 1, 1, 2][: self.quorum.ensemble_size])):
            self.down.add(bookie)
            self.adds = [(to, entry_id) for to, entry_id in self.adds if to != bookie]
            position = self.core.bookies.index(bookie)
            is_refusal = self.rng.random() < 0.5
            self.carry_out(self.core.on_position_failed(position, "down", self.now, is_refusal=is_refusal))

    def _heal(self) -> None:
        for bookie in sorted(self.down)[:1]:
            self.down.discard(bookie)
            if bookie in self.core.bookies:
                self.carry_out(self.core.on_position_restored(self.core.bookies.index(bookie)))

    def _tick(self) -> None:
        self.now += 0.6
        self.carry_out(self.core.on_tick(self.now))

    # --- the change, as its shell carries it out

    def _choose(self) -> None:
        if not self.is_choosing or self.core.failure is not None:
            return
        self.is_choosing = False
        wanted = list(self.core.positions_to_change(self.now))
        if not wanted:
            self.carry_out(self.core.on_change_dropped())
            return
        free = [bookie for bookie in BOOKIES if bookie not in self.core.bookies and bookie not in self.down]
        self.rng.shuffle(free)
        self.spares = dict(zip(wanted, free, strict=False))
        if not self.spares:
            self.carry_out(self.core.on_no_spare("all are down", self.now))
            return
        self.change = EnsembleChange(1, self.seen, self.seen_version, self.spares)
        self._propose()

    def _propose(self) -> None:
        assert self.change is not None
        self.sent = self.change.propose(self.core.hold(self.spares))

    def _apply(self, write: WriteMetadata) -> bool:
        if write.version != self.version:
            return False
        self.stored, self.version = write.metadata, self.version + 1
        return True

    def _reply(self) -> None:
        if self.sent is None or self.change is None or self.core.failure is not None:
            return
        sent, self.sent = self.sent, None
        if self._apply(sent):
            self._judge(self.change.on_written(sent, self.version, self.core.last_stored))
        else:
            self.must_read = True

    def _lose_reply(self) -> None:
        """The store does not answer: the write was applied, was not, or will be in a while."""
        if self.sent is None or self.core.failure is not None:
            return
        sent, self.sent = self.sent, None
        fate = self.rng.randrange(3)
        if fate == 0:
            self._apply(sent)
        elif fate == 1:
            self.late_writes.append(sent)
        self.must_read = True
        self.carry_out(self.core.release())

    def _apply_late(self) -> None:
        if self.late_writes:
            self._apply(self.late_writes.pop(0))

    def _read(self) -> None:
        if self.must_read and self.change is not None and self.core.failure is None:
            self.must_read = False
            self._judge(self.change.on_read(self.stored, self.version, self.core.last_stored))

    def _judge(self, verdict: Verdict) -> None:
        assert self.change is not None
        if isinstance(verdict, ChangeFailed):
            self.carry_out(self.core.freeze(verdict.error))
        elif isinstance(verdict, ChangeSettled):
            self.seen, self.seen_version = verdict.metadata, verdict.version
            self.changes += 1
            change, self.change = self.change, None
            self.carry_out(self.core.on_ensemble_changed(change.bookies))
        else:
            self.moved_boundaries += self.stored.segments[-1].bookies == self.change.bookies
            self._propose()

    def _release(self) -> None:
        if self.sent is not None:
            self.carry_out(self.core.release())

    # --- effects

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """Do what the core wants done."""
        for effect in effects:
            if isinstance(effect, SendEntries):
                for entry_id in range(effect.first_entry_id, effect.first_entry_id + len(effect.lengths)):
                    for position in write_set(entry_id, self.quorum):
                        if self.core.bookies[position] not in self.down:
                            self.adds.append((self.core.bookies[position], entry_id))
            elif isinstance(effect, ResendEntries):
                self.adds += [(self.core.bookies[effect.position], entry_id) for entry_id in effect.entry_ids]
                if effect.entry_ids[0] < self.core.keep_from:
                    raise BrokenPromiseError("asks for bytes that were let go")
            elif isinstance(effect, ConfirmEntries):
                if effect.last_entry_id <= self.confirmed:
                    raise BrokenPromiseError("the LAC went back")
                self.confirmed = effect.last_entry_id
            elif isinstance(effect, ChangeEnsemble):
                assert not self.is_choosing
                self.is_choosing = True
            elif isinstance(effect, FailPending):
                self.adds.clear()
            else:
                assert isinstance(effect, UseEnsemble)
        self.core.validate()

    # --- what must hold

    def check(self) -> None:
        """Check the promises."""
        firsts = [segment.first_entry_id for segment in self.stored.segments]
        if firsts != sorted(set(firsts)) or firsts[0] != 0:
            raise BrokenPromiseError(f"segments out of order: {firsts}")
        if any(len(set(segment.bookies)) != self.quorum.ensemble_size for segment in self.stored.segments):
            raise BrokenPromiseError("a bookie twice in one ensemble")
        for entry_id in range(self.confirmed + 1):
            ensemble = self.stored.ensemble_at(entry_id)
            copies = sum(entry_id in self.holding[ensemble[p]] for p in write_set(entry_id, self.quorum))
            if copies < self.quorum.ack_quorum:
                raise BrokenPromiseError(f"entry {entry_id} is confirmed, {copies} of its replicas have it")
        if self.end is not None and self.confirmed > self.end:
            raise BrokenPromiseError(f"{self.confirmed} is confirmed, the ledger ends at {self.end}")

    def recover(self) -> None:
        """Recover like another client, all at once, hearing only as many bookies as it needs to."""
        self.stored = msgspec.structs.replace(self.stored, state=LedgerState.IN_RECOVERY)
        self.version += 1
        last = self.stored.segments[-1]
        heard: set[str] = set()
        for bookie in self.rng.sample(last.bookies, len(last.bookies)):
            if not is_covered(last.bookies, heard, self.quorum):
                heard.add(bookie)
        self.fenced |= heard
        entry_id = last.first_entry_id
        while True:
            replicas = [last.bookies[position] for position in write_set(entry_id, self.quorum)]
            # The luckless order: whoever lacks the entry answers first. Reads fence, too.
            lacking = [bookie for bookie in replicas if entry_id not in self.holding[bookie]]
            if len(lacking) >= self.quorum.coverage_count:
                self.fenced |= set(lacking[: self.quorum.coverage_count])
                break
            entry_id += 1
        self.end = entry_id - 1
        if self.confirmed > self.end:
            raise BrokenPromiseError(f"{self.confirmed} is confirmed, recovery ends the ledger at {self.end}")
