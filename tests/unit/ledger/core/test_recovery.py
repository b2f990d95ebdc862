"""Recovery finds at least what was acknowledged, never cuts short on "unknown", and closes once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.core.entry import Entry, Miss, MissKind
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig, write_set
from ledger.core.recovery import (
    READ_AHEAD_ENTRIES,
    CloseLedger,
    FailRecovery,
    FenceRead,
    Recovery,
    WriteBack,
)
from ledger.errors import QuorumLostError, WrongPasswordError
from tests.sets import examples
from tests.unit.ledger.core.recovery_bookies import ABSENT, DENIED, E3, UNKNOWN, Bookies, entry, metadata_of, recover


def test_an_empty_ledger_closes_at_none() -> None:
    assert recover(Bookies(), E3) == CloseLedger(-1, 0, E3.segments)


def test_a_burst_without_any_lac_is_found_and_written_back() -> None:
    bookies = Bookies()
    bookies.held = {"a": {i: entry(i) for i in range(200)}, "b": {i: entry(i) for i in range(200)}}
    assert recover(bookies, E3) == CloseLedger(199, 2000, E3.segments)
    for entry_id in range(200):
        assert sum(entry_id in bookies.held.get(name, {}) for name in "abc") >= 2


def test_at_most_a_window_of_entries_is_in_hand() -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    effects = recovery.on_answers([(name, -1, ABSENT) for name in "ab"])
    reads = [effect.entry_id for effect in effects if isinstance(effect, FenceRead)]
    assert max(reads) == READ_AHEAD_ENTRIES - 1


def test_every_recovery_read_fences() -> None:
    """The effect has no other form: a lost fence message alone lets the old writer reach a quorum later."""
    bookies = Bookies()
    bookies.held = {"a": {0: entry(0)}, "b": {0: entry(0)}}
    recover(bookies, E3)
    assert bookies.fenced >= {"a", "b"}


def test_the_length_comes_from_the_last_confirmed_entry_when_nothing_is_found_above_it() -> None:
    bookies = Bookies()
    bookies.held = {"a": {4: entry(4, 3), 5: entry(5, 5)}, "b": {5: entry(5, 4)}}  # an odd LAC, to start above all
    assert recover(bookies, E3) == CloseLedger(5, 60, E3.segments)


def test_entries_that_one_replica_has_shown_are_read_there_first_and_elsewhere_when_it_has_them_not() -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    effects = recovery.on_answers([("a", -1, entry(2)), ("b", -1, ABSENT)])
    assert effects[:3] == [FenceRead("a", 0), FenceRead("a", 1), FenceRead("a", 2)]
    assert effects[3:6] == [FenceRead("a", 3), FenceRead("b", 3), FenceRead("c", 3)]
    assert recovery.on_answers([("a", 1, UNKNOWN)]) == [FenceRead("b", 1), FenceRead("c", 1)]


def test_a_replica_that_falls_silent_is_not_waited_for() -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    recovery.on_answers([("a", -1, entry(1)), ("b", -1, ABSENT)])
    assert recovery.on_silence() == []  # it has only just been asked
    assert recovery.on_silence() == [FenceRead(name, entry_id) for entry_id in (0, 1) for name in "bc"]
    assert recovery.on_silence() == []


def test_recovery_reads_little_beyond_what_bookies_have_shown() -> None:
    bookies = Bookies()
    bookies.held = {name: {i: entry(i) for i in range(1000)} for name in "ab"}
    recovery = Recovery(1, E3)
    effects = recovery.start()
    highest = 0
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, FenceRead):
            highest = max(highest, effect.entry_id)
        if not isinstance(effect, CloseLedger):
            effects += bookies.carry_out(recovery, effect)
    assert highest <= 1000 + READ_AHEAD_ENTRIES


def test_entries_with_one_payload_and_different_lacs_are_one_entry() -> None:
    """Another recovery has written some of them back, under the LAC that it began with."""
    bookies = Bookies()
    bookies.held = {name: {i: entry(i, lac) for i in range(5)} for name, lac in (("a", -1), ("b", 1), ("c", 0))}
    assert recover(bookies, E3) == CloseLedger(4, 50, E3.segments)


def test_recovery_adds_carry_the_lac_that_it_started_from() -> None:
    bookies = Bookies()
    bookies.held = {name: {i: entry(i, i - 2) for i in range(9)} for name in "ab"}
    recovery = Recovery(1, E3)
    effects = recovery.start()
    lacs = set()
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, WriteBack):
            lacs.add(effect.last_add_confirmed)
        if not isinstance(effect, CloseLedger):
            effects += bookies.carry_out(recovery, effect)
    assert lacs == {6}


def test_recovery_starts_no_lower_than_the_last_segment() -> None:
    quorum = QuorumConfig(3, 3, 2)
    metadata = metadata_of(quorum, Segment(0, ("a", "b", "c")), Segment(5, ("a", "d", "e")))
    bookies = Bookies()
    bookies.held = {"b": {4: entry(4, 3)}}
    outcome = recover(bookies, metadata)
    assert outcome == CloseLedger(4, 50, metadata.segments)  # the newest ensemble is empty: nothing moves below it


def test_fencing_needs_all_but_less_than_an_ack_quorum() -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    assert recovery.on_answers([("a", -1, ABSENT)]) == []
    assert any(isinstance(e, FenceRead) for e in recovery.on_answers([("c", -1, ABSENT)]))


def test_too_few_fenced_fails_and_cuts_nothing() -> None:
    bookies = Bookies()
    bookies.unknown = {"a", "b"}
    outcome = recover(bookies, E3)
    assert isinstance(outcome, FailRecovery)
    assert isinstance(outcome.error, QuorumLostError)
    assert "a: timeout" in str(outcome.error)


def test_an_unknown_entry_blocks_and_does_not_truncate() -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    recovery.on_answers([("a", -1, ABSENT), ("b", -1, ABSENT)])
    assert recovery.on_answers([("a", 0, ABSENT), ("b", 0, UNKNOWN)]) == []
    (effect,) = recovery.on_answers([("c", 0, Miss(MissKind.CORRUPT, "digest"))])
    assert isinstance(effect, FailRecovery)
    assert "entry 0" in str(effect.error)


def test_two_definite_noes_of_three_end_the_ledger() -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    recovery.on_answers([("a", -1, ABSENT), ("b", -1, ABSENT)])
    assert recovery.on_answers([("a", 0, ABSENT), ("c", 0, ABSENT)]) == [CloseLedger(-1, 0, E3.segments)]


def test_a_password_that_all_refuse_ends_it_and_is_named() -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    assert recovery.on_answers([("a", -1, DENIED)]) == []
    (effect,) = recovery.on_answers([("b", -1, DENIED)])  # c alone cannot fence
    assert isinstance(effect, FailRecovery)
    assert isinstance(effect.error, WrongPasswordError)
    assert "a, b refuse" in str(effect.error)


def test_one_refused_password_does_not_stop_a_recovery_that_the_others_can_finish() -> None:
    bookies = Bookies()
    bookies.held = {"b": {0: entry(0)}, "c": {0: entry(0)}}
    bookies.denied = {"a"}
    assert recover(bookies, E3) == CloseLedger(0, 10, E3.segments)


def test_a_refused_password_is_no_word_about_an_entry() -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    recovery.on_answers([("a", -1, ABSENT), ("b", -1, ABSENT)])
    assert recovery.on_answers([("a", 0, ABSENT), ("b", 0, DENIED)]) == []
    (effect,) = recovery.on_answers([("c", 0, UNKNOWN)])
    assert isinstance(effect, FailRecovery)
    assert isinstance(effect.error, QuorumLostError)


def test_fencing_fails_as_soon_as_the_rest_cannot_save_it() -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    assert recovery.on_answers([("a", -1, UNKNOWN)]) == []
    (effect,) = recovery.on_answers([("b", -1, DENIED)])
    assert isinstance(effect, FailRecovery)
    assert isinstance(effect.error, QuorumLostError)  # a might come back


@st.composite
def crashes(draw: st.DrawFn) -> tuple[QuorumConfig, dict[str, dict[int, Entry]], int, str | None, int]:
    """A writer that died: what bookies hold, what was acknowledged, one bookie that may be gone, a seed."""
    size = draw(st.integers(1, 4))
    write_quorum = draw(st.integers(1, size))
    quorum = QuorumConfig(size, write_quorum, draw(st.integers(1, write_quorum)))
    names = "abcde"[:size]
    held: dict[str, dict[int, Entry]] = {name: {} for name in names}
    acked = -1
    for entry_id in range(draw(st.integers(0, 12))):
        copies = draw(st.sets(st.sampled_from(write_set(entry_id, quorum))))
        for position in sorted(copies):
            held[names[position]][entry_id] = entry(entry_id, draw(st.integers(-1, acked)))
        if acked == entry_id - 1 and len(copies) >= quorum.ack_quorum and draw(st.booleans()):
            acked = entry_id
    dead = draw(st.none() | st.sampled_from(names))
    return quorum, held, acked, dead, draw(st.integers(0, 2**32))


@settings(max_examples=examples(60), deadline=None)
@given(crashes())
def test_whatever_was_acknowledged_is_inside_the_end_and_on_an_ack_quorum(
    crash: tuple[QuorumConfig, dict[str, dict[int, Entry]], int, str | None, int],
) -> None:
    quorum, held, acked, dead, seed = crash
    bookies = Bookies("z")
    bookies.held = held
    if dead is not None:
        bookies.unknown = {dead}
    recovery = Recovery(1, metadata_of(quorum))
    outcome = bookies.run(recovery, random.Random(seed))
    if isinstance(outcome, FailRecovery):
        assert dead is not None or isinstance(outcome.error, QuorumLostError)
        return
    assert outcome.last_entry_id >= acked
    assert outcome.length == 10 * (outcome.last_entry_id + 1)
    firsts = [segment.first_entry_id for segment in outcome.segments]
    assert firsts == sorted(set(firsts))
    final = LedgerMetadata(
        quorum, LedgerState.CLOSED, outcome.segments, DigestType.CRC32C, b"", outcome.last_entry_id, outcome.length
    )
    for entry_id in range(outcome.last_entry_id + 1):
        ensemble = final.ensemble_at(entry_id)
        copies = [ensemble[p] for p in write_set(entry_id, quorum) if entry_id in bookies.held.get(ensemble[p], {})]
        assert copies
        if entry_id > max(e.last_add_confirmed for b in held.values() for e in b.values()):
            assert len(copies) >= quorum.ack_quorum


@settings(max_examples=examples(40), deadline=None)
@given(crashes(), st.integers(0, 2**32))
def test_a_second_recovery_finds_what_the_first_has_closed(
    crash: tuple[QuorumConfig, dict[str, dict[int, Entry]], int, str | None, int], seed: int
) -> None:
    """Without failures between them: the end of the first is an end that the second would find too, or more."""
    quorum, held, _, _, first_seed = crash
    bookies = Bookies()
    bookies.held = held
    first = bookies.run(Recovery(1, metadata_of(quorum)), random.Random(first_seed))
    second = bookies.run(Recovery(1, metadata_of(quorum)), random.Random(seed))
    assert isinstance(first, CloseLedger)
    assert isinstance(second, CloseLedger)
    assert second.last_entry_id >= first.last_entry_id


@pytest.mark.parametrize("late", ["a", "b"])
def test_nothing_follows_once_it_is_over(late: str) -> None:
    recovery = Recovery(1, E3)
    recovery.start()
    recovery.on_answers([("a", -1, ABSENT), ("b", -1, ABSENT)])
    recovery.on_answers([("a", 0, ABSENT), ("c", 0, ABSENT)])
    assert recovery.on_answers([(late, 0, entry(0))]) == []
    assert recovery.on_stored(late, [0]) == recovery.on_store_failed(late, "x") == []
