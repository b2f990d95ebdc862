"""Entries of a log as a leader writes them, in memory, and what the source makes of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from connectors.source.arrow import arrow_schema
from connectors.source.decode import decode_log
from connectors.source.entry_bounds import EntryBounds
from connectors.source.options import Rows, parse_options
from connectors.source.record_rows import RecordSlice
from connectors.source.row_plan import RowPlan, row_plan
from connectors.source.schema import RowColumn
from ledger.core.entry_block import EntryBlock
from rsm_spark.core.envelope import Envelope, encode_envelope, root_hash
from rsm_spark.core.machine import Field, FieldType, Fold, MachineDescription, RecordDescription, TableDescription
from rsm_spark.core.records import CommandHead, Record, encode_records

LOG_ID = bytes(range(16))
KEY, VALUE, WHY = Field("key", FieldType.BYTES), Field("value", FieldType.BYTES), Field("why", FieldType.STR)
MACHINE = MachineDescription(
    "map",
    1,
    (TableDescription("map", (KEY,), (VALUE,)),),
    (
        RecordDescription(16, "put", (KEY, VALUE), "map", Fold.UPSERT, ("key",), ("value",)),
        RecordDescription(17, "deleted", (KEY, WHY), "map", Fold.DELETE, ("key",)),
        RecordDescription(18, "noted", (WHY,)),
    ),
)


def put(key: bytes, value: bytes, head: CommandHead | None = None) -> Record:
    return Record(16, head, (key, value))


def payloads_of(batches: Sequence[Sequence[Record]], first_revision: int = 1) -> list[bytes]:
    """Entry n is logged at 1000 + n ms, by leader 5."""
    before, revision, payloads = root_hash(LOG_ID), first_revision, []
    for entry_id, records in enumerate(batches):
        envelope = Envelope(LOG_ID, 5, revision, revision - 1, 1000 + entry_id, len(records), before)
        payload = encode_envelope(envelope, encode_records(records))
        before, revision = hashlib.sha256(payload).digest(), revision + len(records)
        payloads.append(payload)
    return payloads


def block_of(payloads: Sequence[bytes], first_entry_id: int = 0) -> EntryBlock:
    lengths = [100 * (place + 1) for place in range(len(payloads))]
    return EntryBlock(first_entry_id, [memoryview(payload) for payload in payloads], lengths)


def plan_of(**options: str) -> RowPlan:
    return row_plan(parse_options({"log": "orders"} | options, is_stream=False))


def table_plan(*columns: RowColumn | tuple[str, str], table: str = "", keeps_bad: bool = False) -> RowPlan:
    return RowPlan(Rows.TABLE, tuple(tuple(RowColumn(*column)) for column in columns), table, keeps_bad)


def read_log(
    payloads: Sequence[bytes],
    plan: RowPlan,
    *,
    description: MachineDescription | None = MACHINE,
    first_revision: int = 0,
    end_revision: int = 0,
    bounds: EntryBounds | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of a range, in blocks of two entries."""
    blocks = [block_of(payloads[at : at + 2], at) for at in range(0, len(payloads), 2)]
    span = RecordSlice("orders", 3, first_revision, end_revision, description, bounds)
    batches = list(decode_log(blocks, plan, span, LOG_ID))
    schema = arrow_schema([RowColumn(*column) for column in plan.columns])
    assert all(batch.schema.equals(schema) for batch in batches)
    return pa.Table.from_batches(batches, schema=schema).to_pylist()
