"""The audit of a log as a Delta table: one row a record of type `audited`, appended exactly once.

The table's transaction says up to which record of the log it holds the audit; a commit carries rows and transaction
together, and is made with the handle that the transaction was read from. So the job may be killed at any moment, or run
twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark's own pages

from connectors.delta.begin import first_revision, looked_at
from connectors.delta.commits import persisted
from connectors.delta.place import LoggedPlace
from connectors.delta.settings import StreamSettings
from connectors.delta.stream import RecordStream
from connectors.errors import ForeignTableError
from ledger.decoding import msgpack_decoder
from rsm_spark.core.records import KernelRecord
from rsm_spark.snapshots.commit_words import USER_METADATA, commit_words
from rsm_spark.snapshots.delta_sync import sync_commit

_TEXTS = ("principal", "role", "source", "action", "target", "outcome")
_COLUMNS = ("revision", "logged_at", "ledger_id", "entry_id", "fields")

_FIELDS: list[pa.Field[Any]] = [
    pa.field("revision", pa.int64(), nullable=False),
    pa.field("logged_at", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("ledger_id", pa.int64(), nullable=False),
    pa.field("entry_id", pa.int64(), nullable=False),
    *[pa.field(name, pa.string(), nullable=False) for name in _TEXTS],
]
AUDIT_SCHEMA = pa.schema(_FIELDS)
"""Columns of the table: place and time of the record, then what `rsm_spark.core.commands.Audited` says."""


class AuditSettings(StreamSettings, frozen=True, kw_only=True):
    """Settings of an audit.

    Attributes:
        table: Path or URI of the Delta table.
        begins_late: Whether a new table may begin with the first record that is left of a log that was trimmed.

    """

    table: str
    trigger: str = "5 seconds"
    records_per_batch_max: int = 1_000_000
    bytes_per_batch_max: str = ""
    begins_late: bool = False


class AuditProgress(msgspec.Struct, frozen=True):
    """A commit: up to which record of the log the table is now, and how many rows came."""

    revision: int
    rows: int


class AuditSummary(msgspec.Struct, frozen=True):
    """Summary of a run: up to which record the table is, commits with rows, their rows, seconds in all."""

    revision: int
    batches: int
    rows: int
    seconds: float


class AuditTable:
    """The table of one log's audit.

    Args:
        place: Path or URI.
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        storage_options: For `deltalake`.

    """

    def __init__(self, place: str, *, log: str, log_id: str, storage_options: dict[str, str] | None = None) -> None:
        self.at = LoggedPlace(
            place.rstrip("/"), log=log, log_id=log_id, name="audit", storage_options=storage_options or None
        )

    def revision(self) -> int | None:
        """Return the last record of the log that the table covers; None if there is no table yet.

        Raises:
            ForeignTableError: It is another log's, or no audit.

        """
        found = self.at.find()
        return None if found is None else found[1]

    def create(self, revision: int) -> None:
        """Make the empty table, which covers the log up to a record."""
        self.at.make("audit", AUDIT_SCHEMA, self._properties(revision))

    def append(self, rows: pa.Table, revision: int) -> int:
        """Append what the table lacks of these rows; return how many.

        Args:
            rows: As `AUDIT_SCHEMA` says; those that the table covers already are left out.
            revision: What the table covers afterwards.

        Raises:
            SinkConflictError, DeltaSinkError: See `connectors.delta.commits.persisted`.
            ForeignTableError: See `revision`.

        """
        return persisted(
            lambda: self._append(rows, revision), place=self.at.place, what=f"the audit up to record {revision}"
        )

    def _append(self, rows: pa.Table, revision: int) -> int:
        found = self.at.find()
        if found is None:
            raise ForeignTableError(f"{self.at.place}: the table is gone, begin it anew")
        handle, covered = found
        if covered >= revision:
            return 0
        fresh = rows.filter(pc.greater(rows.column("revision"), pa.scalar(covered, pa.int64())))
        write_deltalake(handle, fresh, mode="append", commit_properties=self._properties(revision))
        sync_commit(self.at.place, handle.version())
        return fresh.num_rows

    def _properties(self, revision: int) -> CommitProperties:
        told = commit_words(
            log=self.at.log, log_id=self.at.log_id, revision=revision, ledger_id=-1, entry_id=-1, prefix_hash=""
        )
        return self.at.commit_properties(revision, {USER_METADATA: told})


class AuditRecorder:
    """Keeps the audit of one log.

    Args:
        spark: A classic session.
        settings: Of this job.
        report: Told of every commit that brought rows.
        should_stop: Asked now and then.

    """

    def __init__(
        self,
        spark: SparkSession,
        settings: AuditSettings,
        *,
        report: Callable[[AuditProgress], None] = lambda _progress: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._report = report
        self._stream = RecordStream(spark, settings, self, name="audit", should_stop=should_stop)
        self._table: AuditTable | None = None
        self._batches = self._rows = 0

    def run(self) -> AuditSummary:
        """Keep the audit until there is nothing left (`available_now`) or `should_stop` says so.

        Raises:
            ConnectorError: The table is another log's, or the log has lost records that it needs.
            StreamingQueryException: The source failed, again and again.

        """
        began = time.monotonic()
        self._stream.run()
        return AuditSummary(self._opened.revision() or 0, self._batches, self._rows, round(time.monotonic() - began, 3))

    @property
    def _opened(self) -> AuditTable:
        assert self._table is not None, "the stream opens the table first"
        return self._table

    @property
    def columns(self) -> tuple[str, ...]:
        """See `StreamedTables`."""
        return ("type", *_COLUMNS)

    def open(self) -> Mapping[str, int]:
        """See `StreamedTables`."""
        settings = self._settings
        with looked_at(settings) as look:
            view = look.look()
            table = AuditTable(
                settings.table,
                log=settings.log,
                log_id=look.log_id.hex(),
                storage_options=settings.storage_options,
            )
        covered = table.revision()
        if covered is None:
            begin = first_revision(view, settings.log, "An audit", begins_late=settings.begins_late)
            covered = begin - 1
            table.create(covered)
        self._table = table
        return {settings.log: covered + 1}

    def read(self, frame: DataFrame) -> pa.Table:
        """See `StreamedTables`: in one pass what is audited, and how far it goes."""
        audited = F.when(F.col("type") == int(KernelRecord.AUDITED), F.struct(*_COLUMNS))
        return frame.agg(F.max("revision").alias("end"), F.collect_list(audited).alias("audited")).toArrow()

    def apply(self, records: pa.Table, began_s: float) -> bool:  # noqa: ARG002
        """See `StreamedTables`."""
        end = records.column("end")[0].as_py()
        if end is None:
            return False
        count = self._opened.append(_rows(records.column("audited")[0].as_py()), end)
        if count:
            self._batches += 1
            self._rows += count
            self._report(AuditProgress(end, count))
        return True

    def flush(self, *, only_due: bool = False) -> None:
        """See `StreamedTables`: each micro-batch is committed."""


def _rows(records: list[dict[str, Any]]) -> pa.Table:
    """Return the rows of `AUDIT_SCHEMA`, in order of the log."""
    rows = []
    for record in sorted(records, key=lambda record: int(record["revision"])):
        texts = msgpack_decoder(list[str]).decode(record.pop("fields"))
        rows.append({**record, **dict(zip(_TEXTS, texts, strict=True))})
    return pa.Table.from_pylist(rows, schema=AUDIT_SCHEMA)
