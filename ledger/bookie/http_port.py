"""The HTTP port of a bookie: open before the start is over, with the certificate and the principals of the bookie."""

from __future__ import annotations

from ledger.audit_lines import Refusals
from ledger.bookie.pages import BookiePages
from ledger.bookie.readiness import ReadinessKeeper
from ledger.bookie.settings import BookieSettings
from ledger.http.metrics_push import push_metrics
from ledger.http.probe_server import ProbeServer
from ledger.rights.callers import Callers
from ledger.zookeeper.ledgers import LedgerStore


async def open_http_port(
    settings: BookieSettings, ledgers: LedgerStore, readiness: ReadinessKeeper
) -> tuple[BookiePages, ProbeServer | None]:
    """Return the pages of a bookie, which show nothing yet, and what serves them; None = there is no such port.

    Metrics are told a collector, too, if one is named, with and without the port.

    Raises:
        UsageError: Certificate or token is missing where it is needed, or the port is taken.

    """
    refusals = Refusals()
    pages = BookiePages(ledgers, readiness, refusals)
    push_metrics(pages.metrics)
    http = settings.http
    if http.port is None:
        return pages, None
    server = ProbeServer(
        pages.routes(),
        bind=http.bind,
        port=http.port,
        tls=settings.tls,
        callers=Callers(settings.principals, settings.token_file),
        allowed_hosts=http.allowed_hosts,
        refusals=refusals,
    )
    await server.start()
    return pages, server
