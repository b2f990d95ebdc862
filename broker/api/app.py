"""The ASGI application of the broker, put together."""

from __future__ import annotations

import functools
import importlib.metadata

from broker.api import code, events, limits, meta, tasks, tenants, transactions
from broker.api.edge import Edge
from broker.api.openapi import describe_api
from broker.api.ports import Broker
from broker.api.routes import Route
from broker.api.settings import HttpSettings
from broker.api.shared import SharedState
from broker.api.telemetry import HttpTelemetry
from ledger.http.origins import HostCheck
from ledger.http.route_table import RouteTable
from ledger.http.tokens import Tokens


def create_app(broker: Broker, settings: HttpSettings, hosts: HostCheck, tokens: Tokens | None) -> Edge:
    """Return the application.

    Args:
        broker: What is asked.
        settings: See `HttpSettings`.
        hosts: Names under which it is asked.
        tokens: Who may; None = everybody is the administrator.

    """

    async def all_metrics() -> bytes:
        return await broker.metrics() + telemetry.text()

    @functools.cache
    def description() -> bytes:
        return describe_api(routes, version=_version())

    routes: list[Route] = [
        *tasks.routes(),
        *transactions.routes(),
        *tenants.routes(),
        *limits.routes(),
        *code.routes(),
        *events.routes(),
        *meta.routes(all_metrics, description),
        *meta.page_routes(),
    ]
    edge = Edge(
        SharedState(broker, settings, tokens), RouteTable(routes, "/api/v1/openapi.json says what there is"), hosts
    )
    telemetry = HttpTelemetry(edge)
    edge.metrics = all_metrics
    return edge


def _version() -> str:
    try:
        return importlib.metadata.version("rsm-spark")
    except importlib.metadata.PackageNotFoundError:
        return "0"
