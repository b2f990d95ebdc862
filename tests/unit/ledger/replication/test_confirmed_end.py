"""The end of what is confirmed in an open ledger, by what bookies tell of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.core.bookie_entry_list import pack_entry_ids
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig, write_set
from ledger.replication.core.confirmed_end import confirmed_end
from ledger.replication.core.held_entries import HeldEntries, unpack_held_entries

_BOOKIES = ("a", "b", "c", "d", "e")


def ledger(size: int, write_quorum: int, ack_quorum: int, first: int = 0) -> LedgerMetadata:
    segments = (
        (Segment(0, _BOOKIES[:size]), Segment(first, _BOOKIES[:size])) if first else (Segment(0, _BOOKIES[:size]),)
    )
    return LedgerMetadata(
        QuorumConfig(size, write_quorum, ack_quorum), LedgerState.OPEN, segments, DigestType.CRC32C, b"", -1
    )


def held(*ids: int) -> HeldEntries:
    return unpack_held_entries(pack_entry_ids(ids))


def test_what_an_ack_quorum_holds_is_confirmed_and_what_fewer_hold_is_not() -> None:
    holdings = {"a": held(*range(10)), "b": held(*range(8)), "c": held(0, 1)}
    assert confirmed_end(ledger(3, 3, 2), [], holdings) == 7
    assert confirmed_end(ledger(3, 3, 3), [], holdings) == 1


def test_the_writers_word_counts_for_entries_whose_copies_are_lost() -> None:
    holdings = {"a": held(*range(10)), "b": held(0, 1), "c": held(0, 1)}
    assert confirmed_end(ledger(3, 3, 2), [1, 6, 4], holdings) == 6
    assert confirmed_end(ledger(3, 3, 2), [6], {**holdings, "b": held(*range(7, 9))}) == 8


def test_what_lies_behind_an_entry_that_nobody_confirmed_is_not_confirmed() -> None:
    whole = held(0, 1, 2, 4, 5)
    assert confirmed_end(ledger(3, 3, 2), [], {"a": whole, "b": whole, "c": held(*range(6))}) == 2


def test_who_does_not_tell_holds_nothing_and_earlier_segments_are_not_asked_for() -> None:
    assert confirmed_end(ledger(3, 3, 2), [], {"a": held(0, 1)}) == -1
    assert confirmed_end(ledger(3, 3, 2, first=7), [], {}) == 6
    assert confirmed_end(ledger(3, 3, 2, first=7), [], {"a": held(7, 8), "c": held(7)}) == 7


@given(st.data())
def test_it_is_the_last_entry_up_to_which_each_is_told_or_held_by_an_ack_quorum(data) -> None:
    size = data.draw(st.integers(1, 5))
    write_quorum = data.draw(st.integers(1, size))
    metadata = ledger(size, write_quorum, data.draw(st.integers(1, write_quorum)), data.draw(st.integers(0, 4)))
    quorum, segment = metadata.quorum, metadata.segments[-1]
    ids = {b: data.draw(st.sets(st.integers(0, 30))) for b in segment.bookies if data.draw(st.booleans())}
    lost = data.draw(st.sets(st.tuples(st.sampled_from(segment.bookies), st.integers(0, 30)), max_size=4))
    for bookie_id in ids:  # Mostly whole, with holes: else nothing is ever confirmed.
        if data.draw(st.booleans()):
            ids[bookie_id] = {one for one in range(25) if (bookie_id, one) not in lost}
    lacs = data.draw(st.lists(st.integers(-1, 20), max_size=3))
    expected = max([segment.first_entry_id - 1, *lacs])
    while (
        sum(expected + 1 in ids.get(segment.bookies[p], ()) for p in write_set(expected + 1, quorum))
        >= quorum.ack_quorum
    ):
        expected += 1
    holdings = {bookie_id: held(*sorted(each)) for bookie_id, each in ids.items()}
    assert confirmed_end(metadata, lacs, holdings) == expected


def test_a_claim_without_end_costs_a_bounded_look() -> None:
    """One bookie, whose word is the ack quorum, claims entries for all time."""
    claims = HeldEntries(((0, 1 << 60, 1, 2), (1, (1 << 60) + 1, 1, 2)))
    assert confirmed_end(ledger(1, 1, 1), [], {"a": claims}) < 1 << 20
