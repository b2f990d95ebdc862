"""Table `_revisions`: which version of which typed table is the state at which revision.

It is written when all tables of a revision are on the disk, in one commit: readers trust what it names, and nothing
else. A writer that is killed before leaves versions which it does not name; the next one goes on from what it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from ledger.decoding import convert
from rsm_spark.errors import SnapshotError
from rsm_spark.object_stores.storage_options import shown_uri
from rsm_spark.snapshots.commit_words import USER_METADATA
from rsm_spark.snapshots.delta_sync import sync_commit
from rsm_spark.snapshots.lake_files import lake_complaint
from rsm_spark.snapshots.tables.naming import REVISIONS_TABLE

ROWS_MAX = 1_000_000
"""Most rows that are read: whoever may write to a lake may put anything there."""


class TableVersion(msgspec.Struct, frozen=True):
    """A typed table at a revision.

    Attributes:
        table: Its name.
        path: Its folder, beside `_revisions`.
        version: Of its Delta table; -1 = it could not be written, see `problem`.
        revision: Of the log: the table is as it was right after this record.
        ledger_id: Of the entry of that record; -1 for an empty log.
        entry_id: That entry; -1 for an empty log.
        prefix_hash: Hash of the log after that entry, hex.
        digest: Sum of what its rows add to the state digest, hex.
        rows: How many it has.
        columns: Hash of its description, hex: another one has other columns.
        appends: Versions before this one, in a row, to which rows were only added.
        logged_at: Logged time of the entry.
        written_at: Wall clock of the writer.
        log: Name of the log.
        log_id: Its id, 32 hex digits.
        problem: Why the table could not be written; "" = it was.

    """

    table: str
    path: str
    version: int
    revision: int
    ledger_id: int
    entry_id: int
    prefix_hash: str
    digest: str
    rows: int
    columns: str
    appends: int
    logged_at: datetime
    written_at: datetime
    log: str
    log_id: str
    problem: str = ""


_TYPES: dict[str, pa.DataType] = {"str": pa.string(), "int": pa.int64(), "datetime": pa.timestamp("us", tz="UTC")}
_FIELDS: list[pa.Field[Any]] = [
    pa.field(field.name, _TYPES[field.type.__name__], nullable=False) for field in msgspec.structs.fields(TableVersion)
]
_SCHEMA = pa.schema(_FIELDS)


class Revisions:
    """The table, as one writer or reader sees it.

    Args:
        tables: Where the typed tables of a log lie.
        storage_options: For `deltalake`.

    """

    def __init__(self, tables: str, storage_options: Mapping[str, str] | None) -> None:
        self.place = f"{tables}/{REVISIONS_TABLE}"
        self._options = dict(storage_options) if storage_options else None
        self._handle: DeltaTable | None = None

    def read(self) -> list[TableVersion]:
        """Return its rows, newest revision first, then by table; none if there is no table.

        Raises:
            SnapshotError: It cannot be read, or is none of ours.

        """
        try:
            self._handle = DeltaTable(self.place, storage_options=self._options)
        except TableNotFoundError:
            self._handle = None
            return []
        except (DeltaError, OSError) as error:
            raise self._unreadable(lake_complaint(self.place, error, self._options)) from None
        found: list[TableVersion] = []
        try:
            for batch in pa.RecordBatchReader.from_stream(self._handle.scan(columns=_SCHEMA.names)):
                found += (convert(row, TableVersion) for row in batch.to_pylist())
                if len(found) > ROWS_MAX:
                    raise self._unreadable(f"it has more than {ROWS_MAX:,} rows")
        except (DeltaError, OSError, pa.ArrowException, msgspec.MsgspecError) as error:
            raise self._unreadable(lake_complaint(self.place, error, self._options)) from None
        return sorted(found, key=lambda one: (-one.revision, one.table))

    def write(
        self, rows: Sequence[TableVersion], user_metadata: str, transaction: Transaction, description: str = ""
    ) -> None:
        """Replace its rows, on top of what was read: another writer in between is an error.

        Raises:
            DeltaError, OSError: It cannot be written.

        """
        columns = zip(*(msgspec.structs.astuple(row) for row in rows), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=False)]
        data = pa.Table.from_arrays(arrays, schema=_SCHEMA) if arrays else _SCHEMA.empty_table()
        properties = CommitProperties(
            custom_metadata={USER_METADATA: user_metadata}, max_commit_retries=0, app_transactions=[transaction]
        )
        write_deltalake(
            self._handle if self._handle is not None else self.place,
            data,
            mode="overwrite" if self._handle is not None else "error",
            description=description if self._handle is None else None,
            storage_options=self._options,
            commit_properties=properties,
        )
        self._handle = DeltaTable(self.place, storage_options=self._options)
        sync_commit(self.place, self._handle.version())

    def let_go(self, retention_hours: int) -> None:
        """Remove files of its older versions.

        Raises:
            SnapshotError: They cannot be removed.

        """
        try:
            if self._handle is not None:
                self._handle.vacuum(retention_hours=retention_hours, dry_run=False, enforce_retention_duration=False)
        except Exception as error:  # noqa: BLE001  # whatever the engine raises, it is the store's
            said = lake_complaint(self.place, error, self._options)
            raise SnapshotError(f"{shown_uri(self.place)}: old versions cannot be removed: {said}") from None

    def _unreadable(self, reason: str) -> SnapshotError:
        return SnapshotError(f"{shown_uri(self.place)}: it cannot be read: {reason}")


def newest_of(rows: Iterable[TableVersion]) -> list[TableVersion]:
    """Return the rows of the newest revision."""
    found = list(rows)
    newest = max((one.revision for one in found), default=-1)
    return [one for one in found if one.revision == newest]


def moment(ms: int) -> datetime:
    """Return milliseconds since 1970 as a time."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def kept_rows(rows: Sequence[TableVersion], *, keep: int, since: datetime) -> list[TableVersion]:
    """Return the rows that stay: those of the newest revisions, and those that were written lately.

    Args:
        rows: All.
        keep: Revisions that stay in any case.
        since: What was written at that time or later stays.

    """
    newest: list[Any] = sorted({row.revision for row in rows}, reverse=True)[:keep]
    return [row for row in rows if row.revision in newest or row.written_at >= since]
