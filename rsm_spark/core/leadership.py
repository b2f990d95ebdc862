"""Sans-IO leadership of one log: take-over, failed adds, rolls. Facts in, effects out.

1. Every decision about who may write lives in `LeaderProtocol`; the shell reads, writes, appends, recovers.
2. One effect is under way at a time; its outcome comes back as the next event.
3. Only the chain deposes; a fence or a lost quorum is a failed add.
4. Nothing is proposed again before the end of the ledger that it was proposed in is known.
5. A ledger is deleted only after the chain, written by the own claim, has named it as being deleted.

The phases and what leads from one to the other: `rsm_spark.core.leadership_table`. While a chain write is under way
(`_write` is set) CLAIM, CHAIN and AMEND wait for it or read the chain again. A batch is in flight while `batch` is
set: in SENT, and in CLOSE, CREATE, CHAIN after a failed add.
"""

# Longer than 400 lines: one protocol, whose decisions about who may write stand side by side.

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import msgspec

from rsm_spark.core.admission import check_admission
from rsm_spark.core.batching import Batch
from rsm_spark.core.chain import (
    CHAIN_BYTES_MAX,
    ChainLedger,
    ClosedEnd,
    Leadership,
    LogChain,
    check_chain_size,
    decode_chain,
    encode_chain,
)
from rsm_spark.core.chain_write import ChainWrite, WriteVerdict
from rsm_spark.core.detaching import with_copies
from rsm_spark.core.leadership_events import (
    AddFailed,
    AnswerBatch,
    AppendEntry,
    BatchComposed,
    BeginLeadership,
    ChainRead,
    ChainWriteFailed,
    ChainWritten,
    CloseOwnLedger,
    CreateLedger,
    DeleteLedgers,
    DetachDue,
    DropBatch,
    Effect,
    ElectionWon,
    EntryConfirmed,
    Event,
    FormatRaiseDue,
    Halt,
    KeyAdoptDue,
    LedgerCreated,
    LedgerEndLearned,
    LedgerGone,
    LedgerRecovered,
    LedgersDeleted,
    ReadChain,
    RecoverLedger,
    Replayed,
    ReplayLog,
    Resigned,
    RollDue,
    StepDown,
    TrimDue,
    WriteChain,
)
from rsm_spark.core.leadership_table import TRANSITIONS, Phase
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import FORMAT_LEVEL
from rsm_spark.core.seal import KEYED_LEVEL
from rsm_spark.core.state import StateTip


class LeaderProtocol:
    """One attempt to lead, from the won election to the step down.

    Args:
        me: Replica id and incarnation of this process.
        log_name, log_id: Of the log that the state is of; the id "" = any, for tests.
        tip: Of the state as followed so far.
        position: Last entry applied, or None.
        format_level: Highest that this process knows.
        level_needed: What a log that it begins has at least: its description could not be read by a lower one.
        level_claimed: What any log has at least that it has claimed.
        password_mark: Of its ledger password; see `rsm_spark.core.admission`.
        key_ids: Keys that this process was given, oldest first.
        chain_bytes_max: What the metadata store takes.

    Attributes:
        key_id: Of the key that the next ledger is of, if the log has one: the chain's at first, a newer one as soon as
            every replica has it.
        phase: See `rsm_spark.core.leadership_table`.
        epoch: Claimed epoch; 0 before the claim.
        chain: As held: produced by the own claim, then by each own write. None before.
        version: Version of the held chain.
        chain_bytes: Size of the held chain.
        ledger_id: Ledger that is or was written last; -1 before the first.
        acked: Last entry confirmed in it; -1 = none.
        batch: In flight, or None.
        leading: LeaderStarted is confirmed, requests are taken.
        tip: Of the confirmed state.
        position: Of the last entry confirmed.

    """

    transitions: ClassVar = TRANSITIONS

    def __init__(
        self,
        me: Leadership,
        log_name: str,
        tip: StateTip,
        position: LogPosition | None,
        *,
        log_id: str = "",
        format_level: int = FORMAT_LEVEL,
        level_needed: int = 1,
        level_claimed: int = 1,
        password_mark: str = "",
        key_ids: Sequence[str] = (),
        chain_bytes_max: int = CHAIN_BYTES_MAX,
    ) -> None:
        self.me = me
        self.log_name = log_name
        self.format_level = format_level
        self._level_needed = level_needed
        self._level_claimed = level_claimed
        self.password_mark = password_mark
        self.chain_bytes_max = chain_bytes_max
        self.key_id = key_ids[-1] if key_ids and format_level >= KEYED_LEVEL else ""
        self._admit = partial(
            check_admission,
            log_name=log_name,
            log_id=log_id,
            mark=password_mark,
            key_ids=key_ids,
            is_sealed=tip.is_sealed,
        )
        self.phase = Phase.FOLLOW
        self.epoch = 0
        self.chain: LogChain | None = None
        self.version = -1
        self.chain_bytes = 0
        self.ledger_id = -1
        self.ledger_created_ms = 0
        self.acked = -1
        self.batch: Batch | None = None
        self.leading = False
        self.tip = tip
        self.position = position
        self._write: ChainWrite | None = None
        # The close of the last ledger of the held chain: known, but not yet written there.
        self._recovered: LedgerRecovered | None = None
        self._last_end: ClosedEnd | None = None
        self._creating_key_id = ""  # Of the ledger that is being created.
        self._steps: dict[type[Event], Callable[..., list[Effect]]] = {
            ElectionWon: self._on_election_won,
            ChainRead: self._on_chain_read,
            ChainWritten: self._on_chain_written,
            ChainWriteFailed: self._on_chain_write_failed,
            LedgerRecovered: self._on_ledger_recovered,
            LedgerGone: self._on_ledger_gone,
            Replayed: self._on_replayed,
            LedgerCreated: self._on_ledger_created,
            BatchComposed: self._on_batch_composed,
            RollDue: self._on_roll_due,
            TrimDue: self._on_trim_due,
            LedgersDeleted: self._on_ledgers_deleted,
            DetachDue: self._on_detach_due,
            FormatRaiseDue: self._on_format_raise_due,
            KeyAdoptDue: self._on_key_adopt_due,
            EntryConfirmed: self._on_entry_confirmed,
            AddFailed: self._on_add_failed,
            LedgerEndLearned: self._on_ledger_end_learned,
            Resigned: self._on_resigned,
        }

    @property
    def has_recovered(self) -> bool:
        """True if it has closed the ledger that the leader before left open."""
        return self._recovered is not None

    def handle(self, event: Event) -> list[Effect]:
        """Take one event; return what is to be done, in order.

        Raises:
            ValueError: The event is not legal in this phase, or not with this chain; nothing was changed.
            AdmissionError, ForkedLogError: This process must not lead this log.
            ChainTooLargeError: The chain has no room for another ledger.

        """
        before = self.phase
        legal = self.transitions[before].get(type(event))
        if legal is None:
            raise ValueError(f"log {self.log_name}: {event} is not legal in phase {before}")
        effects = self._steps[type(event)](event)
        assert self.phase in legal, f"{event} led from {before} to {self.phase}"
        return effects

    # ---- the chain

    def _on_election_won(self, _event: ElectionWon) -> list[Effect]:
        self.phase = Phase.CLAIM
        return [ReadChain()]

    def _on_chain_read(self, event: ChainRead) -> list[Effect]:
        if self.phase in (Phase.RECOVER, Phase.CLOSE):
            return self._judge_missing_ledger(event)
        if self._write is None:
            return self._claim(event)
        match self._judge(event):
            case WriteVerdict.ARRIVED:
                return self._chain_arrived(event.version)
            case WriteVerdict.SEND_AGAIN:
                return [WriteChain(self._write.value, self._write.held_version)]
            case WriteVerdict.DEPOSED:
                return self._step_down("the chain was written by somebody else", deposed=True)

    def _judge(self, event: ChainRead) -> WriteVerdict:
        assert self._write is not None
        return self._write.judge(event.value, event.version)

    def _claim(self, event: ChainRead) -> list[Effect]:
        """Raise the epoch of the chain that was just read: from here on its version is held."""
        chain = decode_chain(event.value, log_name=self.log_name)
        self._admit(chain, format_level=self.format_level)
        self.epoch = chain.leader_epoch + 1
        mark = chain.password_mark or self.password_mark
        claimed = msgspec.structs.replace(chain, leader_epoch=self.epoch, leader=self.me, password_mark=mark)
        is_new = chain.first_ledger_id < 0
        level = max(chain.format_level, self._level_claimed, self._level_needed if is_new else 1)
        claimed = msgspec.structs.replace(claimed, format_level=level)
        if chain.key_id:
            self.key_id = chain.key_id
        elif self.key_id and is_new:  # A new log has a key from its first entry on.
            claimed = self._keyed(claimed)
        return self._write_chain(claimed, event.version)

    def _keyed(self, chain: LogChain) -> LogChain:
        level = max(chain.format_level, KEYED_LEVEL)
        return msgspec.structs.replace(chain, format_level=level, key_id=self.key_id)

    def _write_chain(self, chain: LogChain, held_version: int) -> list[Effect]:
        self._write = ChainWrite(encode_chain(chain), held_version)
        return [WriteChain(self._write.value, held_version)]

    def _on_chain_write_failed(self, _event: ChainWriteFailed) -> list[Effect]:
        return [ReadChain()]

    def _on_chain_written(self, event: ChainWritten) -> list[Effect]:
        return self._chain_arrived(event.version)

    def _chain_arrived(self, version: int) -> list[Effect]:
        assert self._write is not None
        assert version == self._write.held_version + 1
        before, self.chain = self.chain, decode_chain(self._write.value, log_name=self.log_name)
        self.version, self.chain_bytes = version, len(self._write.value)
        self._write = None
        if self.phase is Phase.CHAIN:
            return self._ledger_chained()
        if self.phase is Phase.AMEND:
            assert before is not None
            self.phase = Phase.LEAD
            leaving = tuple(ledger_id for ledger_id in self.chain.deleting if ledger_id not in before.deleting)
            return [DeleteLedgers(leaving)] if leaving else []
        self.phase = Phase.RECOVER
        last = self.chain.ledgers[-1] if self.chain.ledgers else None
        if last is None or last.closed is not None:
            return [ReplayLog(self.chain)]
        return [RecoverLedger(last.ledger_id)]

    # ---- recovery

    def _on_ledger_recovered(self, event: LedgerRecovered) -> list[Effect]:
        assert self.chain is not None
        self._recovered = event
        return [ReplayLog(self.chain)]

    def _on_ledger_gone(self, _event: LedgerGone) -> list[Effect]:
        return [ReadChain()]

    def _judge_missing_ledger(self, event: ChainRead) -> list[Effect]:
        if event.version != self.version:
            return self._step_down("a ledger of the chain is gone: trimmed by a later leader", deposed=True)
        reason = f"log {self.log_name}: a ledger that the chain names does not exist: acknowledged records are lost"
        return [*self._step_down(reason, deposed=False), Halt(reason)]

    def _on_replayed(self, event: Replayed) -> list[Effect]:
        self.tip, self.position = event.tip, event.position
        if self._recovered is not None:
            self._last_end = self._end(self._recovered.last_entry_id, self._recovered.length)
        return self._create()

    def _end(self, last_entry_id: int, length: int) -> ClosedEnd:
        """Describe the end of the chain's last ledger, which is where the confirmed state is."""
        tip = self.tip
        return ClosedEnd(last_entry_id, tip.revision, tip.logged_ms, length, tip.prefix_hash.hex())

    # ---- a new ledger

    def _create(self) -> list[Effect]:
        assert self.chain is not None
        self.phase = Phase.CREATE
        previous = self.chain.ledgers[-1].ledger_id if self.chain.ledgers else -1
        key_id = self.key_id if self.chain.key_id else ""
        self._creating_key_id = key_id
        return [CreateLedger(self.chain.log_id, self.epoch, previous, key_id)]

    def _on_ledger_created(self, event: LedgerCreated) -> list[Effect]:
        assert self.chain is not None
        self.phase = Phase.CHAIN
        self.ledger_id, self.ledger_created_ms, self.acked = event.ledger_id, event.created_ms, -1
        chain = self.chain
        ledgers = chain.ledgers
        if ledgers and ledgers[-1].closed is None:
            assert self._last_end is not None
            ledgers = (*ledgers[:-1], msgspec.structs.replace(ledgers[-1], closed=self._last_end))
        key_id = self._creating_key_id
        added = ChainLedger(event.ledger_id, event.created_ms, self.epoch, self.tip.revision + 1, key_id=key_id)
        first = event.ledger_id if chain.first_ledger_id < 0 else chain.first_ledger_id
        grown = msgspec.structs.replace(chain, first_ledger_id=first, ledgers=(*ledgers, added), key_id=key_id)
        effects = self._write_chain(grown, self.version)
        assert self._write is not None
        check_chain_size(self._write.value, len(grown.ledgers), self.chain_bytes_max, log_name=self.log_name)
        return effects

    def _ledger_chained(self) -> list[Effect]:
        """Begin the ledger, now that the chain names it: with the batch of the one before, if there is one."""
        if self.batch is not None:
            self.phase = Phase.SENT
            return [AppendEntry(self.ledger_id, self.batch.payload)]
        self.phase = Phase.LEAD
        if self.leading:
            return []
        assert self.chain is not None
        unfinished = self.chain.deleting  # By a leader before.
        return [*([DeleteLedgers(unfinished)] if unfinished else []), BeginLeadership(self.epoch)]

    # ---- entries

    def _on_batch_composed(self, event: BatchComposed) -> list[Effect]:
        self.batch = event.batch
        self.phase = Phase.SENT
        return [AppendEntry(self.ledger_id, event.batch.payload)]

    def _on_entry_confirmed(self, event: EntryConfirmed) -> list[Effect]:
        assert event.entry_id == self.acked + 1, "an entry was confirmed out of order"
        self.phase = Phase.LEAD
        return self._confirm()

    def _confirm(self) -> list[Effect]:
        """Take the batch as committed."""
        batch = self.batch
        assert batch is not None
        self.acked += 1
        self.position = LogPosition(self.ledger_id, self.acked)
        envelope = batch.envelope
        is_sealed = bool(envelope.key_id)
        self.tip = StateTip(
            envelope.last_revision, batch.prefix_hash, envelope.leader_epoch, envelope.logged_ms, is_sealed
        )
        self.batch = None
        self.leading = True
        return [AnswerBatch(batch, self.tip, self.position)]

    def _on_add_failed(self, _event: AddFailed) -> list[Effect]:
        self.phase = Phase.CLOSE
        return [CloseOwnLedger(self.ledger_id)]

    def _on_roll_due(self, _event: RollDue) -> list[Effect]:
        self.phase = Phase.CLOSE
        return [CloseOwnLedger(self.ledger_id)]

    def _on_ledger_end_learned(self, event: LedgerEndLearned) -> list[Effect]:
        end = event.last_entry_id
        if not self.acked <= end <= self.acked + (self.batch is not None):
            reason = (
                f"log {self.log_name}: ledger {self.ledger_id} closed at entry {end}; this leader, its only writer, "
                f"had entry {self.acked} confirmed and {'one' if self.batch else 'none'} on its way"
            )
            return [*self._step_down(reason, deposed=False), Halt(reason)]
        effects = self._confirm() if end == self.acked + 1 else []
        self._last_end = self._end(end, event.length)
        return effects + self._create()

    # ---- the chain, while leading

    def _on_trim_due(self, event: TrimDue) -> list[Effect]:
        """Take ledgers out of the chain; only then may they be deleted."""
        assert self.chain is not None
        count = len(event.ledger_ids)
        going, staying = self.chain.ledgers[:count], self.chain.ledgers[count:]
        if not staying or not going or tuple(ledger.ledger_id for ledger in going) != event.ledger_ids:
            raise ValueError(f"log {self.log_name}: {event} is no prefix of its chain that leaves the current ledger")
        gone = set(event.ledger_ids)
        aside = tuple(entry for entry in self.chain.quarantined if entry.ledger_id not in gone)
        return self._amend(ledgers=staying, deleting=(*self.chain.deleting, *event.ledger_ids), quarantined=aside)

    def _on_ledgers_deleted(self, event: LedgersDeleted) -> list[Effect]:
        assert self.chain is not None
        left = tuple(ledger_id for ledger_id in self.chain.deleting if ledger_id not in event.ledger_ids)
        return self._amend(deleting=left) if left != self.chain.deleting else []

    def _on_detach_due(self, event: DetachDue) -> list[Effect]:
        """Put copies into the places of shared ledgers; only then does the log let those go."""
        assert self.chain is not None
        detached = with_copies(self.chain, event.copies)
        if detached is self.chain:
            return []
        self.phase = Phase.AMEND
        return self._write_chain(detached, self.version)

    def _on_format_raise_due(self, event: FormatRaiseDue) -> list[Effect]:
        assert self.chain is not None
        if event.level > self.format_level:
            raise ValueError(f"log {self.log_name}: {event}, but this leader knows up to {self.format_level}")
        return self._amend(format_level=event.level) if event.level > self.chain.format_level else []

    def _on_key_adopt_due(self, _event: KeyAdoptDue) -> list[Effect]:
        assert self.chain is not None
        if not self.key_id:
            raise ValueError(f"log {self.log_name}: this leader has no key that its log could adopt")
        if self.chain.key_id:
            return []
        self.phase = Phase.AMEND
        return self._write_chain(self._keyed(self.chain), self.version)

    def _amend(self, **changes: object) -> list[Effect]:
        assert self.chain is not None
        self.phase = Phase.AMEND
        return self._write_chain(msgspec.structs.replace(self.chain, **changes), self.version)

    # ---- the end

    def _on_resigned(self, event: Resigned) -> list[Effect]:
        return self._step_down(event.reason, deposed=False)

    def _step_down(self, reason: str, *, deposed: bool) -> list[Effect]:
        """Stop leading. Between a known end and the next append the batch is certainly not applied."""
        effects: list[Effect] = []
        if self.batch is not None:
            effects.append(DropBatch(self.batch, applied_never=self.phase in (Phase.CREATE, Phase.CHAIN)))
        effects.append(StepDown(reason, deposed=deposed, rebuild=self.batch is not None))
        self.phase = Phase.FOLLOW
        self.batch = None
        self.leading = False
        self._write = None
        return effects

    def validate(self) -> None:
        """Check the invariants; the simulation calls this after every event."""
        phase = self.phase
        assert phase is not Phase.SENT or self.batch is not None
        assert self.batch is None or phase in (Phase.SENT, Phase.CLOSE, Phase.CREATE, Phase.CHAIN)
        assert self._write is None or phase in (Phase.CLAIM, Phase.CHAIN, Phase.AMEND)
        assert phase in (Phase.FOLLOW, Phase.CLAIM) or self.chain is not None
        assert not self.leading or phase not in (Phase.FOLLOW, Phase.CLAIM, Phase.RECOVER)
        if phase in (Phase.LEAD, Phase.SENT, Phase.AMEND):
            assert self.chain is not None
            assert self.chain.ledgers[-1].ledger_id == self.ledger_id, "writes into a ledger that is not chained"
        if self.chain is not None:
            assert all(ledger.closed is not None for ledger in self.chain.ledgers[:-1])
            assert not {ledger.ledger_id for ledger in self.chain.ledgers} & set(self.chain.deleting)
