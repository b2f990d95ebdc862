"""`rsm worker run`: one worker as a process."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import typer

from broker.settings import DEFAULT_LOG
from broker.worker.app import WorkerReady, run_worker
from broker.worker.executors.children import ChildLimits
from broker.worker.executors.executor import Executor
from broker.worker.executors.kinds import check_executor, make_executor
from broker.worker.run_options import (
    Brokers,
    CancelS,
    CodeDir,
    Command,
    Conf,
    DrainS,
    ExcludedGroups,
    ExecutorKind,
    Groups,
    LoadS,
    Location,
    Log,
    MemoryMb,
    Resources,
    Tasks,
    TenantShare,
    Threads,
    TlsCa,
    TlsCert,
    TlsKey,
    TokenFile,
    Types,
    WorkerId,
    amounts,
    numbers,
)
from broker.worker.settings import WorkerSettings
from ledger.logs import configure_logs
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.grpc.security import Security
from rsm_spark.store.run_options import LogFormat, LogLevel
from rsm_spark.store.terminal import Json, MetadataUriOption, RsmRoot, print_json

__all__ = ["app"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run a worker of the broker.", pretty_exceptions_enable=False
)
_CHILD = ChildLimits()


@app.callback()
def _worker() -> None:
    # Keeps `run` a sub-command of its own.
    pass


@app.command()
def run(
    tasks: Tasks = "",
    brokers: Brokers = "",
    metadata_uri: MetadataUriOption = None,
    log: Log = DEFAULT_LOG,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    worker_id: WorkerId = "",
    location: Location = "",
    executor: ExecutorKind = "thread",
    command: Command = "",
    threads: Threads = 4,
    types: Types = "",
    groups: Groups = "0",
    excluded_groups: ExcludedGroups = "",
    resources: Resources = "",
    tenant_share_percent: TenantShare = 0,
    drain_s: DrainS = 60.0,
    cancel_s: CancelS = _CHILD.cancel_s,
    load_s: LoadS = _CHILD.load_s,
    memory_mb: MemoryMb = 0,
    code_dir: CodeDir = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    token_file: TokenFile = None,
    log_level: LogLevel = "warning",
    log_format: LogFormat = "text",
    json: Json = False,
    _conf: Conf = None,
) -> None:
    """Run tasks until ctrl-C or SIGTERM, which let what runs end first; the second one does not.

    Examples:
        rsm worker run --tasks handlers --threads 8

        rsm worker run --brokers a:7010,b:7010 --tasks handlers:resize --executor process --types resize=2,*

        rsm worker run --brokers a:7010 --executor subprocess --command "convert {type}" --resources gpu=1 --groups 1,0

    """
    # Typer needs every option as a parameter; from here on they travel together.
    _work(SimpleNamespace(**locals()))


def _work(given: Any) -> None:
    configure_logs(given.log_level, given.log_format)
    settings = WorkerSettings(
        worker_id=given.worker_id or f"{socket.gethostname()}-{os.getpid()}",
        location=given.location,
        threads=given.threads,
        types=amounts(given.types, "--types", given.threads),
        groups=numbers(given.groups, "--groups"),
        excluded_groups=numbers(given.excluded_groups, "--excluded-groups"),
        resources=amounts(given.resources, "--resources"),
        tenant_share_percent=given.tenant_share_percent,
        drain_s=given.drain_s,
        code_dir=given.code_dir,
        children=_child_limits(given),
        log=given.log,
        rsm_root=given.rsm_root,
    )
    settings.check()
    run_worker(
        settings,
        _executor(given),
        brokers=[address.strip() for address in given.brokers.split(",") if address.strip()],
        metadata_uri=given.metadata_uri,
        security=Security(
            tls_ca=given.tls_ca, tls_cert=given.tls_cert, tls_key=given.tls_key, token_file=given.token_file
        ),
        on_ready=_announce(json=given.json),
    )


def _executor(given: Any) -> Executor:
    check_executor(given.executor, given.tasks, given.command)
    # Tasks lie in the user's project, which is where a worker is started; `rsm` itself lies elsewhere.
    here = str(Path.cwd())
    if given.executor != "subprocess" and here not in sys.path:
        sys.path.insert(0, here)
    return make_executor(given.executor, given.tasks, given.command, _child_limits(given))


def _child_limits(given: Any) -> ChildLimits:
    return ChildLimits(load_s=given.load_s, cancel_s=given.cancel_s, memory_bytes_max=given.memory_mb * 1024 * 1024)


def _announce(*, json: bool) -> Callable[[WorkerReady], None]:
    def _on_ready(ready: WorkerReady) -> None:
        if json:
            print_json(msgspec.to_builtins(ready))
        else:
            typer.echo(f"worker {ready.worker_id} works for {ready.broker}, ctrl-C drains it")

    return _on_ready
