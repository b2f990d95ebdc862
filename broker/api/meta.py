"""Queries about the broker itself: status, overview, health, metrics, the API's description, the dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from broker.api.call import ApiRequest
from broker.api.documents import as_document, document_type
from broker.api.routes import Access, Route
from broker.api.task_bodies import Name
from broker.api.web import static_files
from broker.machine.queries import GetOverview
from broker.machine.views import OverviewView
from ledger.http.replies import HttpReply, json_reply
from ledger.http.routes import ProbePage
from rsm_spark.runtime.telemetry import METRICS_TYPE
from rsm_spark.server.probes import health
from rsm_spark.web.files import StaticFile

_TEXT = "text/plain"


class StatusDocument(msgspec.Struct, frozen=True):
    """One broker at one moment.

    Attributes:
        role: follower, candidate or leader.
        replica_id: Its name.
        leader: Name of the leader, as far as known.
        leader_http: Its URL, as far as known.
        leader_epoch: Of the last entry applied.
        revision: Applied and confirmed.
        lag_ms: How old its state may be.
        log: Name of the log.

    """

    role: str
    replica_id: str
    leader: str
    leader_http: str | None
    leader_epoch: int
    revision: int
    lag_ms: int
    log: str


class OverviewQuery(msgspec.Struct, frozen=True):
    """Tenant of the overview; only an administrator names it."""

    tenant: Name = ""


async def _status(call: ApiRequest) -> HttpReply:
    status = call.shared.broker.replica.status()
    shown = StatusDocument(
        status.role.value, status.replica_id, status.leader, call.shared.broker.leader_http(), status.leader_epoch,
        status.revision, status.lag_ms, status.log,
    )  # fmt: skip
    return json_reply(shown, revision=status.revision)


async def _overview(call: ApiRequest) -> HttpReply:
    wanted = GetOverview(call.tenant_to_see(call.query.tenant))
    found, revision = await call.expect(wanted, OverviewView, "overview")
    return json_reply(as_document(found), revision=revision)


async def _healthz(call: ApiRequest) -> HttpReply:
    return _page(health(call.shared.broker.replica.status()))


async def _readyz(call: ApiRequest) -> HttpReply:
    return _page(call.shared.broker.readiness())


def _page(page: ProbePage) -> HttpReply:
    return HttpReply(page.status, page.body, (), page.content_type.encode())


def routes(metrics: Callable[[], Awaitable[bytes]], description: Callable[[], bytes]) -> list[Route]:
    """Return what is served about the broker itself.

    Args:
        metrics: Prometheus' text.
        description: OpenAPI's JSON.

    """

    async def tell_metrics(_call: ApiRequest) -> HttpReply:
        return HttpReply(200, await metrics(), (), METRICS_TYPE.encode())

    async def describe(_call: ApiRequest) -> HttpReply:
        return HttpReply(200, description())

    return [
        Route("GET", "/api/v1/status", _status, access=Access.OPEN, tag="broker", summary="Show this broker",
              answers=[(200, StatusDocument, "As it is.")]),
        Route("GET", "/api/v1/overview", _overview, access=Access.READ, tag="broker", summary="Count tasks and workers",
              query=OverviewQuery, answers=[(200, document_type(OverviewView), "Counts.")]),
        Route("GET", "/api/v1/openapi.json", describe, access=Access.OPEN, tag="broker", summary="Describe this API",
              answers=[(200, "application/json", "OpenAPI 3.1.")]),
        Route("GET", "/healthz", _healthz, access=Access.OPEN, tag="broker", problems=[],
              summary="Say whether the process works",
              answers=[(200, _TEXT, "It does."), (503, _TEXT, "It has to be restarted.")]),
        Route("GET", "/readyz", _readyz, access=Access.OPEN, tag="broker",
              summary="Say whether requests make sense here",
              answers=[(200, _TEXT, "They do."), (503, _TEXT, "They do not.")]),
        Route("GET", "/metrics", tell_metrics, access=Access.CLUSTER, tag="broker", summary="Tell Prometheus",
              is_read=False,
              answers=[(200, _TEXT, "Metrics.")]),
    ]  # fmt: skip


def page_routes() -> list[Route]:
    """Return what is served beside the API, open to everybody: the dashboard's files, which show nothing by themselves.

    And the status where every process has it, too.
    """
    status = Route("GET", "/status", _status, access=Access.OPEN, tag="dashboard", summary="Show this broker")
    return [status, *(_file_route(path, file) for path, file in static_files().items())]


def _file_route(path: str, file: StaticFile) -> Route:
    async def send(call: ApiRequest) -> HttpReply:
        return file.reply(call.headers.get(b"if-none-match", b""))

    return Route("GET", path, send, access=Access.OPEN, summary="The dashboard", tag="dashboard")
