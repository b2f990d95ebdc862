"""The console's files, and its own health, status and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ledger.client.client import LedgerClient
from ledger.http.metrics import MetricsPage
from ledger.http.replies import HttpReply, json_reply
from ledger.http.routes import METRICS_TYPE, ProbePage
from ledger.ports import SessionState
from ledger.replication.telemetry import add_session_metric
from ledger.rights.table import Right
from rsm_spark.console.calls import ConsoleCall, ConsoleRoute, ConsoleState
from rsm_spark.console.core.callers import UNSEEN, sees_all
from rsm_spark.web.files import StaticFile, web_files

_STATIC = Path(__file__).parent / "static"
_PLAIN = b"text/plain; charset=utf-8"


class ConsoleStatus(msgspec.Struct, frozen=True):
    """One console at one moment.

    Attributes:
        url: Where people reach it.
        metadata_session: State of its session with ZooKeeper.
        looks: How often it has looked at the cluster.
        seen_ms: When it looked last, ms since 1970.
        problem: Why it could not; "" = it could.
        samples: Minutes of its history.
        streams: Open streams of events.

    """

    url: str
    metadata_session: SessionState
    looks: int
    seen_ms: int
    problem: str
    samples: int
    streams: int


class ConsolePages:
    """See the module.

    Args:
        client: Of the ledgers.

    Attributes:
        url: Where people reach this console; set once it is known.
        routes: Of the whole server, for what is counted; set once they are known.

    """

    def __init__(self, client: LedgerClient) -> None:
        self.url = ""
        self.routes: Sequence[ConsoleRoute] = ()
        self._client = client

    def own_routes(self) -> list[ConsoleRoute]:
        """Return what is served of them: files are open to everybody, as they show nothing by themselves."""
        return [
            ConsoleRoute("/healthz", self._health, None),
            ConsoleRoute("/readyz", self._readiness, None),
            ConsoleRoute("/status", self._status, Right.STATUS),
            ConsoleRoute("/metrics", self._metrics, Right.CLUSTER_READ),
            *(_file_route(path, file) for path, file in web_files(_STATIC).items()),
        ]

    async def _health(self, _call: ConsoleCall) -> HttpReply:
        return HttpReply(200, b"ok\n", (), _PLAIN)

    async def _readiness(self, call: ConsoleCall) -> HttpReply:
        state = call.state
        if state.closing.done():
            return HttpReply(503, b"not ready: it stops\n", (), _PLAIN)
        if not state.watcher.looks:
            return HttpReply(503, b"not ready: it has not looked at the cluster yet\n", (), _PLAIN)
        return HttpReply(200, b"ready\n", (), _PLAIN)

    async def _status(self, call: ConsoleCall) -> HttpReply:
        state, watcher = call.state, call.state.watcher
        session = self._client.store.session_state
        view = watcher.view
        problem = view.problem if sees_all(call.caller.principal) or not view.problem else UNSEEN
        shown = ConsoleStatus(
            self.url, session, watcher.looks, view.at_ms, problem, len(watcher.history), state.streams.held
        )
        return json_reply(shown)

    async def _metrics(self, call: ConsoleCall) -> HttpReply:
        return HttpReply(200, self.metrics_page(call.state).body, (), METRICS_TYPE.encode())

    def metrics_page(self, state: ConsoleState) -> ProbePage:
        """Return what this process counts, for Prometheus."""
        page, watcher = MetricsPage(), state.watcher
        add_session_metric(page, self._client.store.session_state)
        page.counter("rsm_console_looks_total", "Looks at the cluster.", watcher.looks)
        page.gauge("rsm_console_warnings", "Warnings that there are.", len(watcher.view.warnings))
        page.gauge("rsm_console_streams", "Open streams of events.", state.streams.held)
        page.gauge("rsm_console_connections", "Open connections.", state.seats.taken)
        for route in self.routes:
            for status, count in sorted(route.counts.items()):
                text = "Requests that were answered."
                page.counter("rsm_console_requests_total", text, count, path=route.path, status=str(status))
        page.refusals(state.refusals, "http")
        page.process()
        return page.page()


def _file_route(path: str, file: StaticFile) -> ConsoleRoute:
    async def send(call: ConsoleCall) -> HttpReply:
        return file.reply(call.headers.get(b"if-none-match", b""))

    return ConsoleRoute(path, send, None)
