"""A Delta table at a place: what it says of itself, and commits that carry the position with the rows.

1. One commit carries the rows, the transaction (application id, revision), the position, and new columns if there are
   any: they cannot differ.
2. A commit is made with the handle whose transaction was read, and is refused if anybody committed meanwhile.
3. Maintenance carries the position too, so that clearing old commits away never takes the last one that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from connectors.delta.columns import FollowedTable
from connectors.delta.position import (
    POSITION_KEY,
    RENAMED_KEY,
    PlacedPosition,
    TablePosition,
    app_id,
    decode_position,
    encode_position,
)
from connectors.errors import DeltaSinkError, ForeignTableError
from ledger.decoding import json_decoder
from rsm_spark.core.machine import TableDescription
from rsm_spark.object_stores.storage_options import remember_secrets
from rsm_spark.snapshots.commit_words import USER_METADATA, commit_words, table_words

MERGE_MODE = "merge"
"""The table is the machine's table: a row a key."""

APPEND_MODE = "append"
"""The table is its history: a row a change."""

_HISTORY_STEPS = (1, 20, 1000)
DESCRIPTION_PROPERTY = "rsm.table"
"""Property of a Delta table: JSON of the `TableDescription` that it was made by."""

LOG_ID_PROPERTY = "rsm.log_id"
"""Property of a Delta table that is made of a log's records: the log's id."""

MODE_PROPERTY = "rsm.mode"
"""Property of a Delta table that follows a table of a machine: how; none = `MERGE_MODE`."""

CHANGE_FEED_PROPERTY = "delta.enableChangeDataFeed"
"""Property of a Delta table: whether its commits tell each change of a row."""

_APP_PROPERTY = "rsm.app_id"
_Position = TypeVar("_Position", bound=PlacedPosition)


class LoadedTable(NamedTuple):
    """A table as it was at one moment.

    Attributes:
        handle: Of that version.
        position: Where it stands; None if the commits that told it are gone, then only `revision` is known.
        revision: Of its transaction.
        followed: Its columns.

    """

    handle: DeltaTable
    position: TablePosition | None
    revision: int
    followed: FollowedTable


class LoggedPlace:
    """Place of a Delta table that is made of a log's records, whatever its rows are.

    Args:
        place: Path or URI.
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        name: Of what the table is, among the tables of this log: `connectors.delta.position.app_id`.
        storage_options: For `deltalake`, for object stores.

    """

    def __init__(
        self, place: str, *, log: str, log_id: str, name: str, storage_options: Mapping[str, str] | None
    ) -> None:
        self.place = place
        self.log = log
        self.log_id = log_id
        self.name = name
        self.app_id = app_id(log, log_id, name)
        self._storage_options = dict(storage_options) if storage_options else None
        remember_secrets(storage_options)

    def find(self) -> tuple[DeltaTable, int] | None:
        """Return the table as it is now, and the revision of its transaction; None if there is no table.

        Raises:
            ForeignTableError: It is not made of this log's records, or is another table of them.

        """
        try:
            handle = DeltaTable(self.place, storage_options=self._storage_options)
        except TableNotFoundError:
            return None
        log_id = handle.metadata().configuration.get(LOG_ID_PROPERTY)
        if log_id == self.log_id and handle.transaction_version(self.app_id) is None:
            made = find_follower(handle, self.place)  # The log may have had another name then.
            self.app_id = made if made.endswith(app_id("", log_id, self.name).removeprefix("rsm:")) else self.app_id
        revision = handle.transaction_version(self.app_id)
        if log_id != self.log_id or revision is None:
            whose = f"follows the log with id {log_id}" if log_id else "follows no log"
            raise ForeignTableError(
                f"{self.place}: this Delta table {whose}, or another table of it; {self.name} of log {self.log} has id "
                f"{self.log_id}: choose another place or remove the table"
            )
        return handle, revision

    def make(
        self,
        name: str,
        schema: pa.Schema,
        properties: CommitProperties,
        *,
        described: str = "",
        configuration: Mapping[str, str] | None = None,
        partition_by: str | None = None,
    ) -> None:
        """Make the table, empty, or do nothing if somebody else has made it meanwhile.

        Args:
            name: For who lists tables.
            schema: Its columns.
            properties: Of its first commit.
            described: What it is, such as "table map", in its description; "" = what `name` says.
            configuration: Further properties of the table.
            partition_by: Column.

        """
        try:
            DeltaTable.create(
                self.place,
                schema,
                mode="error",
                name=name,
                description=table_words(described or name, self.log, self.log_id),
                partition_by=partition_by,
                configuration={LOG_ID_PROPERTY: self.log_id, **(configuration or {})},
                storage_options=self._storage_options,
                commit_properties=properties,
                raise_if_key_not_exists=False,
            )
        except DeltaError:
            # Somebody else created it meanwhile, or it cannot be made at all: then loading says why.
            DeltaTable(self.place, storage_options=self._storage_options)

    def commit_properties(self, revision: int, metadata: Mapping[str, str], *, moves: bool = True) -> CommitProperties:
        """Return what a commit carries besides rows.

        Args:
            revision: Last record that is in the table afterwards.
            metadata: Of the commit; Spark's DESCRIBE HISTORY shows `USER_METADATA`.
            moves: False for maintenance: the transaction stays as it is.

        """
        return CommitProperties(
            custom_metadata=dict(metadata),
            # A retry inside would commit on top of rows that this handle has not seen.
            max_commit_retries=0,
            app_transactions=[Transaction(self.app_id, revision)] if moves else None,
        )


class DeltaPlace(LoggedPlace):
    """Place of a Delta table that follows one table of a machine.

    Args:
        place: Path or URI.
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        table: Name of the machine's table.
        mode: `MERGE_MODE` or `APPEND_MODE`.
        storage_options: For `deltalake`, for object stores.

    """

    def __init__(
        self, place: str, *, log: str, log_id: str, table: str, mode: str, storage_options: Mapping[str, str] | None
    ) -> None:
        super().__init__(place, log=log, log_id=log_id, name=table, storage_options=storage_options)
        self.mode = mode

    def load(self) -> LoadedTable | None:
        """Return the table as it is now, or None if there is none.

        Raises:
            ForeignTableError: It does not follow this table of this log, or somebody else changed it.
            DeltaSinkError: It was made in another mode.

        """
        found = self.find()
        if found is None:
            return None
        handle, revision = found
        properties = handle.metadata().configuration
        mode = properties.get(MODE_PROPERTY, MERGE_MODE)
        if mode != self.mode:
            raise DeltaSinkError(
                f"{self.place}: this table was made in mode {mode}, mode {self.mode} was asked for: choose another "
                f"place, or go on with --mode {mode}"
            )
        described = json_decoder(TableDescription).decode(properties.get(DESCRIPTION_PROPERTY, ""))
        fields: list[dict[str, Any]] = msgspec.json.decode(handle.schema().to_json())["fields"]
        followed = FollowedTable.stored(described, fields)
        return LoadedTable(handle, find_position(handle, self.place, revision), revision, followed)

    def create(
        self, followed: FollowedTable, schema: pa.Schema, position: TablePosition, *, has_change_feed: bool = False
    ) -> None:
        """Make the table, empty, or do nothing if somebody else has made it meanwhile.

        Args:
            followed: Its columns.
            schema: Arrow schema of the Delta table.
            position: Where it begins; in its first commit.
            has_change_feed: Whether its commits tell each change of a row.

        """
        described = TableDescription(followed.name, followed.key, tuple(column.field for column in followed.row))
        configuration = {
            DESCRIPTION_PROPERTY: msgspec.json.encode(described).decode(),
            MODE_PROPERTY: self.mode,
            _APP_PROPERTY: self.app_id,
        }
        if has_change_feed:
            configuration[CHANGE_FEED_PROPERTY] = "true"
        self.make(
            followed.name, schema, self.properties(position), described=f"table {followed.name}",
            configuration=configuration,
        )  # fmt: skip

    def add_change_feed(self, loaded: LoadedTable, position: TablePosition) -> bool:
        """Have the commits from the next one on tell each change of a row; return False if they do already.

        Args:
            loaded: The table; nobody may have committed since.
            position: Where it stands.

        """
        if loaded.handle.metadata().configuration.get(CHANGE_FEED_PROPERTY, "").lower() == "true":
            return False
        loaded.handle.alter.set_table_properties(
            {CHANGE_FEED_PROPERTY: "true"}, commit_properties=self.properties(position, moves=False)
        )
        return True

    def replace(self, handle: DeltaTable, rows: pa.RecordBatchReader, position: TablePosition) -> None:
        """Write over all rows and columns of the table, in one commit.

        Args:
            handle: Of the table; nobody may have committed since.
            rows: What it holds afterwards.
            position: Where it stands then.

        """
        write_deltalake(
            handle, rows, mode="overwrite", schema_mode="overwrite", commit_properties=self.properties(position)
        )

    def properties(self, position: TablePosition, *, moves: bool = True, is_renaming: bool = False) -> CommitProperties:
        """Return what a commit carries besides rows.

        Args:
            position: The table's, afterwards.
            moves: False for maintenance: the transaction stays as it is.
            is_renaming: It writes over the rows only to give columns other names.

        """
        metadata = {
            POSITION_KEY: encode_position(position),
            USER_METADATA: commit_words(
                log=position.log,
                log_id=position.log_id,
                revision=position.revision,
                ledger_id=position.ledger,
                entry_id=position.entry,
                prefix_hash=position.prefix_hash,
                table=position.table,
                digest=position.digest,
                rows=position.row_count,
            ),
        }
        if is_renaming:
            metadata[RENAMED_KEY] = "true"
        return self.commit_properties(position.revision, metadata, moves=moves)


def find_position(handle: DeltaTable, place: str, revision: int) -> TablePosition | None:
    """Find the position in the history: others (OPTIMIZE) may have committed on top of it; None if it is cleared away.

    Raises:
        ForeignTableError: The table was restored to an older version, or somebody else changed it.

    """
    return find_last_position(handle, place, revision, POSITION_KEY, TablePosition)


def find_last_position(
    handle: DeltaTable, place: str, revision: int, key: str, kind: type[_Position]
) -> _Position | None:
    """Find the position of a kind that the last commits of a table carry; None if it is cleared away.

    Args:
        handle: Of the table.
        place: Of the table, for errors.
        revision: Of its transaction.
        key: Of the position in the metadata of a commit.
        kind: Its struct.

    Raises:
        ForeignTableError: The table was restored to an older version, or somebody else changed it.

    """
    for limit in _HISTORY_STEPS:
        for commit in handle.history(limit):
            text = commit.get(key)
            if commit.get("operation") == "RESTORE":
                raise ForeignTableError(
                    f"{place}: it was restored to an older version, its rows are not those of revision "
                    f"{revision}: make it anew"
                )
            if text is None:
                continue
            position = decode_position(text, place=place, kind=kind)
            if position.revision != revision:
                raise ForeignTableError(
                    f"{place}: its transaction stands at {revision}, its last position at "
                    f"{position.revision}: somebody else changed it; make it anew"
                )
            return position
    return None


def find_follower(handle: DeltaTable, place: str) -> str:
    """Return the application id of a follower table's transactions.

    Raises:
        ForeignTableError: The table follows no log.

    """
    known = handle.metadata().configuration.get(_APP_PROPERTY)
    if known:
        return str(known)
    for commit in handle.history(_HISTORY_STEPS[-1]):  # Made before tables said it.
        text = commit.get(POSITION_KEY)
        if text is not None:
            position = decode_position(text, place=place, kind=TablePosition)
            return app_id(position.log, position.log_id, position.table)
    raise ForeignTableError(f"{place}: this Delta table follows no log: it has no position of ours")
