from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from connectors.delta.modes import change_terms
from connectors.delta.packing import PackedRows
from connectors.state.histories import HistorySums, packed_changes
from connectors.state.rows import ROWS_ARROW
from connectors.state.steps import HISTORY, change_rows
from connectors.state.sums import RowSum, read_total, row_sum
from rsm_spark.core.records import pack
from tests.unit.connectors.state.histories import Reference
from tests.unit.connectors.state.test_steps_and_sums import blocks_of, plan_of, steps_of


@pytest.mark.parametrize("seed", range(8))
def test_the_log_comes_to_what_a_follower_sums_up_between_any_two_cuts(seed: int) -> None:
    reference = Reference(seed)
    reference.grow(60)
    rng = random.Random(seed)
    last = reference.state.revision
    cuts = sorted(rng.sample(range(1, last), 6))
    borders = sorted(rng.sample(range(1, 60), rng.randrange(4)))
    plan = plan_of(reference, cuts=cuts, is_summed=True, histories=frozenset({"orders", "stock"}))
    steps = steps_of(reference, plan, borders).to_pylist()
    sums = HistorySums(
        (row["table_name"], row["revision"], row["row"], row["row_count"]) for row in steps if row["kind"] == HISTORY
    )
    blocks = blocks_of([steps_of(reference, plan_of(reference, cuts=range(1, last + 1)))])
    each = [row for batch in change_rows(blocks) for row in batch.to_pylist()]
    for table in ("orders", "stock"):
        changes = [row for row in each if row["table_name"] == table]
        for after, upto in [*pairwise([0, *cuts, last]), (cuts[1], cuts[4]), (0, last)]:
            assert sums.between(table, after, upto) == _followed(
                table, [row for row in changes if after < row["revision"] <= upto]
            )
    assert sums.between("nothing", 0, last) == row_sum(0, 0)
    assert {row["table_name"] for row in steps if row["kind"] == HISTORY} == {"orders", "stock"}


def _followed(table: str, changes: list[dict[str, Any]]) -> RowSum:
    """Sum changes up as followers do."""
    rows = PackedRows(*([one[name] for one in changes] for name in ("key", "row", "revision")))
    folds = ["delete" if one["row"] is None else "upsert" for one in changes]
    return row_sum(change_terms(table, rows, folds), len(changes))


def test_changes_of_the_log_get_the_row_that_a_history_has_of_them() -> None:
    rows = [
        {"table_name": "t", "key": b"a", "row": pack((1,)), "revision": 4},
        {"table_name": "t", "key": b"a", "row": None, "revision": 5},
    ]
    (found,) = packed_changes([pa.RecordBatch.from_pylist(rows, schema=ROWS_ARROW)])
    assert [msgspec.msgpack.decode(row) for row in found.column("row").to_pylist()] == [
        [4, "upsert", pack((1,))],
        [5, "delete", None],
    ]


def test_rows_are_summed_up_to_each_point_and_behind_the_last() -> None:
    rows = [{"table_name": "t", "key": b"%d" % at, "row": b"r", "revision": at} for at in (1, 3, 4, 9)]
    batch = pa.RecordBatch.from_pylist(rows, schema=ROWS_ARROW)
    found = [row for part in read_total([batch], (3, 5, 8)) for row in part.to_pylist()]
    assert [(row["point"], row["row_count"]) for row in found] == [(0, 2), (1, 1), (3, 1)]
    whole = [row for part in read_total([batch]) for row in part.to_pylist()]
    assert [(row["point"], row["row_count"]) for row in whole] == [(0, 4)]
    total = sum(int.from_bytes(row["term"], "big") for row in found)
    assert row_sum(total, 4) == row_sum(int.from_bytes(whole[0]["term"], "big"), 4)
