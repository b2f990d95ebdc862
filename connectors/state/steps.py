"""Steps that a task makes of the entries it reads: changes to rows, links, checkpoints, hashes at places. No Spark.

One pass over the entries, wherever they are read: each task folds its own range, so that what is shuffled afterwards
is one change a key and not one a record. A range ends at every revision whose state will be asked for.
"""

from __future__ import annotations

import bisect
import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.state.fold import LogFold, RangeRecord, TableChanges, decode_entry
from connectors.state.links import Run
from rsm_spark.core.chain import Ancestry
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, table_prefix
from rsm_spark.core.envelope import Envelope, decode_envelope
from rsm_spark.core.machine import decode_description
from rsm_spark.core.records import SESSIONS_TABLE
from rsm_spark.errors import CorruptLogError

CHANGE, RUN, CHECKPOINT, PLACE, HISTORY = range(5)
"""Kinds of steps. RUN: `row` is the msgpack of a `Run`. CHECKPOINT: `key` is the digest, `row` the prefix hash,
`row_count` its rows. PLACE: `row` is the prefix hash after the entry (`ledger_id`, `entry_id`). HISTORY: `row` is what
the changes of the table since the last such step, up to `revision`, add to a history's digest; `row_count` of them."""

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
TERM_BYTES = 16
"""Bytes that a row adds to a digest."""


class StepPlan(msgspec.Struct, frozen=True):
    """Plan of the steps that tasks make.

    Attributes:
        ancestry: Ids that the log's entries bear.
        descriptions: The machine (JSON) at the first entry of each ledger, where it is known.
        first_revision: Records before it are left out.
        last_revision: Records after it are left out.
        cuts: Revisions whose states will be asked for, ascending; checkpoints come on top.
        places: (ledger, entry) whose prefix hash is asked for.
        is_summed: Changes carry what the row adds to the digest (16 bytes) instead of the row; parts stay parts.
        histories: Tables of which every single change is summed up besides.

    """

    ancestry: Ancestry
    descriptions: dict[int, bytes]
    first_revision: int
    last_revision: int
    cuts: tuple[int, ...]
    places: frozenset[tuple[int, int]]
    is_summed: bool
    histories: frozenset[str] = frozenset()


def read_steps(batches: Iterable[pa.RecordBatch], plan: StepPlan) -> Iterator[pa.RecordBatch]:
    """Yield the steps of a task's entries, in `STEP_ARROW`.

    Args:
        batches: With the columns `ledger_id`, `entry_id` and `payload`, as the source has them with rows=raw.
        plan: What is asked for.

    Raises:
        CorruptLogError: An entry is none of this log, or cannot be read.

    """
    open_run: _RunFold | None = None
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("ledger_id", "entry_id", "payload"))
        for ledger_id, entry_id, payload in zip(*columns, strict=True):
            place = f"ledger {ledger_id} entry {entry_id}"
            envelope = decode_envelope(payload)
            log_id = plan.ancestry.at(envelope.first_revision)
            if envelope.log_id != log_id:
                raise CorruptLogError(f"{place} belongs to log {envelope.log_id.hex()}, not to {log_id.hex()}")
            if open_run is None or not open_run.run.goes_on(ledger_id, entry_id, envelope):
                if open_run is not None:
                    yield from open_run.finish()
                open_run = _RunFold(plan, ledger_id, entry_id, envelope)
            yield from open_run.add(entry_id, envelope, payload, place)
    if open_run is not None:
        yield from open_run.finish()


class _RunFold:
    """Entries that follow each other, while they are read."""

    def __init__(self, plan: StepPlan, ledger_id: int, entry_id: int, envelope: Envelope) -> None:
        self._plan = plan
        described = plan.descriptions.get(ledger_id)
        self._fold = LogFold(None if described is None else decode_description(described), plan.histories)
        self._folded = 0
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

    def _add_records(self, records: list[RangeRecord], envelope: Envelope) -> Iterator[pa.RecordBatch]:
        """Fold an entry, cut where a state will be asked for."""
        plan, first, last = self._plan, envelope.first_revision, envelope.last_revision
        low, high = max(first, plan.first_revision), min(last, plan.last_revision)
        begin = bisect.bisect_left(plan.cuts, low)
        for cut in (*plan.cuts[begin : bisect.bisect_right(plan.cuts, high)], high):
            if low <= cut:
                kept = records if (low, cut) == (first, last) else records[low - first : cut - first + 1]
                self._fold.add(kept, low, envelope.logged_ms)
                self._folded = cut
                low = cut + 1
            if begin < len(plan.cuts) and cut == plan.cuts[begin]:
                begin += 1
                yield from self._changes()

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._changes()
        yield _step(RUN, row=msgspec.msgpack.encode(self.run))

    def _changes(self) -> Iterator[pa.RecordBatch]:
        for changes in self._fold.take_tables():
            yield change_batch(changes, is_summed=self._plan.is_summed)
        for table, total, count in self._fold.take_histories():
            term = digest_bytes(total % DIGEST_MODULUS)
            yield _step(HISTORY, table_name=table, revision=self._folded, row=term, row_count=count)


def change_batch(changes: TableChanges, *, is_summed: bool) -> pa.RecordBatch:
    """Return the changes of a table as steps.

    Args:
        changes: At least one.
        is_summed: See `StepPlan`.

    """
    table, keys, revisions, rows = changes
    if is_summed and table != SESSIONS_TABLE:
        rows = _terms(table, keys, rows)
    count = len(keys)
    nothing = pa.nulls(count, pa.int64())
    columns: list[Any] = [
        pa.repeat(pa.scalar(CHANGE, pa.int32()), count),
        pa.repeat(pa.scalar(table, pa.string()), count),
        pa.array(keys, pa.binary()),
        pa.array(revisions, pa.int64()),
        pa.array(rows, pa.binary()),
        nothing,
        nothing,
        nothing,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STEP_ARROW)


def _terms(table: str, keys: list[bytes], rows: list[bytes | None]) -> list[bytes | None]:
    """Return what each row adds to the digest, 16 bytes: `rsm_spark.core.digest.row_term`, spelled out."""
    prefix, length, sha256 = table_prefix(table), struct.Struct(">I").pack, hashlib.sha256
    return [
        None
        if row is None
        else sha256(b"".join((prefix, length(len(key)), key, length(len(row)), row))).digest()[:TERM_BYTES]
        for key, row in zip(keys, rows, strict=True)
    ]


def row_steps(batches: Iterable[pa.RecordBatch], *, is_summed: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot as steps: each is a change that nothing came before.

    Args:
        batches: With the columns `table_name`, `key`, `row` and `revision`.
        is_summed: See `StepPlan`.

    """
    for batch in batches:
        names = batch.column("table_name")
        for table in map(str, names.unique().to_pylist()):
            mine = batch.filter(pc.equal(names, pa.scalar(table)))
            columns: list[Any] = [mine.column(name).to_pylist() for name in ("key", "revision", "row")]
            yield change_batch(TableChanges(table, *columns), is_summed=is_summed)


def _step(kind: int, **values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"kind": kind, **values}], schema=STEP_ARROW)
