"""Leadership with many entries in flight: a prefix is confirmed, the rest goes on as it was or is dropped."""

from __future__ import annotations

import msgspec
import pytest

from rsm_spark.core.batching import Batch
from rsm_spark.core.leadership_events import (
    AddFailed,
    AnswerBatch,
    AppendEntry,
    BatchComposed,
    ChainRead,
    ChainWritten,
    CloseOwnLedger,
    DropBatch,
    Effect,
    EntryConfirmed,
    Event,
    Halt,
    LedgerCreated,
    LedgerEndLearned,
    Resigned,
    RollDue,
    StepDown,
    TrimDue,
)
from rsm_spark.core.leadership_table import Phase
from rsm_spark.core.pipelined_leadership import PipelinedProtocol
from tests.unit.rsm_spark.core.leadership_paths import BATCH, ME, STARTED, TIP


def _batch(number: int) -> Batch:
    envelope = msgspec.structs.replace(BATCH.envelope, first_revision=11 + 2 * number)
    return msgspec.structs.replace(BATCH, payload=b"entry %d" % number, envelope=envelope)


def _at(*events: Event) -> PipelinedProtocol:
    protocol = PipelinedProtocol(ME, "log", TIP, None, format_level=2)
    for event in (*STARTED, *events):
        protocol.handle(event)
        protocol.validate()
    return protocol


def _sent(count: int) -> list[Event]:
    return [BatchComposed(_batch(number)) for number in range(1, count + 1)]


def _payloads(effects: list[Effect]) -> list[bytes]:
    return [effect.payload for effect in effects if isinstance(effect, AppendEntry)]


def _answered(effects: list[Effect]) -> list[bytes]:
    return [effect.batch.payload for effect in effects if isinstance(effect, AnswerBatch)]


def test_entries_are_sent_while_others_are_on_their_way_and_confirmed_in_order() -> None:
    protocol = _at(*_sent(2))
    assert _payloads(protocol.handle(BatchComposed(_batch(3)))) == [b"entry 3"]
    for number in (1, 2, 3):
        assert protocol.phase is Phase.SENT
        assert _answered(protocol.handle(EntryConfirmed(number))) == [b"entry %d" % number]
        protocol.validate()
    assert (protocol.phase, protocol.in_flight) == (Phase.LEAD, ())
    assert protocol.tip.revision == _batch(3).envelope.last_revision


@pytest.mark.parametrize("event", [RollDue(), TrimDue((7,))])
def test_the_chain_waits_until_nothing_is_in_flight(event: Event) -> None:
    protocol = _at(*_sent(2), EntryConfirmed(1))
    with pytest.raises(ValueError, match="not legal"):
        protocol.handle(event)
    assert len(protocol.in_flight) == 1


@pytest.mark.parametrize("end", [1, 2, 4])
def test_after_a_failed_add_the_end_of_the_ledger_says_what_is_confirmed_and_the_rest_is_sent_again(end: int) -> None:
    protocol = _at(*_sent(4), EntryConfirmed(1))
    (close,) = protocol.handle(AddFailed())
    assert isinstance(close, CloseOwnLedger)
    confirmed = [b"entry %d" % number for number in range(2, end + 1)]
    assert _answered(protocol.handle(LedgerEndLearned(end, 50))) == confirmed
    protocol.validate()
    protocol.handle(LedgerCreated(9, 7))
    left = [b"entry %d" % number for number in range(end + 1, 5)]
    assert _payloads(protocol.handle(ChainWritten(8))) == left
    assert protocol.phase is (Phase.SENT if left else Phase.LEAD)
    for entry_id in range(len(left)):
        protocol.handle(EntryConfirmed(entry_id))
    assert protocol.phase is Phase.LEAD


def test_who_is_deposed_before_the_rest_is_sent_again_says_that_it_is_certainly_not_in_the_log() -> None:
    protocol = _at(*_sent(3), AddFailed(), LedgerEndLearned(1, 50), LedgerCreated(9, 7))
    effects = protocol.handle(ChainRead(b"somebody else's", 8))
    dropped = [effect for effect in effects if isinstance(effect, DropBatch)]
    assert [(drop.batch.payload, drop.applied_never) for drop in dropped] == [(b"entry 2", True), (b"entry 3", True)]
    assert isinstance(effects[-1], StepDown)
    assert protocol.in_flight == ()


def test_who_resigns_while_entries_are_on_their_way_does_not_know_about_any_of_them() -> None:
    effects = _at(*_sent(2)).handle(Resigned("lost"))
    dropped = [effect for effect in effects if isinstance(effect, DropBatch)]
    assert [(drop.batch.payload, drop.applied_never) for drop in dropped] == [(b"entry 1", False), (b"entry 2", False)]


@pytest.mark.parametrize("end", [0, 4])
def test_a_ledger_that_ends_where_this_writer_never_was_is_damage(end: int) -> None:
    protocol = _at(*_sent(3), EntryConfirmed(1), AddFailed())
    effects = protocol.handle(LedgerEndLearned(end, 50))
    assert isinstance(effects[-1], Halt)
    assert protocol.phase is Phase.FOLLOW
