"""The two ways to follow a table: `merge` keeps it as it is, `append` keeps every change of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from connectors.delta.columns import (
    DELETED_COLUMN,
    FOLD_COLUMN,
    LOGGED_AT_COLUMN,
    REVISION_COLUMN,
    FollowedTable,
)
from connectors.delta.fold import LoggedChanges, RecordRange, differing, last_rows
from connectors.delta.key_range import key_range
from connectors.delta.packing import PackedRows, arrow_columns, key_columns, packed_rows, terms_of
from connectors.delta.place import APPEND_MODE, MERGE_MODE, LoadedTable
from rsm_spark.core.digest import StateDigest, row_term, table_prefix
from rsm_spark.core.machine import Fold, Row
from rsm_spark.core.records import pack

SNAPSHOT_FOLD = "snapshot"
"""`_fold` of the rows that a history begins with when the log's own beginning was trimmed."""

_PART_FACTOR = 4
_DELETION_VECTORS = "deletionVectors"
"""Feature of a Delta table: files may have rows that do not count."""
_REVISION_FIELD: pa.Field[Any] = pa.field(REVISION_COLUMN, pa.int64(), nullable=False)
_DELETED_FIELD: pa.Field[Any] = pa.field(DELETED_COLUMN, pa.bool_())
_HISTORY_FIELDS: tuple[pa.Field[Any], ...] = (
    pa.field(FOLD_COLUMN, pa.string(), nullable=False),
    _REVISION_FIELD,
    pa.field(LOGGED_AT_COLUMN, pa.timestamp("us", "UTC")),
)


class Standing(NamedTuple):
    """Standing of a table in its log.

    Attributes:
        revision: Records up to here are in it.
        digest: Of its rows.
        row_count: Its rows.

    """

    revision: int
    digest: int
    row_count: int


class RowStep(NamedTuple):
    """Changes that a range of records makes to a table's rows.

    Attributes:
        rows: To be written, as the mode wants them.
        digest: Of the table afterwards, an integer that is not reduced.
        row_count: Rows of the table afterwards.
        upserted: Rows inserted or changed.
        deleted: Rows that go.
        has_old: Whether some of the keys are in the table already.

    """

    rows: pa.Table
    digest: int
    row_count: int
    upserted: int
    deleted: int
    has_old: bool


class FollowMode(Protocol):
    """Mode of a follower table: how a range of records becomes rows of a Delta table."""

    name: str

    def schema(self, followed: FollowedTable) -> pa.Schema:
        """Return the Arrow schema of the Delta table."""
        ...

    def step(self, loaded: LoadedTable, followed: FollowedTable, records: RecordRange, at: Standing) -> RowStep:
        """Return what the records after the table's position do.

        Args:
            loaded: The table, with the columns that it has.
            followed: The columns that it will have.
            records: A range of the log.
            at: Where the table stands.

        Raises:
            DeltaSinkError: A record does not fit the columns.

        """
        ...

    def write(
        self, handle: DeltaTable, followed: FollowedTable, step: RowStep, properties: CommitProperties, *, widens: bool
    ) -> None:
        """Commit a step that has rows."""
        ...

    def initial(self, followed: FollowedTable, rows: PackedRows, logged_us: int) -> pa.RecordBatch:
        """Return rows of a snapshot as the table begins with them."""
        ...

    def initial_term(self, prefix: bytes, row: Row) -> int:
        """Return what such a row adds to the digest."""
        ...

    def sum(self, followed: FollowedTable, rows: pa.Table) -> int:
        """Return the sum that the digest of a table with these rows is made of."""
        ...


class MergeMode:
    """The table is the machine's: a row a key; the digest is the machine's, over this table."""

    name = MERGE_MODE

    def schema(self, followed: FollowedTable) -> pa.Schema:
        """Return key, other columns, `_revision`."""
        return followed.schema(_REVISION_FIELD)

    def step(self, loaded: LoadedTable, followed: FollowedTable, records: RecordRange, at: Standing) -> RowStep:
        """Return the rows that differ from what the table has: a record that says the same again writes nothing."""
        last = last_rows(records.of_table(followed.name, at.revision))
        old = self._old_rows(loaded.handle, loaded.followed, last) if at.row_count else {}
        changed = differing(last, old)
        digest = StateDigest(at.digest)
        changes = {key: (old.get(key), row) for key, row in zip(changed.keys, changed.rows, strict=True)}
        more = digest.replace_all(followed.name, changes)
        deleted = changed.rows.count(None)
        rows = self._table(followed, changed)
        has_old = not old.keys().isdisjoint(changed.keys)
        return RowStep(rows, digest.value, at.row_count + more, len(changed.keys) - deleted, deleted, has_old)

    def _table(self, followed: FollowedTable, rows: PackedRows) -> pa.Table:
        # A row that goes has no columns: only its key must be there.
        columns = arrow_columns(followed, rows)
        columns.append(pa.array(rows.revisions, pa.int64()))
        columns.append(pa.array([row is None for row in rows.rows], pa.bool_()))
        return pa.Table.from_arrays(columns, schema=followed.schema(_REVISION_FIELD, _DELETED_FIELD))

    def _old_rows(self, handle: DeltaTable, stored: FollowedTable, rows: PackedRows) -> dict[bytes, bytes]:
        """Return the rows that the table has for these keys."""
        if not rows.keys:
            return {}
        schema = pa.schema([field.with_nullable(nullable=True) for field in self.schema(stored)])
        keys = None if len(stored.key) == 1 else set(rows.keys)
        wanted = pc.unique(key_columns(stored, rows)[0]) if stored.key else None
        near_keys = None if wanted is None else key_range(stored.key[0].name, wanted)
        found: dict[bytes, bytes] = {}
        for part in _parts(handle, schema, len(rows.keys), near_keys):
            near = part if wanted is None else part.filter(pc.is_in(part.column(0), value_set=wanted))
            packed = packed_rows(stored, near)
            pairs = zip(packed.keys, packed.rows, strict=True)
            found.update((key, row) for key, row in pairs if row is not None and (keys is None or key in keys))
        return found

    def write(
        self, handle: DeltaTable, followed: FollowedTable, step: RowStep, properties: CommitProperties, *, widens: bool
    ) -> None:
        """Commit: a merge where keys are in the table already, else a mere append."""
        if not step.has_old:
            rows = step.rows.drop_columns([DELETED_COLUMN])
            write_deltalake(
                handle, rows, mode="append", schema_mode="merge" if widens else None, commit_properties=properties
            )
            return
        values = {name: f"s.`{name}`" for name in (*followed.row_names, REVISION_COLUMN)}
        everything = {**{name: f"s.`{name}`" for name in followed.key_names}, **values}
        (
            handle.merge(
                step.rows,
                " AND ".join(f"t.`{name}` = s.`{name}`" for name in followed.key_names) or "true",
                source_alias="s",
                target_alias="t",
                merge_schema=widens,
                # The rows are in memory: their least and greatest keys tell which files need not be read.
                streamed_exec=False,
                commit_properties=properties,
            )
            .when_matched_delete(f"s.{DELETED_COLUMN}")
            .when_matched_update(values, predicate=f"NOT s.{DELETED_COLUMN}")
            .when_not_matched_insert(everything, predicate=f"NOT s.{DELETED_COLUMN}")
            .execute()
        )

    def initial(self, followed: FollowedTable, rows: PackedRows, logged_us: int) -> pa.RecordBatch:  # noqa: ARG002
        """Return rows of a snapshot; `_revision` = the record that last wrote the row."""
        columns = arrow_columns(followed, rows)
        columns.append(pa.array(rows.revisions, pa.int64()))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema(followed))

    def initial_term(self, prefix: bytes, row: Row) -> int:
        """Return the machine's own term."""
        return row_term(prefix, row.key, row.row)

    def sum(self, followed: FollowedTable, rows: pa.Table) -> int:
        """Return the sum of the machine's terms."""
        return terms_of(rows, followed)


def scanned(handle: DeltaTable, schema: pa.Schema, predicate: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table that fit a predicate, in columns and types of a schema, deletion vectors heeded."""
    for batch in pa.RecordBatchReader.from_stream(handle.scan(columns=schema.names, predicate=predicate)):
        yield batch.select(schema.names).cast(schema)


def rewritable(handle: DeltaTable, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows of a table for a write of it, which cannot read a scan: with deletion vectors from a file."""
    if _DELETION_VECTORS in (handle.protocol().reader_features or ()):
        return _kept(schema, scanned(handle, schema))
    dataset = handle.to_pyarrow_dataset()
    return (batch.cast(schema) for batch in dataset.to_batches(columns=schema.names))


def _kept(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read all batches now, into a file that has no name, and return them from there."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever reads it closes it
    with pa.ipc.new_stream(file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in batches:
            writer.write_batch(batch)
    file.seek(0)

    def again() -> Iterator[pa.RecordBatch]:
        with file, pa.ipc.open_stream(file) as reader:
            yield from reader

    return again()


def _parts(handle: DeltaTable, schema: pa.Schema, key_count: int, predicate: str | None) -> Iterator[pa.Table]:
    """Stream what of the table fits a predicate, whatever its size; a part is several times the keys looked for.

    A filter by a set of keys hashes them all again: by the batch it would cost more than reading.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in scanned(handle, schema, predicate):
        held.append(batch)
        count += batch.num_rows
        if count >= _PART_FACTOR * key_count:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)


class AppendMode:
    """The table is the history: a row a change, never read again by the follower."""

    name = APPEND_MODE

    def schema(self, followed: FollowedTable) -> pa.Schema:
        """Return key, other columns (null for a delete), `_fold`, `_revision`, `_logged_at`."""
        return followed.schema(*_HISTORY_FIELDS)

    def step(self, loaded: LoadedTable, followed: FollowedTable, records: RecordRange, at: Standing) -> RowStep:  # noqa: ARG002
        """Return a row for each record of the table."""
        changes = records.changes(followed.name, at.revision)
        count, deleted = len(changes.folds), changes.rows.rows.count(None)
        digest = at.digest + change_terms(followed.name, changes.rows, changes.folds)
        table = self._table(followed, changes)
        return RowStep(table, digest, at.row_count + count, count - deleted, deleted, has_old=False)

    def _table(self, followed: FollowedTable, changes: LoggedChanges) -> pa.Table:
        columns = arrow_columns(followed, changes.rows)
        columns.append(pa.array(changes.folds, pa.string()))
        columns.append(pa.array(changes.rows.revisions, pa.int64()))
        columns.append(pa.array(changes.logged_us, pa.timestamp("us", "UTC")))
        return pa.Table.from_arrays(columns, schema=self.schema(followed))

    def write(
        self,
        handle: DeltaTable,
        followed: FollowedTable,  # noqa: ARG002
        step: RowStep,
        properties: CommitProperties,
        *,
        widens: bool,
    ) -> None:
        """Commit an append."""
        mode: Any = "merge" if widens else None
        write_deltalake(handle, step.rows, mode="append", schema_mode=mode, commit_properties=properties)

    def initial(self, followed: FollowedTable, rows: PackedRows, logged_us: int) -> pa.RecordBatch:
        """Return rows of a snapshot as changes of their own kind, at the snapshot's time."""
        count = len(rows.keys)
        table = self._table(followed, LoggedChanges(rows, [SNAPSHOT_FOLD] * count, [logged_us] * count))
        return table.combine_chunks().to_batches()[0]

    def initial_term(self, prefix: bytes, row: Row) -> int:
        """Return the term of such a change."""
        return row_term(prefix, row.key, pack((row.revision, SNAPSHOT_FOLD, row.row)))

    def sum(self, followed: FollowedTable, rows: pa.Table) -> int:
        """Return the sum of `change_terms` over the table's rows."""
        folds: list[Any] = rows.column(FOLD_COLUMN).to_pylist()
        packed = packed_rows(followed, rows)
        kept = [None if fold == Fold.DELETE else row for row, fold in zip(packed.rows, folds, strict=True)]
        return change_terms(followed.name, packed._replace(rows=kept), folds)


def change_terms(table: str, rows: PackedRows, folds: Sequence[str]) -> int:
    """Return the sum that the digest of a history is made of, not reduced.

    A change counts like a row of the state whose bytes are the msgpack array [revision, fold, row | nil].
    """
    prefix = table_prefix(table)
    return sum(
        row_term(prefix, key, pack((revision, fold, row)))
        for key, row, revision, fold in zip(*rows, folds, strict=True)
    )


def mode_named(name: str) -> FollowMode:
    return AppendMode() if name == APPEND_MODE else MergeMode()
