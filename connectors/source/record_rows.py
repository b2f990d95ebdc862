"""Rows that are records: columns of an entry are computed once and repeated, columns of a record are byte slices.

What `columns` leaves out is neither decoded nor built: without columns from `type` to `fields`, no record of an entry
is decoded at all, and that an entry holds as many records as its envelope says is not checked then. What is always read
and checked: each entry whole, its digest, its envelope, and its link to the entry before.
"""

# Longer than 400 lines: a batch is filled by the block and by the entry, to the same columns.
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from connectors.source.arrow import arrow_schema, chosen, column_of, repeated
from connectors.source.entry_bounds import EntryBounds
from connectors.source.layouts import PartitionPlace
from connectors.source.link import BlockHeads, LogLink
from connectors.source.raw_rows import BATCH_BYTES_MAX, BATCH_ROWS_MAX
from connectors.source.record_plans import UNKNOWN_PLAN, RawRecord, RecordPlan, join_all, join_fields, record_plans
from connectors.source.schema import ERROR_COLUMN, RowColumn
from ledger.core.entry_block import EntryBlock
from ledger.decoding import msgpack_decoder
from rsm_spark.core.envelope import bodies_of, body_of
from rsm_spark.core.machine import MachineDescription, decode_description
from rsm_spark.core.records import CommandHead, KernelRecord
from rsm_spark.errors import CorruptLogError

_RECORDS: Final = msgspec.msgpack.Decoder(list[RawRecord])
_FEW_RECORDS: Final = msgspec.msgpack.Decoder(tuple[RawRecord, ...])
"""For many at a time, see `RawRecord`."""
_TYPE: Final = attrgetter("type")
_HEAD_COLUMNS: Final = ("session", "sequence", "answered_up_to", "reply")
_PLAN_COLUMNS: Final = ("name", "table_name", "fold")
_FEW: Final = 8
"""Records an entry."""
_BODY_COLUMNS: Final = frozenset((*_HEAD_COLUMNS, *_PLAN_COLUMNS, "type", "key", "row", "fields"))


class RecordSlice(NamedTuple):
    """Slice of one ledger of a log that a task reads.

    Attributes:
        log: Name of the log.
        ledger_id: The ledger.
        first_revision: Records before it are left out,
        end_revision: as are this one and those after it; 0 = none.
        description: Of the machine, at the first entry; a description inside the range takes its place. None = not
            known any more: name, table, key and row of the machine's records are null.
        bounds: Entries outside are left out; its bounds of revisions are not looked at.
        place: Of which partitioned log `log` is a partition; None = of none that the query names.

    """

    log: str
    ledger_id: int
    first_revision: int = 0
    end_revision: int = 0
    description: MachineDescription | None = None
    bounds: EntryBounds | None = None
    place: PartitionPlace | None = None


class DescribedBatch(NamedTuple):
    """A batch of records, all of them under one description of the machine."""

    records: pa.RecordBatch
    description: MachineDescription | None


class DecodedEntry(NamedTuple):
    """An entry on its way into columns."""

    entry_id: int
    first_revision: int
    record_count: int
    epoch: int
    logged_ms: int
    hash: bytes
    error: str | None
    payload: bytes | memoryview


class _Run(NamedTuple):
    """Columns of records of one type that follow each other."""

    kind: int
    plan: RecordPlan
    keys: Sequence[bytes | None]
    rows: Sequence[bytes | None]
    fields: Sequence[bytes | None]


class EntrySlice(NamedTuple):
    """Records of an entry that become rows now.

    Attributes:
        ledger_id: Where the entry lies.
        entry: It.
        records: All of it.
        first: Number of the first one that becomes a row, from 0;
        end: of the one behind the last.

    """

    ledger_id: int
    entry: DecodedEntry
    records: list[RawRecord]
    first: int
    end: int


SlicesOf = Callable[[DecodedEntry, list[RawRecord]], Iterable[EntrySlice]]
"""The next entry of a range -> what becomes rows behind it: of it, or of entries before it."""


def record_batches(
    blocks: Iterable[EntryBlock],
    columns: tuple[RowColumn, ...],
    span: RecordSlice,
    link: LogLink,
    *,
    keeps_bad: bool,
    slices_of: SlicesOf | None = None,
) -> Iterator[DescribedBatch]:
    """Yield the columns of `rows=records`.

    Args:
        blocks: Of one ledger, ascending.
        columns: Which, of `schema.RECORD_COLUMNS` and the error column.
        span: What is read.
        link: Checks the entries.
        keeps_bad: Whether what cannot be decoded becomes a row with its error.
        slices_of: Says what becomes rows; None = all records of the range, where they stand.

    Raises:
        CorruptLogError, ForkedLogError: See `LogLink.follow`; or an entry's records cannot be read.

    """
    description = span.description
    building = _Builder(columns, span, description, link, keeps_bad=keeps_bad)
    # Heads alone are enough for some columns: then no record is decoded.
    needs_body = bool(slices_of or _BODY_COLUMNS & {column.name for column in columns})
    for block in blocks:
        heads = link.follow(block)
        plain = _plain_records(block, heads, span) if needs_body and slices_of is None else None
        if plain is not None:
            if building.row_count + len(plain) > BATCH_ROWS_MAX:
                yield DescribedBatch(building.batch(), description)
                building = _Builder(columns, span, description, link, keeps_bad=keeps_bad)
            if building.add_block(block, heads, plain):
                if building.size >= BATCH_BYTES_MAX:
                    yield DescribedBatch(building.batch(), description)
                    building = _Builder(columns, span, description, link, keeps_bad=keeps_bad)
                continue
        for entry in read_entries(block, heads, span.bounds):
            records = entry_records(entry, link, keeps_bad=keeps_bad) if needs_body and entry.error is None else None
            if isinstance(records, str):
                entry = entry._replace(error=records)  # noqa: PLW2901 - the same entry, now known to be bad
                records = None
            kinds = [record.type for record in records] if records else []
            if KernelRecord.MACHINE_DESCRIBED in kinds:
                if building.row_count:
                    yield DescribedBatch(building.batch(), description)
                description = _described(records or [], link.place(entry.entry_id))
                building = _Builder(columns, span, description, link, keeps_bad=keeps_bad)
            if slices_of is None or records is None:
                building.add(entry, records, kinds)
                if building.is_full:
                    yield DescribedBatch(building.batch(), description)
                    building = _Builder(columns, span, description, link, keeps_bad=keeps_bad)
                continue
            for part in slices_of(entry, records):
                if building.row_count and (building.is_full or part.ledger_id != building.ledger_id):
                    yield DescribedBatch(building.batch(), description)
                if building.row_count == 0 or building.is_full or part.ledger_id != building.ledger_id:
                    of_ledger = span._replace(ledger_id=part.ledger_id)
                    building = _Builder(columns, of_ledger, description, link, keeps_bad=keeps_bad)
                building.add_slice(part)
    if building.row_count:
        yield DescribedBatch(building.batch(), description)


def _plain_records(block: EntryBlock, heads: BlockHeads, span: RecordSlice) -> list[RawRecord] | None:
    """Return the records of a block in which nothing is special; None = its entries are looked at one by one.

    A look at each entry costs more than all else where entries hold few records; where they do not, little.
    """
    first, last = int(heads.first_revisions[0]), int(heads.first_revisions[-1] + heads.record_counts[-1])
    if last - first > min(BATCH_ROWS_MAX, _FEW * len(block)):
        return None
    if heads.errors or span.bounds is not None or first < span.first_revision or 0 < span.end_revision < last:
        return None
    decode = _FEW_RECORDS.decode
    try:
        found = [decode(body) for body in bodies_of(block.payloads)]
    except msgspec.MsgspecError:
        return None
    records = list(chain.from_iterable(found))
    is_told = list(map(len, found)) == heads.record_counts.tolist()
    return records if is_told and KernelRecord.MACHINE_DESCRIBED not in map(_TYPE, records) else None


def read_entries(block: EntryBlock, heads: BlockHeads, bounds: EntryBounds | None) -> Iterator[DecodedEntry]:
    """Yield the entries of a block that are asked for."""
    ids = range(block.first_entry_id, block.first_entry_id + len(block))
    errors = [heads.errors.get(place) for place in range(len(block))] if heads.errors else [None] * len(block)
    entries = map(
        DecodedEntry,
        ids,
        # A column at a time: a numpy scalar per value would take three times as long.
        heads.first_revisions.tolist(),
        heads.record_counts.tolist(),
        heads.epochs.tolist(),
        heads.logged_ms.tolist(),
        heads.hashes,
        errors,
        block.payloads,
    )
    if bounds is None:
        return entries
    mask = bounds.mask(np.arange(ids.start, ids.stop, dtype=np.int64), heads)
    return (entry for entry, is_asked in zip(entries, mask.tolist(), strict=True) if is_asked)


def entry_records(entry: DecodedEntry, link: LogLink, *, keeps_bad: bool) -> list[RawRecord] | str:
    """Return an entry's records; or what is wrong with it, if that becomes a row."""
    try:
        records = _RECORDS.decode(body_of(entry.payload))
    except msgspec.MsgspecError as error:
        said = f"{link.place(entry.entry_id)}: no records: {error}"
    else:
        if len(records) == entry.record_count:
            return records
        said = f"{link.place(entry.entry_id)} holds {len(records)} records, its envelope says {entry.record_count}"
    if keeps_bad:
        return said
    raise CorruptLogError(said)


def _described(records: list[RawRecord], place: str) -> MachineDescription:
    """Return the description that an entry holds."""
    described = next(record for record in records if record.type == KernelRecord.MACHINE_DESCRIBED)
    try:
        return decode_description(msgpack_decoder(bytes).decode(described.fields[0]))
    except (msgspec.MsgspecError, IndexError) as error:
        raise CorruptLogError(f"{place}: the machine's description cannot be read: {error}") from error


class _Builder:
    """Columns of one batch while it grows.

    Invariants: `_counts` sums up to `row_count`; so many elements has each list of records that is needed.
    """

    def __init__(
        self,
        columns: tuple[RowColumn, ...],
        span: RecordSlice,
        description: MachineDescription | None,
        link: LogLink,
        *,
        keeps_bad: bool,
    ) -> None:
        self.row_count = 0
        self.size = 0
        self.ledger_id = span.ledger_id
        self._columns = columns
        self._span = span
        self._link = link
        self._keeps_bad = keeps_bad
        self._plans = record_plans(description)
        names = {column.name for column in columns}
        self._has_heads = bool(names & set(_HEAD_COLUMNS))
        self._has_key, self._has_row, self._has_fields = "key" in names, "row" in names, "fields" in names
        # One element an entry, repeated `_counts` times at the end.
        self._counts: list[int] = []
        self._entry_ids: list[int] = []
        self._epochs: list[int] = []
        self._logged_ms: list[int] = []
        self._first: list[int] = []  # revision of the first record that is kept; 0 = it has no envelope
        self._hashes: list[bytes | None] = []  # of the last one's entry, if it is the entry's last
        # One element a run of records of one type.
        self._runs: list[tuple[int, RecordPlan, int]] = []
        # One element a record.
        self._heads: list[CommandHead | None] = []
        self._keys: list[bytes | None] = []
        self._rows: list[bytes | None] = []
        self._fields: list[bytes | None] = []
        self._errors: dict[int, str] = {}

    @property
    def is_full(self) -> bool:
        """Return whether it is time to hand it on."""
        return self.row_count >= BATCH_ROWS_MAX or self.size >= BATCH_BYTES_MAX

    def add(self, entry: DecodedEntry, records: list[RawRecord] | None, kinds: list[int]) -> None:
        """Add the records of an entry, whose types are `kinds`, that lie in the range; of a bad entry, one row."""
        if entry.error is not None:
            self._add_bad(entry, entry.error)
            return
        first, count = entry.first_revision, entry.record_count
        skipped = max(0, min(self._span.first_revision - first, count))
        end = min(self._span.end_revision - first, count) if self._span.end_revision else count
        kept = end - skipped
        if kept <= 0:
            return
        self._add_entry(entry, first + skipped, kept, entry.hash if end == count else None)
        if records is not None:
            self._add_records(records if kept == count else records[skipped:end], is_uniform=len(set(kinds)) == 1)

    def add_slice(self, part: EntrySlice) -> None:
        """Add some records of an entry, wherever it lies."""
        entry, count = part.entry, part.end - part.first
        is_whole = part.end == entry.record_count
        self._add_entry(entry, entry.first_revision + part.first, count, entry.hash if is_whole else None)
        # Of its bytes only some become rows: an entry may be cut into many slices.
        self.size -= len(entry.payload) - len(entry.payload) * count // entry.record_count
        self._add_records(part.records[part.first : part.end], is_uniform=False)

    def add_block(self, block: EntryBlock, heads: BlockHeads, records: list[RawRecord]) -> bool:
        """Add whole entries with all their records; return whether that could be: else nothing was added."""
        try:
            runs = [self._run(kind, list(group)) for kind, group in groupby(records, _TYPE)]
        except IndexError:
            return False
        counts = heads.record_counts.tolist()
        # What holds no records has no row that could tell its hash.
        self._counts.extend(filter(None, counts))
        self._entry_ids.extend(compress(range(block.first_entry_id, block.first_entry_id + len(block)), counts))
        self._epochs.extend(compress(heads.epochs.tolist(), counts))
        self._logged_ms.extend(compress(heads.logged_ms.tolist(), counts))
        self._first.extend(compress(heads.first_revisions.tolist(), counts))
        self._hashes.extend(compress(heads.hashes, counts))
        self.row_count += len(records)
        self.size += sum(map(len, block.payloads))
        if self._has_heads:
            self._heads.extend([record.command for record in records])
        for run in runs:
            self._keep(run)
        return True

    def _add_entry(self, entry: DecodedEntry, first: int, count: int, after: bytes | None) -> None:
        self._counts.append(count)
        self._entry_ids.append(entry.entry_id)
        self._epochs.append(entry.epoch)
        self._logged_ms.append(entry.logged_ms)
        self._first.append(first)
        self._hashes.append(after)
        self.row_count += count
        self.size += len(entry.payload)

    def _add_bad(self, entry: DecodedEntry, error: str) -> None:
        """Add a row that says what is wrong with an entry, unless it lies outside of the range."""
        span, first = self._span, entry.first_revision
        if first and (first + entry.record_count <= span.first_revision or 0 < span.end_revision <= first):
            return
        self._errors[self.row_count] = error
        self._add_entry(entry, max(first, span.first_revision) if first else 0, 1, entry.hash)
        self._runs.append((-1, UNKNOWN_PLAN, 1))
        for column in (self._heads, self._keys, self._rows, self._fields):
            column.append(None)

    def _add_records(self, records: list[RawRecord], *, is_uniform: bool) -> None:
        if self._has_heads:
            self._heads.extend([record.command for record in records])
        # Most entries hold one type of record, and need no grouping.
        if is_uniform:
            self._add_run(records[0].type, records)
            return
        for kind, group in groupby(records, _TYPE):
            self._add_run(kind, list(group))

    def _add_run(self, kind: int, records: list[RawRecord]) -> None:
        try:
            self._keep(self._run(kind, records))
        except IndexError:
            if len(records) > 1:
                for record in records:
                    self._add_run(kind, [record])
                return
            plan = self._plans.get(kind, UNKNOWN_PLAN)
            self._add_short(len(records[0].fields), plan)
            self._keep(_Run(kind, plan, [None], [None], self._fields_of(plan, records)))

    def _run(self, kind: int, records: list[RawRecord]) -> _Run:
        """Return the columns of records of one type.

        Raises:
            IndexError: A record has fewer fields than its description.

        """
        plan = self._plans.get(kind, UNKNOWN_PLAN)
        nothing = [None] * len(records)
        keys = join_all(records, plan.key) if self._has_key and plan.key is not None else nothing
        rows = join_all(records, plan.row) if self._has_row and plan.row is not None else nothing
        return _Run(kind, plan, keys, rows, self._fields_of(plan, records))

    def _fields_of(self, plan: RecordPlan, records: list[RawRecord]) -> Sequence[bytes | None]:
        if self._has_fields and plan.keeps_fields:
            return [join_fields(record.fields) for record in records]
        return [None] * len(records)

    def _keep(self, run: _Run) -> None:
        self._keys.extend(run.keys)
        self._rows.extend(run.rows)
        if self._has_fields:
            self._fields.extend(run.fields)
        self._runs.append((run.kind, run.plan, len(run.keys)))

    def _add_short(self, field_count: int, plan: RecordPlan) -> None:
        """Tell of a record that has fewer fields than its description."""
        done = sum(count for _, _, count in self._runs)
        place = done - (self.row_count - self._counts[-1])
        said = (
            f"{self._link.place(self._entry_ids[-1])}: record {self._first[-1] + place} of type {plan.name} has "
            f"{field_count} fields, fewer than its description"
        )
        if not self._keeps_bad:
            raise CorruptLogError(said)
        self._errors[done] = said

    def batch(self) -> pa.RecordBatch:
        """Return the batch; at least one row is there."""
        schema = arrow_schema(self._columns)
        repeat = np.array(self._counts, dtype=np.int64)
        arrays = []
        for field in schema:
            made = self._column(field.name, repeat)
            array = made if isinstance(made, pa.Array) else column_of(made, field.type)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, repeat: np.ndarray[Any, Any]) -> Any:
        match name:
            case "log":
                return repeated(self._span.log, self.row_count)
            case "ledger_id":
                return np.full(self.row_count, self._span.ledger_id, dtype=np.int64)
            case "entry_id" | "leader_epoch" | "logged_at":
                return self._of_entries(name, repeat)
            case "revision":
                return self._revisions(repeat)
            case "type":
                return self._types()
            case "name" | "table_name" | "fold":
                return self._of_plans("table" if name == "table_name" else name)
            case "session" | "sequence" | "answered_up_to" | "reply":
                if all(self._heads):
                    return list(map(attrgetter(name), self._heads))
                return [getattr(head, name) if head else None for head in self._heads]
            case "key":
                return self._keys
            case "row":
                return self._rows
            case "fields":
                return self._fields
            case ERROR_COLUMN.name:
                return [self._errors.get(place) for place in range(self.row_count)]
            case _:
                return self._last_hashes(repeat)

    def _of_entries(self, name: str, repeat: np.ndarray[Any, Any]) -> Any:
        lists = {"entry_id": self._entry_ids, "leader_epoch": self._epochs, "logged_at": self._logged_ms}
        values = np.array(lists[name], dtype=np.int64)
        spread = np.repeat(values * (1000 if name == "logged_at" else 1), repeat)
        return spread if name == "entry_id" else column_of(spread, pa.int64(), self._is_headless(repeat))

    def _revisions(self, repeat: np.ndarray[Any, Any]) -> Any:
        before = np.cumsum(repeat) - repeat
        first = np.array(self._first, dtype=np.int64) - before
        values = np.repeat(first, repeat) + np.arange(self.row_count, dtype=np.int64)
        return column_of(values, pa.int64(), self._is_headless(repeat))

    def _is_headless(self, repeat: np.ndarray[Any, Any]) -> Any:
        """Return which rows have no envelope, or None if all have one."""
        if not self._errors:
            return None
        return np.repeat(np.array(self._first, dtype=np.int64) == 0, repeat)

    def _types(self) -> Any:
        kinds = np.array([kind for kind, _, _ in self._runs], dtype=np.int32)
        values = np.repeat(kinds, [count for _, _, count in self._runs])
        return column_of(values, pa.int32(), values < 0 if self._errors else None)

    def _of_plans(self, attribute: str) -> Any:
        values = [getattr(plan, attribute) for _, plan, _ in self._runs]
        kept = list(dict.fromkeys(values))
        if len(kept) == 1:
            return repeated(kept[0], self.row_count)
        at = {value: place for place, value in enumerate(kept)}
        return chosen(kept, np.repeat([at[value] for value in values], [count for _, _, count in self._runs]))

    def _last_hashes(self, repeat: np.ndarray[Any, Any]) -> Any:
        """Return the column with the entries' hashes on their last rows, nulls elsewhere."""
        if len(self._hashes) == self.row_count:
            return self._hashes
        column: list[bytes | None] = [None] * self.row_count
        for after, end in zip(self._hashes, np.cumsum(repeat).tolist(), strict=True):
            column[end - 1] = after
        return column
