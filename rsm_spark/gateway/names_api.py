"""Logs as a whole, over HTTP and gRPC: listed, described, made, truncated, deleted."""

from __future__ import annotations

import msgspec

from ledger.rights.table import Right
from rsm_spark.core.partition_layout import LayoutGeneration
from rsm_spark.core.trimming import TrimPlan
from rsm_spark.gateway.calls import GatewayCall, GatewayRoute
from rsm_spark.gateway_client.shapes import (
    GrowBody,
    GrownLog,
    NamedLog,
    NamesPage,
    NamesQuery,
    PolicyBody,
    TruncateBody,
)
from rsm_spark.logs.log_names import LogInfo


class PartitionedLogDocument(msgspec.Struct, frozen=True):
    """Facts about a partitioned log; see `rsm_spark.logs.partitioned_logs.PartitionedLogInfo`."""

    log: str
    layout_id: str
    is_open: bool
    generations: tuple[LayoutGeneration, ...]
    partitions: tuple[LogInfo, ...]
    partition_count: int


class TruncatedLog(TrimPlan, frozen=True, kw_only=True):
    """Name of a log, the last position that was let go of, and what went of it at once."""

    log: str
    position: int


async def _names(call: GatewayCall) -> NamesPage:
    query: NamesQuery = call.query
    principal = call.caller.principal
    names = [
        name for name in await call.state.logs.list(query.prefix) if name > query.after and principal.may_log(name)
    ]
    page = names[: query.limit]
    return NamesPage(page, has_more=len(names) > len(page))


async def _info(call: GatewayCall) -> LogInfo | PartitionedLogDocument:
    if await call.state.logs.is_partitioned(call.log):
        found = await call.state.logs.partitions(call.log)
        return PartitionedLogDocument(*found, len(found.partitions))
    return await call.state.logs.info(call.log)


async def _create(call: GatewayCall) -> NamedLog:
    body: PolicyBody = call.body
    await call.state.logs.create(
        call.log,
        retention_s=body.retention_s,
        retention_bytes=body.retention_bytes,
        until_read=body.until_read,
        partitions=body.partitions,
        exist_ok=True,
    )
    return NamedLog(call.log)


async def _grow(call: GatewayCall) -> GrownLog:
    body: GrowBody = call.body
    await call.state.logs.grow(call.log, body.partitions)
    return GrownLog(call.log, body.partitions)


async def _truncate(call: GatewayCall) -> TruncatedLog:
    body: TruncateBody = call.body
    plan = await call.state.logs.truncate(call.log, body.position)
    return TruncatedLog(log=call.log, position=body.position, **msgspec.structs.asdict(plan))


async def _delete(call: GatewayCall) -> NamedLog:
    await call.state.held.find(call.log)  # Its writer deletes it: another gateway is named.
    await call.state.held.let_go(call.log)
    await call.state.logs.delete(call.log)
    return NamedLog(call.log)


def name_routes() -> list[GatewayRoute]:
    """Return what is served of logs as a whole."""
    path = "/v1/logs/{log}"
    return [
        GatewayRoute(
            "GET", "/v1/logs", _names, Right.STATE_READ, summary="List logs that the caller may touch",
            answer=NamesPage, query=NamesQuery,
        ),
        GatewayRoute(
            "GET", path, _info, Right.STATE_READ, summary="Tell what is known of a log without reading it",
            answer=(LogInfo, PartitionedLogDocument),
        ),
        GatewayRoute(
            "PUT", path, _create, Right.GOVERN, summary="Make a log; one that is there stays as it is",
            answer=NamedLog, body=PolicyBody, is_audited=True,
        ),
        GatewayRoute(
            "DELETE", path, _delete, Right.GOVERN, summary="Delete a log with all that it holds", answer=NamedLog,
            is_audited=True,
        ),
        GatewayRoute(
            "POST", f"{path}/partitions", _grow, Right.GOVERN, summary="Give a partitioned log more partitions",
            answer=GrownLog, body=GrowBody, is_audited=True,
        ),
        GatewayRoute(
            "POST", f"{path}/truncate", _truncate, Right.GOVERN, summary="Let go of records up to a position",
            answer=TruncatedLog, body=TruncateBody, is_audited=True,
        ),
    ]  # fmt: skip
