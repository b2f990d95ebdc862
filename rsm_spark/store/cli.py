"""`rsm store run`: one replica of the state store as a process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ledger.configuration import configured
from ledger.errors import UsageError
from ledger.logs import configure_logs
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.grpc.security import Security
from rsm_spark.runtime import ReplicaSettings
from rsm_spark.runtime.probes import ProbeSettings
from rsm_spark.snapshots import SnapshotStore
from rsm_spark.store.app import SESSION_TIMEOUT_MS, ReadyNotice, run_store
from rsm_spark.store.service import StoreSettings
from rsm_spark.store.terminal import Json, LogName, MetadataUriOption, RsmRoot, print_json

__all__ = ["app"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run a replica of the state store.", pretty_exceptions_enable=False
)
_DEFAULTS = ReplicaSettings()


@app.callback()
def _store() -> None:
    # Keeps `run` a sub-command of its own.
    pass


_DataDir = Annotated[Path, typer.Option("--data-dir", help="The replica's own folder; snapshots lie in it.")]
_ReplicaId = Annotated[
    str | None, typer.Option("--replica-id", help="Stable name of this replica.", show_default="host and folder")
]
_Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="For clients; 0 = any that is free.")]
_Bind = Annotated[str, typer.Option("--bind", help="Address to listen on.")]
_Advertise = Annotated[
    str, typer.Option("--advertise", metavar="HOST:PORT", help="Told to clients.", show_default="where it listens")
]
_TlsCert = Annotated[
    str | None,
    typer.Option("--tls-cert", metavar="PEM", envvar="RSM_STORE__TLS_CERT", help="Certificate to serve with."),
]
_TlsKey = Annotated[
    str | None, typer.Option("--tls-key", metavar="PEM", envvar="RSM_STORE__TLS_KEY", help="Its private key.")
]
_TlsCa = Annotated[
    str | None,
    typer.Option("--tls-ca", metavar="PEM", envvar="RSM_STORE__TLS_CA", help="Who signs other replicas' certificates."),
]
_TlsClientCa = Annotated[
    str | None,
    typer.Option(
        "--tls-client-ca", metavar="PEM", envvar="RSM_STORE__TLS_CLIENT_CA", help="Serve only callers it has signed."
    ),
]
_TokenFile = Annotated[
    str | None,
    typer.Option(
        "--token-file", metavar="FILE", envvar="RSM_STORE__TOKEN_FILE", help="Serve only callers who know it."
    ),
]
_Bookies = Annotated[
    str, typer.Option("--bookies", metavar="E/Qw/Qa", help="Ensemble, write quorum and ack quorum of the log.")
]
_SingleCopy = Annotated[bool, typer.Option("--single-copy", help="Allow an ack quorum of 1: one disk lost, log lost.")]
_Lake = Annotated[str | None, typer.Option("--lake", metavar="PATH", help="Where snapshots lie to boot from.")]
_FollowOnly = Annotated[bool, typer.Option("--follow-only", help="Never lead.")]
_RollBytes = Annotated[int, typer.Option(help="A ledger is followed by a new one at so many.")]
_RollAge = Annotated[float, typer.Option(help="… or at this age.")]
_SnapshotPeriod = Annotated[float, typer.Option(help="Period of local snapshots; 0 = none by time.")]
_SnapshotBytes = Annotated[int, typer.Option(help="Log bytes between them; 0 = none by size.")]
_KeepSnapshots = Annotated[int, typer.Option(min=3, help="Whole local snapshots to keep.")]
_SessionTimeout = Annotated[int, typer.Option(min=200, help="ZooKeeper gives a silent leader up after so long.")]
_Conf = Annotated[Path | None, configured("store")]
_HttpPort = Annotated[
    int | None,
    typer.Option(
        "--http-port", min=0, max=65535, help="Answer /healthz, /readyz, /metrics, /status here; 0 = any that is free."
    ),
]
_HttpBind = Annotated[str, typer.Option("--http-bind", help="Address for that.")]
_ReadyLag = Annotated[float, typer.Option(min=0, help="A follower that is further behind is not ready.")]
_LogFormat = Annotated[str, typer.Option(help="text, or json: one object a line.")]
_LogLevel = Annotated[str, typer.Option(help="debug, info, warning, error.")]


@app.command()
def run(
    log: LogName,
    data_dir: _DataDir,
    metadata_uri: MetadataUriOption = None,
    replica_id: _ReplicaId = None,
    port: _Port = 0,
    bind: _Bind = "127.0.0.1",
    advertise: _Advertise = "",
    tls_cert: _TlsCert = None,
    tls_key: _TlsKey = None,
    tls_ca: _TlsCa = None,
    tls_client_ca: _TlsClientCa = None,
    token_file: _TokenFile = None,
    bookies: _Bookies = "2/2/2",
    single_copy: _SingleCopy = False,
    lake: _Lake = None,
    follow_only: _FollowOnly = False,
    roll_bytes: _RollBytes = _DEFAULTS.roll_bytes,
    roll_s: _RollAge = _DEFAULTS.roll_s,
    snapshot_s: _SnapshotPeriod = _DEFAULTS.snapshot_s,
    snapshot_bytes: _SnapshotBytes = _DEFAULTS.snapshot_bytes,
    keep_snapshots: _KeepSnapshots = 3,
    session_timeout_ms: _SessionTimeout = SESSION_TIMEOUT_MS,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    http_port: _HttpPort = None,
    http_bind: _HttpBind = "127.0.0.1",
    ready_lag_s: _ReadyLag = 10.0,
    log_level: _LogLevel = "warning",
    log_format: _LogFormat = "text",
    json: Json = False,
    _conf: _Conf = None,
) -> None:
    """Run a replica until ctrl-C or SIGTERM; two or more of them make the map highly available.

    Examples:
        rsm store run --log orders --data-dir /var/lib/orders-a

        rsm store run --log orders --data-dir /var/lib/orders-b --bookies 3/3/2 --json

        rsm store run --log orders --data-dir /var/lib/orders-c --bind 0.0.0.0 --advertise c.example.org:7000
            --tls-cert c.pem --tls-key c.key --tls-ca ca.pem --token-file token

    """
    configure_logs(log_level, log_format)
    ensemble_size, write_quorum, ack_quorum = _quorum(bookies)
    replica = ReplicaSettings(
        rsm_root=rsm_root,
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        allow_single_copy=single_copy,
        roll_bytes=roll_bytes,
        roll_s=roll_s,
        snapshot_s=snapshot_s,
        snapshot_bytes=snapshot_bytes,
        campaign=not follow_only,
    )
    name = replica_id or _default_id(data_dir)
    settings = StoreSettings(
        log=log,
        replica_id=name,
        data_dir=data_dir,
        bind=bind,
        port=port,
        advertise=advertise,
        security=Security(
            tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, tls_client_ca=tls_client_ca, token_file=token_file
        ),
        keep_snapshots=keep_snapshots,
        replica=replica,
    )
    snapshots = None if lake is None else _lake(lake, log)
    probes = None if http_port is None else ProbeSettings(http_port, http_bind, int(ready_lag_s * 1000))
    _run(
        run_store(
            settings,
            metadata_uri,
            _announce(json=json),
            lake=snapshots,
            session_timeout_ms=session_timeout_ms,
            probes=probes,
        )
    )


def _announce(*, json: bool) -> Callable[[ReadyNotice], None]:
    def _on_ready(notice: ReadyNotice) -> None:
        if json:
            print_json(msgspec.to_builtins(notice))
        else:
            typer.echo(f"replica {notice.replica_id} of log {notice.log} serves on {notice.address}, ctrl-C ends it")

    return _on_ready


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def _quorum(text: str) -> tuple[int, int, int]:
    parts = text.split("/")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise UsageError(f"--bookies {text!r}: expected ensemble/write quorum/ack quorum, for example 3/3/2")
    return int(parts[0]), int(parts[1]), int(parts[2])


def _default_id(data_dir: Path) -> str:
    """Return a name that the same folder on the same host gets again."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in f"{socket.gethostname()}-{data_dir.resolve()}")
    return os.fsencode(plain.strip("-"))[-120:].decode()


def _lake(path: str, log: str) -> SnapshotStore:
    from rsm_spark.snapshots.lake import LakeSnapshots, lake_place  # noqa: PLC0415 - deltalake only where it is used

    return LakeSnapshots(lake_place(path, log))
