"""The two ways to follow a table: `merge` keeps it as it is, `append` keeps every change of it."""

from __future__ import annotations

from collections.abc import Iterable
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
    PackedRow,
    arrow_columns,
    packed_rows,
    terms_of,
)
from connectors.delta.fold import LoggedChange, RecordRange, differing, last_rows
from connectors.delta.place import APPEND_MODE, MERGE_MODE, Loaded
from rsm_spark.core.digest import StateDigest, row_term, table_prefix
from rsm_spark.core.machine import Fold
from rsm_spark.core.records import pack

__all__ = [
    "SNAPSHOT_FOLD",
    "AppendMode",
    "FollowMode",
    "MergeMode",
    "RowStep",
    "Standing",
    "change_terms",
    "mode_named",
]

SNAPSHOT_FOLD = "snapshot"
"""`_fold` of the rows that a history begins with when the log's own beginning was trimmed."""

_REVISION_FIELD: pa.Field[Any] = pa.field(REVISION_COLUMN, pa.int64(), nullable=False)
_DELETED_FIELD: pa.Field[Any] = pa.field(DELETED_COLUMN, pa.bool_())
_HISTORY_FIELDS: tuple[pa.Field[Any], ...] = (
    pa.field(FOLD_COLUMN, pa.string(), nullable=False),
    _REVISION_FIELD,
    pa.field(LOGGED_AT_COLUMN, pa.timestamp("us", "UTC")),
)


class Standing(NamedTuple):
    """Where a table stands.

    Attributes:
        revision: Records up to here are in it.
        digest: Of its rows.
        row_count: Its rows.

    """

    revision: int
    digest: int
    row_count: int


class RowStep(NamedTuple):
    """What a range of records does to a table's rows.

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
    """How a range of records becomes rows of a Delta table."""

    name: str

    def schema(self, followed: FollowedTable) -> pa.Schema:
        """Return the Arrow schema of the Delta table."""
        ...

    def step(self, loaded: Loaded, followed: FollowedTable, records: RecordRange, at: Standing) -> RowStep:
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

    def initial(self, followed: FollowedTable, rows: list[PackedRow], logged_us: int) -> pa.RecordBatch:
        """Return rows of a snapshot as the table begins with them."""
        ...

    def initial_term(self, prefix: bytes, row: PackedRow) -> int:
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

    def step(self, loaded: Loaded, followed: FollowedTable, records: RecordRange, at: Standing) -> RowStep:
        """Return the rows that differ from what the table has: a record that says the same again writes nothing."""
        last = last_rows(records.of_table(followed.name, at.revision))
        old = self._old_rows(loaded.handle, loaded.followed, last) if at.row_count else {}
        changed = differing(last, old)
        digest = StateDigest(at.digest)
        more = digest.replace_all(followed.name, {row.key: (old.get(row.key), row.row) for row in changed})
        deleted = sum(row.row is None for row in changed)
        rows = self._table(followed, changed)
        has_old = any(row.key in old for row in changed)
        return RowStep(rows, digest.value, at.row_count + more, len(changed) - deleted, deleted, has_old)

    def _table(self, followed: FollowedTable, rows: list[PackedRow]) -> pa.Table:
        columns = arrow_columns(followed, rows)
        columns.append(pa.array([row.revision for row in rows], pa.int64()))
        columns.append(pa.array([row.row is None for row in rows], pa.bool_()))
        # A row that goes has no columns: only its key must be there.
        return pa.Table.from_arrays(columns, schema=followed.schema(_REVISION_FIELD, _DELETED_FIELD))

    def _old_rows(self, handle: DeltaTable, stored: FollowedTable, rows: list[PackedRow]) -> dict[bytes, bytes]:
        """Return the rows that the table has for these keys."""
        if not rows:
            return {}
        schema = pa.schema([field.with_nullable(nullable=True) for field in self.schema(stored)])
        keys = {row.key for row in rows}
        wanted = _first_keys(stored, rows)
        found: dict[bytes, bytes] = {}
        # Streamed: only the rows that match are held, whatever the size of the table.
        for batch in pa.RecordBatchReader.from_stream(handle.scan(columns=schema.names)):
            near = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
            if wanted is not None:
                near = near.filter(pc.is_in(near.column(0), value_set=wanted))
            for row in packed_rows(stored, near):
                if row.key in keys and row.row is not None:
                    found[row.key] = row.row
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
                commit_properties=properties,
            )
            .when_matched_delete(f"s.{DELETED_COLUMN}")
            .when_matched_update(values, predicate=f"NOT s.{DELETED_COLUMN}")
            .when_not_matched_insert(everything, predicate=f"NOT s.{DELETED_COLUMN}")
            .execute()
        )

    def initial(self, followed: FollowedTable, rows: list[PackedRow], logged_us: int) -> pa.RecordBatch:  # noqa: ARG002
        """Return rows of a snapshot; `_revision` = the record that last wrote the row."""
        columns = arrow_columns(followed, rows)
        columns.append(pa.array([row.revision for row in rows], pa.int64()))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema(followed))

    def initial_term(self, prefix: bytes, row: PackedRow) -> int:
        """Return the machine's own term."""
        assert row.row is not None, "a snapshot holds rows"
        return row_term(prefix, row.key, row.row)

    def sum(self, followed: FollowedTable, rows: pa.Table) -> int:
        """Return the sum of the machine's terms."""
        return terms_of(rows, followed)


def _first_keys(followed: FollowedTable, rows: list[PackedRow]) -> pa.Array[Any] | None:
    """Return the values of the first key column, for a filter that the row groups can be asked with."""
    if not followed.key:
        return None
    first = FollowedTable(followed.name, followed.key, ())
    return pc.unique(arrow_columns(first, [PackedRow(row.key, None, row.revision) for row in rows])[0])


class AppendMode:
    """The table is the history: a row a change, never read again by the follower."""

    name = APPEND_MODE

    def schema(self, followed: FollowedTable) -> pa.Schema:
        """Return key, other columns (null for a delete), `_fold`, `_revision`, `_logged_at`."""
        return followed.schema(*_HISTORY_FIELDS)

    def step(self, loaded: Loaded, followed: FollowedTable, records: RecordRange, at: Standing) -> RowStep:  # noqa: ARG002
        """Return a row for each record of the table."""
        changes = records.changes(followed.name, at.revision)
        rows = [change.row for change in changes]
        digest = at.digest + change_terms(followed.name, ((change.row, change.fold) for change in changes))
        deleted = sum(row.row is None for row in rows)
        table = self._table(followed, changes)
        return RowStep(table, digest, at.row_count + len(rows), len(rows) - deleted, deleted, has_old=False)

    def _table(self, followed: FollowedTable, changes: list[LoggedChange]) -> pa.Table:
        columns = arrow_columns(followed, [change.row for change in changes])
        columns.append(pa.array([change.fold for change in changes], pa.string()))
        columns.append(pa.array([change.row.revision for change in changes], pa.int64()))
        columns.append(pa.array([change.logged_us for change in changes], pa.timestamp("us", "UTC")))
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

    def initial(self, followed: FollowedTable, rows: list[PackedRow], logged_us: int) -> pa.RecordBatch:
        """Return rows of a snapshot as changes of their own kind, at the snapshot's time."""
        table = self._table(followed, [LoggedChange(row, SNAPSHOT_FOLD, logged_us) for row in rows])
        return table.combine_chunks().to_batches()[0]

    def initial_term(self, prefix: bytes, row: PackedRow) -> int:
        """Return the term of such a change."""
        return row_term(prefix, row.key, pack((row.revision, SNAPSHOT_FOLD, row.row)))

    def sum(self, followed: FollowedTable, rows: pa.Table) -> int:
        """Return the sum of `change_terms` over the table's rows."""
        folds: list[Any] = rows.column(FOLD_COLUMN).to_pylist()
        packed = packed_rows(followed, rows)
        changes = (
            (row._replace(row=None) if fold == Fold.DELETE else row, fold)
            for row, fold in zip(packed, folds, strict=True)
        )
        return change_terms(followed.name, changes)


def change_terms(table: str, changes: Iterable[tuple[PackedRow, str]]) -> int:
    """Return the sum that the digest of a history is made of, not reduced.

    A change counts like a row of the state whose bytes are the msgpack array [revision, fold, row | nil].
    """
    prefix = table_prefix(table)
    return sum(row_term(prefix, row.key, pack((row.revision, fold, row.row))) for row, fold in changes)


def mode_named(name: str) -> FollowMode:
    """Return a mode by its name."""
    return AppendMode() if name == APPEND_MODE else MergeMode()
