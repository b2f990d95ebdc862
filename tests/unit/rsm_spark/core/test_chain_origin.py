"""A log that goes on from another one: whose id an entry bears, and where the history begins."""

from __future__ import annotations

import pytest

from rsm_spark.core.chain import Ancestry, ChainLedger, LogChain, LogOrigin, decode_chain, encode_chain
from rsm_spark.core.envelope import Envelope, encode_envelope, entry_hash, root_hash
from rsm_spark.core.state import ReplicatedState
from rsm_spark.errors import ForkedLogError
from rsm_spark.testing.counter_map import CounterMap

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))


def _origin(log_id: bytes, revision: int) -> LogOrigin:
    return LogOrigin("orders", log_id.hex(), revision, "00" * 32, 5, "ops", "a backup")


def test_an_entry_bears_the_id_of_the_log_that_wrote_it() -> None:
    chain = LogChain(C.hex(), origins=(_origin(A, 10), _origin(B, 15)))
    ancestry = chain.ancestry
    assert [ancestry.at(revision) for revision in (1, 10, 11, 15, 16, 99)] == [A, A, B, B, C, C]
    assert ancestry.root == A
    assert Ancestry(C).root == C
    assert decode_chain(encode_chain(chain), log_name="log") == chain


def test_a_chain_from_before_origins_is_read() -> None:
    chain = decode_chain(b'{"log_id":"%s","base":null,"ledgers":[]}' % C.hex().encode(), log_name="log")
    assert chain.origins == ()
    assert chain.is_whole


def test_a_log_is_whole_while_it_begins_with_its_first_ledger() -> None:
    ledgers = (ChainLedger(7, 0, 1, 1),)
    assert LogChain(C.hex(), 7, ledgers=ledgers, origins=(_origin(A, 10),)).is_whole
    assert not LogChain(C.hex(), 6, ledgers=ledgers).is_whole


def _empty_entry(log_id: bytes, before: bytes, revision: int) -> bytes:
    return encode_envelope(Envelope(log_id, 1, revision, revision - 1, 0, 0, before), b"\x90")


def test_a_state_takes_the_entries_of_its_origin_and_then_its_own_and_no_other_ones() -> None:
    state = ReplicatedState(CounterMap(), C, ((3, A),))
    assert state.prefix_hash == root_hash(A)
    first = _empty_entry(A, root_hash(A), 1)
    state.apply_entry(first)
    with pytest.raises(ForkedLogError, match="is of log 0303"):
        state.apply_entry(_empty_entry(C, entry_hash(first), 1))
    state.revision = 3
    with pytest.raises(ForkedLogError, match="is of log 0101"):
        state.apply_entry(_empty_entry(A, entry_hash(first), 4))
    state.apply_entry(_empty_entry(C, entry_hash(first), 4))
