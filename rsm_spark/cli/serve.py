"""`rsm serve`: one replica of a user's own machine as a process, with all that `rsm store run` has."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.configuration import process_command
from ledger.http.settings import HttpPortSettings
from rsm_spark.cli.named_machine import ModulePath, load_machine
from rsm_spark.server.process import run_replica
from rsm_spark.server.replica_options import ReplicaOptions
from rsm_spark.server.replica_server import StoreService, StoreSettings
from rsm_spark.transport.reach import WHOLE_LOG


class ServeOptions(ReplicaOptions, frozen=True, kw_only=True):
    """All that `rsm serve` takes beside the machine."""

    replica: StoreSettings
    probes: HttpPortSettings = HttpPortSettings()
    module_path: ModulePath = None


@process_command("serve")
def serve(
    machine: Annotated[
        str,
        typer.Argument(
            help="Your state machine: MODULE:CLASS, of an installed package or of the working directory.",
            metavar="MODULE:CLASS",
            envvar="RSM_SERVE__MACHINE",
        ),
    ],
    given: ServeOptions,
) -> None:
    """Run a replica of your own state machine until ctrl-C or SIGTERM; two or more make it highly available.

    Examples:
        rsm serve bank:Bank --log bank --data-dir /var/lib/bank-a

        rsm serve bank:Bank --log bank --data-dir /var/lib/bank-b --bookies 3/3/2 --http-port 8080 --json

    """
    given.begin()
    settings = given.complete(given.replica)
    made = load_machine(machine, given.module_path)
    run_replica(
        given,
        settings,
        lambda client, lake: StoreService(client, settings, lake=lake, machine=made, keys=WHOLE_LOG),
        lambda notice: (
            f"replica {notice.replica_id} of log {notice.log} serves {machine} on {notice.address}, ctrl-C ends it"
        ),
        given.probes,
    )
