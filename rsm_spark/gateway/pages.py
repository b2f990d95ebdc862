"""Pages of a gateway for who watches it: health, readiness, status, metrics."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from ledger.client.client import LedgerClient
from ledger.http.metrics import MetricsPage
from ledger.http.replies import HttpReply, json_reply
from ledger.http.routes import METRICS_TYPE, ProbePage
from ledger.ports import SessionState
from ledger.replication.telemetry import add_session_metric
from ledger.rights.table import Right
from rsm_spark.gateway.calls import GatewayCall, GatewayRoute, GatewayState
from rsm_spark.gateway.openapi import describe_gateway
from rsm_spark.gateway.rpc_door import RpcMethod

_TEXT = b"text/plain; charset=utf-8"


class GatewayStatus(msgspec.Struct, frozen=True):
    """One gateway at one moment.

    Attributes:
        url: Where clients reach it.
        metadata_session: State of its session with ZooKeeper.
        logs: Logs that it writes.
        opened: Writers that it has opened.
        lost: Writers that others have deposed.
        appended: Records that were acknowledged.
        waiting_bytes: Bytes that wait to be confirmed.
        readers: Places of readers that are taken.
        connections: Open connections.

    """

    url: str
    metadata_session: SessionState
    logs: int
    opened: int
    lost: int
    appended: int
    waiting_bytes: int
    readers: int
    connections: int


class GatewayPages:
    """See the module.

    Args:
        client: Of the ledgers.
        url: Where clients reach this gateway.

    Attributes:
        routes: Of the whole server, for what is counted; set once they are known.
        methods: Of gRPC, the same.

    """

    def __init__(self, client: LedgerClient, url: str = "") -> None:
        self.url = url
        self.routes: Sequence[GatewayRoute] = ()
        self.methods: Sequence[RpcMethod] = ()
        self._client = client
        self._described: bytes | None = None

    async def health(self, _call: GatewayCall) -> HttpReply:
        """Say that the process works."""
        return HttpReply(200, b"ok\n", (), _TEXT)

    async def readiness(self, call: GatewayCall) -> HttpReply:
        """Say whether clients should be sent here."""
        why = self.not_ready(call.state)
        if why:
            return HttpReply(503, f"not ready: {why}\n".encode(), (), _TEXT)
        return HttpReply(200, b"ready\n", (), _TEXT)

    def not_ready(self, state: GatewayState) -> str:
        """Return why clients should not be sent here; "" = they should."""
        if state.closing.done():
            return "it stops"
        if self._client.store.session_state is not SessionState.CONNECTED:
            return "it has no session with ZooKeeper"
        return ""

    async def status(self, call: GatewayCall) -> HttpReply:
        """Tell what it does."""
        state = call.state
        held = state.held
        return json_reply(
            GatewayStatus(
                self.url, self._client.store.session_state, held.count, held.opened, held.lost, held.appended,
                held.waiting_bytes, state.streams.held, state.seats.taken,
            )
        )  # fmt: skip

    async def description(self, _call: GatewayCall) -> HttpReply:
        """Describe the API."""
        if self._described is None:
            self._described = describe_gateway(self.routes, version=version("rsm-spark"))
        return HttpReply(200, self._described)

    async def metrics(self, call: GatewayCall) -> HttpReply:
        """Tell the same and more, for Prometheus."""
        return HttpReply(200, self.metrics_page(call.state).body, (), METRICS_TYPE.encode())

    def metrics_page(self, state: GatewayState) -> ProbePage:
        """Return what this process counts, for Prometheus."""
        page, held = MetricsPage(), state.held
        add_session_metric(page, self._client.store.session_state)
        page.gauge("rsm_gateway_logs", "Logs that this gateway writes.", held.count)
        page.counter("rsm_gateway_writers_opened_total", "Writers that it has opened.", held.opened)
        page.counter("rsm_gateway_writers_lost_total", "Writers that others have deposed.", held.lost)
        page.counter("rsm_gateway_records_total", "Records that were acknowledged.", held.appended)
        page.gauge("rsm_gateway_waiting_bytes", "Bytes that wait to be confirmed.", held.waiting_bytes)
        page.gauge("rsm_gateway_readers", "Streams and pages that are being read.", state.streams.held)
        page.gauge("rsm_gateway_connections", "Open connections.", state.seats.taken)
        for route in self.routes:
            for status, count in sorted(route.counts.items()):
                page.counter(
                    "rsm_gateway_requests_total", "Requests that were answered.", count,
                    method=route.method, path=route.path, status=str(status),
                )  # fmt: skip
        for method in self.methods:
            for code, count in sorted(method.counts.items()):
                page.counter(
                    "rsm_gateway_rpcs_total",
                    "Calls over gRPC that were answered.",
                    count,
                    method=method.name,
                    code=code,
                )
        page.process()
        return page.page()

    def own_routes(self) -> list[GatewayRoute]:
        """Return what is served of them."""
        return [
            GatewayRoute("GET", "/healthz", self.health, None, summary="Tell if it works", answer="text/plain"),
            GatewayRoute("GET", "/readyz", self.readiness, None, summary="Tell if it is ready", answer="text/plain"),
            GatewayRoute(
                "GET", "/status", self.status, Right.STATUS, summary="Tell what it does", answer=GatewayStatus
            ),
            GatewayRoute(
                "GET", "/metrics", self.metrics, Right.CLUSTER_READ, summary="Tell the same and more, for Prometheus",
                answer="text/plain",
            ),
            GatewayRoute(
                "GET", "/v1/openapi.json", self.description, None, summary="Describe this API", answer=dict[str, Any]
            ),
        ]  # fmt: skip
