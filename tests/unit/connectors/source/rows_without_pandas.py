"""Batches of each kind of rows, as a new process makes its first ones."""

from __future__ import annotations

from connectors.source.decode import decode_log
from connectors.source.record_rows import RecordSlice
from connectors.source.row_plan import RowPlan
from rsm_spark.core.records import CommandHead, Record
from tests.unit.connectors.source.written import LOG_ID, MACHINE, block_of, payloads_of, plan_of, put, table_plan


def _row_count(plan: RowPlan) -> int:
    head = CommandHead(b"s" * 16, 7, 3, 2, b"ok")
    payloads = payloads_of([[put(b"k", b"v", head), Record(17, None, (b"j", "gone"))], [put(b"k", b"w")]])
    span = RecordSlice("orders", 3, 0, 0, MACHINE, None)
    return sum(batch.num_rows for batch in decode_log([block_of(payloads)], plan, span, LOG_ID))


def make_rows() -> None:
    columns = (("key", "binary"), ("value", "binary"), ("_op", "string"), ("_revision", "bigint"))
    plans = (plan_of(), plan_of(rows="raw"), plan_of(rows="kafka"), table_plan(*columns, table="map"))
    assert [_row_count(plan) for plan in plans] == [3, 2, 3, 3]
