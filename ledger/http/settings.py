"""Settings of the HTTP port of a process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from ledger.audit_lines import Refusals
from ledger.http.probe_server import ProbeServer
from ledger.http.routes import ProbeRoute
from ledger.options import NAMES, Option
from ledger.path_units import PATH
from ledger.rights.callers import Callers
from ledger.tls import TlsSettings


class HttpPortSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the port that answers probes; without a port there is none."""

    port: Annotated[
        int | None,
        Option(
            "Port that answers /healthz, /readyz, /metrics, /status; 0 = any that is free.",
            name="http_port",
            ge=0,
            le=65535,
        ),
    ] = None
    bind: Annotated[str, Option("Address to serve these paths on.", name="http_bind")] = "127.0.0.1"
    allowed_hosts: Annotated[
        tuple[str, ...],
        Option("More names under which HTTP is asked, behind a proxy: a.org,b.org.", unit=NAMES, metavar="NAMES"),
    ] = ()


class HttpDoorSettings(HttpPortSettings, frozen=True, kw_only=True):
    """The same of a process that has no other port: with certificate and callers of its own."""

    tls_cert: Annotated[str | None, Option("Certificate (PEM) to answer HTTP with.", unit=PATH)] = None
    tls_key: Annotated[str | None, Option("Private key (PEM) of the certificate.", unit=PATH)] = None
    token_file: Annotated[
        str | None,
        Option("Without --principals: callers have to know this file's token, and may read.", unit=PATH),
    ] = None
    principals: Annotated[
        str | None, Option("File of principals: who may do what over HTTP. Nobody else is answered.", unit=PATH)
    ] = None

    def server(self, routes: Mapping[str, ProbeRoute], refusals: Refusals) -> ProbeServer:
        """Return the server of these routes, not started.

        Raises:
            UsageError: A file cannot be used.

        """
        tls = None
        if self.tls_cert is not None:
            tls = TlsSettings(cert=self.tls_cert, key=self.tls_key)
        return ProbeServer(
            routes,
            bind=self.bind,
            port=self.port or 0,
            tls=tls,
            callers=Callers(self.principals, self.token_file),
            allowed_hosts=self.allowed_hosts,
            refusals=refusals,
        )
