"""Replies are read from records: each mark has the reply of the command that it is a part of."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pyarrow as pa

from connectors.sink.replies import _NEEDED, _replies
from rsm_spark.core.records import KernelRecord
from rsm_spark.core.writer_marks import MarkedReply, MarkedStatus, encode_marked_reply

_AT = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
_PUT = 16
_TYPES: list[tuple[str, pa.DataType]] = [
    ("revision", pa.int64()), ("logged_at", pa.timestamp("us", tz="UTC")), ("type", pa.int32()),
    ("session", pa.binary()), ("reply", pa.binary()), ("fields", pa.binary()),
]  # fmt: skip


def _record(revision: int, kind: int, *, reply: bytes | None = None, fields: Any = None) -> dict[str, Any]:
    session = None if reply is None else bytes(16)
    packed = None if fields is None else msgspec.msgpack.encode(fields)
    return dict(zip(_NEEDED, (revision, _AT, kind, session, reply, packed), strict=True))


def _mark(writer: str, part: int, calls: int) -> tuple[Any, ...]:
    return writer, part, "checkpoint", "", 7, calls, bytes(8), calls, False, b""


def test_each_call_has_its_reply_whichever_batch_of_arrow_it_is_in() -> None:
    done = encode_marked_reply(MarkedReply(MarkedStatus.APPLIED, "", b"[5]"))
    refused = encode_marked_reply(MarkedReply(MarkedStatus.DECLINED, "", b'["no"]'))
    marked = KernelRecord.WRITER_MARKED
    records = [
        _record(1, _PUT, reply=done),
        _record(2, marked, fields=_mark("job", 3, 1)),
        _record(3, marked, fields=_mark("job", -1, 0)),  # The writer's own row.
        _record(4, marked, reply=refused, fields=_mark("job", 3, 2)),
        _record(5, _PUT, reply=done),
        _record(6, marked, fields=_mark("other", 3, 1)),
        _record(7, marked, reply=b"no reply to a mark", fields=_mark("job", 3, 3)),
    ]
    wanted = [(7, 3, 0, "done", b"[5]", 2, _AT, "checkpoint"), (7, 3, 1, "refused", b'["no"]', 4, _AT, "checkpoint")]
    for cut in range(len(records)):
        batches = [pa.RecordBatch.from_pylist(some, pa.schema(_TYPES)) for some in (records[:cut], records[cut:])]
        found = [tuple(row.values()) for batch in _replies(batches, "job") for row in batch.to_pylist()]
        assert found == wanted
