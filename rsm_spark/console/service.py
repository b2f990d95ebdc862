"""One console: what watches the cluster, and the HTTP server that shows it. What `rsm console` runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

from ledger.client.client import LedgerClient
from ledger.http.api_server import ApiServer
from ledger.http.api_settings import ApiSettings
from ledger.http.metrics_push import push_metrics
from ledger.http.origins import HostCheck
from ledger.http.tokens import Tokens
from rsm_spark.console.api import ConsoleRequests
from rsm_spark.console.browsing import DataRequests
from rsm_spark.console.calls import ConsoleState
from rsm_spark.console.cluster_look import ClusterLook
from rsm_spark.console.edge import ConsoleEdge
from rsm_spark.console.history_file import HistoryFile
from rsm_spark.console.pages import ConsolePages
from rsm_spark.console.settings import ConsoleSettings
from rsm_spark.console.task_requests import TaskRequests
from rsm_spark.console.watching import ClusterWatcher
from rsm_spark.core.chain import DEFAULT_RSM_ROOT


class ClusterConsole:
    """See the module. For the event loop on which it is made; it listens from then on, and serves while it is entered.

    Args:
        client: Connected; stays the caller's to close.
        settings: See `ConsoleSettings`.
        rsm_root: Root of the logs.

    Attributes:
        url: Where people reach it.
        watcher: What it shows.

    Raises:
        UsageError: TLS or tokens are missing where they are needed, a file cannot be used, or the port is taken.

    """

    def __init__(self, client: LedgerClient, settings: ConsoleSettings, rsm_root: str = DEFAULT_RSM_ROOT) -> None:
        self._settings = settings
        self._look = ClusterLook(client, rsm_root, settings.logs_max)
        file = None if settings.data_dir is None else HistoryFile(Path(settings.data_dir))
        self.watcher = ClusterWatcher(self._look, settings, file)
        self._look.on_change = self.watcher.wake
        self._api = ConsoleRequests(client, rsm_root)
        self._browser = DataRequests(client, rsm_root)
        self._tasks = TaskRequests()
        self._pages = ConsolePages(client)
        self._server = ApiServer(settings.http, self._edge, ports=1)
        self.url = self._pages.url = self._server.url
        self._watching: asyncio.Task[None] | None = None
        self._push: asyncio.Task[None] | None = None

    def _edge(self, bounded: ApiSettings, hosts: HostCheck, tokens: Tokens | None) -> ConsoleEdge:
        routes = [
            *self._api.routes(), *self._browser.routes(), *self._tasks.routes(), *self._pages.own_routes(),
        ]  # fmt: skip
        self._pages.routes = routes
        return ConsoleEdge(ConsoleState(self.watcher, self._settings, bounded, tokens), routes, hosts)

    async def __aenter__(self) -> Self:
        """Serve, and look at the cluster."""
        self._watching = asyncio.get_running_loop().create_task(self.watcher.run())
        await self._server.start()
        self._push = push_metrics(lambda: self._pages.metrics_page(self._server.edge.state))
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop."""
        await asyncio.shield(self._stop())

    async def _stop(self) -> None:
        await self._server.stop()
        if self._push is not None:
            self._push.cancel()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._tasks.close()
        await self._look.close()
