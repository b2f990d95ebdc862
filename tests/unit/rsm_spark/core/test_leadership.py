"""The take-over protocol: which event is legal where, what it makes the shell do, who gets which answer."""

from __future__ import annotations

import random

import msgspec
import pytest

from rsm_spark.core.chain import (
    ChainLedger,
    ClosedEnd,
    LogChain,
    decode_chain,
    encode_chain,
)
from rsm_spark.core.leadership import LeaderProtocol
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
    DropBatch,
    Effect,
    ElectionWon,
    EntryConfirmed,
    Event,
    FormatRaiseDue,
    Halt,
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
from rsm_spark.core.state import StateTip
from tests.unit.rsm_spark.core.leadership_paths import (
    BATCH,
    CHAIN,
    CLAIMED,
    EVENTS,
    LOG_ID,
    ME,
    OPEN_LEDGER,
    PATHS,
    SENT,
    STARTED,
    TIP,
    at,
)


def test_take_over_claims_recovers_replays_creates_chains_and_starts() -> None:
    protocol = LeaderProtocol(ME, "log", TIP, None)
    assert protocol.handle(ElectionWon()) == [ReadChain()]
    claim = encode_chain(msgspec.structs.replace(CHAIN, leader_epoch=4, leader=ME))
    assert protocol.handle(ChainRead(encode_chain(CHAIN), 5)) == [WriteChain(claim, 5)]
    assert protocol.handle(ChainWritten(6)) == [RecoverLedger(7)]
    assert protocol.handle(LedgerRecovered(7, 3, 99)) == [ReplayLog(decode_chain(claim, log_name="log"))]
    assert protocol.handle(Replayed(TIP, LogPosition(7, 3))) == [CreateLedger(LOG_ID, 4, 7)]
    (write,) = protocol.handle(LedgerCreated(8, 6))
    assert isinstance(write, WriteChain)
    assert write.held_version == 6
    chained = decode_chain(write.value, log_name="log")
    end = ClosedEnd(3, 10, 1000, 99, TIP.prefix_hash.hex())
    assert chained.ledgers == (msgspec.structs.replace(OPEN_LEDGER, closed=end), ChainLedger(8, 6, 4, 11))
    assert protocol.handle(ChainWritten(7)) == [BeginLeadership(4)]
    assert protocol.handle(BatchComposed(BATCH)) == [AppendEntry(8, b"payload")]
    (answer,) = protocol.handle(EntryConfirmed(0))
    assert answer == AnswerBatch(BATCH, StateTip(12, BATCH.prefix_hash, 4, 1100), LogPosition(8, 0))
    assert protocol.leading


def test_first_leader_of_a_log_has_nothing_to_recover_and_names_the_first_ledger() -> None:
    protocol = LeaderProtocol(ME, "log", TIP, None)
    protocol.handle(ElectionWon())
    protocol.handle(ChainRead(encode_chain(LogChain(LOG_ID)), 0))
    (replay,) = protocol.handle(ChainWritten(1))
    assert isinstance(replay, ReplayLog)
    assert protocol.handle(Replayed(TIP, None)) == [CreateLedger(LOG_ID, 1, -1)]
    (write,) = protocol.handle(LedgerCreated(3, 6))
    assert isinstance(write, WriteChain)
    assert decode_chain(write.value, log_name="log").first_ledger_id == 3


def test_ledger_that_the_chain_knows_as_closed_is_not_recovered_again() -> None:
    closed = msgspec.structs.replace(OPEN_LEDGER, closed=ClosedEnd(3, 10, 1000, 99, "00"))
    chain = msgspec.structs.replace(CHAIN, ledgers=(closed,))
    protocol = at(ElectionWon(), ChainRead(encode_chain(chain), 5))
    (replay,) = protocol.handle(ChainWritten(6))
    assert isinstance(replay, ReplayLog)


@pytest.mark.parametrize("phase", list(Phase))
def test_every_event_that_is_not_legal_is_refused_and_changes_nothing(phase: Phase) -> None:
    for kind, event in EVENTS.items():
        if kind in TRANSITIONS[phase]:
            continue
        protocol = at(*PATHS[phase])
        before = vars(protocol).copy()
        with pytest.raises(ValueError, match="not legal"):
            protocol.handle(event)
        assert vars(protocol) == before


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.FOLLOW])
def test_resigning_ends_every_phase(phase: Phase) -> None:
    protocol = at(*PATHS[phase])
    assert protocol.phase is phase
    effects = protocol.handle(Resigned("session lost"))
    assert isinstance(effects[-1], StepDown)
    assert not effects[-1].deposed
    assert protocol.phase is Phase.FOLLOW
    protocol.validate()


@pytest.mark.parametrize(("events", "applied_never"), [
    (SENT, False),
    ((*SENT, AddFailed()), False),
    ((*SENT, AddFailed(), LedgerEndLearned(0, 7)), True),
    ((*SENT, AddFailed(), LedgerEndLearned(0, 7), LedgerCreated(9, 7)), True),
])  # fmt: skip
def test_batch_is_certainly_not_applied_only_between_a_known_end_and_the_next_append(
    events: tuple[Event, ...], applied_never: bool
) -> None:
    drop, step_down = at(*events).handle(Resigned("session lost"))
    assert drop == DropBatch(BATCH, applied_never)
    assert isinstance(step_down, StepDown)
    assert step_down.rebuild


def test_failed_add_learns_the_end_before_anything_is_proposed_again() -> None:
    protocol = at(*SENT)
    assert protocol.handle(AddFailed()) == [CloseOwnLedger(8)]
    assert protocol.handle(LedgerEndLearned(0, 50)) == [CreateLedger(LOG_ID, 4, 8)]
    (write,) = protocol.handle(LedgerCreated(9, 7))
    assert isinstance(write, WriteChain)
    assert protocol.handle(ChainWritten(8)) == [AppendEntry(9, b"payload")]


def test_failed_add_that_was_stored_is_answered_and_not_appended_again() -> None:
    protocol = at(*SENT, AddFailed())
    answer, create = protocol.handle(LedgerEndLearned(1, 50))
    assert isinstance(answer, AnswerBatch)
    assert create == CreateLedger(LOG_ID, 4, 8)
    protocol.handle(LedgerCreated(9, 7))
    assert protocol.handle(ChainWritten(8)) == []
    assert protocol.phase is Phase.LEAD


@pytest.mark.parametrize("end", [-1, 2])
def test_end_below_what_was_confirmed_or_beyond_what_was_sent_halts(end: int) -> None:
    effects = at(*SENT, AddFailed()).handle(LedgerEndLearned(end, 50))
    assert isinstance(effects[-1], Halt)
    assert effects[0] == DropBatch(BATCH, applied_never=False)


def test_roll_closes_creates_chains_and_leads_on() -> None:
    protocol = at(*STARTED)
    assert protocol.handle(RollDue()) == [CloseOwnLedger(8)]
    assert protocol.handle(LedgerEndLearned(0, 50)) == [CreateLedger(LOG_ID, 4, 8)]
    (write,) = protocol.handle(LedgerCreated(9, 7))
    assert isinstance(write, WriteChain)
    assert write.held_version == 7
    assert protocol.handle(ChainWritten(8)) == []
    assert protocol.leading


@pytest.mark.parametrize("phase", [Phase.CLAIM, Phase.CHAIN, Phase.AMEND])
def test_chain_write_without_a_reply_is_judged_by_reading_again(phase: Phase) -> None:
    def write(protocol: LeaderProtocol) -> WriteChain:
        assert protocol._write is not None
        return WriteChain(protocol._write.value, protocol._write.held_version)

    protocol = at(*PATHS[phase])
    sent = write(protocol)
    assert protocol.handle(ChainWriteFailed()) == [ReadChain()]
    assert protocol.handle(ChainRead(b"before", sent.held_version)) == [sent]
    assert protocol.handle(ChainWriteFailed()) == [ReadChain()]
    protocol.handle(ChainRead(sent.value, sent.held_version + 1))
    assert protocol.phase is not phase
    assert protocol.version == sent.held_version + 1


@pytest.mark.parametrize("phase", [Phase.CLAIM, Phase.CHAIN, Phase.AMEND])
def test_chain_written_by_somebody_else_deposes(phase: Phase) -> None:
    protocol = at(*PATHS[phase])
    assert protocol._write is not None
    version = protocol._write.held_version
    protocol.handle(ChainWriteFailed())
    (step_down,) = protocol.handle(ChainRead(encode_chain(CHAIN), version + 1))
    assert isinstance(step_down, StepDown)
    assert step_down.deposed


def test_missing_ledger_deposes_if_the_chain_has_moved_else_halts() -> None:
    protocol = at(*CLAIMED)
    assert protocol.handle(LedgerGone(7)) == [ReadChain()]
    assert protocol._write is None
    (step_down,) = protocol.handle(ChainRead(b"", 9))
    assert isinstance(step_down, StepDown)
    protocol = at(*CLAIMED, LedgerGone(7))
    _, halt = protocol.handle(ChainRead(b"", 6))
    assert isinstance(halt, Halt)


def _chores(protocol: LeaderProtocol) -> list[Event]:
    """What else a leader at rest may be told."""
    assert protocol.chain is not None
    ids = [ledger.ledger_id for ledger in protocol.chain.ledgers]
    trims: list[Event] = [TrimDue(tuple(ids[:1]))] if len(ids) > 1 else []
    return [*trims, LedgersDeleted(protocol.chain.deleting[:1]), FormatRaiseDue(1)]


def _answer_of(effect: Effect, rng: random.Random, protocol: LeaderProtocol) -> Event | None:
    """One of the outcomes that an effect may have."""
    match effect:
        case ReadChain():
            if protocol._write is None:
                return ChainRead(encode_chain(CHAIN), rng.choice((5, protocol.version)))
            held, value = protocol._write.held_version, protocol._write.value
            return ChainRead(*rng.choice(((b"", held), (value, held + 1), (b"other", held + 1))))
        case WriteChain(held_version=version):
            return rng.choice((ChainWriteFailed(), ChainWritten(version + 1), ChainWritten(version + 1)))
        case RecoverLedger(ledger_id=ledger_id):
            return rng.choice((LedgerGone(ledger_id), *[LedgerRecovered(ledger_id, 3, 9)] * 4))  # type: ignore[return-value]
        case ReplayLog():
            return Replayed(TIP, LogPosition(7, 3))
        case CreateLedger(previous_ledger_id=previous):
            return LedgerCreated(previous + 1, 0)
        case BeginLeadership():
            return BatchComposed(BATCH)
        case AppendEntry():
            return rng.choice((AddFailed(), *[EntryConfirmed(protocol.acked + 1)] * 3))  # type: ignore[return-value]
        case CloseOwnLedger(ledger_id=ledger_id):
            ends = [LedgerEndLearned(protocol.acked + i, 9) for i in range(1 + (protocol.batch is not None))]
            return rng.choice((LedgerGone(ledger_id), *ends * 5))  # type: ignore[return-value]
    return None


@pytest.mark.parametrize("seed", range(200))
def test_any_outcome_of_any_effect_keeps_the_invariants(seed: int) -> None:
    """Safety of the table: whatever the world answers, every event is legal and `validate` holds."""
    rng = random.Random(seed)
    protocol = LeaderProtocol(ME, "log", TIP, None)
    effects = protocol.handle(ElectionWon())
    for _ in range(200):
        protocol.validate()
        if protocol.phase is Phase.FOLLOW:
            return
        events = [event for effect in effects if (event := _answer_of(effect, rng, protocol))]
        assert len(events) <= 1, "one effect is under way at a time"
        if not events:
            assert protocol.phase is Phase.LEAD
            events = [rng.choice((BatchComposed(BATCH), BatchComposed(BATCH), RollDue(), *_chores(protocol)))]
        effects = protocol.handle(rng.choice((*events * 50, Resigned("lost"))))
