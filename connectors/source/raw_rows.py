"""Rows that are entries: `rows=raw`, and `rows=kafka` of plain ledgers. Whole columns: no object is made per entry.

Whatever `columns` names, each entry is received whole, its digest is checked, and in a log its hash is linked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.source.arrow import arrow_schema, binary_of, column_of, repeated
from connectors.source.entry_bounds import EntryBounds
from connectors.source.link import BlockHeads, LogLink
from connectors.source.options import Rows
from connectors.source.row_plan import RowPlan
from connectors.source.schema import ERROR_COLUMN, RowColumn
from ledger.core.entry_block import EntryBlock

BATCH_ROWS_MAX = 10_000
"""Rows of one Arrow batch: beyond this, Spark's boundary costs no less a row."""

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Payload of one Arrow batch: bounds what a task holds."""

_KAFKA_TOPIC = "ledgers"
_NO_TIMESTAMP = -1


class _Held(NamedTuple):
    """Entries of a batch that is not full yet."""

    entry_ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    payloads: list[bytes | memoryview]
    heads: BlockHeads | None
    places: NDArray[np.int64]  # of these entries in the block


def raw_batches(
    blocks: Iterable[EntryBlock],
    plan: RowPlan,
    *,
    ledger_id: int,
    log: str | None = None,
    link: LogLink | None = None,
    bounds: EntryBounds | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each entry.

    Args:
        blocks: Of one ledger, ascending.
        plan: Kind and columns.
        ledger_id: That ledger.
        log: Name of the log, or None for a plain ledger.
        link: Checks the entries of a log.
        bounds: Entries outside are left out.

    Raises:
        CorruptLogError, ForkedLogError: See `LogLink.follow`.

    """
    held: list[_Held] = []
    count = size = 0
    for block in blocks:
        one = _hold(block, link.follow(block) if link else None, bounds)
        if not len(one.places):
            continue
        held.append(one)
        count += len(one.places)
        size += block.payload_bytes
        if count >= BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
            yield _RawBatch(held, plan, ledger_id, log).batch()
            held, count, size = [], 0, 0
    if held:
        yield _RawBatch(held, plan, ledger_id, log).batch()


def _hold(block: EntryBlock, heads: BlockHeads | None, bounds: EntryBounds | None) -> _Held:
    entry_ids = np.arange(block.first_entry_id, block.first_entry_id + len(block), dtype=np.int64)
    lengths = np.array(block.lengths, dtype=np.int64)
    payloads = list(block.payloads)
    if bounds is None:
        return _Held(entry_ids, lengths, payloads, heads, np.arange(len(block), dtype=np.int64))
    places = np.flatnonzero(bounds.mask(entry_ids, heads))
    return _Held(entry_ids[places], lengths[places], [payloads[place] for place in places], heads, places)


class _RawBatch:
    """Makes the columns of one batch, those that are asked for."""

    def __init__(self, held: list[_Held], plan: RowPlan, ledger_id: int, log: str | None) -> None:
        self._held = held
        self._plan = plan
        self._ledger_id = ledger_id
        self._log = log
        self._count = sum(len(one.places) for one in held)

    def batch(self) -> pa.RecordBatch:
        columns = [RowColumn(*column) for column in self._plan.columns]
        schema = arrow_schema(columns)
        make = self._kafka_column if self._plan.rows == Rows.KAFKA else self._column
        arrays = []
        for field in schema:
            made = make(field.name)
            array = made if isinstance(made, pa.Array) else column_of(made, field.type)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str) -> Any:
        match name:
            case "log":
                return repeated(self._log, self._count)
            case "ledger_id":
                return np.full(self._count, self._ledger_id, dtype=np.int64)
            case "entry_id":
                return np.concatenate([one.entry_ids for one in self._held])
            case "length":
                return np.concatenate([one.lengths for one in self._held])
            case "payload":
                return binary_of([payload for one in self._held for payload in one.payloads])
            case ERROR_COLUMN.name:
                return self._errors()
            case "revision":
                return self._of_heads("first_revisions")
            case "record_count":
                return self._of_heads("record_counts")
            case "leader_epoch":
                return self._of_heads("epochs")
            case _:
                return self._of_heads("logged_ms", 1000)

    def _kafka_column(self, name: str) -> Any:
        match name:
            case "value":
                return self._column("payload")
            case "topic":
                return repeated(_KAFKA_TOPIC, self._count)
            case "partition":
                return np.full(self._count, self._ledger_id, dtype=np.int32)
            case "offset":
                return self._column("entry_id")
            case "timestampType":
                return np.full(self._count, _NO_TIMESTAMP, dtype=np.int32)
            case _:
                return [None] * self._count

    def _of_heads(self, name: str, factor: int = 1) -> Any:
        if self._held[0].heads is None:
            return pa.nulls(self._count, pa.int64())
        values = np.concatenate([getattr(one.heads, name)[one.places] for one in self._held])
        return column_of(values * factor, pa.int64(), self._has_error())

    def _has_error(self) -> NDArray[np.bool_] | None:
        if not any(one.heads and one.heads.errors for one in self._held):
            return None
        return np.array([error is not None for error in self._errors()])

    def _errors(self) -> list[str | None]:
        return [one.heads.errors.get(int(place)) if one.heads else None for one in self._held for place in one.places]
