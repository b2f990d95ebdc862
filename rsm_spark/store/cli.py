"""`rsm store run`: one replica of the state store as a process."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import typer

from ledger.logs import configure_logs
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.runtime import ReplicaSettings
from rsm_spark.runtime.probes import ProbeSettings
from rsm_spark.store.app import SESSION_TIMEOUT_MS, ReadyNotice, run_store
from rsm_spark.store.run_options import (
    Advertise,
    Bind,
    Bookies,
    CheckpointRecords,
    Conf,
    DataDir,
    Domain,
    FollowOnly,
    HttpBind,
    HttpPort,
    KeepSnapshots,
    Lake,
    LakePeriod,
    LogFormat,
    LogLevel,
    PasswordFile,
    Port,
    ReadyLag,
    ReplicaId,
    Retention,
    RollAge,
    RollBytes,
    RollRecords,
    SessionTimeout,
    SessionTtl,
    SingleCopy,
    SnapshotBytes,
    SnapshotPeriod,
    TlsCa,
    TlsCert,
    TlsClientCa,
    TlsKey,
    TokenFile,
    TrimPeriod,
    TrimSingleCopy,
    VerifyPeriod,
)
from rsm_spark.store.run_settings import lake_of, run_replica, store_fields
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


@app.command()
def run(
    log: LogName,
    data_dir: DataDir,
    metadata_uri: MetadataUriOption = None,
    replica_id: ReplicaId = None,
    port: Port = 0,
    bind: Bind = "127.0.0.1",
    advertise: Advertise = "",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tls_client_ca: TlsClientCa = None,
    token_file: TokenFile = None,
    bookies: Bookies = "2/2/2",
    single_copy: SingleCopy = False,
    lake: Lake = None,
    follow_only: FollowOnly = False,
    roll_bytes: RollBytes = _DEFAULTS.roll_bytes,
    roll_records: RollRecords = _DEFAULTS.roll_records,
    roll_s: RollAge = _DEFAULTS.roll_s,
    retention_s: Retention = _DEFAULTS.retention_ms / 1000,
    trim_s: TrimPeriod = _DEFAULTS.trim_s,
    trim_single_copy: TrimSingleCopy = False,
    domain: Domain = "",
    snapshot_s: SnapshotPeriod = _DEFAULTS.snapshot_s,
    snapshot_bytes: SnapshotBytes = _DEFAULTS.snapshot_bytes,
    keep_snapshots: KeepSnapshots = 3,
    verify_s: VerifyPeriod = _DEFAULTS.verify_s,
    lake_s: LakePeriod = _DEFAULTS.lake_s,
    checkpoint_records: CheckpointRecords = _DEFAULTS.checkpoint_records,
    session_ttl_ms: SessionTtl = _DEFAULTS.session_ttl_ms,
    password_file: PasswordFile = None,
    session_timeout_ms: SessionTimeout = SESSION_TIMEOUT_MS,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    http_port: HttpPort = None,
    http_bind: HttpBind = "127.0.0.1",
    ready_lag_s: ReadyLag = 10.0,
    log_level: LogLevel = "warning",
    log_format: LogFormat = "text",
    json: Json = False,
    _conf: Conf = None,
) -> None:
    """Run a replica until ctrl-C or SIGTERM; two or more of them make the map highly available.

    Examples:
        rsm store run --log orders --data-dir /var/lib/orders-a

        rsm store run --log orders --data-dir /var/lib/orders-b --bookies 3/3/2 --json

        rsm store run --log orders --data-dir /var/lib/orders-c --bind 0.0.0.0 --advertise c.example.org:7000
            --tls-cert c.pem --tls-key c.key --tls-ca ca.pem --token-file token

    """
    # Typer needs every option as a parameter; from here on they travel together.
    _serve(SimpleNamespace(**locals()))


def _serve(given: Any) -> None:
    """Run a replica as the options say."""
    configure_logs(given.log_level, given.log_format)
    settings = StoreSettings(**store_fields(given))
    probes = None
    if given.http_port is not None:
        probes = ProbeSettings(given.http_port, given.http_bind, int(given.ready_lag_s * 1000))
    run_replica(
        run_store(
            settings,
            given.metadata_uri,
            _announce(json=given.json),
            lake=lake_of(given.lake, given.log),
            session_timeout_ms=given.session_timeout_ms,
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
