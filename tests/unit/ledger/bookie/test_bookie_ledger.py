"""Decisions about one ledger on a bookie: illegal input changes nothing, and nothing ever goes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.storage.bookie_ledger import NO_LIMBO, BookieLedger, missing_entry_status, missing_ledger_status
from ledger.wire.codes import Status

KEY, OTHER = b"k" * 20, b"o" * 20


def test_the_first_key_is_the_only_key() -> None:
    ledger = BookieLedger(1, KEY)
    assert ledger.refuse_add(OTHER, is_recovery=True) == Status.EUA
    assert ledger.refuse_fence(OTHER) == ledger.refuse_fence(None) == Status.EUA
    assert ledger.refuse_add(KEY, is_recovery=False) is None


def test_a_ledger_whose_key_was_lost_to_damage_is_recovered_with_any_key() -> None:
    ledger = BookieLedger(1, b"", is_fenced=True)
    assert ledger.refuse_fence(KEY) is None
    assert ledger.refuse_fence(None) == Status.EUA
    assert ledger.refuse_add(KEY, is_recovery=True) is None
    assert ledger.refuse_add(KEY, is_recovery=False) == Status.EFENCED


def test_a_fence_stays_and_is_news_once() -> None:
    ledger = BookieLedger(1, KEY)
    assert [ledger.take_fence(), ledger.take_fence()] == [True, False]
    assert not ledger.is_fence_durable
    assert ledger.refuse_add(KEY, is_recovery=False) == Status.EFENCED
    assert ledger.refuse_add(KEY, is_recovery=True) is None


def test_a_deleted_ledger_takes_nothing() -> None:
    assert BookieLedger(1, KEY, is_deleted=True).refuse_add(KEY, is_recovery=True) == Status.EFENCED


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(-1, 50))))
def test_lac_and_explicit_lac_never_go_back(events) -> None:
    ledger = BookieLedger(1, KEY)
    for is_explicit, entry_id, lac in events:
        before = ledger.last_add_confirmed, ledger.explicit_lac_id, ledger.last_entry_id
        if is_explicit:
            moved = ledger.take_explicit_lac(lac, b"%d" % lac)
            assert moved == (lac > before[1])
        else:
            moved = ledger.take_add(entry_id, lac)
            assert moved == (lac > before[0])
        after = ledger.last_add_confirmed, ledger.explicit_lac_id, ledger.last_entry_id
        assert all(now >= then for now, then in zip(after, before, strict=True))
        ledger.validate()


def test_limbo_turns_absent_into_unknown_for_old_ledgers_only() -> None:
    assert missing_ledger_status(5, NO_LIMBO) == Status.ENOLEDGER
    assert missing_entry_status(5, NO_LIMBO) == Status.ENOENTRY
    assert missing_ledger_status(5, 5) == missing_entry_status(5, 5) == Status.EUNKNOWNLEDGERSTATE
    assert missing_ledger_status(6, 5) == Status.ENOLEDGER
