"""Entries are confirmed in order, at the ack quorum, and never after a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.quorum import QuorumConfig, write_set
from ledger.core.writer import LedgerWriter
from ledger.core.writer_effects import ConfirmEntries, FailPending, ResendEntries, SendEntries
from ledger.errors import FencedError, LedgerClosedError, QuorumLostError

E3 = QuorumConfig(3, 3, 2)


def writer_of(quorum: QuorumConfig = E3) -> LedgerWriter:
    return LedgerWriter(7, quorum, [f"b{i}:1" for i in range(quorum.ensemble_size)])


def test_a_batch_gets_consecutive_ids_the_lac_and_cumulative_lengths() -> None:
    writer = writer_of()
    assert writer.append([10, 0, 5]) == [SendEntries(0, -1, [10, 10, 15])]
    writer.on_stored(0, [0, 1])
    assert writer.on_stored(1, [0, 1]) == [ConfirmEntries(1)]
    assert writer.append([1]) == [SendEntries(3, 1, [16])]
    assert (writer.last_add_confirmed, writer.last_add_pushed, writer.confirmed_length) == (1, 3, 10)


def test_an_entry_waits_for_those_before_it() -> None:
    writer = writer_of()
    writer.append([1, 1])
    assert writer.on_stored(0, [1]) == []
    assert writer.on_stored(1, [1]) == []
    assert writer.on_stored(0, [0]) == []
    assert writer.on_stored(1, [0]) == [ConfirmEntries(1)]


def test_the_same_bookie_twice_is_one() -> None:
    writer = writer_of()
    writer.append([1])
    assert writer.on_stored(0, [0]) + writer.on_stored(0, [0]) == []


def test_a_fenced_writer_confirms_nothing_more() -> None:
    writer = writer_of()
    writer.append([1, 1])
    writer.on_stored(0, [0, 1])
    fence = FencedError("fenced")
    assert writer.freeze(fence) == [FailPending(fence)]
    assert writer.on_stored(1, [0, 1]) == []
    assert writer.last_add_confirmed == -1
    assert writer.freeze(FencedError("again")) == []
    assert writer.on_position_failed(0, "x") == writer.on_position_restored(0) == []
    with pytest.raises(FencedError, match="fenced"):
        writer.append([1])


def test_a_dead_bookie_is_tried_again_while_the_quorum_holds() -> None:
    writer = writer_of()
    writer.append([1, 1, 1])
    writer.on_stored(1, [0, 1])
    assert writer.on_position_failed(2, "refused") == []
    assert writer.on_stored(0, [0]) == [ConfirmEntries(0)]
    assert writer.on_position_restored(2) == [ResendEntries(2, [0, 1, 2])]  # entry 0 was confirmed without it


def test_a_lost_quorum_names_the_bookies_and_what_they_said() -> None:
    writer = writer_of()
    writer.append([1])
    writer.on_position_failed(2, "connection refused")
    (effect,) = writer.on_position_failed(0, "EIO")
    assert isinstance(effect, FailPending)
    assert isinstance(effect.error, QuorumLostError)
    for part in ("ledger 7", "b0:1: EIO", "b1:1: no failure seen", "b2:1: connection refused"):
        assert part in str(effect.error)


def test_a_quorum_lost_while_idle_fails_the_next_append_only() -> None:
    writer = writer_of()
    assert writer.on_position_failed(0, "x") + writer.on_position_failed(1, "y") == []
    assert writer.on_position_restored(0) == []
    assert writer.on_position_failed(0, "x") == []
    effects = writer.append([1])
    assert isinstance(effects[0], SendEntries)
    assert isinstance(effects[1], FailPending)


def test_a_time_out_freezes_with_the_entry_that_waited() -> None:
    writer = writer_of()
    writer.append([1])
    (effect,) = writer.time_out(20)
    assert isinstance(effect, FailPending)
    assert "entry 0" in str(effect.error)


def test_closing_fails_what_is_pending() -> None:
    writer = writer_of()
    writer.append([1])
    (effect,) = writer.close()
    assert isinstance(effect, FailPending)
    assert isinstance(effect.error, LedgerClosedError)


@st.composite
def quorums(draw: st.DrawFn) -> QuorumConfig:
    ensemble_size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, ensemble_size))
    return QuorumConfig(ensemble_size, write_quorum, draw(st.integers(1, write_quorum)))


@given(quorums(), st.integers(0, 8), st.data())
def test_acks_come_in_order_whatever_the_answer_order(quorum: QuorumConfig, count: int, data: st.DataObject) -> None:
    """Safety: none before its predecessors and its ack quorum. Liveness: all once all have answered."""
    writer = writer_of(quorum)
    if count:
        writer.append([1] * count)
    answers = [(p, e) for e in range(count) for p in write_set(e, quorum)]
    stored: dict[int, set[int]] = {e: set() for e in range(count)}
    confirmed = -1
    for position, entry_id in data.draw(st.permutations(answers)):
        stored[entry_id].add(position)
        for effect in writer.on_stored(position, [entry_id]):
            assert isinstance(effect, ConfirmEntries)
            assert effect.last_entry_id > confirmed
            confirmed = effect.last_entry_id
        assert all(len(stored[e]) >= quorum.ack_quorum for e in range(confirmed + 1))
        writer.validate()
    assert confirmed == count - 1


@given(quorums(), st.data())
def test_a_writer_that_is_not_frozen_can_always_finish(quorum: QuorumConfig, data: st.DataObject) -> None:
    """Failures and restorations in any order: either it is frozen, or the living bookies suffice."""
    writer = writer_of(quorum)
    writer.append([1] * 4)
    positions = st.integers(0, quorum.ensemble_size - 1)
    failed: set[int] = set()
    for is_failure, position in data.draw(st.lists(st.tuples(st.booleans(), positions), max_size=12)):
        if is_failure:
            writer.on_position_failed(position, "x")
            failed.add(position)
        else:
            writer.on_position_restored(position)
            failed.discard(position)
        writer.validate()
    for entry_id in range(4):
        for position in write_set(entry_id, quorum):
            if position not in failed:
                writer.on_stored(position, [entry_id])
    assert writer.failure is not None or writer.last_add_confirmed == 3
