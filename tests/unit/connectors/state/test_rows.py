from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from connectors.errors import OptionError
from connectors.state.rows import ROWS_ARROW, read_rows, typed_table
from connectors.state.steps import row_steps
from rsm_spark.core.machine import Field, FieldType, MachineDescription, TableDescription
from rsm_spark.core.records import pack
from rsm_spark.errors import CorruptLogError
from tests.unit.connectors.state.histories import Reference, Shop
from tests.unit.connectors.state.test_steps_and_sums import PARTS, blocks_of, plan_of, steps_of


def rows_at(reference: Reference, revision: int, *, with_gone: bool = False) -> list[dict[str, Any]]:
    steps = steps_of(reference, plan_of(reference, last=revision), [20, 40])
    return pa.Table.from_batches(read_rows(blocks_of([steps]), with_gone=with_gone), ROWS_ARROW).to_pylist()


@pytest.mark.parametrize("seed", range(6))
def test_sorted_changes_come_to_the_rows_of_a_replica(seed: int) -> None:
    reference = Reference(seed)
    reference.grow(60)
    for revision in random.Random(seed).sample(range(1, reference.state.revision + 1), 25):
        found = {tuple(row.values()) for row in rows_at(reference, revision)}
        assert found == {(row.table, row.key, row.row, row.revision) for row in reference.rows[revision]}


def test_rows_that_are_gone_are_told_with_the_record_that_took_them() -> None:
    reference = Reference(1)
    reference.grow(60)
    found = rows_at(reference, reference.state.revision, with_gone=True)
    gone = [row for row in found if row["row"] is None]
    assert gone
    assert all(reference.rows[row["revision"]] != reference.rows[row["revision"] - 1] for row in gone)


def test_rows_of_a_snapshot_are_steps_too() -> None:
    reference = Reference(2)
    reference.grow(30)
    rows = [(row.table, row.key, row.row, row.revision) for row in reference.rows[-1]]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), ROWS_ARROW, strict=True)], schema=ROWS_ARROW
    )
    steps = pa.Table.from_batches(list(row_steps([batch, batch.slice(0, 0)], PARTS, is_summed=False)))
    found = pa.Table.from_batches(read_rows(blocks_of([steps])), ROWS_ARROW).to_pylist()
    assert {tuple(row.values()) for row in found} == set(rows)


def batch_of(rows: Sequence[tuple[str, bytes, bytes, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), ROWS_ARROW, strict=True)], schema=ROWS_ARROW
    )


def test_a_table_has_its_own_columns() -> None:
    orders = typed_table(Shop.description, "orders")
    assert orders.ddl == (
        "`shop` string, `number` bigint, `price` double, `paid` boolean, `by` binary, `_revision` bigint"
    )
    rows = [
        ("orders", pack(("a", 1)), pack((1.5, True, b"x")), 7),
        ("stock", pack(("nut",)), pack((3,)), 8),
        ("orders", pack(("b", 2)), pack((2.5, False)), 9),
    ]
    found = pa.Table.from_batches(orders.read([batch_of(rows)]), orders.schema).to_pylist()
    assert [tuple(row.values()) for row in found] == [("a", 1, 1.5, True, b"x", 7), ("b", 2, 2.5, False, None, 9)]


def test_a_table_that_is_not_there_or_does_not_fit_is_an_error() -> None:
    with pytest.raises(OptionError, match="has no table order: its tables are orders, stock"):
        typed_table(Shop.description, "order")
    stock = typed_table(Shop.description, "stock")
    with pytest.raises(CorruptLogError, match="a row has 2 columns, 1 are described"):
        list(stock.read([batch_of([("stock", pack(("nut",)), pack((3, 4)), 1)])]))
    with pytest.raises(CorruptLogError, match="does not fit its described column"):
        list(stock.read([batch_of([("stock", pack(("nut",)), pack(("many",)), 1)])]))
    twice = TableDescription("t", (Field("a", FieldType.INT),), (Field("a", FieldType.INT),))
    with pytest.raises(CorruptLogError, match="are not unique"):
        typed_table(MachineDescription("m", 1, (twice,), ()), "t")
