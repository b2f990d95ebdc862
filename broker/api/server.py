"""Server of a broker's API and dashboard."""

from __future__ import annotations

from broker.api.app import create_app
from broker.api.edge import Edge
from broker.api.ports import Broker
from broker.api.settings import HttpSettings
from ledger.http.api_server import ApiServer
from ledger.http.api_settings import ApiSettings
from ledger.http.origins import HostCheck
from ledger.http.tokens import Tokens


class HttpServer(ApiServer[Edge]):
    """Server of a broker: see `ApiServer`.

    Args:
        broker: What is asked.
        settings: See `HttpSettings`.

    """

    def __init__(self, broker: Broker, settings: HttpSettings) -> None:
        def _edge(bounded: ApiSettings, hosts: HostCheck, tokens: Tokens | None) -> Edge:
            assert isinstance(bounded, HttpSettings)
            return create_app(broker, bounded, hosts, tokens)

        super().__init__(settings, _edge, rate_tasks_per_s=settings.rate_tasks_per_s)
