"""Settings of the port that speaks PostgreSQL's protocol."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.options import Option


class PgSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the port that speaks PostgreSQL's protocol; without a port there is none."""

    port: Annotated[
        int | None,
        Option("Port that serves PostgreSQL's protocol; 0 = any that is free.", name="pg_port", ge=0, le=65535),
    ] = None
    bind: Annotated[str, Option("Address to serve it on.", name="pg_bind", shown="as --bind")] = ""
    connections_max: Annotated[
        int,
        Option(
            "Most connections of PostgreSQL's clients. One address has half, one principal a quarter.",
            name="pg_connections",
            ge=8,
        ),
    ] = 1_000
