"""A Delta table that follows one table of a replicated machine, written with `deltalake`, without a JVM.

1. One commit carries the rows, the transaction (application id, revision) and the position: they cannot differ.
2. A batch is applied by: load a handle, read the transaction's version from it, merge, commit *with that handle*.
   Delta refuses the commit if the same application committed meanwhile: so two writers cannot apply one batch twice.
3. What is at or below the transaction's version is left out: running a batch again changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from connectors.delta.fold import (
    DELETED_COLUMN,
    REVISION_COLUMN,
    BatchEnd,
    Changes,
    fold_records,
    table_schema,
    terms_of,
)
from connectors.delta.position import POSITION_KEY, TablePosition, app_id, decode_position, encode_position
from connectors.errors import DeltaSinkError, ForeignTableError, SinkConflictError
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes
from rsm_spark.core.envelope import root_hash
from rsm_spark.core.machine import TableDescription
from rsm_spark.snapshots.delta_sync import sync_commit

__all__ = ["Applied", "FollowerTable"]

_LOGGER = logging.getLogger(__name__)
_CONFLICT_WAIT_S_MAX = 60.0
_HISTORY_STEPS = (1, 20, 1000)
_DESCRIPTION_PROPERTY = "rsm.table"
_LOG_ID_PROPERTY = "rsm.log_id"


class Applied(NamedTuple):
    """Outcome of one micro-batch.

    Attributes:
        position: The table's, afterwards.
        upserted: Rows inserted or changed.
        deleted: Rows that went.
        is_new: False if every record of the batch had been applied before.

    """

    position: TablePosition
    upserted: int
    deleted: int
    is_new: bool


class FollowerTable:
    """One table of a log's machine as a Delta table.

    Args:
        place: Path or URI of the Delta table.
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        table: The machine's table.
        storage_options: For `deltalake`, for object stores.
        clock: Monotonic seconds.
        sleep: Waits so many seconds.

    """

    def __init__(
        self,
        place: str,
        *,
        log: str,
        log_id: str,
        table: TableDescription,
        storage_options: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.place = place
        self.table = table
        self._log = log
        self._log_id = log_id
        self._app_id = app_id(log, log_id, table.name)
        self._storage_options = dict(storage_options) if storage_options else None
        self._table_id = ""
        self._clock = clock
        self._sleep = sleep
        self._schema = table_schema(table)
        self._keys = [field.name for field in table.key]

    def position(self) -> TablePosition | None:
        """Return where the table is, or None if there is no table yet.

        Raises:
            ForeignTableError: There is a table that does not follow this log.

        """
        handle = self._load()
        return None if handle is None else self._position(handle)

    def open(self) -> TablePosition:
        """Return where the table is; create it, empty, if there is none.

        Raises:
            ForeignTableError: There is a table that does not follow this log.

        """
        handle = self._load() or self._create()
        position = self._position(handle)
        self._table_id = str(handle.metadata().id)
        return position

    @property
    def table_id(self) -> str:
        """Id of the Delta table (uuid), another one whenever it is made anew; known after `open`."""
        return self._table_id

    def apply(self, records: pa.Table) -> Applied:
        """Apply a micro-batch; create the table with the first one.

        Args:
            records: `fold.RECORD_COLUMNS` of all records of a range of the log, in any order.

        Raises:
            SinkGapError: The records do not go on where the table stands.
            SinkConflictError: Other writers kept committing until the time was up.
            ForeignTableError: The table does not follow this log.

        """
        deadline = self._clock() + _CONFLICT_WAIT_S_MAX
        delay_s = 0.05
        while True:
            handle = self._load() or self._create()
            before = self._position(handle)
            changes = fold_records(records, self.table, before.revision)
            if changes.end is None:
                return Applied(before, 0, 0, is_new=False)
            after, upserted, deleted = self._following(handle, before, changes, changes.end)
            try:
                self._commit(handle, changes, after, changes_rows=bool(upserted or deleted))
            except CommitFailedError as error:
                if self._clock() >= deadline:
                    raise SinkConflictError(
                        f"{self.place}: records {before.revision + 1} to {after.revision} could not be committed for "
                        f"{_CONFLICT_WAIT_S_MAX:.0f} s: others kept committing to the table ({error})"
                    ) from error
                _LOGGER.info("another writer committed first, merging again", extra={"table": self.place})
                self._sleep(delay_s)
                delay_s = min(2 * delay_s, 2.0)
                continue
            sync_commit(self.place, handle.version())
            return Applied(after, upserted, deleted, is_new=True)

    def _load(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.place, storage_options=self._storage_options)
        except TableNotFoundError:
            return None

    def _create(self) -> DeltaTable:
        """Create the empty table, with position 0 in its first commit."""
        empty = TablePosition(
            self._log,
            self._log_id,
            self.table.name,
            revision=0,
            ledger=-1,
            entry=-1,
            prefix_hash=root_hash(bytes.fromhex(self._log_id)).hex(),
            digest=digest_bytes(0).hex(),
            row_count=0,
        )
        try:
            return DeltaTable.create(
                self.place,
                self._schema,
                mode="error",
                name=self.table.name,
                configuration={
                    _LOG_ID_PROPERTY: self._log_id,
                    _DESCRIPTION_PROPERTY: msgspec.json.encode(self.table).decode(),
                },
                storage_options=self._storage_options,
                commit_properties=self._properties(empty),
                raise_if_key_not_exists=False,
            )
        except DeltaError:
            # Somebody else created it meanwhile, or it cannot be made at all: then loading says why.
            return DeltaTable(self.place, storage_options=self._storage_options)

    def _position(self, handle: DeltaTable) -> TablePosition:
        log_id = handle.metadata().configuration.get(_LOG_ID_PROPERTY)
        revision = handle.transaction_version(self._app_id)
        if log_id != self._log_id or revision is None:
            whose = f"follows the log with id {log_id}" if log_id else "follows no log"
            raise ForeignTableError(
                f"{self.place}: this Delta table {whose}, or another table of it; table {self.table.name} of log "
                f"{self._log} has id {self._log_id}: choose another place or remove the table"
            )
        described = handle.metadata().configuration.get(_DESCRIPTION_PROPERTY, "")
        if described != msgspec.json.encode(self.table).decode():
            raise DeltaSinkError(
                f"{self.place}: the machine describes table {self.table.name} otherwise than when this Delta table was "
                f"made (then {described}): materialize into a new place"
            )
        return self._last_position(handle, revision)

    def _last_position(self, handle: DeltaTable, revision: int) -> TablePosition:
        """Find the position in the history: other writers (OPTIMIZE) may have committed on top of it."""
        for limit in _HISTORY_STEPS:
            for commit in handle.history(limit):
                text = commit.get(POSITION_KEY)
                if commit.get("operation") == "RESTORE":
                    raise ForeignTableError(
                        f"{self.place}: it was restored to an older version, its rows are not those of revision "
                        f"{revision}: make it anew"
                    )
                if text is None:
                    continue
                position = decode_position(text, place=self.place)
                if position.revision != revision:
                    raise ForeignTableError(
                        f"{self.place}: its transaction stands at {revision}, its last position at "
                        f"{position.revision}: somebody else changed it; make it anew"
                    )
                return position
        # The history was cleaned away; the transaction is kept for ever, and rows can be summed up again.
        rows = handle.to_pyarrow_table()
        digest = terms_of(rows, self.table) % DIGEST_MODULUS
        return TablePosition(
            self._log, self._log_id, self.table.name, revision, -1, -1, "", digest_bytes(digest).hex(), rows.num_rows
        )

    def _following(
        self, handle: DeltaTable, before: TablePosition, changes: Changes, end: BatchEnd
    ) -> tuple[TablePosition, int, int]:
        """Return the position after the changes, how many rows they write and how many they remove."""
        written = changes.rows.filter(pc.invert(changes.rows.column(DELETED_COLUMN)))
        old = self._old_rows(handle, changes.rows)
        deleted = len(self._key_set(old) - self._key_set(written))
        digest = int(before.digest, 16) + terms_of(written, self.table) - terms_of(old, self.table)
        after = TablePosition(
            self._log,
            self._log_id,
            self.table.name,
            revision=end.revision,
            ledger=end.ledger_id,
            entry=end.entry_id,
            prefix_hash=end.prefix_hash.hex(),
            digest=digest_bytes(digest % DIGEST_MODULUS).hex(),
            row_count=before.row_count + written.num_rows - old.num_rows,
        )
        return after, written.num_rows, deleted

    def _key_set(self, rows: pa.Table) -> set[tuple[Any, ...]]:
        return set(zip(*(rows.column(name).to_pylist() for name in self._keys), strict=True))

    def _old_rows(self, handle: DeltaTable, changed: pa.Table) -> pa.Table:
        """Return the rows that the table has for the changed keys."""
        names = [field.name for field in (*self.table.key, *self.table.row)]
        if changed.num_rows == 0:
            return self._schema.empty_table().select(names)
        wanted = pc.unique(changed.column(self._keys[0]))
        schema = pa.schema([self._schema.field(name).with_nullable(nullable=True) for name in names])
        near: list[pa.Table] = [schema.empty_table()]
        # Streamed: only the rows that match are held, whatever the size of the table.
        for batch in pa.RecordBatchReader.from_stream(handle.scan(columns=names)):
            rows = pa.Table.from_batches([batch]).select(names).cast(schema)
            near.append(rows.filter(pc.is_in(rows.column(self._keys[0]), value_set=wanted)))
        found = pa.concat_tables(near)
        if len(self._keys) > 1:
            found = found.join(changed.select(self._keys), keys=self._keys, join_type="left semi")
        return found

    def _commit(self, handle: DeltaTable, changes: Changes, after: TablePosition, *, changes_rows: bool) -> None:
        properties = self._properties(after)
        if not changes_rows:
            # A merge that changes nothing commits nothing; the position must move all the same.
            write_deltalake(handle, self._schema.empty_table(), mode="append", commit_properties=properties)
            return
        values = {field.name: f"s.`{field.name}`" for field in self.table.row}
        values[REVISION_COLUMN] = f"s.{REVISION_COLUMN}"
        everything = {**{name: f"s.`{name}`" for name in self._keys}, **values}
        (
            handle.merge(
                changes.rows,
                " AND ".join(f"t.`{name}` = s.`{name}`" for name in self._keys),
                source_alias="s",
                target_alias="t",
                commit_properties=properties,
            )
            .when_matched_delete(f"s.{DELETED_COLUMN}")
            .when_matched_update(values, predicate=f"NOT s.{DELETED_COLUMN}")
            .when_not_matched_insert(everything, predicate=f"NOT s.{DELETED_COLUMN}")
            .execute()
        )

    def _properties(self, position: TablePosition) -> CommitProperties:
        return CommitProperties(
            custom_metadata={
                POSITION_KEY: encode_position(position),
                # Spark's DESCRIBE HISTORY shows this one.
                "userMetadata": f"log {position.log}, up to revision {position.revision} "
                f"(ledger {position.ledger}, entry {position.entry}), digest {position.digest}",
            },
            # A retry inside would merge against rows that this handle has not seen.
            max_commit_retries=0,
            app_transactions=[Transaction(self._app_id, position.revision)],
        )
