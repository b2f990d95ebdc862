"""Messages of `logs.proto` as the shapes that HTTP has, and back; the only place that knows their generated code.

What is asked is checked as over HTTP: by the bounds that stand in the shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message
from msgspec import UNSET

from ledger.decoding import convert
from ledger.http.problems import HttpProblem
from rsm_spark.gateway import logs_pb2 as pb
from rsm_spark.gateway.names_api import PartitionedLogDocument, TruncatedLog
from rsm_spark.gateway.opened_readers import PlacedPage, PlacedRecord
from rsm_spark.gateway_client.shapes import (
    AppendBody,
    AppendedPlaces,
    GrowBody,
    MarkedBody,
    MarkedOutcome,
    NamesPage,
    NamesQuery,
    PolicyBody,
    ReadRecord,
    RecordBody,
    RecordsQuery,
    TailQuery,
    TruncateBody,
)
from rsm_spark.logs.log_names import LogInfo

LOGS_SERVICE = "rsm.logs.v1.Logs"
MESSAGE_BYTES = 256 * 1024
"""Payloads and keys of one message of records, before the last of them."""

_RECORD_BYTES = 48
_Shape = TypeVar("_Shape")
_STATUSES = {
    "applied": pb.WriteBatchAnswer.APPLIED,
    "done": pb.WriteBatchAnswer.DONE,
    "refused": pb.WriteBatchAnswer.REFUSED,
    "gone": pb.WriteBatchAnswer.GONE,
}
_KINDS = {
    pb.WriteBatchRequest.CHUNK: "chunk",
    pb.WriteBatchRequest.WHOLE: "whole",
    pb.WriteBatchRequest.END: "end",
    pb.WriteBatchRequest.BEGIN: "begin",
    pb.WriteBatchRequest.FORGET: "forget",
}


class RpcRequest(NamedTuple):
    """Request as a route's handler has it.

    Attributes:
        log: Name of the log; "" = of none.
        query: As the route's; None = it has none.
        body: The same.

    """

    log: str
    query: Any = None
    body: Any = None


def _parsed(kind: type[Message], text: bytes) -> Any:
    """Return a message.

    Raises:
        HttpProblem: 400: it is none.

    """
    try:
        return kind.FromString(text)
    except DecodeError:
        raise HttpProblem(400, "invalid", f"{len(text)} bytes are no {kind.DESCRIPTOR.name}") from None


def _shaped(values: Mapping[str, Any], kind: type[_Shape]) -> _Shape:
    """Return a shape within its bounds.

    Raises:
        HttpProblem: 400: a value is beyond its bounds.

    """
    try:
        return convert(values, kind)
    except msgspec.ValidationError as error:
        raise HttpProblem(400, "invalid", str(error)) from None


def _new_records(records: Iterable[pb.NewRecord]) -> list[RecordBody]:
    return [RecordBody(payload=one.payload, key=one.key if one.HasField("key") else None) for one in records]


# ---- what is asked


def _decode_append(text: bytes) -> RpcRequest:
    asked: pb.AppendRequest = _parsed(pb.AppendRequest, text)
    values = {
        "producer": asked.producer,
        "sequence": asked.sequence,
        "records": _new_records(asked.records),
        "partition": asked.partition if asked.HasField("partition") else None,
        "partitions": asked.partitions or None,
    }
    return RpcRequest(asked.log, body=_shaped(values, AppendBody))


def _decode_batch(text: bytes) -> RpcRequest:
    asked: pb.WriteBatchRequest = _parsed(pb.WriteBatchRequest, text)
    values = {
        "writer": asked.writer,
        "kind": _KINDS.get(asked.kind, ""),
        "checkpoint": asked.checkpoint,
        "run": asked.run,
        "batch": asked.batch,
        "part": asked.part,
        "chunk": asked.chunk,
        "row_count": asked.row_count,
        "takes_over_from": asked.takes_over_from,
        "parts": [(one.part, one.chunks) for one in asked.parts],
        "records": _new_records(asked.records),
        "is_passing": asked.is_passing,
        "txids": list(asked.txids),
    }
    return RpcRequest(asked.log, body=_shaped(values, MarkedBody))


def _decode_read(text: bytes) -> RpcRequest:
    asked: pb.ReadRequest = _parsed(pb.ReadRequest, text)
    values: dict[str, Any] = {"from": asked.start or "begin", "wait_s": asked.wait_ms / 1000}
    if asked.limit:
        values["limit"] = asked.limit
    return RpcRequest(asked.log, query=_shaped(values, RecordsQuery))


def _decode_tail(text: bytes) -> RpcRequest:
    asked: pb.TailRequest = _parsed(pb.TailRequest, text)
    return RpcRequest(asked.log, query=_shaped({"from": asked.start or "end"}, TailQuery))


def _decode_list(text: bytes) -> RpcRequest:
    asked: pb.ListRequest = _parsed(pb.ListRequest, text)
    values: dict[str, Any] = {"prefix": asked.prefix, "after": asked.after}
    if asked.limit:
        values["limit"] = asked.limit
    return RpcRequest("", query=_shaped(values, NamesQuery))


def _decode_describe(text: bytes) -> RpcRequest:
    return RpcRequest(_parsed(pb.DescribeRequest, text).log)


def _decode_create(text: bytes) -> RpcRequest:
    asked: pb.CreateRequest = _parsed(pb.CreateRequest, text)
    values = {
        "retention_s": asked.retention_s if asked.HasField("retention_s") else None,
        "retention_bytes": asked.retention_bytes if asked.HasField("retention_bytes") else None,
        "until_read": asked.until_read,
        "partitions": asked.partitions or None,
    }
    return RpcRequest(asked.log, body=_shaped(values, PolicyBody))


def _decode_grow(text: bytes) -> RpcRequest:
    asked: pb.GrowRequest = _parsed(pb.GrowRequest, text)
    return RpcRequest(asked.log, body=_shaped({"partitions": asked.partitions}, GrowBody))


def _decode_truncate(text: bytes) -> RpcRequest:
    asked: pb.TruncateRequest = _parsed(pb.TruncateRequest, text)
    return RpcRequest(asked.log, body=_shaped({"position": asked.position}, TruncateBody))


def _decode_delete(text: bytes) -> RpcRequest:
    return RpcRequest(_parsed(pb.DeleteRequest, text).log)


# ---- what is answered


def _encode_appended(answer: AppendedPlaces) -> bytes:
    return pb.AppendAnswer(appended=pb.AppendedRecords(positions=answer.positions)).SerializeToString()


def encode_partitions_changed(partitions: int, positions: list[int]) -> bytes:
    """Return the answer to an append by another number of partitions: see `PartitionsChangedError`."""
    changed = pb.PartitionsChanged(partitions=partitions, positions=positions)
    return pb.AppendAnswer(partitions_changed=changed).SerializeToString()


def _encode_batch_outcome(answer: MarkedOutcome) -> bytes:
    return pb.WriteBatchAnswer(status=_STATUSES[answer.status], reason=answer.reason).SerializeToString()


def _encode_names(answer: NamesPage) -> bytes:
    return pb.ListAnswer(logs=answer.logs, has_more=answer.has_more).SerializeToString()


def _encode_description(answer: LogInfo | PartitionedLogDocument) -> bytes:
    if isinstance(answer, LogInfo):
        found = pb.LogDescription(log=answer.log, is_open=answer.is_open, plain_logs=[_described(answer)])
    else:
        found = pb.LogDescription(
            log=answer.log, is_open=answer.is_open, partition_count=answer.partition_count,
            plain_logs=map(_described, answer.partitions),
        )  # fmt: skip
    return found.SerializeToString()


def _described(info: LogInfo) -> pb.PlainLogDescription:
    policy = info.policy
    return pb.PlainLogDescription(
        log=info.log, log_id=info.log_id, first_position=info.first_position, closed_position=info.closed_position,
        ledgers=info.ledgers, closed_bytes=info.closed_bytes, epoch=info.epoch, writer=info.writer,
        is_open=info.is_open, retention_ms=policy.retention_ms, retention_bytes=policy.retention_bytes,
        until_read=policy.until_read, truncated=policy.truncated,
        subscriptions=[
            pb.PlainLogDescription.Subscription(name=one.name, position=one.state.revision)
            for one in info.subscriptions
        ],
    )  # fmt: skip


def _encode_created(_answer: object) -> bytes:
    return pb.CreateAnswer().SerializeToString()


def _encode_grown(_answer: object) -> bytes:
    return pb.GrowAnswer().SerializeToString()


def _encode_truncated(answer: TruncatedLog) -> bytes:
    return pb.TruncateAnswer(ledger_ids=answer.ledger_ids, last_position=answer.last_revision).SerializeToString()


def _encode_deleted(_answer: object) -> bytes:
    return pb.DeleteAnswer().SerializeToString()


def encode_page(page: PlacedPage) -> Iterator[bytes]:
    """Return the messages of a page, one at least."""
    pieces = list(_pieces(page.records))
    for piece in pieces[:-1]:
        yield _records(piece, piece[-1].next)
    yield _records(pieces[-1] if pieces else [], str(page.next), is_ended=page.is_ended)


def encode_tailed(records: list[PlacedRecord]) -> Iterator[bytes]:
    """Return the messages of records of a tail."""
    for piece in _pieces(records):
        yield _records(piece, piece[-1].next)


def encode_tail_news(place: int | str, *, is_ended: bool = False) -> bytes:
    """Return a message without records: a sign of life, or the end."""
    return _records([], str(place), is_ended=is_ended)


def _records(records: list[pb.LogRecord], place: str, *, is_ended: bool = False) -> bytes:
    return pb.Records(records=records, next=place, is_ended=is_ended).SerializeToString()


def _pieces(records: list[PlacedRecord]) -> Iterator[list[pb.LogRecord]]:
    """Yield messages' worth of records."""
    piece: list[pb.LogRecord] = []
    size = 0
    for place, shape in records:
        told = _record(place, shape)
        more = len(shape.payload) + len(shape.key or b"") + len(told.next) + _RECORD_BYTES
        if piece and size + more > MESSAGE_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(told)
        size += more
    if piece:
        yield piece


def _record(place: str, shape: ReadRecord) -> pb.LogRecord:
    """Return a record; the place in a plain log is its position, behind which to go on."""
    partition = None if shape.partition is UNSET else shape.partition
    return pb.LogRecord(
        position=shape.position, txid=shape.txid, key=shape.key, payload=shape.payload, logged_ms=shape.logged_ms,
        partition=partition, next=str(shape.position + 1) if partition is None else place,
    )  # fmt: skip


DECODERS: Mapping[str, Callable[[bytes], RpcRequest]] = {
    "Append": _decode_append,
    "WriteBatch": _decode_batch,
    "Read": _decode_read,
    "Tail": _decode_tail,
    "List": _decode_list,
    "Describe": _decode_describe,
    "Create": _decode_create,
    "Grow": _decode_grow,
    "Truncate": _decode_truncate,
    "Delete": _decode_delete,
}
"""Readers of the requests, by method."""

ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
    "Append": _encode_appended,
    "WriteBatch": _encode_batch_outcome,
    "List": _encode_names,
    "Describe": _encode_description,
    "Create": _encode_created,
    "Grow": _encode_grown,
    "Truncate": _encode_truncated,
    "Delete": _encode_deleted,
}
"""Writers of the answers, by method; streams have others."""
