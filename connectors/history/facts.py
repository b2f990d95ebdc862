"""Records to facts, in Spark's tasks: of a record only what the history needs leaves the executor, never a payload.

Every record leaves a row, so that the driver knows that none is missing (`connectors.delta.fold.RecordRange`); `fields`
has the fact of those that the history is made of, and the text of a description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.delta.fold import RecordRange
from connectors.history.layout import FACT_TYPES, Fact, HistoryLayout
from rsm_spark.core.records import KernelRecord

RECORD_COLUMNS = (
    "revision", "ledger_id", "entry_id", "logged_at", "type", "name", "key", "row", "fields", "entry_hash",
)  # fmt: skip
"""Columns of `rows=records` that facts are made of."""

FACTS_DDL = (
    "revision bigint, ledger_id bigint, entry_id bigint, logged_ms bigint, type int, name string, fields binary, "
    "entry_hash binary"
)
"""Spark's schema of facts."""

_FIELDS: list[pa.Field[Any]] = [
    pa.field("revision", pa.int64()),
    pa.field("ledger_id", pa.int64()),
    pa.field("entry_id", pa.int64()),
    pa.field("logged_ms", pa.int64()),
    pa.field("type", pa.int32()),
    pa.field("name", pa.string()),
    pa.field("fields", pa.binary()),
    pa.field("entry_hash", pa.binary()),
]
_FACTS_ARROW = pa.schema(_FIELDS)
_DESCRIBED = int(KernelRecord.MACHINE_DESCRIBED)
_VALUES = msgspec.msgpack.Decoder(list[Any])
_FACTS = {str(kind): fact for kind, fact in FACT_TYPES.items()}
_KINDS = pa.array(list(_FACTS), pa.string())


def fact_reader(layout: HistoryLayout) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `DataFrame.mapInArrow` that makes facts of `RECORD_COLUMNS`."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield _facts(batch, layout)

    return read


def _facts(batch: pa.RecordBatch, layout: HistoryLayout) -> pa.RecordBatch:
    said: list[bytes | None] = []
    columns = [batch.column(name).to_pylist() for name in ("type", "name", "key", "row", "fields")]
    for record_type, name, key, row, fields in zip(*columns, strict=True):
        pick = layout.get(name)
        if pick is not None:
            said.append(pick.said(key, row, fields))
        else:
            said.append(fields if record_type == _DESCRIBED else None)
    made: dict[str, pa.Array[Any]] = {
        "logged_ms": pc.divide(batch.column("logged_at").cast(pa.int64()), 1000),
        "fields": pa.array(said, pa.binary()),
    }
    arrays = [made[name] if name in made else batch.column(name) for name in _FACTS_ARROW.names]
    return pa.RecordBatch.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, _FACTS_ARROW, strict=True)], schema=_FACTS_ARROW
    )


def facts_of(records: RecordRange, after: int) -> list[Fact]:
    """Return the facts of a range after a revision, in the order of the log."""
    fresh = records.after(after)
    kept = fresh.filter(pc.is_in(fresh.column("name"), value_set=_KINDS))
    columns = [kept.column(name).to_pylist() for name in ("revision", "name", "logged_ms", "fields")]
    return [
        Fact(revision, name, logged_ms, _FACTS[name](*_VALUES.decode(said)))
        for revision, name, logged_ms, said in zip(*columns, strict=True)
    ]
