"""Records of producers, over HTTP and gRPC: appended in batches, or over HTTP one at a time as they are."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.http.problems import HttpProblem
from ledger.rights.table import Right
from rsm_spark.core.partition_layout import partition_of
from rsm_spark.core.producers import RecordSource
from rsm_spark.core.writer_marks import MarkedStatus, MarkKind, WriterMark
from rsm_spark.gateway.calls import GatewayCall, GatewayRoute
from rsm_spark.gateway.held_logs import AppendRoute
from rsm_spark.gateway_client.shapes import AppendBody, AppendedPlaces, MarkedBody, MarkedOutcome, RawQuery, RecordBody


async def _append(call: GatewayCall) -> AppendedPlaces:
    body: AppendBody = call.body
    payloads = [_payload(record) for record in body.records]
    source = RecordSource(body.producer, call.owner, body.sequence)
    keys = [record.key for record in body.records]
    route = _route(body.partition, body.partitions, keys)
    return AppendedPlaces(await call.state.held.append(call.log, source, payloads, keys, route))


async def _append_raw(call: GatewayCall) -> AppendedPlaces:
    query: RawQuery = call.query
    source = RecordSource(query.producer, call.owner, query.sequence)
    route = _route(query.partition, query.partitions, [None])
    return AppendedPlaces(await call.state.held.append(call.log, source, [call.body], [None], route))


async def _marked(call: GatewayCall) -> MarkedOutcome:
    body: MarkedBody = call.body
    payloads = [_payload(record) for record in body.records]
    keys = [record.key for record in body.records]
    mark = WriterMark(
        body.writer, MarkKind[body.kind.upper()], body.checkpoint, body.run, body.batch, body.part, body.chunk,
        row_count=body.row_count, is_passing=body.is_passing, takes_over_from=body.takes_over_from,
        parts=tuple(body.parts),
    )  # fmt: skip
    reply = await call.state.held.write_marked(call.log, call.owner, mark, payloads, keys, body.txids or None)
    match reply.status:
        case MarkedStatus.APPLIED:
            return MarkedOutcome("applied")
        case MarkedStatus.DONE:
            return MarkedOutcome("done")
        case MarkedStatus.GONE:
            return MarkedOutcome("gone", reply.reason)
    return MarkedOutcome("refused", reply.reason)


def _route(partition: int | None, count: int | None, keys: Sequence[bytes | None]) -> AppendRoute | None:
    """Return the way of records into a partitioned log; None = none is named."""
    if count is None:
        if partition is not None:
            raise HttpProblem(400, "invalid", "partition needs partitions: how many there are, by whoever chose it")
        return None
    if partition is None:
        places = {partition_of(key, count) for key in keys if key is not None}
        if len(places) != 1:
            raise HttpProblem(
                400, "invalid", "name a partition: keys of these records go to several, or they have no keys"
            )
        (partition,) = places
    return AppendRoute(partition, count)


def _payload(record: RecordBody) -> bytes:
    if (record.payload is None) == (record.text is None):
        raise HttpProblem(400, "invalid", "a record has a payload, in base64, or a text: one of them")
    return record.payload if record.text is None else record.text.encode()  # type: ignore[return-value]


def record_routes() -> list[GatewayRoute]:
    """Return what is served of appending."""
    path = "/v1/logs/{log}"
    return [
        GatewayRoute(
            "POST", f"{path}/records", _append, Right.STATE_WRITE, summary="Append records of a producer",
            answer=AppendedPlaces, body=AppendBody,
        ),
        GatewayRoute(
            "POST", f"{path}/record", _append_raw, Right.STATE_WRITE, summary="Append the body as one record",
            answer=AppendedPlaces, query=RawQuery, body=bytes,
        ),
        GatewayRoute(
            "POST", f"{path}/batches", _marked, Right.STATE_WRITE, summary="Append rows of a writer's batch, or end it",
            answer=MarkedOutcome, body=MarkedBody,
        ),
    ]  # fmt: skip
