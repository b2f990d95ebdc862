"""Fragments follow the segments; a share is what the round robin of write sets gives one position."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig, write_set
from ledger.replication.core.fragments import Fragment, fragments_of, share_of

A, B = ("a:1", "b:1", "c:1"), ("a:1", "d:1", "c:1")


def metadata(*segments: tuple[int, tuple[str, ...]], state=LedgerState.OPEN, last: int = -1) -> LedgerMetadata:
    return LedgerMetadata(
        QuorumConfig(3, 3, 2),
        state,
        tuple(Segment(first, bookies) for first, bookies in segments),
        DigestType.CRC32C,
        b"",
        last_entry_id=last,
    )


def test_the_last_segment_of_an_open_ledger_is_not_settled() -> None:
    assert fragments_of(metadata((0, A), (5, B))) == [Fragment(0, 4, A, True), Fragment(5, 4, B, False)]


def test_a_closed_ledger_ends_at_its_last_entry() -> None:
    found = fragments_of(metadata((0, A), (5, B), state=LedgerState.CLOSED, last=9))
    assert found == [Fragment(0, 4, A, True), Fragment(5, 9, B, True)]


def test_a_closed_ledger_may_have_an_empty_last_segment() -> None:
    found = fragments_of(metadata((0, A), (5, B), state=LedgerState.CLOSED, last=4))
    assert found[-1] == Fragment(5, 4, B, True)
    assert share_of(found[-1], 0, QuorumConfig(3, 3, 2)).ends() == []


def test_an_empty_closed_ledger_has_no_entry_in_any_share() -> None:
    (found,) = fragments_of(metadata((0, A), state=LedgerState.CLOSED))
    assert list(share_of(found, 1, QuorumConfig(3, 3, 2)).between(0, 100)) == []


@given(st.data())
def test_a_share_is_every_entry_whose_write_set_has_the_position(data) -> None:
    size = data.draw(st.integers(1, 6))
    quorum = QuorumConfig(size, data.draw(st.integers(1, size)), 1)
    first = data.draw(st.integers(0, 20))
    last = data.draw(st.integers(first - 1, first + 30))
    position = data.draw(st.integers(0, size - 1))
    share = share_of(Fragment(first, last, ("x:1",) * size, True), position, quorum)
    expected = [e for e in range(first, last + 1) if position in write_set(e, quorum)]
    assert list(share.between(0, 1000)) == expected
    assert [e for e in range(-5, 100) if e in share] == expected
    assert share.ends() == ([expected[0]] if len(expected) == 1 else [*expected[:1], *expected[-1:]])
