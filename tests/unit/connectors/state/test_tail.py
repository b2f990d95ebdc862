from __future__ import annotations

import random

import pyarrow as pa
import pytest

from connectors.state.as_of import AsOf, AsOfKind, find_range
from connectors.state.rows import ROWS_ARROW
from connectors.state.tail import TailEntry, fold_tail
from rsm_spark.errors import CorruptLogError, ForkedLogError
from tests.unit.connectors.state.histories import Reference
from tests.unit.connectors.state.test_as_of import FakeLook
from tests.unit.connectors.state.test_rows import batch_of


def entries_of(reference: Reference, first: tuple[int, int], last: tuple[int, int]) -> list[TailEntry]:
    return [TailEntry(*entry) for entry in reference.entries if first <= entry[:2] <= last]


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_and_its_tail_are_the_state_at_ten_revisions(seed: int) -> None:
    reference = Reference(seed)
    reference.grow(60)
    look, rng = FakeLook(reference), random.Random(seed)
    for revision in rng.sample(range(reference.state.revision + 1), 10):
        snapshots = [look.snapshot(number) for number in rng.sample(range(60), 3)]
        log_range = find_range(look, "shop", AsOf(AsOfKind.REVISION, revision=revision), snapshots)
        base = sorted(reference.rows[log_range.base.revision]) if log_range.base else []
        tail = fold_tail(log_range, entries_of(reference, log_range.first, log_range.last) if log_range.is_read else [])
        files = [batch_of([(r.table, r.key, r.row, r.revision) for r in part]) for part in (base[:7], base[7:]) if part]
        found = pa.Table.from_batches([*tail.without_rows().apply(files), *tail.row_batches()], ROWS_ARROW)
        assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == sorted(
            (row.table, row.key, row.row, row.revision) for row in reference.rows[revision]
        )


def test_a_tail_that_does_not_continue_the_snapshot_is_refused() -> None:
    reference = Reference(1)
    reference.grow(30)
    log_range = find_range(FakeLook(reference), "shop", AsOf(), [])
    whole = entries_of(reference, log_range.first, log_range.last)
    with pytest.raises(ForkedLogError, match="ledger 100 entry 1 does not continue"):
        fold_tail(log_range, whole[1:])
    with pytest.raises((ForkedLogError, CorruptLogError)):
        fold_tail(log_range, whole[:5] + whole[6:])
