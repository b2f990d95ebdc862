"""Rows of a data frame as records of a plain or a partitioned log.

payload    binary or string
key        binary or string, optional; null = the record has none
txid       int or bigint, optional: the record's transaction id

Transaction ids never fall along a log, and parts of a batch come in any order. So with a column `txid` a batch is one
entry, of all its parts, by transaction id; or it has one part, whose rows are in order already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from connectors.errors import BadRowError
from connectors.sink.chunks import RowLimits
from connectors.sink.columns import SinkColumn, bad_row, check_columns, values_of
from connectors.sink.options import SinkOptions
from ledger.decoding import msgpack_decoder
from rsm_spark.core.plain_log import TransactionIdError

ROW_BYTES_MAX = 4_000_000
"""Key and payload of one row: they have to fit an entry, with what the log remembers of the writer."""

_ROW_BYTES = 64
"""Bytes of a record beside its key and payload, in the entry."""

TXID = "txid"
_SORT = "sort the rows of a partition by it (sortWithinPartitions)"

LOG_COLUMNS = {
    "payload": SinkColumn.of_bytes(is_needed=True),
    "key": SinkColumn.of_bytes(),
    TXID: SinkColumn.of_integers(),
}

LogRow = tuple[bytes | None, bytes, int | None]
"""Key, payload and transaction id."""


class LogCommands:
    """Records of a log; see `RowCommands`. A command is the msgpack of rows, each key, payload and transaction id.

    Args:
        options: Of the query.
        schema: Columns of the frame.

    Raises:
        OptionError: They are none of a log's.

    """

    limits = RowLimits()
    are_calls = False
    is_ordered: bool
    is_repeatable = False
    conflict_words = ""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:  # noqa: ARG002 - as all kinds are made
        check_columns("log", schema, LOG_COLUMNS)
        self.is_ordered = TXID in schema.names
        self._row_counts: dict[int, int] = {}
        self._last_txids: dict[int, int] = {}

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[LogRow, int]]:
        """Yield the rows of a batch; a bad one is named before any is yielded."""
        first = self._row_counts.get(part, 0)
        payloads = values_of(batch.column("payload"), as_bytes=True)
        has_keys = "key" in batch.schema.names
        keys = values_of(batch.column("key"), as_bytes=True) if has_keys else [None] * len(payloads)
        txids = values_of(batch.column(TXID)) if self.is_ordered else [None] * len(payloads)
        rows: list[tuple[LogRow, int]] = []
        for number, (key, payload, txid) in enumerate(zip(keys, payloads, txids, strict=True), first):
            if self.is_ordered:
                self._check_txid(part, number, txid, key)
            if payload is None:
                raise bad_row(part, number, "payload", "it is null", key)
            size = len(payload) + len(key or b"")
            if size > ROW_BYTES_MAX:
                fault = f"key and payload have {size:,} bytes: {ROW_BYTES_MAX:,} are the most"
                raise bad_row(part, number, "payload", fault, key)
            rows.append(((key, payload, txid), size + _ROW_BYTES))
        self._row_counts[part] = first + batch.num_rows
        yield from rows

    def _check_txid(self, part: int, number: int, txid: int | None, key: bytes | None) -> None:
        if txid is None:
            raise bad_row(part, number, TXID, "it is null: with this column each row has a transaction id", key)
        if txid < 0:
            raise bad_row(part, number, TXID, f"{txid}: transaction ids are numbers from 0", key)
        last = self._last_txids.get(part, 0)
        if txid < last:
            raise bad_row(part, number, TXID, f"{txid} is below {last}, that of the row before: {_SORT}", key)
        self._last_txids[part] = txid

    def command(self, items: Sequence[LogRow]) -> bytes:
        """Return the rows of a chunk."""
        return msgspec.msgpack.encode(items)

    def joined(self, commands: Sequence[bytes]) -> bytes:
        """Return the rows of several chunks; those that have transaction ids by them."""
        rows = [row for command in commands for row in rows_of(command)]
        return self.command(sorted(rows, key=lambda row: row[2] or 0) if self.is_ordered else rows)

    def conflict_count(self, reply: bytes, row_count: int) -> int:  # noqa: ARG002 - as `RowCommands` has it
        """Return 0: a log has no conflicts."""
        return 0

    def is_busy(self, reply: bytes) -> bool:  # noqa: ARG002 - as `RowCommands` has it
        """Return False: a refusal is for good."""
        return False


def rows_of(command: bytes) -> list[LogRow]:
    """Return the rows of a command."""
    return msgpack_decoder(list[LogRow]).decode(command) if command else []


def first_by_txid(parts: Sequence[tuple[int, Sequence[bytes]]]) -> tuple[int, int, bytes]:
    """Return the row that comes first in a batch of one entry: its part, its number there, and it alone as a command.

    Args:
        parts: Numbers of parts, and the commands of each.

    """
    found = [
        (row[2] or 0, part, number, row)
        for part, commands in parts
        for number, row in enumerate(row for command in commands for row in rows_of(command))
    ]
    _, part, number, row = min(found, key=lambda one: one[:3])
    return part, number, msgspec.msgpack.encode([row])


def behind_the_log(part: int, row: int, command: bytes, error: TransactionIdError) -> BadRowError:
    """Return the error for rows whose first transaction id is below the log's last one.

    Args:
        part: Number of their partition.
        row: Number of the first one there.
        command: The rows.
        error: What the log said.

    """
    key, _, txid = rows_of(command)[0]
    fault = f"{txid} is below what the log has already ({error}): transaction ids never fall along a log"
    return bad_row(part, row, TXID, fault, key)
