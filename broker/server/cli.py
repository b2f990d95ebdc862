"""`rsm broker run`: one broker as a process. Everything is wired here."""

from __future__ import annotations

import importlib
from typing import Annotated

import msgspec
import typer

from broker.server.mappers import load_mapper
from broker.server.service import BrokerService
from broker.server.settings import BrokerSettings
from ledger.configuration import process_command
from ledger.options import Option
from rsm_spark.server.process import ReadyNotice, run_replica
from rsm_spark.server.replica_options import ReplicaOptions

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Run a task broker.", pretty_exceptions_enable=False)


class BrokerRunOptions(ReplicaOptions, frozen=True, kw_only=True):
    """All that `rsm broker run` takes."""

    broker: BrokerSettings
    no_http: Annotated[bool, Option("Serve no HTTP.")] = False
    mapper: Annotated[
        str | None,
        Option(
            "Function that sets group, priority and resources of tasks as they are submitted.",
            metavar="MODULE:FUNCTION",
        ),
    ] = None

    def settings(self) -> BrokerSettings:
        """Return what the broker runs with.

        Raises:
            UsageError: A value is none, or a file or the mapper cannot be used.

        """
        http = self.broker.http
        if http is not None:
            http = msgspec.structs.replace(http, rate_burst=max(1, int(2 * http.rate_per_s)))
        mapper = None if self.mapper is None else load_mapper(self.mapper)
        return msgspec.structs.replace(self.complete(self.broker), http=None if self.no_http else http, mapper=mapper)


@app.callback()
def _broker() -> None:
    # Keeps `run` a sub-command of its own.
    pass


@app.command()
@process_command("broker")
def run(given: BrokerRunOptions) -> None:
    """Run a broker until ctrl-C or SIGTERM; two or more of them make it highly available.

    Examples:
        rsm broker run --data-dir /var/lib/broker-a --http-port 8080

        rsm broker run --data-dir /var/lib/broker-b --bookies 3/3/2 --tokens-file tokens.toml --json

    """
    given.begin()
    settings = given.settings()
    if settings.http is not None:
        # Now, while nothing waits for this process: a session with ZooKeeper might not outlive it.
        importlib.import_module("broker.api.server")
    run_replica(given, settings, lambda client, lake: BrokerService(client, settings, lake=lake), _ready_words)


def _ready_words(notice: ReadyNotice) -> str:
    http = f", HTTP on {notice.http_address}" if notice.http_address else ""
    return f"broker {notice.replica_id} serves workers on {notice.address}{http}, ctrl-C ends it"
