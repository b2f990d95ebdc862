"""The Delta tables of a broker's history, written with `deltalake`, without a JVM.

1. Each commit of a table carries its rows and the transaction (application id, revision): they cannot differ.
2. The tables are committed one after the other, `tasks` last. So `tasks` says what is in all of them, the others may be
   ahead of it: what they are then told again, they have, or it says the same once more.
3. A commit is made with the handle that the transaction's version was read from: Delta refuses it if the same
   application committed meanwhile. So two writers cannot apply one range twice.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from connectors.delta.position import app_id
from connectors.errors import ForeignTableError
from connectors.history.columns import HISTORY_TABLES, HistoryTable, Writing, from_arrow, to_arrow
from rsm_spark.snapshots.delta_sync import sync_commit

__all__ = ["HistoryPosition", "HistoryTables", "TableHandle"]

_LOGGER = logging.getLogger(__name__)
_POSITION_KEY = "rsm_history"
_POSITION_FORMAT = 1
_LOG_ID_PROPERTY = "rsm.log_id"
_HISTORY_STEPS = (1, 20, 1000)
_RANGES_MAX = 16
_COMPACTED_BYTES = 64 * 1024 * 1024


class HistoryPosition(msgspec.Struct, frozen=True):
    """Where a table of the history is in its log; the key `rsm_history` of its commits has it as JSON.

    Attributes:
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        revision: Last record that is in the table; also the Delta transaction's version.
        ledger: Ledger of that record's entry; -1 = not known.
        entry: That entry.
        prefix_hash: SHA-256 of that entry, hex: names the history up to it; "" = not known.
        format: Of this text.

    """

    log: str
    log_id: str
    revision: int
    ledger: int = -1
    entry: int = -1
    prefix_hash: str = ""
    format: int = _POSITION_FORMAT


class TableHandle:
    """One table, loaded: what is read from it and what is committed to it belong to one version.

    Args:
        table: Which one.
        handle: Loaded.
        revision: Last record that is in it.

    """

    def __init__(self, table: HistoryTable, handle: DeltaTable, revision: int) -> None:
        self.table = table
        self.handle = handle
        self.revision = revision

    def rows(self, column: str, ids: Sequence[int], *, fields: Sequence[str] = (), also: str = "") -> list[Any]:
        """Return the rows that have one of these numbers in a column.

        Args:
            column: An integer column; files are passed over by their bounds of it.
            ids: Any numbers.
            fields: Columns to read; () = all but payloads and results.
            also: Further condition.

        """
        if not ids:
            return []
        wanted = pa.array(sorted(set(ids)), pa.int64())
        names = list(fields) or [name for name in self.table.schema.names if name not in self.table.kept]
        ranges = " OR ".join(f"(`{column}` BETWEEN {low} AND {high})" for low, high in _ranges(wanted.to_pylist()))
        predicate = f"({ranges})" + (f" AND {also}" if also else "")
        return self._scan([*names, *([] if column in names else [column])], predicate, column, wanted)

    def rows_of(self, column: str, names: Sequence[str], *, fields: Sequence[str] = ()) -> list[Any]:
        """Return the rows that have one of these texts in a column."""
        if not names:
            return []
        wanted = pa.array(sorted(set(names)), pa.string())
        return self._scan(list(fields) or self.table.schema.names, None, column, wanted)

    def _scan(self, columns: list[str], predicate: str | None, column: str, wanted: Any) -> list[Any]:
        schema = pa.schema([self.table.schema.field(name).with_nullable(nullable=True) for name in columns])
        kept: list[pa.Table] = [schema.empty_table()]
        # Streamed: only what is wanted is held, whatever the size of the table.
        for batch in pa.RecordBatchReader.from_stream(self.handle.scan(columns=columns, predicate=predicate)):
            rows = pa.Table.from_batches([batch]).select(columns).cast(schema)
            kept.append(rows.filter(pc.is_in(rows.column(column), value_set=wanted)))
        return from_arrow(pa.concat_tables(kept), self.table)

    def write(self, rows: Sequence[msgspec.Struct], properties: CommitProperties) -> None:
        """Commit rows; none = the transaction alone.

        Raises:
            CommitFailedError: Another writer committed meanwhile.

        """
        if not rows or self.table.writing is Writing.APPEND:
            write_deltalake(self.handle, to_arrow(rows, self.table), mode="append", commit_properties=properties)
            return
        table = self.table
        names = table.schema.names
        matching = [*table.keys, *([table.partition] if table.partition else [])]
        merger = self.handle.merge(
            to_arrow(rows, table),
            " AND ".join(f"t.`{name}` = s.`{name}`" for name in matching),
            source_alias="s",
            target_alias="t",
            # Else the bounds of the rows' keys would not keep files from being read.
            streamed_exec=False,
            commit_properties=properties,
        )
        merger.when_matched_update({name: self._merged(name) for name in names if name not in matching})
        merger.when_not_matched_insert({name: f"s.`{name}`" for name in names}).execute()

    def _merged(self, name: str) -> str:
        if name in self.table.once:
            return f"coalesce(t.`{name}`, s.`{name}`)"
        if name in self.table.kept or self.table.writing is Writing.FILL:
            return f"coalesce(s.`{name}`, t.`{name}`)"
        return f"s.`{name}`"


def _ranges(ids: Sequence[Any]) -> list[tuple[int, int]]:
    """Return at most `_RANGES_MAX` ranges that hold all of the ascending numbers, and few others."""
    gaps = sorted(range(1, len(ids)), key=lambda at: ids[at] - ids[at - 1], reverse=True)[: _RANGES_MAX - 1]
    starts = [0, *sorted(gaps), len(ids)]
    return [(ids[low], ids[high - 1]) for low, high in itertools.pairwise(starts)]


class HistoryTables:
    """The tables of one broker's history in one folder.

    Args:
        lake: Path or URI of the folder.
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        storage_options: For `deltalake`, for object stores.

    """

    def __init__(self, lake: str, *, log: str, log_id: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.lake = lake.rstrip("/")
        self._log = log
        self._log_id = log_id
        self._storage_options = dict(storage_options) if storage_options else None

    def place(self, name: str) -> str:
        """Return where a table is."""
        return f"{self.lake}/{name}"

    def create(self, revision: int) -> None:
        """Create the tables that are not there.

        Args:
            revision: The record before the first one that will be in them.

        Raises:
            ForeignTableError: There are some, but not `tasks`, which says where all are; or of another log.

        """
        missing = [name for name in HISTORY_TABLES if self._load(name) is None]
        if "tasks" in missing and len(missing) < len(HISTORY_TABLES):
            at = max(self.open(name).revision for name in HISTORY_TABLES if name not in missing)
            if at > revision:
                raise ForeignTableError(
                    f"{self.lake}: table tasks is gone, by which all tables of the history go on; the others stand at "
                    f"record {at}: remove them as well, or choose another folder"
                )
        # `tasks` last: it says that all are there.
        for name in missing:
            self._create(HISTORY_TABLES[name], revision)

    def _create(self, table: HistoryTable, revision: int) -> None:
        try:
            DeltaTable.create(
                self.place(table.name),
                table.schema,
                mode="error",
                name=table.name,
                partition_by=table.partition,
                configuration={_LOG_ID_PROPERTY: self._log_id},
                storage_options=self._storage_options,
                commit_properties=self._properties(table.name, HistoryPosition(self._log, self._log_id, revision)),
                raise_if_key_not_exists=False,
            )
        except DeltaError:
            # Somebody else created it meanwhile, or it cannot be made at all: then loading says why.
            DeltaTable(self.place(table.name), storage_options=self._storage_options)

    def _load(self, name: str) -> DeltaTable | None:
        try:
            return DeltaTable(self.place(name), storage_options=self._storage_options)
        except TableNotFoundError:
            return None

    def open(self, name: str) -> TableHandle:
        """Load a table.

        Raises:
            ForeignTableError: It is not there, or is not of this log's history, or was restored to an older version.

        """
        handle = self._load(name)
        if handle is None:
            raise ForeignTableError(
                f"{self.place(name)}: there is no table; a history has {', '.join(sorted(HISTORY_TABLES))}"
            )
        log_id = handle.metadata().configuration.get(_LOG_ID_PROPERTY)
        revision = handle.transaction_version(self._app_id(name))
        if log_id != self._log_id or revision is None:
            whose = f"is of the log with id {log_id}" if log_id else "is of no log"
            raise ForeignTableError(
                f"{self.place(name)}: this Delta table {whose}, log {self._log} has id {self._log_id}: choose another "
                "folder"
            )
        return TableHandle(HISTORY_TABLES[name], handle, revision)

    def position(self) -> HistoryPosition | None:
        """Return where the history is; None if there is none yet.

        Raises:
            ForeignTableError: See `open`.

        """
        if self._load("tasks") is None:
            return None
        opened = self.open("tasks")
        for limit in _HISTORY_STEPS:
            for commit in opened.handle.history(limit):
                if commit.get("operation") == "RESTORE":
                    raise ForeignTableError(
                        f"{self.place('tasks')}: it was restored to an older version, its rows are not those of record "
                        f"{opened.revision}: make the history anew"
                    )
                text = commit.get(_POSITION_KEY)
                if text is not None:
                    position = self._decoded(text)
                    return position if position.revision == opened.revision else self._bare(opened.revision)
        return self._bare(opened.revision)  # The history of commits was cleaned away; the transaction is kept.

    def _decoded(self, text: str) -> HistoryPosition:
        try:
            position = msgspec.json.decode(text, type=HistoryPosition)
        except msgspec.MsgspecError as error:
            raise ForeignTableError(f"{self.place('tasks')}: its position is none of ours: {error}") from error
        if position.format != _POSITION_FORMAT:
            raise ForeignTableError(
                f"{self.place('tasks')}: its position has format {position.format}, this version reads "
                f"{_POSITION_FORMAT}: upgrade"
            )
        return position

    def position_at(self, revision: int, ledger: int, entry: int, prefix_hash: str) -> HistoryPosition:
        """Return a position of this log."""
        return HistoryPosition(self._log, self._log_id, revision, ledger, entry, prefix_hash)

    def _bare(self, revision: int) -> HistoryPosition:
        return HistoryPosition(self._log, self._log_id, revision)

    def _app_id(self, name: str) -> str:
        return app_id(self._log, self._log_id, f"history/{name}")

    def commit(self, opened: TableHandle, rows: Sequence[msgspec.Struct], position: HistoryPosition) -> None:
        """Commit rows to a table; on a local disk they are safe when this returns.

        Raises:
            CommitFailedError: Another writer committed meanwhile.

        """
        opened.write(rows, self._properties(opened.table.name, position))
        sync_commit(self.place(opened.table.name), opened.handle.version())

    def _properties(self, name: str, position: HistoryPosition) -> CommitProperties:
        return CommitProperties(
            custom_metadata={
                _POSITION_KEY: msgspec.json.encode(position).decode(),
                # Spark's DESCRIBE HISTORY shows this one.
                "userMetadata": f"log {position.log}, up to revision {position.revision}",
            },
            # A retry inside would merge against rows that this handle has not seen.
            max_commit_retries=0,
            app_transactions=[Transaction(self._app_id(name), position.revision)],
        )

    def compact(self) -> int:
        """Put small files together; return how many went. What goes wrong only puts it off."""
        removed = 0
        for name in HISTORY_TABLES:
            try:
                removed += int(self.open(name).handle.optimize.compact(target_size=_COMPACTED_BYTES)["numFilesRemoved"])
            except (DeltaError, OSError) as error:
                _LOGGER.warning("files of %s are put together another time: %s", self.place(name), error)
        return removed

    def vacuum(self, retention_hours: int) -> int:
        """Delete files that no version of the last hours needs; return how many. What goes wrong only puts it off."""
        removed = 0
        for name in HISTORY_TABLES:
            try:
                handle = self.open(name).handle
                removed += len(handle.vacuum(retention_hours, dry_run=False, enforce_retention_duration=False))
            except (DeltaError, OSError) as error:
                _LOGGER.warning("old files of %s are deleted another time: %s", self.place(name), error)
        return removed
