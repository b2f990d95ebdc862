"""Entries to Arrow: columns of an entry are computed once and repeated, columns of a record are byte slices.

Nothing is decoded twice: the key and the row of a record are joined from the msgpack bytes of its fields as they stand
in the log, without making Python values of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from connectors.spark.arrow import RAW_ARROW, RECORDS_ARROW
from rsm_spark.core.envelope import HEADER_BYTES, Envelope, decode_envelope, entry_hash
from rsm_spark.core.machine import Fold, MachineDescription, decode_description
from rsm_spark.core.records import CommandHead, KernelRecord
from rsm_spark.errors import CorruptLogError, ForkedLogError

__all__ = ["BATCH_BYTES_MAX", "BATCH_ROWS_MAX", "LogLink", "StoredEntry", "decode_raw", "decode_records"]

BATCH_ROWS_MAX = 10_000
"""Rows of one Arrow batch: beyond this, Spark's boundary costs no less a row."""

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Payload of one Arrow batch: bounds what a task holds."""


class StoredEntry(NamedTuple):
    """One entry as the bookies hold it.

    Attributes:
        entry_id: Its id.
        length: Payload bytes of the ledger up to here.
        payload: Its bytes.

    """

    entry_id: int
    length: int
    payload: bytes


class _RawRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A record whose fields stay bytes."""

    type: int
    command: CommandHead | None
    fields: list[msgspec.Raw]


_RECORDS = msgspec.msgpack.Decoder(list[_RawRecord])


class LogLink:
    """Checks that entries are of this log and follow each other: log id, revisions, prefix hash.

    The first entry's own prefix hash is taken as it is: the range before it is somebody else's.
    """

    __slots__ = ("_hash", "_ledger_id", "_log", "_log_id", "_revision")

    def __init__(self, log: str, log_id: bytes, ledger_id: int) -> None:
        self._log = log
        self._log_id = log_id
        self._ledger_id = ledger_id
        self._hash: bytes | None = None
        self._revision = 0

    def follow(self, entry: StoredEntry) -> tuple[Envelope, bytes]:
        """Return the entry's envelope and the prefix hash after it.

        Raises:
            CorruptLogError: It is no entry of this log, or revisions have a gap.
            ForkedLogError: It does not continue the entry before it.

        """
        place = f"log {self._log}: ledger {self._ledger_id} entry {entry.entry_id}"
        try:
            envelope = decode_envelope(entry.payload)
        except CorruptLogError as error:
            raise CorruptLogError(f"{place}: {error}") from error
        if envelope.log_id != self._log_id:
            raise CorruptLogError(f"{place} belongs to log {envelope.log_id.hex()}, not to {self._log_id.hex()}")
        if self._hash is not None and envelope.prefix_hash != self._hash:
            raise ForkedLogError(f"{place} does not continue the entry before it: the prefix hash differs")
        if self._hash is not None and envelope.first_revision != self._revision:
            raise CorruptLogError(
                f"{place} begins with record {envelope.first_revision}, {self._revision} is next: records are missing"
            )
        self._hash = entry_hash(entry.payload)
        self._revision = envelope.last_revision + 1
        return envelope, self._hash


def decode_raw(
    entries: Iterable[StoredEntry], *, ledger_id: int, log: str | None, link: LogLink | None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of `rows=raw`.

    Args:
        entries: Of one ledger, ascending.
        ledger_id: That ledger.
        log: Name of the log, or None for a plain ledger.
        link: Checks the entries of a log.

    Raises:
        CorruptLogError, ForkedLogError: See `LogLink.follow`.

    """
    held: list[tuple[StoredEntry, Envelope | None]] = []
    size = 0
    for entry in entries:
        held.append((entry, link.follow(entry)[0] if link else None))
        size += len(entry.payload)
        if len(held) >= BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
            yield _raw_batch(held, ledger_id, log)
            held, size = [], 0
    if held:
        yield _raw_batch(held, ledger_id, log)


def _raw_batch(held: list[tuple[StoredEntry, Envelope | None]], ledger_id: int, log: str | None) -> pa.RecordBatch:
    count = len(held)
    envelopes = [envelope for _, envelope in held]
    columns: list[Any] = [
        [log] * count,
        np.full(count, ledger_id, dtype=np.int64),
        [entry.entry_id for entry, _ in held],
        [entry.length for entry, _ in held],
        [envelope.first_revision if envelope else None for envelope in envelopes],
        [envelope.record_count if envelope else None for envelope in envelopes],
        [envelope.leader_epoch if envelope else None for envelope in envelopes],
        [envelope.logged_ms * 1000 if envelope else None for envelope in envelopes],
        [entry.payload for entry, _ in held],
    ]
    return _batch(columns, RAW_ARROW)


class _RecordPlan(NamedTuple):
    """How a record type becomes key, row and fields; positions are those of its fields."""

    name: str | None
    table: str | None
    fold: str | None
    key: tuple[int, ...] | None
    row: tuple[int, ...] | None
    keeps_fields: bool


_UNKNOWN_PLAN = _RecordPlan(None, None, None, None, None, keeps_fields=True)


def _record_plans(description: MachineDescription | None) -> dict[int, _RecordPlan]:
    plans = {
        int(kind): _RecordPlan(kind.name.lower(), None, None, None, None, keeps_fields=True) for kind in KernelRecord
    }
    for record in description.records if description else ():
        at = {field.name: index for index, field in enumerate(record.fields)}
        has_key = record.fold != Fold.NONE
        key = tuple(at[name] for name in record.key) if has_key else None
        row = tuple(at[name] for name in record.row) if record.fold == Fold.UPSERT else None
        keeps = len(set((key or ()) + (row or ()))) < len(record.fields)
        plans[record.type] = _RecordPlan(
            record.name, record.table or None, str(record.fold), key, row, keeps_fields=keeps
        )
    return plans


class _RecordColumns:
    """Columns of one batch while it grows. Invariant: all lists of a record have the same length."""

    def __init__(self, log: str, ledger_id: int) -> None:
        self._log = log
        self._ledger_id = ledger_id
        self.size = 0
        # One element an entry, repeated `counts` times at the end.
        self.counts: list[int] = []
        self.entry_ids: list[int] = []
        self.epochs: list[int] = []
        self.logged_us: list[int] = []
        # One element a record.
        self.revisions: list[int] = []
        self.types: list[int] = []
        self.heads: list[CommandHead | None] = []
        self.plans: list[_RecordPlan] = []
        self.keys: list[bytes | None] = []
        self.rows: list[bytes | None] = []
        self.fields: list[bytes | None] = []
        self.hashes: list[bytes | None] = []

    def add(
        self,
        entry: StoredEntry,
        envelope: Envelope,
        after: bytes,
        records: list[_RawRecord],
        bounds: tuple[int, int],
        plans: dict[int, _RecordPlan],
    ) -> None:
        """Add the records of one entry from the first bound on, before the second (0 = all)."""
        first, count = envelope.first_revision, len(records)
        skipped = max(0, min(bounds[0] - first, count))
        kept = records[skipped : min(bounds[1] - first, count) if bounds[1] else count]
        if not kept:
            return
        self.counts.append(len(kept))
        self.entry_ids.append(entry.entry_id)
        self.epochs.append(envelope.leader_epoch)
        self.logged_us.append(envelope.logged_ms * 1000)
        self.revisions.extend(range(first + skipped, first + skipped + len(kept)))
        self.hashes.extend([None] * (len(kept) - 1))
        self.hashes.append(after if skipped + len(kept) == count else None)
        self.size += len(entry.payload)
        find = plans.get
        for record in kept:
            plan = find(record.type, _UNKNOWN_PLAN)
            fields = record.fields
            self.types.append(record.type)
            self.heads.append(record.command)
            self.plans.append(plan)
            self.keys.append(_join(fields, plan.key))
            self.rows.append(_join(fields, plan.row))
            self.fields.append(b"".join((_array_head(len(fields)), *fields)) if plan.keeps_fields else None)

    def batch(self) -> pa.RecordBatch:
        """Return the batch; at least one record is there."""
        repeat = np.array(self.counts, dtype=np.int64)
        count = len(self.types)
        heads = self.heads
        columns: list[Any] = [
            pa.repeat(pa.scalar(self._log, pa.string()), count),
            np.full(count, self._ledger_id, dtype=np.int64),
            np.repeat(np.array(self.entry_ids, dtype=np.int64), repeat),
            np.array(self.revisions, dtype=np.int64),
            np.repeat(np.array(self.epochs, dtype=np.int64), repeat),
            np.repeat(np.array(self.logged_us, dtype=np.int64), repeat),
            np.array(self.types, dtype=np.int32),
            [plan.name for plan in self.plans],
            [head.session if head else None for head in heads],
            [head.sequence if head else None for head in heads],
            [head.answered_up_to if head else None for head in heads],
            [head.reply if head else None for head in heads],
            [plan.table for plan in self.plans],
            [plan.fold for plan in self.plans],
            self.keys,
            self.rows,
            self.fields,
            self.hashes,
        ]
        return _batch(columns, RECORDS_ARROW)


def _join(fields: list[msgspec.Raw], places: tuple[int, ...] | None) -> bytes | None:
    if places is None:
        return None
    if len(places) == 1:
        return b"\x91" + fields[places[0]]
    return b"".join((_array_head(len(places)), *[fields[place] for place in places]))


def _array_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big")


def decode_records(
    entries: Iterable[StoredEntry],
    *,
    ledger_id: int,
    log: str,
    link: LogLink,
    first_revision: int,
    end_revision: int = 0,
    description: MachineDescription | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of `rows=records`.

    Args:
        entries: Of one ledger, ascending.
        ledger_id: That ledger.
        log: Name of the log.
        link: Checks the entries.
        first_revision: Records before it are left out.
        end_revision: It and the records after it are left out; 0 = none.
        description: Of the machine, at the first entry; a description inside the range takes its place. None = not
            known any more: name, table, key and row of the machine's records are null.

    Raises:
        CorruptLogError, ForkedLogError: See `LogLink.follow`; or an entry's records cannot be read.

    """
    plans = _record_plans(description)
    columns = _RecordColumns(log, ledger_id)
    for entry in entries:
        envelope, after = link.follow(entry)
        records = _decode_body(entry, envelope, ledger_id, log)
        for record in records:
            if record.type == KernelRecord.MACHINE_DESCRIBED:
                plans = _record_plans(decode_description(msgspec.msgpack.decode(record.fields[0], type=bytes)))
        columns.add(entry, envelope, after, records, (first_revision, end_revision), plans)
        if len(columns.types) >= BATCH_ROWS_MAX or columns.size >= BATCH_BYTES_MAX:
            yield columns.batch()
            columns = _RecordColumns(log, ledger_id)
    if columns.types:
        yield columns.batch()


def _decode_body(entry: StoredEntry, envelope: Envelope, ledger_id: int, log: str) -> list[_RawRecord]:
    try:
        records = _RECORDS.decode(memoryview(entry.payload)[HEADER_BYTES:])
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"log {log}: ledger {ledger_id} entry {entry.entry_id}: no records: {error}") from error
    if len(records) != envelope.record_count:
        raise CorruptLogError(
            f"log {log}: ledger {ledger_id} entry {entry.entry_id} holds {len(records)} records, its envelope says "
            f"{envelope.record_count}"
        )
    return records


def _batch(columns: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        column.cast(field.type) if isinstance(column, pa.Array) else pa.array(column, type=field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
