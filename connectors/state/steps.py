"""Steps that a task makes of the entries it reads: changes to rows, links, checkpoints, hashes at places. No Spark.

One pass over the entries, wherever they are read: each task folds its own range, so that what is shuffled afterwards
is one change a key and not one a record, in blocks (`connectors.state.blocks`). A range ends at every revision whose
state will be asked for.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.source.arrow import column_of, repeated, scalar_of
from connectors.source.decode import HashedBlock
from connectors.source.record_plans import RawRecord
from connectors.state.blocks import (
    BLOCK_ARROW,
    ChangeBlock,
    ChangeSplitter,
    PartRule,
    changes_batch,
    read_blocks,
    split_changes,
)
from connectors.state.fold import LogFold, TableChanges, decode_entry
from connectors.state.links import Run
from rsm_spark.core.chain import Ancestry
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes
from rsm_spark.core.envelope import Envelope, decode_envelope
from rsm_spark.core.machine import decode_description
from rsm_spark.core.records import SESSIONS_TABLE
from rsm_spark.errors import CorruptLogError

BLOCK, RUN, CHECKPOINT, PLACE, HISTORY = range(5)
"""Kinds of steps. BLOCK: `row` holds `row_count` changes of `table_name`, in `part`. RUN: `row` is the msgpack of a
`Run`. CHECKPOINT: `key` is the digest, `row` the prefix hash, `row_count` its rows. PLACE: `row` is the prefix hash
after the entry (`ledger_id`, `entry_id`). HISTORY: `row` is what the changes of the table since the last such step, up
to `revision`, add to a history's digest; `row_count` of them."""

STEP_DDL = (
    "kind int, table_name string, part int, key binary, revision bigint, row binary, ledger_id bigint, "
    "entry_id bigint, row_count bigint"
)
_STEP_FIELDS: list[pa.Field[Any]] = [
    pa.field("kind", pa.int32()),
    pa.field("table_name", pa.string()),
    pa.field("part", pa.int32()),
    pa.field("key", pa.binary()),
    pa.field("revision", pa.int64()),
    pa.field("row", pa.binary()),
    pa.field("ledger_id", pa.int64()),
    pa.field("entry_id", pa.int64()),
    pa.field("row_count", pa.int64()),
]
STEP_ARROW = pa.schema(_STEP_FIELDS)
_CHANGES_HELD_MAX = 200_000


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
        parts: By which changes are split into blocks.
        histories: Tables of which every single change is summed up besides.

    """

    ancestry: Ancestry
    descriptions: dict[int, bytes]
    first_revision: int
    last_revision: int
    cuts: tuple[int, ...]
    places: frozenset[tuple[int, int]]
    is_summed: bool
    parts: PartRule
    histories: frozenset[str] = frozenset()


def read_steps(blocks: Iterable[HashedBlock], plan: StepPlan) -> Iterator[pa.RecordBatch]:
    """Yield the steps of a task's entries, in `STEP_ARROW`.

    Args:
        blocks: The entries.
        plan: What is asked for.

    Raises:
        CorruptLogError: An entry is none of this log, or cannot be read.

    """
    open_run: _RunFold | None = None
    for ledger_id, block, hashes in blocks:
        entries = zip(block.payloads, hashes, strict=True)
        for entry_id, (payload, entry_hash) in enumerate(entries, block.first_entry_id):
            place = f"ledger {ledger_id} entry {entry_id}"
            envelope = decode_envelope(payload)
            log_id = plan.ancestry.at(envelope.first_revision)
            if envelope.log_id != log_id:
                raise CorruptLogError(f"{place} belongs to log {envelope.log_id.hex()}, not to {log_id.hex()}")
            if open_run is None or not open_run.run.goes_on(ledger_id, entry_id, envelope):
                if open_run is not None:
                    yield from open_run.finish()
                open_run = _RunFold(plan, ledger_id, entry_id, envelope)
            yield from open_run.add(entry_id, envelope, payload, entry_hash, place)
    if open_run is not None:
        yield from open_run.finish()


class _RunFold:
    """Entries that follow each other, while they are read."""

    def __init__(self, plan: StepPlan, ledger_id: int, entry_id: int, envelope: Envelope) -> None:
        self._plan = plan
        described = plan.descriptions.get(ledger_id)
        self._fold = LogFold(None if described is None else decode_description(described), plan.histories)
        self._splitter = ChangeSplitter(plan.parts)
        self._folded = 0
        first, before = envelope.first_revision, envelope.prefix_hash
        self.run = Run(ledger_id, entry_id, entry_id - 1, first, first, before, before, 0)

    def add(
        self, entry_id: int, envelope: Envelope, payload: bytes | memoryview, entry_hash: bytes, place: str
    ) -> Iterator[pa.RecordBatch]:
        plan, run, fold = self._plan, self.run, self._fold
        run.last_entry_id, run.after = entry_id, entry_hash
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
                yield from self._cut()
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
        if fold.change_count + self._splitter.change_count >= _CHANGES_HELD_MAX:
            yield from self._cut()
            yield from self._blocks()

    def _add_records(self, records: list[RawRecord], envelope: Envelope) -> Iterator[pa.RecordBatch]:
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
                yield from self._cut()

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._cut()
        yield from self._blocks()
        yield _step(RUN, row=msgspec.msgpack.encode(self.run))

    def _cut(self) -> Iterator[pa.RecordBatch]:
        """Begin anew: later changes of a key leave those before as they are."""
        for changes in self._fold.take_tables():
            is_summed = self._plan.is_summed and changes.table != SESSIONS_TABLE
            self._splitter.add(changes.table, changes_batch(changes, is_summed=is_summed))
        for table, total, count in self._fold.take_histories():
            term = digest_bytes(total % DIGEST_MODULUS)
            yield _step(HISTORY, table_name=table, revision=self._folded, row=term, row_count=count)

    def _blocks(self) -> Iterator[pa.RecordBatch]:
        yield from map(_block_step, self._splitter.take())


def row_steps(batches: Iterable[pa.RecordBatch], parts: PartRule, *, is_summed: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot as steps: each is a change that nothing came before.

    Args:
        batches: With the columns `table_name`, `key`, `row` and `revision`.
        parts: See `StepPlan`.
        is_summed: See `StepPlan`.

    """
    for batch in batches:
        names = batch.column("table_name")
        for table in map(str, names.unique().to_pylist()):
            mine = batch.filter(pc.equal(names, scalar_of(table, pa.string())))
            if is_summed and table != SESSIONS_TABLE:
                columns: list[Any] = [mine.column(name).to_pylist() for name in ("key", "revision", "row")]
                changes = changes_batch(TableChanges(table, *columns), is_summed=True)
            else:
                changes = mine.select(BLOCK_ARROW.names)
            yield from map(_block_step, split_changes(table, changes, parts))


def change_rows(blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the changes of blocks, a row each, in `rows.ROWS_ARROW`.

    Args:
        blocks: As for `read_blocks`.

    """
    for table, _, changes in read_blocks(blocks):
        key, revision, row = changes.columns
        yield pa.RecordBatch.from_arrays(
            [repeated(table, len(key)), key, row, revision], names=["table_name", "key", "row", "revision"]
        )


def _block_step(block: ChangeBlock) -> pa.RecordBatch:
    values = {"table_name": block.table, "part": block.part, "row": block.packed, "row_count": block.change_count}
    return _step(BLOCK, **values)


def _step(kind: int, **values: Any) -> pa.RecordBatch:
    given = {"kind": kind, **values}
    # Made without `pyarrow.array`, see `connectors.source.arrow`.
    columns = [column_of([given.get(field.name)], field.type) for field in STEP_ARROW]
    return pa.RecordBatch.from_arrays(columns, schema=STEP_ARROW)
