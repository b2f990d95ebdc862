"""The Delta tables of a broker's history, written with `deltalake`, without a JVM.

1. Each commit of a table carries its rows and the transaction (application id, revision): they cannot differ.
2. The tables are committed one after the other, `tasks` last. So `tasks` says what is in all of them, the others may be
   ahead of it: what they are then told again, they have, or it says the same once more.
3. A commit is made with the handle that the transaction's version was read from: Delta refuses it if the same
   application committed meanwhile. So two writers cannot apply one range twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from connectors.delta.place import LoggedPlace, find_last_position
from connectors.delta.position import POSITION_FORMAT, encode_position
from connectors.errors import ForeignTableError
from connectors.history.columns import HISTORY_TABLES, HistoryTable, Writing, from_arrow, to_arrow
from rsm_spark.snapshots.commit_words import USER_METADATA, commit_words
from rsm_spark.snapshots.delta_sync import sync_commit

_POSITION_KEY = "rsm_history"
_RANGES_MAX = 16


class HistoryPosition(msgspec.Struct, frozen=True):
    """Position of a table of the history in its log; the key `rsm_history` of its commits has it as JSON.

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
    format: int = POSITION_FORMAT


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


class HistoryPlace(LoggedPlace):
    """Place of one table of the history.

    Attributes:
        table: Which one.
        commit_count: By this process.

    """

    def __init__(
        self, lake: str, table: HistoryTable, *, log: str, log_id: str, storage_options: Mapping[str, str] | None
    ) -> None:
        place, name = f"{lake}/{table.name}", f"history/{table.name}"
        super().__init__(place, log=log, log_id=log_id, name=name, storage_options=storage_options)
        self.table = table
        self.commit_count = 0

    def open(self) -> TableHandle:
        """Load the table.

        Raises:
            ForeignTableError: It is not there, or is not of this log's history.

        """
        found = self.find()
        if found is None:
            raise ForeignTableError(
                f"{self.place}: there is no table; a history has {', '.join(sorted(HISTORY_TABLES))}"
            )
        return TableHandle(self.table, *found)

    def properties(self, position: HistoryPosition, *, moves: bool = True) -> CommitProperties:
        """Return what a commit carries besides rows; see `LoggedPlace.commit_properties`."""
        told = commit_words(
            log=position.log, log_id=position.log_id, revision=position.revision, ledger_id=position.ledger,
            entry_id=position.entry, prefix_hash=position.prefix_hash,
        )  # fmt: skip
        metadata = {_POSITION_KEY: encode_position(position), USER_METADATA: told}
        return self.commit_properties(position.revision, metadata, moves=moves)

    def position(self, opened: TableHandle) -> HistoryPosition:
        """Return where the table is; of a history of commits that was cleared away only the transaction is left.

        Raises:
            ForeignTableError: It was restored to an older version, or somebody else changed it.

        """
        found = find_last_position(opened.handle, self.place, opened.revision, _POSITION_KEY, HistoryPosition)
        return found or HistoryPosition(self.log, self.log_id, opened.revision)

    def upkept(self) -> tuple[DeltaTable, CommitProperties]:
        """See `UpkeptTable`."""
        opened = self.open()
        return opened.handle, self.properties(self.position(opened), moves=False)


class HistoryTables:
    """The tables of one broker's history in one folder.

    Args:
        lake: Path or URI of the folder.
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        storage_options: For `deltalake`, for object stores.

    Attributes:
        places: By name, in the order in which a range of records goes into them.

    """

    def __init__(self, lake: str, *, log: str, log_id: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.lake = lake.rstrip("/")
        self._log = log
        self._log_id = log_id
        self.places = {
            name: HistoryPlace(self.lake, table, log=log, log_id=log_id, storage_options=storage_options)
            for name, table in HISTORY_TABLES.items()
        }

    def create(self, revision: int) -> None:
        """Create the tables that are not there.

        Args:
            revision: The record before the first one that will be in them.

        Raises:
            ForeignTableError: There are some, but not `tasks`, which says where all are; or of another log.

        """
        there = {name: found[1] for name, place in self.places.items() if (found := place.find()) is not None}
        if "tasks" not in there and there and max(there.values()) > revision:
            raise ForeignTableError(
                f"{self.lake}: table tasks is gone, by which all tables of the history go on; the others stand at "
                f"record {max(there.values())}: remove them as well, or choose another folder"
            )
        # `tasks` last: it says that all are there.
        begin = HistoryPosition(self._log, self._log_id, revision)
        for name, place in self.places.items():
            if name not in there:
                table = place.table
                place.make(
                    name, table.schema, place.properties(begin), described=f"table {name} of the history",
                    partition_by=table.partition,
                )  # fmt: skip

    def open(self, name: str) -> TableHandle:
        """Load a table; see `HistoryPlace.open`."""
        return self.places[name].open()

    def position(self) -> HistoryPosition | None:
        """Return where the history is; None if there is none yet.

        Raises:
            ForeignTableError: See `HistoryPlace.open` and `HistoryPlace.position`.

        """
        place = self.places["tasks"]
        return None if place.find() is None else place.position(place.open())

    def position_at(self, revision: int, ledger: int, entry: int, prefix_hash: str) -> HistoryPosition:
        return HistoryPosition(self._log, self._log_id, revision, ledger, entry, prefix_hash)

    def commit(self, opened: TableHandle, rows: Sequence[msgspec.Struct], position: HistoryPosition) -> None:
        """Commit rows to a table; on a local disk they are safe when this returns.

        Raises:
            CommitFailedError: Another writer committed meanwhile.

        """
        place = self.places[opened.table.name]
        opened.write(rows, place.properties(position))
        place.commit_count += 1
        sync_commit(place.place, opened.handle.version())
