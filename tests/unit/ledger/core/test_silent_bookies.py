"""Bookies that owe a writer's oldest entry: taken out where that helps, waited for where it does not."""

from __future__ import annotations

import pytest

from ledger.core.quorum import QuorumConfig
from ledger.core.writer import LedgerWriter
from ledger.core.writer_effects import ChangeEnsemble, ConfirmEntries, Effect, FailPending
from ledger.errors import QuorumLostError

E2 = QuorumConfig(2, 2, 2)
E3 = QuorumConfig(3, 3, 2)
STRIPED = QuorumConfig(3, 2, 2)


def writer_of(quorum: QuorumConfig, *, rolls: bool = False) -> LedgerWriter:
    writer = LedgerWriter(1, quorum, [f"b{i}" for i in range(quorum.ensemble_size)])
    writer.change_after_s = writer.silence_s = 1.0
    writer.rolls = rolls
    return writer


def look(writer: LedgerWriter, start: float, end: float, step: float = 0.25) -> list[Effect]:
    """Look from start to end; return the first effects."""
    now = start
    while now <= end:
        effects = writer.on_tick(now)
        if effects:
            return effects
        now += step
    return []


def test_a_bookie_that_owes_what_another_has_stored_is_replaced_after_a_while() -> None:
    writer = writer_of(E2)
    writer.append([1])
    writer.on_stored(0, [0])
    assert look(writer, 10.0, 10.75) == []
    assert look(writer, 11.0, 11.0) == [ChangeEnsemble()]
    assert list(writer.positions_to_change(11.0)) == [1]
    assert writer.is_silent(1)


def test_bookies_that_all_owe_are_waited_for() -> None:
    writer = writer_of(E2)
    writer.append([1])
    assert look(writer, 10.0, 20.0) == []


def test_a_bookie_that_the_ack_quorum_does_not_need_is_left_in_peace() -> None:
    writer = writer_of(E3)
    for number in range(80):
        writer.append([1])
        writer.on_stored(0, [number])
        writer.on_stored(1, [number])
        assert look(writer, 10 + number / 4, 10 + number / 4) == []


def test_a_bookie_that_answers_slowly_and_steadily_is_left_in_peace() -> None:
    writer = writer_of(E2)
    for number in range(20):
        writer.append([1])
        writer.on_stored(0, [number])
        assert look(writer, 10.0 + number, 10.75 + number) == []
        writer.on_stored(1, [number])


def test_a_writer_that_stood_still_does_not_suspect() -> None:
    writer = writer_of(E2)
    writer.append([1])
    writer.on_stored(0, [0])
    assert look(writer, 10.0, 10.75) == []
    assert writer.on_tick(30.0) == []
    assert look(writer, 30.25, 30.75) == []
    assert look(writer, 31.0, 31.0) == [ChangeEnsemble()]


def test_an_answer_that_comes_before_the_spare_ends_the_change() -> None:
    writer = writer_of(E2)
    writer.append([1])
    writer.on_stored(0, [0])
    assert look(writer, 10.0, 12.0) == [ChangeEnsemble()]
    assert writer.on_stored(1, [0]) == [ConfirmEntries(0)]
    assert writer.positions_to_change(12.0) == {}
    assert writer.on_change_dropped() == []


@pytest.mark.parametrize(("quorum", "rolls", "ends"), [
    (STRIPED, True, True),
    (STRIPED, False, False),  # Its caller does not go on in another ledger.
    (E2, True, False),  # One bookie makes no ledger.
])  # fmt: skip
def test_without_a_spare_a_ledger_ends_if_a_next_one_can_be_made(quorum: QuorumConfig, rolls: bool, ends: bool) -> None:
    writer = writer_of(quorum, rolls=rolls)
    writer.append([1])
    writer.on_stored(0, [0])
    assert look(writer, 10.0, 12.0) == [ChangeEnsemble()]
    effects = writer.on_no_spare("all others are in the ensemble", 12.0)
    if ends:
        (failed,) = effects
        assert isinstance(failed, FailPending)
        assert isinstance(failed.error, QuorumLostError)
        assert "b1: has not stored entry 0 for 1 s, while others have" in str(failed.error)
        return
    assert effects == []
    writer.validate()
    assert look(writer, 12.25, 16.75) == []  # It looks for a spare now and then.
    assert look(writer, 17.0, 17.5) == [ChangeEnsemble()]
    writer.on_no_spare("none", 17.5)
    assert writer.on_stored(1, [0]) == [ConfirmEntries(0)]


def test_a_silent_bookie_whose_connection_breaks_is_one_that_failed() -> None:
    writer = writer_of(E2)
    writer.append([1])
    writer.on_stored(0, [0])
    look(writer, 10.0, 12.0)
    writer.on_no_spare("none", 12.0)
    assert writer.on_position_failed(1, "gone", 13.0) == [ChangeEnsemble()]
    (failed,) = writer.on_no_spare("none", 13.0)
    assert isinstance(failed, FailPending)
