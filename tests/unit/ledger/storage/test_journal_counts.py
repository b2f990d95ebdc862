"""Counts of a journal's batches: each lands in the bucket that its bound names."""

from __future__ import annotations

from itertools import accumulate

import pytest

from ledger.storage.journal_counts import ENTRIES_BOUNDS, SYNC_MS_BOUNDS, JournalCounts


@pytest.mark.parametrize("ms", [0, 0.4, 1.5, 3.9, 7, 100, 4_000, 4_096, 60_000])
def test_a_time_is_in_a_bucket_whose_bound_it_does_not_exceed(ms: float) -> None:
    counts = JournalCounts()
    counts.note(1, 10, ms / 1000)
    below = list(accumulate(counts.by_sync_ms))
    assert below[-1] == 1
    assert [bound for bound, count in zip(SYNC_MS_BOUNDS, below, strict=False) if count] == [
        bound for bound in SYNC_MS_BOUNDS if ms < bound
    ]


@pytest.mark.parametrize("entries", [0, 1, 2, 4, 5, 16, 17, 64, 65_536, 65_537, 1_000_000])
def test_a_batch_is_in_the_first_bucket_that_holds_it(entries: int) -> None:
    counts = JournalCounts()
    counts.note(entries, 10, 0.0)
    below = list(accumulate(counts.by_entries))
    assert [bound for bound, count in zip(ENTRIES_BOUNDS, below, strict=False) if count] == [
        bound for bound in ENTRIES_BOUNDS if entries <= bound
    ]
    assert (counts.entries, counts.payload_bytes, counts.syncs) == (entries, 10, 1)
