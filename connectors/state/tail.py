"""The end of a log, folded on the driver: which rows of a snapshot it replaces, and which rows it adds. No Spark.

It is read once, whatever the number of files: a task that reads one of them gets the keys whose rows are not to be
believed any more, and one task more delivers the rows of the tail. A session's row is made of both, where the
snapshot's is: so the sessions that go on are sent along.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from connectors.state.as_of import LogRange
from connectors.state.fold import FoldedRow, LogFold, decode_entry
from connectors.state.parts import is_whole, merge_parts
from connectors.state.rows import ROWS_ARROW
from rsm_spark.core.envelope import decode_envelope
from rsm_spark.core.records import SESSIONS_TABLE
from rsm_spark.errors import CorruptLogError, ForkedLogError

_ROWS_PER_BATCH = 10_000


class TailEntry(NamedTuple):
    """An entry with its place."""

    ledger_id: int
    entry_id: int
    payload: bytes


class Tail(msgspec.Struct, frozen=True):
    """Tail of the log over a snapshot; pickled to tasks, without `rows`.

    Attributes:
        replaced: By table, the keys whose rows in the snapshot do not count any more.
        sessions: By key, (part, revision) of sessions that the snapshot has the beginning of.
        rows: Rows that the tail wrote.

    """

    replaced: dict[str, frozenset[bytes]]
    sessions: dict[bytes, tuple[bytes, int]]
    rows: list[FoldedRow]

    def without_rows(self) -> Tail:
        """Return what a task needs that reads a file of the snapshot."""
        return msgspec.structs.replace(self, rows=[])

    def apply(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of a snapshot, in `ROWS_ARROW`, as they are after the tail."""
        for batch in batches:
            tables: list[Any] = batch.column("table_name").to_pylist()
            keys: list[Any] = batch.column("key").to_pylist()
            nothing: frozenset[bytes] = frozenset()
            keep = [key not in self.replaced.get(table, nothing) for table, key in zip(tables, keys, strict=True)]
            kept = batch if all(keep) else batch.filter(pa.array(keep))
            if self.sessions and SESSIONS_TABLE in tables:
                kept = self._go_on(kept)
            if kept.num_rows:
                yield kept

    def _go_on(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist()
        for row in rows:
            found = self.sessions.get(row["key"]) if row["table_name"] == SESSIONS_TABLE else None
            if found is not None:
                row["row"], row["revision"] = merge_parts([row["row"], found[0]]), found[1]
        return pa.RecordBatch.from_pylist(rows, schema=ROWS_ARROW)

    def row_batches(self) -> list[pa.RecordBatch]:
        """Return the rows of the tail, in `ROWS_ARROW`."""
        columns = ("table", "key", "row", "revision")
        return [
            pa.RecordBatch.from_arrays(
                [
                    pa.array([getattr(change, name) for change in self.rows[at : at + _ROWS_PER_BATCH]], field.type)
                    for name, field in zip(columns, ROWS_ARROW, strict=True)
                ],
                schema=ROWS_ARROW,
            )
            for at in range(0, len(self.rows), _ROWS_PER_BATCH)
        ]


def fold_tail(log_range: LogRange, entries: Iterable[TailEntry]) -> Tail:
    """Fold the entries of a range, each checked to continue the one before it, the first one the snapshot.

    Raises:
        ForkedLogError: An entry does not continue the one before it.
        CorruptLogError: Records are missing, or cannot be read.

    """
    fold = LogFold(log_range.descriptions.get(log_range.first[0]))
    present, following = log_range.before, -1
    for entry in entries:
        place = f"log {log_range.log}: ledger {entry.ledger_id} entry {entry.entry_id}"
        envelope = decode_envelope(entry.payload)
        if envelope.prefix_hash != present:
            raise ForkedLogError(f"{place} does not continue what is before it: the prefix hash differs")
        if following not in {-1, envelope.first_revision}:
            raise CorruptLogError(f"{place} begins with record {envelope.first_revision}, {following} is next")
        present, following = hashlib.sha256(entry.payload).digest(), envelope.last_revision + 1
        low, high = max(envelope.first_revision, log_range.first_revision), min(following - 1, log_range.revision)
        if low <= high:
            records = decode_entry(entry.payload, envelope, place)
            kept = records[low - envelope.first_revision : high - envelope.first_revision + 1]
            try:
                fold.add(kept, low, envelope.logged_ms)
            except CorruptLogError as error:
                raise CorruptLogError(f"{place}: {error}") from error
    return _tail(fold.take())


def _tail(changes: list[FoldedRow]) -> Tail:
    replaced: dict[str, set[bytes]] = {}
    sessions: dict[bytes, tuple[bytes, int]] = {}
    rows: list[FoldedRow] = []
    for change in changes:
        if change.row is not None and change.table == SESSIONS_TABLE and not is_whole(change.row):
            sessions[change.key] = (change.row, change.revision)
            continue
        replaced.setdefault(change.table, set()).add(change.key)
        if change.row is not None:
            rows.append(change)
    return Tail({table: frozenset(keys) for table, keys in replaced.items()}, sessions, rows)
