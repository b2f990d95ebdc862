"""A recovery goes on with other bookies where some do not take what it writes back, and publishes them at its end."""

from __future__ import annotations

import msgspec
import pytest

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig, write_set
from ledger.core.recovery import CloseLedger, FailRecovery, Recovery, ReplaceBookie, closed_metadata
from tests.unit.ledger.core.recovery_bookies import ABSENT, E2, E3, Bookies, entry, metadata_of, recover


def test_a_spare_that_is_dead_or_refuses_is_replaced_in_turn() -> None:
    bookies = Bookies("xyz")
    bookies.held = {"a": {0: entry(0)}}
    bookies.unknown = {"b", "x"}
    bookies.denied = {"y"}
    assert recover(bookies, E2) == CloseLedger(0, 10, (Segment(0, ("a", "z")),))


def test_several_dead_bookies_of_a_striped_ledger_are_replaced() -> None:
    quorum = QuorumConfig(5, 3, 2)
    bookies = Bookies("vwxyz")
    bookies.held = {name: {} for name in "abcde"}
    for i in range(6):
        for position in write_set(i, quorum):
            bookies.held["abcde"[position]][i] = entry(i)
    bookies.unwritable = {"a", "b", "d"}
    outcome = recover(bookies, metadata_of(quorum))
    assert isinstance(outcome, CloseLedger)
    assert (outcome.last_entry_id, outcome.length) == (5, 60)
    final = LedgerMetadata(quorum, LedgerState.CLOSED, outcome.segments, DigestType.CRC32C, b"", 5, 60)
    for i in range(6):
        ensemble = final.ensemble_at(i)
        copies = [ensemble[p] for p in write_set(i, quorum) if i in bookies.held.get(ensemble[p], {})]
        assert len(copies) >= quorum.ack_quorum


def test_the_close_keeps_what_replication_has_changed_below_the_last_segment() -> None:
    held = metadata_of(QuorumConfig(3, 3, 2), Segment(0, ("a", "b", "c")), Segment(5, ("a", "b", "c")))
    end = CloseLedger(6, 70, (*held.segments[:1], Segment(5, ("a", "b", "c")), Segment(6, ("a", "b", "z"))))
    current = msgspec.structs.replace(held, segments=(Segment(0, ("a", "b", "x")), held.segments[1]))
    closed = closed_metadata(held, current, end)
    assert closed is not None
    assert closed.segments == (current.segments[0], *end.segments[1:])
    assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, 6, 70)


@pytest.mark.parametrize(
    "change",
    [
        {"state": LedgerState.OPEN},
        {"state": LedgerState.CLOSED},
        {"segments": (Segment(0, ("a", "b", "x")),)},
        {"segments": (Segment(0, ("a", "b", "c")), Segment(3, ("a", "b", "x")))},
    ],
)
def test_a_recovery_begins_again_when_what_it_rests_on_has_changed(change: dict[str, object]) -> None:
    end = CloseLedger(0, 10, E3.segments)
    assert closed_metadata(E3, msgspec.structs.replace(E3, **change), end) is None


def test_a_spare_takes_the_place_of_a_dead_bookie_in_a_segment_from_the_first_entry_not_restored() -> None:
    bookies = Bookies("z")
    bookies.held = {"a": {i: entry(i, i - 1) for i in range(4)}}
    bookies.unknown = {"b"}
    assert recover(bookies, E2) == CloseLedger(3, 40, (Segment(0, ("a", "b")), Segment(3, ("a", "z"))))
    assert bookies.held["z"] == {3: entry(3, 2)}


def test_a_replacement_at_the_first_entry_replaces_the_segment() -> None:
    bookies = Bookies("z")
    bookies.held = {"a": {0: entry(0)}}
    bookies.unknown = {"b"}
    assert recover(bookies, E2) == CloseLedger(0, 10, (Segment(0, ("a", "z")),))


def test_no_spare_fails_and_names_what_was_seen() -> None:
    bookies = Bookies()
    bookies.held = {"a": {0: entry(0)}}
    bookies.unknown = {"b"}
    outcome = recover(bookies, E2)
    assert isinstance(outcome, FailRecovery)
    assert "b: timeout" in str(outcome.error)


def test_a_dead_bookie_stays_in_the_ensemble_while_the_quorum_holds() -> None:
    bookies = Bookies("z")
    bookies.held = {"a": {0: entry(0)}}
    bookies.unknown = {"c"}
    assert recover(bookies, E3) == CloseLedger(0, 10, E3.segments)


def test_answers_of_a_replaced_bookie_do_not_count() -> None:
    recovery = Recovery(1, E2)
    recovery.start()
    effects = recovery.on_answers([("a", -1, entry(0)), ("a", 0, entry(0)), ("b", 0, ABSENT)])
    effects += recovery.on_answers([("a", 0, entry(0))])
    (replace,) = [e for e in recovery.on_store_failed("b", "refused") if isinstance(e, ReplaceBookie)]
    recovery.on_replacement(replace.bookie_id, "z")
    recovery.on_stored("a", [0])
    assert recovery.on_stored("b", [0]) == []
    recovery.on_answers([("a", 1, ABSENT)])
    assert recovery.on_stored("z", [0]) == [CloseLedger(0, 10, (Segment(0, ("a", "z")),))]


def _with_one_silent() -> Recovery:
    """Return a recovery whose entry 0 bookie a has stored again, and b not."""
    recovery = Recovery(1, E2)
    recovery.start()
    recovery.on_answers([("a", -1, entry(0)), ("a", 0, entry(0)), ("b", 0, ABSENT)])
    recovery.on_answers([("a", 0, entry(0)), ("a", 1, ABSENT)])
    recovery.on_silence()
    recovery.on_stored("a", [0])
    return recovery


def test_a_bookie_that_owes_what_another_has_stored_is_replaced() -> None:
    recovery = _with_one_silent()
    (replace,) = recovery.on_silence()
    assert isinstance(replace, ReplaceBookie)
    assert replace.bookie_id == "b"
    assert recovery.is_silent("b")
    recovery.on_replacement("b", "z")
    assert recovery.on_stored("b", [0]) == []
    assert recovery.on_stored("z", [0]) == [CloseLedger(0, 10, (Segment(0, ("a", "z")),))]


def test_a_silent_bookie_is_awaited_where_there_is_no_spare_and_fails_the_recovery_when_it_failed() -> None:
    recovery = _with_one_silent()
    (replace,) = recovery.on_silence()
    assert isinstance(replace, ReplaceBookie)
    assert recovery.on_replacement("b", None) == []
    assert recovery.on_silence() == []
    assert recovery.on_stored("b", [0]) == [CloseLedger(0, 10, (Segment(0, ("a", "b")),))]
    recovery = _with_one_silent()
    recovery.on_silence()
    recovery.on_replacement("b", None)
    (again,) = recovery.on_store_failed("b", "no answer within 5 s")
    assert isinstance(again, ReplaceBookie)
    (failed,) = recovery.on_replacement("b", None)
    assert isinstance(failed, FailRecovery)


def test_nobody_is_silent_while_no_bookie_has_stored_the_entry() -> None:
    recovery = Recovery(1, E2)
    recovery.start()
    recovery.on_answers([("a", -1, entry(0)), ("a", 0, entry(0)), ("b", 0, ABSENT)])
    recovery.on_answers([("a", 0, entry(0)), ("a", 1, ABSENT)])
    for _ in range(5):
        assert recovery.on_silence() == []


def test_unwritable_but_readable_bookies_are_replaced_too() -> None:
    bookies = Bookies("yz")
    bookies.held = {"a": {0: entry(0)}, "b": {0: entry(0)}}
    bookies.unwritable = {"a", "b"}
    assert recover(bookies, E2) == CloseLedger(0, 10, (Segment(0, ("y", "z")),))
