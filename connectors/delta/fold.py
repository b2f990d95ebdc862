"""A micro-batch of records: one unbroken range of the log, and what it does to the tables of the machine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.delta.packing import PackedRows
from connectors.errors import SinkGapError
from rsm_spark.core.machine import Fold, MachineDescription, decode_description
from rsm_spark.core.records import KernelRecord

RECORD_COLUMNS = (
    "revision",
    "ledger_id",
    "entry_id",
    "logged_at",
    "type",
    "table_name",
    "fold",
    "key",
    "row",
    "fields",
    "entry_hash",
)
"""Columns of `rows=records` that followers need; `fields` of descriptions only."""


_DESCRIBED = pa.scalar(int(KernelRecord.MACHINE_DESCRIBED), pa.int32())


class BatchEnd(NamedTuple):
    """Last record of a range, which ends an entry."""

    revision: int
    ledger_id: int
    entry_id: int
    prefix_hash: bytes


class LoggedChanges(NamedTuple):
    """Records of a table, in order; lists of the same length.

    Attributes:
        rows: What they make of the rows of their keys.
        folds: `upsert` or `delete`.
        logged_us: Logged times, microseconds since 1970.

    """

    rows: PackedRows
    folds: list[str]
    logged_us: list[int]


class RecordRange:
    """Records of a range of the log, in order.

    Args:
        records: `RECORD_COLUMNS` of all records of the range, in any order; at least one. Who asks for no table may
            leave out `table_name`, `fold`, `key` and `row`.

    Raises:
        SinkGapError: Records are missing in between, or the range does not end with an entry.

    """

    def __init__(self, records: pa.Table) -> None:
        revisions = records.column("revision").to_numpy()
        if (np.diff(revisions) < 0).any():
            records = records.sort_by("revision")
            revisions = records.column("revision").to_numpy()
        self.first, last = int(revisions[0]), int(revisions[-1])
        if last - self.first + 1 != len(revisions) or (np.diff(revisions) != 1).any():
            raise SinkGapError(
                f"the micro-batch has {len(revisions)} records {self.first} to {last}: records are missing in between"
            )
        self._records = records
        tail = records.select(["ledger_id", "entry_id", "entry_hash"]).slice(len(revisions) - 1).to_pylist()[0]
        if tail["entry_hash"] is None:
            raise SinkGapError(f"the micro-batch ends with record {last}, inside entry {tail['entry_id']}")
        self.end = BatchEnd(last, tail["ledger_id"], tail["entry_id"], tail["entry_hash"])
        self.descriptions = self._described()

    def __len__(self) -> int:
        """Return how many records it has."""
        return int(self._records.num_rows)

    def _described(self) -> tuple[tuple[int, MachineDescription], ...]:
        """Return how the machine is described in this range, with the revisions of these records."""
        found = self._records.filter(pc.equal(self._records.column("type"), _DESCRIBED))
        return tuple(
            (one["revision"], decode_description(msgspec.msgpack.decode(one["fields"])[0]))
            for one in found.select(["revision", "fields"]).to_pylist()
        )

    def check_follows(self, revision: int, place: str) -> None:
        """Check that a table that stands at a revision lacks nothing before this range.

        Raises:
            SinkGapError: It does.

        """
        if self.first > revision + 1:
            raise SinkGapError(
                f"{place}: the table ends with record {revision}, the micro-batch has {len(self)} records "
                f"{self.first} to {self.end.revision}: records are missing in between"
            )

    def until(self, revision: int) -> RecordRange | None:
        """Return the whole entries before a record; None if there are none."""
        head = self._records.slice(0, max(0, revision - self.first))
        ends = pc.filter(head.column("revision"), pc.is_valid(head.column("entry_hash")))
        last: int | None = pc.max(ends).as_py() if len(ends) else None
        return None if last is None else RecordRange(head.slice(0, last - self.first + 1))

    def holds(self, table: str, after: int, before: int) -> bool:
        """Return whether there are records of a table between two revisions, exclusive."""
        first = pc.min(self.of_table(table, after).column("revision")).as_py()
        return first is not None and first < before

    def after(self, revision: int) -> pa.Table:
        """Return the records after a revision, in order, with the columns that the range was made with."""
        return self._records.slice(max(0, revision + 1 - self.first))

    def of_table(self, table: str, after: int) -> pa.Table:
        """Return the records of a table after a revision, in order: revision, logged_at, fold, key, row."""
        fresh = self.after(after)
        chosen = fresh.filter(pc.equal(fresh.column("table_name"), pa.scalar(table)))
        return chosen.select(["revision", "logged_at", "fold", "key", "row"])

    def changes(self, table: str, after: int) -> LoggedChanges:
        """Return every change of a table after a revision, in order."""
        records = self.of_table(table, after)
        folds: list[Any] = records.column("fold").to_pylist()
        times: list[Any] = records.column("logged_at").cast(pa.int64()).to_pylist()
        return LoggedChanges(_rows_of(records), folds, times)


def last_rows(records: pa.Table) -> PackedRows:
    """Return what is left of each key after records of one table: its last row, or none.

    Args:
        records: Of `RecordRange.of_table`.

    """
    rows = _rows_of(records)
    # Later records overwrite earlier ones: rows are in the order of revisions.
    last_of = dict(zip(rows.keys, range(len(rows.keys)), strict=True))
    return rows.select(list(last_of.values()))


def _rows_of(records: pa.Table) -> PackedRows:
    keys: list[Any] = records.column("key").to_pylist()
    rows: list[Any] = records.column("row").to_pylist()
    is_delete = pc.equal(records.column("fold"), pa.scalar(str(Fold.DELETE)))
    if pc.any(is_delete).as_py():
        rows = [None if gone else row for row, gone in zip(rows, is_delete.to_pylist(), strict=True)]
    revisions: list[Any] = records.column("revision").to_pylist()
    return PackedRows(keys, rows, revisions)


def differing(rows: PackedRows, old: Mapping[bytes, bytes]) -> PackedRows:
    """Return those rows whose bytes are not what the table has: the others would be written for nothing.

    Args:
        rows: One a key.
        old: Rows of the table by key, as far as they are among these keys.

    """
    find = old.get
    return rows.select([n for n, (key, row) in enumerate(zip(rows.keys, rows.rows, strict=True)) if find(key) != row])
