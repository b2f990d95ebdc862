"""What a leader does with the chain beside ledgers: trims, raised formats, who may claim it, how long it may be."""

from __future__ import annotations

import msgspec
import pytest

from rsm_spark.core.admission import FormatLevelError, LedgerPasswordError
from rsm_spark.core.chain import (
    ChainTooLargeError,
    ClosedEnd,
    LogChain,
    QuarantinedEntry,
    decode_chain,
    encode_chain,
)
from rsm_spark.core.detaching import LedgerCopy
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import (
    BatchComposed,
    BeginLeadership,
    ChainRead,
    ChainWriteFailed,
    ChainWritten,
    DeleteLedgers,
    DetachDue,
    Effect,
    ElectionWon,
    EntryConfirmed,
    FormatRaiseDue,
    LedgerCreated,
    LedgerEndLearned,
    LedgersDeleted,
    ReadChain,
    Replayed,
    RollDue,
    StepDown,
    TrimDue,
    WriteChain,
)
from rsm_spark.core.leadership_table import Phase
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import ForkedLogError
from tests.unit.rsm_spark.core.leadership_paths import (
    BATCH,
    CHAIN,
    CHAINED,
    ME,
    OPEN_LEDGER,
    REPLAYED,
    STARTED,
    TIP,
    at,
)


def _written(effects: list[Effect]) -> LogChain:
    (write,) = effects
    assert isinstance(write, WriteChain)
    return decode_chain(write.value, log_name="log")


def test_trim_takes_ledgers_out_of_the_chain_then_deletes_them_then_forgets_them() -> None:
    protocol = at(*STARTED)
    chain = _written(protocol.handle(TrimDue((7,))))
    assert ([ledger.ledger_id for ledger in chain.ledgers], chain.deleting) == ([8], (7,))
    assert chain.first_ledger_id == 7
    assert protocol.handle(ChainWritten(8)) == [DeleteLedgers((7,))]
    assert protocol.phase is Phase.LEAD
    chain = _written(protocol.handle(LedgersDeleted((7,))))
    assert chain.deleting == ()
    assert protocol.handle(ChainWritten(9)) == []
    assert protocol.leading


@pytest.mark.parametrize("ledger_ids", [(), (8,), (7, 8), (9,), (7, 7)])
def test_nothing_but_a_prefix_that_leaves_the_current_ledger_is_trimmed(ledger_ids: tuple[int, ...]) -> None:
    protocol = at(*STARTED)
    with pytest.raises(ValueError, match="no prefix"):
        protocol.handle(TrimDue(ledger_ids))
    assert protocol.phase is Phase.LEAD


def test_no_ledger_is_deleted_before_the_chain_write_is_known_to_have_arrived() -> None:
    protocol = at(*STARTED, TrimDue((7,)))
    assert protocol.handle(ChainWriteFailed()) == [ReadChain()]
    assert protocol._write is not None
    sent = protocol._write
    assert protocol.handle(ChainRead(b"as before", sent.held_version)) == [WriteChain(sent.value, sent.held_version)]
    protocol.handle(ChainWriteFailed())
    (step_down,) = protocol.handle(ChainRead(b"somebody else's", sent.held_version + 1))
    assert isinstance(step_down, StepDown)
    assert step_down.deposed


def test_take_over_goes_on_with_the_ledgers_that_the_leader_before_was_deleting() -> None:
    chain = msgspec.structs.replace(CHAIN, deleting=(3, 4))
    protocol = LeaderProtocol(ME, "log", TIP, None)
    for event in (ElectionWon(), ChainRead(encode_chain(chain), 5), *CHAINED[2:-1]):
        protocol.handle(event)
    assert protocol.handle(ChainWritten(7)) == [DeleteLedgers((3, 4)), BeginLeadership(4)]
    protocol.handle(BatchComposed(BATCH))
    protocol.handle(EntryConfirmed(0))
    assert _written(protocol.handle(LedgersDeleted((3, 4)))).deleting == ()


def test_ledgers_of_a_second_trim_are_deleted_once() -> None:
    protocol = at(*STARTED, RollDue(), LedgerEndLearned(0, 50), LedgerCreated(9, 7), ChainWritten(8))
    protocol.handle(TrimDue((7,)))
    assert protocol.handle(ChainWritten(9)) == [DeleteLedgers((7,))]
    assert _written(protocol.handle(TrimDue((8,)))).deleting == (7, 8)
    assert protocol.handle(ChainWritten(10)) == [DeleteLedgers((8,))]
    assert _written(protocol.handle(LedgersDeleted((7,)))).deleting == (8,)


def test_deletions_that_the_chain_does_not_name_write_nothing() -> None:
    protocol = at(*STARTED)
    assert protocol.handle(LedgersDeleted((99,))) == []
    assert protocol.phase is Phase.LEAD


def test_copies_take_the_places_of_shared_ledgers_which_are_let_go_of_once_that_is_known() -> None:
    shared = msgspec.structs.replace(OPEN_LEDGER, closed=ClosedEnd(3, 10, 1000, 99, "01"), log_id="cd" * 16)
    aside = QuarantinedEntry(7, 2, "", 1, 1, "", "")
    chain = msgspec.structs.replace(CHAIN, ledgers=(shared,), quarantined=(aside,))
    protocol = LeaderProtocol(ME, "log", TIP, None)
    begun = (ElectionWon(), ChainRead(encode_chain(chain), 5), ChainWritten(6), Replayed(TIP, LogPosition(7, 3)))
    for event in (*begun, LedgerCreated(8, 6), ChainWritten(7), BatchComposed(BATCH), EntryConfirmed(0)):
        protocol.handle(event)
    copies = (LedgerCopy(7, 20, 60, 98), LedgerCopy(6, 21, 60, 98), LedgerCopy(8, 22, 60, 98))
    detached = _written(protocol.handle(DetachDue(copies)))
    assert detached.ledgers[0] == msgspec.structs.replace(
        shared, ledger_id=20, created_ms=60, closed=ClosedEnd(3, 10, 1000, 98, "01"), log_id="", copy_of=(7,)
    )
    assert [ledger.ledger_id for ledger in detached.ledgers] == [20, 8]
    assert (detached.is_whole, detached.deleting, detached.moved) == (True, (7,), {7: 20})
    assert detached.quarantined[0].ledger_id == 20
    assert protocol.handle(ChainWriteFailed()) == [ReadChain()]
    assert protocol._write is not None
    assert protocol.handle(ChainRead(protocol._write.value, 8)) == [DeleteLedgers((7,))]
    assert protocol.handle(DetachDue(copies)) == []
    assert protocol.phase is Phase.LEAD


def test_format_level_rises_once_and_never_beyond_what_the_leader_knows() -> None:
    protocol = at(*STARTED)
    assert _written(protocol.handle(FormatRaiseDue(2))).format_level == 2
    assert protocol.handle(ChainWritten(8)) == []
    assert protocol.handle(FormatRaiseDue(2)) == []
    with pytest.raises(ValueError, match="knows up to 2"):
        protocol.handle(FormatRaiseDue(3))


def test_log_of_a_higher_format_level_is_not_claimed() -> None:
    protocol = LeaderProtocol(ME, "log", TIP, None, format_level=1)
    protocol.handle(ElectionWon())
    with pytest.raises(FormatLevelError, match="format level 2, this version knows up to 1"):
        protocol.handle(ChainRead(encode_chain(msgspec.structs.replace(CHAIN, format_level=2)), 5))


def test_a_claim_may_raise_the_format_level_and_never_lowers_it() -> None:
    for before, claimed, after in ((1, 2, 2), (3, 2, 3), (2, 1, 2)):
        protocol = LeaderProtocol(ME, "log", TIP, None, format_level=3, level_claimed=claimed)
        protocol.handle(ElectionWon())
        chain = msgspec.structs.replace(CHAIN, format_level=before)
        assert _written(protocol.handle(ChainRead(encode_chain(chain), 5))).format_level == after


def test_log_that_is_not_the_one_of_the_state_is_not_claimed() -> None:
    protocol = LeaderProtocol(ME, "log", TIP, None, log_id="cd" * 16)
    protocol.handle(ElectionWon())
    with pytest.raises(ForkedLogError, match=f"is of log {'cd' * 16}, the metadata store has log {CHAIN.log_id}"):
        protocol.handle(ChainRead(encode_chain(CHAIN), 5))
    assert protocol.epoch == 0


def test_claim_leaves_the_mark_of_the_password_and_a_leader_of_another_password_claims_nothing() -> None:
    protocol = LeaderProtocol(ME, "log", TIP, None, password_mark="scrypt:aa")
    protocol.handle(ElectionWon())
    claimed = _written(protocol.handle(ChainRead(encode_chain(CHAIN), 5)))
    assert claimed.password_mark == "scrypt:aa"
    other = LeaderProtocol(ME, "log", TIP, None, password_mark="none")
    other.handle(ElectionWon())
    with pytest.raises(LedgerPasswordError, match="this process was given none"):
        other.handle(ChainRead(encode_chain(claimed), 6))


def test_chain_that_the_metadata_store_would_not_take_is_not_written_but_may_shrink() -> None:
    protocol = LeaderProtocol(ME, "log", TIP, None, chain_bytes_max=400)
    for event in REPLAYED:
        protocol.handle(event)
    with pytest.raises(ChainTooLargeError, match="a chain of 2 ledgers has [56].. bytes, the metadata store takes 400"):
        protocol.handle(LedgerCreated(8, 6))
    roomy = at(*STARTED)
    roomy.chain_bytes_max = 10
    assert isinstance(roomy.handle(TrimDue((7,)))[0], WriteChain)
