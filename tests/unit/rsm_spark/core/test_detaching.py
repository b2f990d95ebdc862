"""Copies take the places of shared ledgers: what the chain says of them stays, and every position is found again."""

from __future__ import annotations

import msgspec

from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain, decode_chain, encode_chain
from rsm_spark.core.detaching import LedgerCopy, shared_ledgers, with_copies
from rsm_spark.core.orphans import copy_metadata, is_orphan

_ORIGIN, _LOG_ID = "cd" * 16, "ab" * 16


def _ledger(ledger_id: int, log_id: str = _ORIGIN, copy_of: tuple[int, ...] = ()) -> ChainLedger:
    end = ClosedEnd(3, ledger_id * 10, 1000, 99, "01")
    return ChainLedger(ledger_id, 5, 3, ledger_id * 10 - 9, end, log_id=log_id, copy_of=copy_of)


def test_only_what_is_shared_and_copied_is_replaced_and_what_lay_there_before_is_still_found() -> None:
    chain = LogChain(_LOG_ID, 1, ledgers=(_ledger(1, copy_of=(90,)), _ledger(2), _ledger(3, "")), deleting=(77,))
    assert [one.ledger_id for one in shared_ledgers(chain)] == [1, 2]
    one = with_copies(chain, [LedgerCopy(1, 11, 7, 98), LedgerCopy(3, 13, 7, 98), LedgerCopy(8, 18, 7, 98)])
    assert [ledger.ledger_id for ledger in one.ledgers] == [11, 2, 3]
    assert (one.first_ledger_id, one.deleting) == (11, (77, 1))
    assert one.moved == {90: 11, 1: 11}
    assert [one.has(ledger_id) for ledger_id in (1, 11, 90, 2, 8, 18)] == [True, True, True, True, False, False]
    assert [one.ledger_id for one in shared_ledgers(one)] == [2]
    assert decode_chain(encode_chain(one), log_name="log") == one
    assert with_copies(one, [LedgerCopy(1, 11, 7, 98)]) is one


def test_a_ledger_that_was_not_moved_has_the_bytes_of_before() -> None:
    assert b"copy_of" not in encode_chain(LogChain(_LOG_ID, 1, ledgers=(_ledger(1),)))


def test_no_leader_takes_a_copy_for_an_orphan() -> None:
    custom = copy_metadata("orders", _LOG_ID, "k1")
    assert custom == {"rsm_log": b"orders", "rsm_log_id": _LOG_ID.encode(), "rsm_key_id": b"k1"}
    assert not is_orphan(11, custom, msgspec.structs.replace(LogChain(_LOG_ID, 1), leader_epoch=9), 9)
