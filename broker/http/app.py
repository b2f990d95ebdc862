"""The ASGI application of the broker, put together."""

from __future__ import annotations

import functools
import importlib.metadata

from broker.http import code, events, limits, meta, tasks, tenants, transactions
from broker.http.edge import Edge
from broker.http.openapi import describe_api
from broker.http.origins import HostCheck
from broker.http.ports import Broker
from broker.http.routes import Route, RouteTable
from broker.http.settings import HttpSettings
from broker.http.telemetry import HttpTelemetry
from broker.http.tokens import Tokens

__all__ = ["create_app"]


def create_app(broker: Broker, settings: HttpSettings, hosts: HostCheck, tokens: Tokens | None) -> Edge:
    """Return the application.

    Args:
        broker: What is asked.
        settings: See `HttpSettings`.
        hosts: Names under which it is asked.
        tokens: Who may; None = everybody is the administrator.

    """

    def all_metrics() -> bytes:
        return broker.metrics() + telemetry.text()

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
    edge = Edge(broker, settings, RouteTable(routes), hosts, tokens)
    telemetry = HttpTelemetry(edge)
    return edge


def _version() -> str:
    try:
        return importlib.metadata.version("rsm-spark")
    except importlib.metadata.PackageNotFoundError:
        return "0"
