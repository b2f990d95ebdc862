"""The options of `rsm broker run` beside those of any replica; each is a key of its file and a variable too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledger.configuration import configured

__all__ = [
    "AllowedHosts",
    "Conf",
    "DeadRetention",
    "HttpAdvertise",
    "HttpBind",
    "HttpPort",
    "HttpTlsCert",
    "HttpTlsClientCa",
    "HttpTlsKey",
    "Log",
    "MapperOption",
    "NoHttp",
    "Port",
    "RatePerS",
    "RequestRetention",
    "TaskRetention",
    "TokensFile",
    "WaitingMax",
    "WorkerLease",
    "WorkerPing",
    "WorkerRetention",
]

Log = Annotated[str, typer.Option("--log", help="Name of the broker's log.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="For workers; 0 = any that is free.")]
HttpPort = Annotated[
    int,
    typer.Option("--http-port", min=0, max=65535, help="For the HTTP API and the dashboard; 0 = any that is free."),
]
NoHttp = Annotated[bool, typer.Option("--no-http", help="Serve no HTTP.")]
HttpBind = Annotated[str, typer.Option("--http-bind", help="Address to serve HTTP on.")]
HttpAdvertise = Annotated[
    str,
    typer.Option(
        "--http-advertise", metavar="HOST:PORT", help="Told to HTTP clients.", show_default="where it listens"
    ),
]
HttpTlsCert = Annotated[
    str | None, typer.Option("--http-tls-cert", metavar="PEM", help="Certificate to serve HTTP with.")
]
HttpTlsKey = Annotated[str | None, typer.Option("--http-tls-key", metavar="PEM", help="Its private key.")]
HttpTlsClientCa = Annotated[
    str | None,
    typer.Option("--http-tls-client-ca", metavar="PEM", help="Serve HTTP only to callers it has signed."),
]
TokensFile = Annotated[
    str | None,
    typer.Option(
        "--tokens-file",
        metavar="TOML",
        help="Tokens of tenants and administrators; without it whoever reaches the HTTP port is an administrator.",
    ),
]
AllowedHosts = Annotated[
    str,
    typer.Option("--allowed-hosts", metavar="NAMES", help="More names of this server, behind a proxy: a.org,b.org."),
]
RatePerS = Annotated[float, typer.Option("--rate", min=0, help="HTTP requests a second of one token; 0 = no limit.")]
WorkerLease = Annotated[
    float, typer.Option("--worker-lease-s", help="A worker without a connection keeps its tasks so long.")
]
WorkerPing = Annotated[float, typer.Option("--worker-ping-s", help="A worker that has nothing to say pings as often.")]
TaskRetention = Annotated[float, typer.Option("--task-retention-s", min=0, help="Ended tasks are kept so long.")]
DeadRetention = Annotated[float, typer.Option("--dead-retention-s", min=0, help="Dead letters are kept so long.")]
RequestRetention = Annotated[
    float, typer.Option("--request-retention-s", min=0, help="Replies to request keys are kept so long.")
]
WorkerRetention = Annotated[
    float, typer.Option("--worker-retention-s", min=0, help="Dead workers are remembered so long.")
]
WaitingMax = Annotated[
    int, typer.Option("--waiting-max", min=0, help="Tasks not ended, beyond which none is taken; 0 = no bound.")
]
MapperOption = Annotated[
    str | None,
    typer.Option(
        "--mapper",
        metavar="MODULE:FUNCTION",
        help="Function that sets group, priority and resources of tasks as they are submitted.",
    ),
]
Conf = Annotated[Path | None, configured("broker")]
