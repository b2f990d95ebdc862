"""Copies that a ledger lacks, counted two ways: by shares, and entry by entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.replication.core.lacking_copies import lacking_copies

NAMES = [f"127.0.0.1:{port}" for port in range(3181, 3187)]


def metadata_of(quorum: QuorumConfig, segments: list[tuple[int, tuple[str, ...]]], last: int | None) -> LedgerMetadata:
    state = LedgerState.OPEN if last is None else LedgerState.CLOSED
    parts = tuple(Segment(first, bookies) for first, bookies in segments)
    return LedgerMetadata(quorum, state, parts, DigestType.CRC32C, b"", -1 if last is None else last)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    ensemble = draw(st.integers(1, 4))
    write = draw(st.integers(1, ensemble))
    quorum = QuorumConfig(ensemble, write, draw(st.integers(1, write)))
    firsts = sorted(draw(st.sets(st.integers(1, 40), max_size=3)))
    segments = [(first, tuple(draw(st.permutations(NAMES))[:ensemble])) for first in [0, *firsts]]
    last = draw(st.none() | st.integers(max([0, *firsts]) - 1, 60))
    return metadata_of(quorum, segments, last)


@given(ledgers(), st.sets(st.sampled_from(NAMES)))
def test_it_counts_what_looking_at_each_entry_counts(metadata: LedgerMetadata, serving: set[str]) -> None:
    quorum = metadata.quorum
    end = metadata.last_entry_id if metadata.is_closed else metadata.segments[-1].first_entry_id - 1
    copies = []
    for entry_id in range(end + 1):
        bookies = metadata.ensemble_at(entry_id)
        written_to = [bookies[(entry_id + n) % quorum.ensemble_size] for n in range(quorum.write_quorum)]
        copies.append(sum(one in serving for one in written_to))
    found = lacking_copies(7, metadata, serving)
    lacking = sum(count < quorum.write_quorum for count in copies)
    open_gone = not metadata.is_closed and not serving.issuperset(metadata.segments[-1].bookies)
    if not lacking and not open_gone:
        assert found is None
        return
    assert found is not None
    assert (found.entry_count, found.is_being_written) == (lacking, open_gone)
    assert found.copies_min <= min(copies, default=quorum.write_quorum)
    if not open_gone:
        assert found.copies_min == min(copies)
    assert not serving.intersection(found.bookie_ids)


def test_a_ledger_of_which_one_bookie_serves_is_short_and_one_of_which_none_does_is_unreadable() -> None:
    metadata = metadata_of(QuorumConfig(3, 3, 2), [(0, tuple(NAMES[:3]))], 9)
    short = lacking_copies(1, metadata, NAMES[:1])
    assert short is not None
    assert (short.is_short, short.is_unreadable, short.entry_count) == (True, False, 10)
    gone = lacking_copies(1, metadata, [])
    assert gone is not None
    assert gone.is_unreadable


def test_an_empty_ledger_lacks_nothing_whoever_is_gone() -> None:
    assert lacking_copies(1, metadata_of(QuorumConfig(3, 3, 2), [(0, tuple(NAMES[:3]))], -1), []) is None
