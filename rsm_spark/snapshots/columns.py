"""Rows of a state as Arrow columns, and Parquet files of them that know their own hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedWriter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rsm_spark.core.machine import Row

_FIELDS: list[pa.Field[Any]] = [
    pa.field("table_name", pa.string(), nullable=False),
    pa.field("key", pa.binary(), nullable=False),
    pa.field("row", pa.binary(), nullable=False),
    pa.field("revision", pa.int64(), nullable=False),
]
ROW_SCHEMA = pa.schema(_FIELDS)
"""Columns of a snapshot, on disk and in the lake."""

ROW_GROUP_ROWS = 16_384
ROW_GROUP_BYTES = 16 * 1024 * 1024
"""A row group ends at whichever comes first: what writer and reader hold in memory."""
_STEP_ROWS = 256
_STEP_BYTES = 256 * 1024
_BATCH_ROWS = 1_024
_BATCH_BYTES = 4 * 1024 * 1024


class _Hashing:
    """A file for Arrow that hashes and counts what is written through it."""

    def __init__(self, file: BufferedWriter) -> None:
        self._file: BufferedWriter | None = file
        self.hash = hashlib.sha256()
        self.bytes = 0
        self.closed = False

    def write(self, chunk: bytes) -> int:
        if self._file is not None:
            self.hash.update(chunk)
            self._file.write(chunk)
        self.bytes += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """Arrow asks; the snapshot decides when to flush and sync."""

    def close(self) -> None:
        self.closed = True

    def discard(self) -> None:
        """Write nothing from now on: Arrow closes its writer with a footer whatever happened."""
        self._file = None

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


class RowFile:
    """A Parquet file of one table that is being written, a row group at a time."""

    def __init__(self, table: str, file: BufferedWriter) -> None:
        self.table = table
        self.row_count = 0
        self._sink = _Hashing(file)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),  # type: ignore[arg-type]  # it asks for no more than these methods
            ROW_SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=["table_name"],  # type: ignore[arg-type]  # the stubs know only bool
            write_statistics=["revision"],
        )
        self._keys: list[bytes] = []
        self._rows: list[bytes] = []
        self._revisions: list[int] = []
        self._held_bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._group_rows = 0
        self._group_bytes = 0

    @property
    def bytes(self) -> int:
        return self._sink.bytes

    @property
    def sha256(self) -> str:
        """Hash of what was written, hex; final after `finish`."""
        return self._sink.hash.hexdigest()

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows of this table."""
        _, keys, packed, revisions = zip(*rows, strict=True)
        self._keys += keys
        self._rows += packed
        self._revisions += revisions
        self._held_bytes += sum(map(len, keys)) + sum(map(len, packed))
        if len(self._keys) >= _BATCH_ROWS or self._held_bytes >= _BATCH_BYTES:
            self._make_batch()
            if self._group_rows >= ROW_GROUP_ROWS or self._group_bytes >= ROW_GROUP_BYTES:
                self._write_group()

    def finish(self) -> None:
        """Write the rest and the footer; the file stays open for its owner to sync and close."""
        if self._keys:
            self._make_batch()
        if self._batches:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Let go of the writer; the file is not whole."""
        self._sink.discard()
        self._writer.close()

    def _make_batch(self) -> None:
        """Turn the rows at hand into Arrow columns: holds the interpreter, so not too many at once."""
        count = len(self._keys)
        batch = pa.record_batch(
            [
                pa.array([self.table] * count, pa.string()),
                pa.array(self._keys, pa.binary()),
                pa.array(self._rows, pa.binary()),
                pa.array(self._revisions, pa.int64()),
            ],
            schema=ROW_SCHEMA,
        )
        self._batches.append(batch)
        self._group_rows += count
        self._group_bytes += self._held_bytes
        self._keys, self._rows, self._revisions, self._held_bytes = [], [], [], 0

    def _write_group(self) -> None:
        """Encode and write: lets the interpreter go."""
        self._writer.write_table(pa.Table.from_batches(self._batches), row_group_size=self._group_rows)
        self.row_count += self._group_rows
        self._batches, self._group_rows, self._group_bytes = [], 0, 0


def steps_of(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Cut rows into small steps, bounded by count and by bytes."""
    step: list[Row] = []
    size = 0
    for row in rows:
        step.append(row)
        size += len(row[2])
        if size >= _STEP_BYTES or len(step) >= _STEP_ROWS:
            yield step
            step, size = [], 0
    if step:
        yield step


def rows_of_batch(batch: pa.RecordBatch) -> Iterator[Row]:
    """Iterate over the rows of Arrow columns in `ROW_SCHEMA`."""
    columns = [batch.column(name).to_pylist() for name in ROW_SCHEMA.names]
    return map(Row, *columns)


def rows_of_file(path: Path) -> Iterator[Row]:
    """Iterate over the rows of a Parquet file in `ROW_SCHEMA`. Holds one row group at a time.

    Raises:
        OSError, pa.ArrowException: It cannot be read, or has other columns.

    """
    with pq.ParquetFile(path, memory_map=True) as parquet:
        if not parquet.schema_arrow.equals(ROW_SCHEMA):
            raise pa.ArrowInvalid(f"{path.name} has the columns {parquet.schema_arrow.names}")
        # Not iter_batches: it joins row groups until it has its number of rows, whatever their size.
        for group in range(parquet.num_row_groups):
            for batch in parquet.read_row_group(group, use_threads=False).to_batches():
                yield from rows_of_batch(batch)
