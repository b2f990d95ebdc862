"""Replies to the commands that Spark has sent, as a table: the log itself holds them.

    records = spark.read.format("ledger").options(log="bank", rows="records").load()
    replies = command_replies(records, "job-7")

Each call of a writer stands in the log beside its reply, so no reply is lost when a task or a driver dies, and none is
there twice. `records` may be a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from connectors.errors import OptionError
from rsm_spark.core.records import KernelRecord
from rsm_spark.core.writer_marks import MarkedStatus, decode_marked_reply
from rsm_spark.errors import InvalidCommandError

if TYPE_CHECKING:
    # A client of Spark Connect has another class of this name.
    from pyspark.sql import DataFrame

_NEEDED = ("revision", "logged_at", "type", "session", "reply", "fields")
_DDL = (
    "batch bigint, part int, number bigint, status string, reply binary, revision bigint, logged_at timestamp, "
    "checkpoint string"
)
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("batch", pa.int64()), ("part", pa.int32()), ("number", pa.int64()), ("status", pa.string()),
    ("reply", pa.binary()), ("revision", pa.int64()), ("logged_at", pa.timestamp("us", tz="UTC")),
    ("checkpoint", pa.string()),
]  # fmt: skip
_SCHEMA = pa.schema(_COLUMNS)
_SAID = {MarkedStatus.APPLIED: "done", MarkedStatus.DECLINED: "refused"}


def command_replies(records: DataFrame, writer: str) -> DataFrame:
    """Return a row for each command of `as=commands` that a writer has sent.

    Columns: batch, part and number say which row of which partition it was; status is `done` or `refused`; reply has
    the service's own bytes; revision and logged_at are of the mark in the log.

    Args:
        records: Rows of `format("ledger")` with `rows=records`, whole entries in order: read it as it comes.
        writer: Its name.

    Raises:
        OptionError: The frame is none of records.

    """
    missing = [name for name in _NEEDED if name not in records.columns]
    if missing:
        raise OptionError(f"replies are read from rows=records: the frame has no column {missing[0]}")

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _replies(batches, writer)

    return records.select(*_NEEDED).mapInArrow(made, _DDL)


def _replies(batches: Iterable[pa.RecordBatch], writer: str) -> Iterator[pa.RecordBatch]:
    """Yield the replies in the records of a partition: the head of a command is that of its first record."""
    head: bytes | None = None
    for batch in batches:
        rows: list[dict[str, Any]] = []
        for revision, logged_at, kind, session, reply, fields in zip(
            *(batch.column(name).to_pylist() for name in _NEEDED), strict=True
        ):
            if session is not None:
                head = reply
            if kind == KernelRecord.WRITER_MARKED and head is not None:
                row = _reply(head, fields, writer)
                if row is not None:
                    rows.append({**row, "revision": revision, "logged_at": logged_at})
        yield pa.RecordBatch.from_pylist(rows, _SCHEMA)


def _reply(head: bytes, fields: bytes, writer: str) -> dict[str, Any] | None:
    """Return the row of a mark and its command's reply; None = it is no call of this writer."""
    name, part, checkpoint, _, batch, calls, *_ = msgspec.msgpack.decode(fields)
    if name != writer or part < 0:
        return None
    try:
        said = decode_marked_reply(head)
    except InvalidCommandError:
        return None
    status = _SAID.get(said.status, said.status.name.lower())
    return {
        "batch": batch, "part": part, "number": calls - 1, "status": status, "reply": said.reply,
        "checkpoint": checkpoint,
    }  # fmt: skip
