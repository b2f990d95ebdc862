"""The options of `rsm store run`; each is a key of its file and a variable too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledger.configuration import configured

__all__ = [
    "Advertise",
    "Bind",
    "Bookies",
    "CheckpointRecords",
    "Conf",
    "DataDir",
    "Domain",
    "FollowOnly",
    "HttpBind",
    "HttpPort",
    "KeepSnapshots",
    "Lake",
    "LakePeriod",
    "LogFormat",
    "LogLevel",
    "PasswordFile",
    "Port",
    "ReadyLag",
    "ReplicaId",
    "Retention",
    "RollAge",
    "RollBytes",
    "RollRecords",
    "SessionTimeout",
    "SessionTtl",
    "SingleCopy",
    "SnapshotBytes",
    "SnapshotPeriod",
    "TlsCa",
    "TlsCert",
    "TlsClientCa",
    "TlsKey",
    "TokenFile",
    "TrimPeriod",
    "TrimSingleCopy",
    "VerifyPeriod",
]

DataDir = Annotated[Path, typer.Option("--data-dir", help="The replica's own folder; snapshots lie in it.")]
ReplicaId = Annotated[
    str | None, typer.Option("--replica-id", help="Stable name of this replica.", show_default="host and folder")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="For clients; 0 = any that is free.")]
Bind = Annotated[str, typer.Option("--bind", help="Address to listen on.")]
Advertise = Annotated[
    str, typer.Option("--advertise", metavar="HOST:PORT", help="Told to clients.", show_default="where it listens")
]
TlsCert = Annotated[
    str | None,
    typer.Option("--tls-cert", metavar="PEM", envvar="RSM_STORE__TLS_CERT", help="Certificate to serve with."),
]
TlsKey = Annotated[
    str | None, typer.Option("--tls-key", metavar="PEM", envvar="RSM_STORE__TLS_KEY", help="Its private key.")
]
TlsCa = Annotated[
    str | None,
    typer.Option("--tls-ca", metavar="PEM", envvar="RSM_STORE__TLS_CA", help="Who signs other replicas' certificates."),
]
TlsClientCa = Annotated[
    str | None,
    typer.Option(
        "--tls-client-ca", metavar="PEM", envvar="RSM_STORE__TLS_CLIENT_CA", help="Serve only callers it has signed."
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--token-file", metavar="FILE", envvar="RSM_STORE__TOKEN_FILE", help="Serve only callers who know it."
    ),
]
Bookies = Annotated[
    str, typer.Option("--bookies", metavar="E/Qw/Qa", help="Ensemble, write quorum and ack quorum of the log.")
]
SingleCopy = Annotated[bool, typer.Option("--single-copy", help="Allow an ack quorum of 1: one disk lost, log lost.")]
Lake = Annotated[
    str | None,
    typer.Option("--lake", metavar="PATH", help="Folder or URI of snapshots: written to it, and booted from."),
]
FollowOnly = Annotated[bool, typer.Option("--follow-only", help="Never lead.")]
RollBytes = Annotated[int, typer.Option(help="A ledger is followed by a new one at so many.")]
RollAge = Annotated[float, typer.Option(help="… or at this age.")]
RollRecords = Annotated[int, typer.Option(help="… or with so many records.")]
Retention = Annotated[float, typer.Option(min=0, help="What is younger stays in the log, verified or not.")]
TrimPeriod = Annotated[float, typer.Option(help="How often the leader looks what may be trimmed.")]
TrimSingleCopy = Annotated[
    bool, typer.Option("--trim-single-copy", help="Trim by a verified snapshot in one place: that disk lost, log lost.")
]
Domain = Annotated[
    str, typer.Option(help="What this disk fails together with: machine, rack.", show_default="only itself")
]
VerifyPeriod = Annotated[float, typer.Option(help="How often others' snapshots are looked for, to verify them.")]
LakePeriod = Annotated[float, typer.Option(help="Period of the snapshots in the lake.")]
CheckpointRecords = Annotated[int, typer.Option(min=1, help="Records between two digests in the log.")]
SessionTtl = Annotated[int, typer.Option(min=1, help="A client's session ends after so long without a command.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="Holds the password of the log's ledgers, in one line."),
]
SnapshotPeriod = Annotated[float, typer.Option(help="Period of local snapshots; 0 = none by time.")]
SnapshotBytes = Annotated[int, typer.Option(help="Log bytes between them; 0 = none by size.")]
KeepSnapshots = Annotated[int, typer.Option(min=3, help="Whole local snapshots to keep.")]
SessionTimeout = Annotated[int, typer.Option(min=200, help="ZooKeeper gives a silent leader up after so long.")]
Conf = Annotated[Path | None, configured("store")]
HttpPort = Annotated[
    int | None,
    typer.Option(
        "--http-port", min=0, max=65535, help="Answer /healthz, /readyz, /metrics, /status here; 0 = any that is free."
    ),
]
HttpBind = Annotated[str, typer.Option("--http-bind", help="Address for that.")]
ReadyLag = Annotated[float, typer.Option(min=0, help="A follower that is further behind is not ready.")]
LogFormat = Annotated[str, typer.Option(help="text, or json: one object a line.")]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning, error.")]
