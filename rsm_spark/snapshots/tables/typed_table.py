"""One typed Delta table: its rows are replaced, or some are added, in one commit that says which revision it is of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from rsm_spark.core.machine import Row
from rsm_spark.core.row_tables import RowTable
from rsm_spark.errors import SnapshotError, UnfitTableError
from rsm_spark.snapshots.column_arrays import arrow_array, arrow_type
from rsm_spark.snapshots.columns import steps_of
from rsm_spark.snapshots.commit_words import USER_METADATA
from rsm_spark.snapshots.delta_log import Commit
from rsm_spark.snapshots.delta_sync import sync_commit
from rsm_spark.snapshots.table_commits import TableCommits
from rsm_spark.snapshots.table_files import add_table_files, opened_table, write_table_files
from rsm_spark.snapshots.tables.naming import REVISION_COLUMN, column_names

_COMMITS_MAX = 8
"""Newest commits that are looked at for one of ours: others are few, and in a store each is a request."""
_COMMENT = "comment"


class VersionedTable:
    """A Delta table in a folder or store.

    Args:
        place: Its path or URI.
        storage_options: For `deltalake`.

    """

    def __init__(self, place: str, storage_options: Mapping[str, str] | None) -> None:
        self.place = place
        self._options = dict(storage_options) if storage_options else None
        self._commits = TableCommits(place, storage_options)

    def is_at(self, version: int) -> bool:
        """Return whether the rows of the newest version are those of this one, and all there.

        Raises:
            SnapshotError: The table cannot be looked at.

        """
        for commit in self._commits.newest(_COMMITS_MAX):
            if commit.version == version:
                return commit.details is not None and not commit.missing
            if not _is_vacuum(commit):
                return False
        return False

    def write(
        self,
        table: RowTable,
        rows: Iterable[Row],
        user_metadata: str,
        transaction: Transaction,
        *,
        base: int | None,
        pace: Callable[[], None],
        description: str = "",
    ) -> int:
        """Write rows in one commit; return the version that has them.

        Args:
            table: Its columns.
            rows: All of the table, or those that are added.
            user_metadata: What the commit says of itself; no other one says the same.
            transaction: Delta refuses the commit on top of another one with it which was not seen.
            base: Version to whose rows these are added; None = they replace all.
            pace: Called now and then.
            description: Of a table that is made.

        Raises:
            UnfitTableError: They cannot be those of a Delta table; nothing was written.
            SnapshotError: They could not be written.

        """
        failure: list[Exception] = []
        try:
            schema = _schema_of(table)
            self._commits.set_torn_aside()
            handle = self._opened() if base is None else self._opened_at(base)
            files = write_table_files(self.place, schema, _batches(table, schema, rows, pace, failure), self._options)
            add_table_files(
                self.place,
                handle,
                files,
                schema,
                mode="overwrite" if base is None else "append",
                properties=_properties(user_metadata, transaction),
                name=table.name,
                description=description,
                storage_options=self._options,
            )
            return self._settled(user_metadata)
        except SnapshotError:
            raise
        except Exception as error:  # noqa: BLE001  # the engine wraps what a stream raises into errors of its own
            found = failure[0] if failure else error
            if isinstance(found, UnfitTableError | SnapshotError):
                raise found from None
            raise SnapshotError(f"{self._commits.shown}: it cannot be written: {self._commits.said(found)}") from None

    def empty(self, user_metadata: str, transaction: Transaction) -> None:
        """Leave no row in the newest version: the log has no such table any more.

        Raises:
            SnapshotError: It cannot be written.

        """
        try:
            handle = self._opened()
            if handle is None:
                return
            schema: Any = handle.schema()
            nothing: Any = pa.schema(schema).empty_table()
            write_deltalake(
                handle,
                nothing,
                mode="overwrite",
                commit_properties=_properties(user_metadata, transaction),
            )
            self._settled(user_metadata)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise SnapshotError(f"{self._commits.shown}: it cannot be emptied: {self._commits.said(error)}") from None

    def let_go(self, kept: Iterable[int], retention_hours: int) -> None:
        """Remove files that no version to be kept has, once they are older than a time.

        Raises:
            SnapshotError: They cannot be removed.

        """
        try:
            handle = self._opened()
            if handle is None:
                return
            handle.vacuum(
                retention_hours=retention_hours,
                dry_run=False,
                enforce_retention_duration=False,
                keep_versions=sorted(kept),
            )
            self._commits.sweep(retention_hours * 3600)
        except Exception as error:  # noqa: BLE001  # whatever the engine raises, it is the store's
            raise SnapshotError(
                f"{self._commits.shown}: old versions cannot be removed: {self._commits.said(error)}"
            ) from None

    def remove(self) -> None:
        """Remove all of it.

        Raises:
            SnapshotError: It cannot be removed.

        """
        if self._commits.newest(1):
            self._commits.remove()

    def _opened(self) -> DeltaTable | None:
        return opened_table(self.place, self._options)

    def _opened_at(self, version: int) -> DeltaTable:
        """Open the table, on top of which a commit is refused unless its newest rows are those of a version.

        Raises:
            SnapshotError: They are others.

        """
        handle = self._opened()
        if handle is None or not self.is_at(version):
            raise SnapshotError(f"{self._commits.shown}: another writer has committed since version {version}")
        return handle

    def _settled(self, user_metadata: str) -> int:
        """Return the version of a commit of ours, which is on the disk now."""
        for commit in self._commits.newest(_COMMITS_MAX):
            if commit.details is not None and commit.details.get(USER_METADATA) == user_metadata:
                sync_commit(self.place, commit.version)
                return commit.version
        raise SnapshotError(f"{self._commits.shown}: what was just committed is not there")


def _properties(user_metadata: str, transaction: Transaction) -> CommitProperties:
    return CommitProperties(
        custom_metadata={USER_METADATA: user_metadata}, max_commit_retries=0, app_transactions=[transaction]
    )


def _is_vacuum(commit: Commit) -> bool:
    """Return whether a commit has left the rows as they were: a VACUUM notes its beginning and its end."""
    return commit.details is not None and str(commit.details.get("operation", "")).startswith("VACUUM")


def _schema_of(table: RowTable) -> pa.Schema:
    own = [REVISION_COLUMN] if table.has_revisions else []
    names = column_names([field.name for field in table.fields], taken=own)
    fields: list[pa.Field[Any]] = [
        pa.field(
            name,
            arrow_type(field),
            metadata=None if name == field.name else {_COMMENT: field.name},
        )
        for name, field in zip(names, table.fields, strict=True)
    ]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in own)])


def _batches(
    table: RowTable, schema: pa.Schema, rows: Iterable[Row], pace: Callable[[], None], failure: list[Exception]
) -> Iterator[pa.RecordBatch]:
    try:
        for step in steps_of(rows):
            columns = zip(*map(table.values, step), strict=True)
            arrays = [_array(table, place, values, step) for place, values in enumerate(columns)]
            if table.has_revisions:
                arrays.append(pa.array([row.revision for row in step], pa.int64()))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            pace()
    except Exception as error:
        failure.append(error)
        raise


def _array(table: RowTable, place: int, values: tuple[Any, ...], step: list[Row]) -> pa.Array[Any]:
    field = table.fields[place]
    try:
        return arrow_array(field, values)
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
        raise UnfitTableError(
            f"column {field.name} ({field.type_name}), rows up to revision {max(row.revision for row in step)}: {error}"
        ) from None


def columns_hash(table: RowTable) -> str:
    """Return what tells the columns of a table from others, their defaults too; 32 hex digits."""
    return hashlib.sha256(msgspec.json.encode(table.fields)).hexdigest()[:32]
