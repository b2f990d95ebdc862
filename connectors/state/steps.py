"""What a task makes of the entries it reads: changes to rows, links, checkpoints, hashes at places. No Spark here.

One pass over the entries, wherever they are read: each task folds its own stretch, so that what is shuffled afterwards
is one change a key and not one a record. A stretch ends at every revision whose state will be asked for.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from connectors.state.fold import Change, LogFold, StretchRecord, decode_entry
from connectors.state.links import Run
from rsm_spark.core.digest import row_term, table_prefix
from rsm_spark.core.envelope import Envelope, decode_envelope
from rsm_spark.core.machine import decode_description
from rsm_spark.core.records import SESSIONS_TABLE
from rsm_spark.errors import CorruptLogError

__all__ = [
    "CHANGE",
    "CHECKPOINT",
    "PLACE",
    "RUN",
    "STEP_ARROW",
    "STEP_DDL",
    "StepPlan",
    "change_batch",
    "read_steps",
    "row_steps",
]

CHANGE, RUN, CHECKPOINT, PLACE = range(4)
"""Kinds of steps. RUN: `row` is the msgpack of a `Run`. CHECKPOINT: `key` is the digest, `row` the prefix hash,
`row_count` its rows. PLACE: `row` is the prefix hash after the entry (`ledger_id`, `entry_id`)."""

STEP_DDL = (
    "kind int, table_name string, key binary, revision bigint, row binary, ledger_id bigint, entry_id bigint, "
    "row_count bigint"
)
_STEP_FIELDS: list[pa.Field[Any]] = [
    pa.field("kind", pa.int32()),
    pa.field("table_name", pa.string()),
    pa.field("key", pa.binary()),
    pa.field("revision", pa.int64()),
    pa.field("row", pa.binary()),
    pa.field("ledger_id", pa.int64()),
    pa.field("entry_id", pa.int64()),
    pa.field("row_count", pa.int64()),
]
STEP_ARROW = pa.schema(_STEP_FIELDS)
_CHANGES_HELD_MAX = 200_000
_BATCH_ROWS = 20_000


class StepPlan(msgspec.Struct, frozen=True):
    """What tasks are asked for.

    Attributes:
        log_id: 16 bytes.
        descriptions: The machine (JSON) at the first entry of each ledger, where it is known.
        first_revision: Records before it are left out.
        last_revision: Records after it are left out.
        cuts: Revisions whose states will be asked for, ascending; checkpoints come on top.
        places: (ledger, entry) whose prefix hash is asked for.
        is_summed: Changes carry what the row adds to the digest (16 bytes) instead of the row; parts stay parts.

    """

    log_id: bytes
    descriptions: dict[int, bytes]
    first_revision: int
    last_revision: int
    cuts: tuple[int, ...]
    places: frozenset[tuple[int, int]]
    is_summed: bool


def read_steps(batches: Iterable[pa.RecordBatch], plan: StepPlan) -> Iterator[pa.RecordBatch]:
    """Yield the steps of a task's entries, in `STEP_ARROW`.

    Args:
        batches: With the columns `ledger_id`, `entry_id` and `payload`, as the source has them with rows=raw.
        plan: What is asked for.

    Raises:
        CorruptLogError: An entry is none of this log, or cannot be read.

    """
    stretch: _Stretch | None = None
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("ledger_id", "entry_id", "payload"))
        for ledger_id, entry_id, payload in zip(*columns, strict=True):
            place = f"ledger {ledger_id} entry {entry_id}"
            envelope = decode_envelope(payload)
            if envelope.log_id != plan.log_id:
                raise CorruptLogError(f"{place} belongs to log {envelope.log_id.hex()}, not to {plan.log_id.hex()}")
            if stretch is None or not stretch.run.goes_on(ledger_id, entry_id, envelope):
                if stretch is not None:
                    yield from stretch.finish()
                stretch = _Stretch(plan, ledger_id, entry_id, envelope)
            yield from stretch.add(entry_id, envelope, payload, place)
    if stretch is not None:
        yield from stretch.finish()


class _Stretch:
    """Entries that follow each other, while they are read."""

    def __init__(self, plan: StepPlan, ledger_id: int, entry_id: int, envelope: Envelope) -> None:
        self._plan = plan
        described = plan.descriptions.get(ledger_id)
        self._fold = LogFold(None if described is None else decode_description(described))
        first, before = envelope.first_revision, envelope.prefix_hash
        self.run = Run(ledger_id, entry_id, entry_id - 1, first, first, before, before, 0)

    def add(self, entry_id: int, envelope: Envelope, payload: bytes, place: str) -> Iterator[pa.RecordBatch]:
        plan, run, fold = self._plan, self.run, self._fold
        run.last_entry_id, run.after = entry_id, hashlib.sha256(payload).digest()
        run.next_revision = envelope.last_revision + 1
        run.payload_bytes += len(payload)
        if (run.ledger_id, entry_id) in plan.places:
            yield _step(PLACE, ledger_id=run.ledger_id, entry_id=entry_id, row=run.after)
        if not envelope.record_count:
            return
        records = decode_entry(payload, envelope, place)
        try:
            checkpoint = fold.checkpoint(records)
            if checkpoint is not None and plan.first_revision <= envelope.first_revision <= plan.last_revision + 1:
                yield from self._changes()
                yield _step(
                    CHECKPOINT,
                    revision=checkpoint.revision,
                    key=checkpoint.digest,
                    row_count=checkpoint.row_count,
                    row=envelope.prefix_hash,
                    ledger_id=run.ledger_id,
                    entry_id=entry_id,
                )
            yield from self._add_records(records, envelope)
        except CorruptLogError as error:
            raise CorruptLogError(f"{place}: {error}") from error
        if fold.change_count >= _CHANGES_HELD_MAX:
            yield from self._changes()

    def _add_records(self, records: list[StretchRecord], envelope: Envelope) -> Iterator[pa.RecordBatch]:
        """Fold an entry, cut where a state will be asked for."""
        plan, first, last = self._plan, envelope.first_revision, envelope.last_revision
        low, high = max(first, plan.first_revision), min(last, plan.last_revision)
        begin = bisect.bisect_left(plan.cuts, low)
        for cut in (*plan.cuts[begin : bisect.bisect_right(plan.cuts, high)], high):
            if low <= cut:
                kept = records if (low, cut) == (first, last) else records[low - first : cut - first + 1]
                self._fold.add(kept, low, envelope.logged_ms)
                low = cut + 1
            if begin < len(plan.cuts) and cut == plan.cuts[begin]:
                begin += 1
                yield from self._changes()

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._changes()
        yield _step(RUN, row=msgspec.msgpack.encode(self.run))

    def _changes(self) -> Iterator[pa.RecordBatch]:
        found = self._fold.take()
        for begin in range(0, len(found), _BATCH_ROWS):
            yield change_batch(found[begin : begin + _BATCH_ROWS], is_summed=self._plan.is_summed)


def change_batch(changes: list[Change], *, is_summed: bool) -> pa.RecordBatch:
    """Return changes as steps.

    Args:
        changes: At least one.
        is_summed: See `StepPlan`.

    """
    tables, keys, revisions, rows = (list(column) for column in zip(*changes, strict=True))
    if is_summed:
        prefixes = {table: table_prefix(table) for table in dict.fromkeys(tables)}
        rows = [
            row if row is None or table == SESSIONS_TABLE else row_term(prefixes[table], key, row).to_bytes(16, "big")
            for table, key, row in zip(tables, keys, rows, strict=True)
        ]
    count = len(changes)
    nothing = pa.nulls(count, pa.int64())
    columns: list[Any] = [
        pa.repeat(pa.scalar(CHANGE, pa.int32()), count),
        pa.array(tables, pa.string()),
        pa.array(keys, pa.binary()),
        pa.array(revisions, pa.int64()),
        pa.array(rows, pa.binary()),
        nothing,
        nothing,
        nothing,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STEP_ARROW)


def row_steps(batches: Iterable[pa.RecordBatch], *, is_summed: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot as steps: each is a change that nothing came before.

    Args:
        batches: With the columns `table_name`, `key`, `row` and `revision`.
        is_summed: See `StepPlan`.

    """
    for batch in batches:
        if batch.num_rows:
            columns = [batch.column(name).to_pylist() for name in ("table_name", "key", "revision", "row")]
            yield change_batch([Change(*one) for one in zip(*columns, strict=True)], is_summed=is_summed)


def _step(kind: int, **values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"kind": kind, **values}], schema=STEP_ARROW)
