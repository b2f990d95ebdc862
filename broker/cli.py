"""`rsm broker run`: one broker as a process."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import typer

from broker.app import run_broker
from broker.core.rules import BrokerRules
from broker.http.settings import HttpSettings
from broker.mappers import load_mapper
from broker.run_options import (
    AllowedHosts,
    Conf,
    DeadRetention,
    HttpAdvertise,
    HttpBind,
    HttpPort,
    HttpTlsCert,
    HttpTlsClientCa,
    HttpTlsKey,
    Log,
    MapperOption,
    NoHttp,
    Port,
    RatePerS,
    RequestRetention,
    TaskRetention,
    TokensFile,
    WaitingMax,
    WorkerLease,
    WorkerPing,
    WorkerRetention,
)
from broker.settings import DEFAULT_LOG, WORKER_LEASE_S, WORKER_PING_S, BrokerSettings
from ledger.logs import configure_logs
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.runtime import ReplicaSettings
from rsm_spark.store.app import SESSION_TIMEOUT_MS, ReadyNotice
from rsm_spark.store.run_options import (
    Advertise,
    Bind,
    Bookies,
    CheckpointRecords,
    DataDir,
    Domain,
    FollowOnly,
    KeepSnapshots,
    Lake,
    LakePeriod,
    LogFormat,
    LogLevel,
    PasswordFile,
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
from rsm_spark.store.terminal import Json, MetadataUriOption, RsmRoot, print_json

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Run a task broker.", pretty_exceptions_enable=False)
_DEFAULTS = ReplicaSettings()
_HTTP = HttpSettings()
_RULES = BrokerRules()


@app.callback()
def _broker() -> None:
    # Keeps `run` a sub-command of its own.
    pass


@app.command()
def run(
    data_dir: DataDir,
    log: Log = DEFAULT_LOG,
    metadata_uri: MetadataUriOption = None,
    replica_id: ReplicaId = None,
    port: Port = 0,
    bind: Bind = "127.0.0.1",
    advertise: Advertise = "",
    http_port: HttpPort = 0,
    http_bind: HttpBind = "127.0.0.1",
    http_advertise: HttpAdvertise = "",
    tokens_file: TokensFile = None,
    http_tls_cert: HttpTlsCert = None,
    http_tls_key: HttpTlsKey = None,
    http_tls_client_ca: HttpTlsClientCa = None,
    allowed_hosts: AllowedHosts = "",
    rate: RatePerS = _HTTP.rate_per_s,
    no_http: NoHttp = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tls_client_ca: TlsClientCa = None,
    token_file: TokenFile = None,
    worker_lease_s: WorkerLease = WORKER_LEASE_S,
    worker_ping_s: WorkerPing = WORKER_PING_S,
    task_retention_s: TaskRetention = _RULES.retention_ms / 1000,
    dead_retention_s: DeadRetention = _RULES.dead_retention_ms / 1000,
    request_retention_s: RequestRetention = _RULES.request_retention_ms / 1000,
    worker_retention_s: WorkerRetention = _RULES.worker_retention_ms / 1000,
    waiting_max: WaitingMax = _RULES.waiting_max,
    mapper: MapperOption = None,
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
    ready_lag_s: ReadyLag = _HTTP.lag_ms_max / 1000,
    log_level: LogLevel = "warning",
    log_format: LogFormat = "text",
    json: Json = False,
    _conf: Conf = None,
) -> None:
    """Run a broker until ctrl-C or SIGTERM; two or more of them make it highly available.

    Examples:
        rsm broker run --data-dir /var/lib/broker-a --http-port 8080

        rsm broker run --data-dir /var/lib/broker-b --bookies 3/3/2 --tokens-file tokens.toml --json

    """
    # Typer needs every option as a parameter; from here on they travel together.
    _serve(SimpleNamespace(**locals()))


def _serve(given: Any) -> None:
    """Run a broker as the options say."""
    configure_logs(given.log_level, given.log_format)
    settings = BrokerSettings(
        **store_fields(given),
        http=None if given.no_http else _http_settings(given),
        rules=BrokerRules(
            retention_ms=int(given.task_retention_s * 1000),
            dead_retention_ms=int(given.dead_retention_s * 1000),
            request_retention_ms=int(given.request_retention_s * 1000),
            worker_retention_ms=int(given.worker_retention_s * 1000),
            waiting_max=given.waiting_max,
        ),
        mapper=None if given.mapper is None else load_mapper(given.mapper),
        worker_lease_s=given.worker_lease_s,
        worker_ping_s=given.worker_ping_s,
    )
    run_replica(
        run_broker(
            settings,
            given.metadata_uri,
            _announce(json=given.json),
            lake=lake_of(given.lake, given.log),
            session_timeout_ms=given.session_timeout_ms,
        )
    )


def _http_settings(given: Any) -> HttpSettings:
    return HttpSettings(
        bind=given.http_bind,
        port=given.http_port,
        advertise=given.http_advertise,
        tls_cert=given.http_tls_cert,
        tls_key=given.http_tls_key,
        tls_client_ca=given.http_tls_client_ca,
        tokens_file=given.tokens_file,
        allowed_hosts=tuple(name.strip() for name in given.allowed_hosts.split(",") if name.strip()),
        rate_per_s=given.rate,
        rate_burst=max(1, int(2 * given.rate)),
        lag_ms_max=int(given.ready_lag_s * 1000),
    )


def _announce(*, json: bool) -> Callable[[ReadyNotice], None]:
    def _on_ready(notice: ReadyNotice) -> None:
        if json:
            print_json(msgspec.to_builtins(notice))
            return
        http = f", HTTP on {notice.http_address}" if notice.http_address else ""
        typer.echo(f"broker {notice.replica_id} serves workers on {notice.address}{http}, ctrl-C ends it")

    return _on_ready
