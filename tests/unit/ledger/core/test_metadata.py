"""Segments tell which bookies hold an entry."""

from __future__ import annotations

import pytest

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig


@pytest.mark.parametrize(("entry_id", "bookies"), [(0, ("a",)), (4, ("a",)), (5, ("b",)), (9, ("c",)), (10**9, ("c",))])
def test_an_entry_is_on_the_ensemble_of_its_segment(entry_id: int, bookies: tuple[str, ...]) -> None:
    segments = (Segment(0, ("a",)), Segment(5, ("b",)), Segment(9, ("c",)))
    metadata = LedgerMetadata(QuorumConfig(1, 1, 1), LedgerState.OPEN, segments, DigestType.CRC32C, b"")
    assert metadata.ensemble_at(entry_id) == bookies
    assert not metadata.is_closed
