"""`rsm worker run`: one worker as a process."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from broker.worker.app import WorkerReady, run_worker
from broker.worker.codec import load_codec
from broker.worker.pages import WorkerPages
from broker.worker.settings import WorkerSettings
from broker.worker.work_options import WorkOptions
from broker.worker.worker import Worker
from ledger.audit_lines import Refusals
from ledger.cluster_options import LoggingOptions, ProcessOptions
from ledger.configuration import process_command
from ledger.http.metrics_push import push_metrics
from ledger.http.probe_server import ProbeServer
from ledger.http.settings import HttpPortSettings
from ledger.options import NAMES, Option
from ledger.rights.callers import Callers
from ledger.telemetry.settings import TelemetrySettings
from ledger.telemetry.start import start_telemetry
from ledger.tls import TlsSettings
from rsm_spark.cli.terminal import print_json
from rsm_spark.transport.security import Security

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run a worker of the broker.", pretty_exceptions_enable=False
)


class WorkerOptions(ProcessOptions, frozen=True, kw_only=True):
    """All that `rsm worker run` takes."""

    brokers: Annotated[
        tuple[str, ...],
        Option(
            "Any of the brokers; the leader is found from there.",
            metavar="HOST:PORT,…",
            shown="the leader, by ZooKeeper",
            unit=NAMES,
        ),
    ] = ()
    tls_cert: Annotated[
        str | None,
        Option(
            "Certificate shown to brokers.", metavar="PEM", variables=("RSM_WORKER__TLS_CERT", "RSM_STORE__TLS_CERT")
        ),
    ] = None
    tls_key: Annotated[
        str | None, Option("Its private key.", metavar="PEM", variables=("RSM_WORKER__TLS_KEY", "RSM_STORE__TLS_KEY"))
    ] = None
    tls_ca: Annotated[
        str | None,
        Option(
            "Authority that has signed the brokers' certificates.",
            metavar="PEM",
            variables=("RSM_WORKER__TLS_CA", "RSM_STORE__TLS_CA"),
        ),
    ] = None
    token_file: Annotated[
        str | None,
        Option(
            "Holds the cluster's token.", metavar="FILE", variables=("RSM_WORKER__TOKEN_FILE", "RSM_STORE__TOKEN_FILE")
        ),
    ] = None
    http: HttpPortSettings = HttpPortSettings()
    http_token_file: Annotated[
        str | None, Option("Callers over HTTP have to know the token of this file.", metavar="FILE")
    ] = None
    work: WorkOptions = WorkOptions()
    logs: LoggingOptions = LoggingOptions()
    telemetry: TelemetrySettings = TelemetrySettings()


@app.callback()
def _worker() -> None:
    # Keeps `run` a sub-command of its own.
    pass


@app.command()
@process_command("worker")
def run(given: WorkerOptions) -> None:
    """Run tasks until ctrl-C or SIGTERM, which let what runs end first; the second one does not.

    Examples:
        rsm worker run --tasks handlers --threads 8

        rsm worker run --brokers a:7010,b:7010 --tasks handlers:resize --executor process --types resize=2,*

        rsm worker run --brokers a:7010 --executor subprocess --command "convert {type}" --resources gpu=1 --groups 1,0

    """
    given.logs.apply()
    work = given.work
    settings = work.settings(f"{socket.gethostname()}-{os.getpid()}")
    start_telemetry(given.telemetry, "rsm-worker", settings.worker_id)
    # Tasks lie in the user's project, which is where a worker is started; `rsm` itself lies elsewhere.
    here = str(Path.cwd())
    if (work.executor != "subprocess" or work.codec) and here not in sys.path:
        sys.path.append(here)  # Behind what is installed: a folder there may have the name of one of ours.
    run_worker(
        settings,
        work.make_executor(),
        brokers=given.brokers,
        metadata_uri=given.metadata_uri,
        security=Security(
            tls_ca=given.tls_ca, tls_cert=given.tls_cert, tls_key=given.tls_key, token_file=given.token_file
        ),
        codec=load_codec(work.codec) if work.codec else None,
        on_ready=_announce(json=given.json),
        stall_s=given.stall_s,
        open_http=partial(_open_http, given, settings),
    )


async def _open_http(given: WorkerOptions, settings: WorkerSettings, worker: Worker) -> ProbeServer | None:
    refusals = Refusals()
    pages = WorkerPages(worker, settings, refusals)
    push_metrics(pages.metrics)
    http = given.http
    if http.port is None:
        return None
    tls = None if given.tls_cert is None else TlsSettings(cert=given.tls_cert, key=given.tls_key)
    server = ProbeServer(
        pages.routes(),
        bind=http.bind,
        port=http.port,
        tls=tls,
        callers=Callers(token_file=given.http_token_file),
        allowed_hosts=http.allowed_hosts,
        refusals=refusals,
    )
    await server.start()
    return server


def _announce(*, json: bool) -> Callable[[WorkerReady], None]:
    def _on_ready(ready: WorkerReady) -> None:
        if json:
            print_json(msgspec.to_builtins(ready))
        else:
            at = f", HTTP on {ready.http_address}" if ready.http_address else ""
            typer.echo(f"worker {ready.worker_id} works for {ready.broker}{at}, ctrl-C drains it")

    return _on_ready
