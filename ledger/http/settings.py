"""Settings of the HTTP port of a process."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.options import NAMES, Option


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
