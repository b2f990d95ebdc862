"""The source `ledger_state` at work: the driver plans and folds the tail, a task reads one file of the snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from connectors.errors import TailTooLongError
from connectors.plain_errors import tells_plainly
from connectors.source.access import DriverAccess
from connectors.source.look import LogLook
from connectors.state.as_of import LogRange, find_range
from connectors.state.lake import lake_of
from connectors.state.options import StateOptions
from connectors.state.rows import ROWS_ARROW, TypedTable, typed_table
from connectors.state.tail import Tail, TailEntry, fold_tail
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots
from rsm_spark.snapshots.lake_files import LakeFile, read_lake_file

_CHUNK_BYTES = 4 * 1024 * 1024


def find_state(options: StateOptions, access: DriverAccess) -> tuple[LogRange, LakeSnapshots | None]:
    """Return what has to be read for a query, and the snapshots of the lake.

    Raises:
        RsmError: The state cannot be known; the message says what would help.

    """
    source = options.source
    lake = lake_of(source.lake, source.log, source.storage_options, access)
    look = LogLook(source.log, access)
    return find_range(look, source.log, options.as_of, lake.manifests() if lake else []), lake


@dataclass(frozen=True)
class StatePartition(InputPartition):
    """Partition of a read: rows of a file as the tail leaves them, or rows of the tail.

    Attributes:
        place: The table of the snapshots.
        file: One of its files; None = rows of the tail.
        storage_options: For `deltalake`.
        tail: What the tail does to the file's rows.
        rows: Rows of the tail (Arrow IPC).
        typed: The table whose columns are wanted; None = bytes.

    """

    place: str
    file: LakeFile | None
    storage_options: dict[str, str]
    tail: Tail
    rows: bytes
    typed: TypedTable | None


@tells_plainly("partitions", "read")
class StateReader(DataSourceReader):
    """Reads one state.

    Args:
        options: Of the query.

    """

    def __init__(self, options: StateOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan, and fold the tail.

        Raises:
            TailTooLongError: The tail is longer than `maxTailBytes`.
            RsmError: The state cannot be known.

        """
        options, access = self._options, DriverAccess(self._options.source)
        try:
            log_range, lake = find_state(options, access)
            self._check_tail(log_range)
            tail = fold_tail(log_range, _entries(log_range, access))
        finally:
            access.close()
        typed = typed_table(log_range.machine, options.table) if options.table else None
        files = lake.files(log_range.base) if lake is not None and log_range.base is not None else []
        storage_options, applied = options.source.storage_options, tail.without_rows()
        place = "" if lake is None else lake.place
        nothing = Tail({}, {}, [])
        parts = [StatePartition(place, file, storage_options, applied, b"", typed) for file in files]
        parts += [StatePartition("", None, {}, nothing, _packed(batch), typed) for batch in tail.row_batches()]
        return parts

    def _check_tail(self, log_range: LogRange) -> None:
        most = self._options.tail_bytes_max
        if log_range.payload_bytes <= most:
            return
        begin = f"the snapshot of revision {log_range.base.revision}" if log_range.base else "the log's first record"
        lake = self._options.source.lake
        raise TailTooLongError(
            f"log {log_range.log}: from {begin} to revision {log_range.revision} there are "
            f"{log_range.payload_bytes:,} bytes "
            f"of log, and the driver folds {most:,} at most (maxTailBytes). Either "
            + ("" if lake else "name a lake that has a nearer snapshot (option lake), ")
            + f"write one: jobs/snapshot.py --log {log_range.log} --lake {lake or '…'} "
            f"--at-revision {log_range.revision}; "
            "or fold on the cluster: connectors.state.frame.state_as_of; or raise maxTailBytes"
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Deliver the rows of a partition (in a task)."""
        # Where there are no partitions, Spark runs one task all the same, for a partition of its own.
        if not isinstance(partition, StatePartition):
            return
        rows = _rows_of(partition)
        yield from rows if partition.typed is None else partition.typed.read(rows)


def _rows_of(partition: StatePartition) -> Iterator[pa.RecordBatch]:
    if partition.file is None:
        with pa.ipc.open_stream(partition.rows) as stream:
            yield from stream
        return
    read = read_lake_file(partition.place, partition.file, ROW_SCHEMA.names, partition.storage_options)
    yield from partition.tail.apply(batch.cast(ROWS_ARROW) for batch in read)


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _entries(log_range: LogRange, access: DriverAccess) -> Iterator[TailEntry]:
    """Read the entries of a range in order, a few megabytes at a time."""
    if not log_range.is_read:
        return
    begin, end = log_range.ledger_ids.index(log_range.first[0]), log_range.ledger_ids.index(log_range.last[0])
    for ledger_id in log_range.ledger_ids[begin : end + 1]:
        entry_id = log_range.first[1] if ledger_id == log_range.first[0] else 0
        metadata = access.metadata(ledger_id)
        last = log_range.last[1] if ledger_id == log_range.last[0] else metadata.last_entry_id
        count = 16
        while entry_id <= last:
            chunk = access.read(ledger_id, entry_id, min(entry_id + count - 1, last))
            for entry in chunk:
                yield TailEntry(ledger_id, entry.entry_id, entry.payload)
            entry_id = chunk[-1].entry_id + 1
            size = sum(len(entry.payload) for entry in chunk) // len(chunk) + 1
            count = max(1, min(4096, _CHUNK_BYTES // size))
