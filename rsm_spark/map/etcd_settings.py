"""Settings of the port that speaks etcd's protocol; without gRPC, so that commands read them quickly."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.options import Option


class EtcdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the port that speaks etcd's protocol; without a port there is none."""

    port: Annotated[
        int | None,
        Option("Port that serves etcd's v3 API; 0 = any that is free.", name="etcd_port", ge=0, le=65535),
    ] = None
    bind: Annotated[str, Option("Address to serve etcd's API on.", name="etcd_bind", shown="as --bind")] = ""
    advertise: Annotated[
        str,
        Option(
            "Address that etcd's clients are told.",
            name="etcd_advertise",
            metavar="HOST:PORT",
            shown="where it listens",
        ),
    ] = ""
    json_port: Annotated[
        int | None,
        Option(
            "Port that serves the same as JSON over HTTP; 0 = any that is free. It goes with --etcd-port.",
            name="etcd_json_port",
            ge=0,
            le=65535,
        ),
    ] = None
