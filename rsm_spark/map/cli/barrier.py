"""`rsm map barrier`: commands of several machines that begin together and end together."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.configuration import options_command
from rsm_spark.cli.terminal import key_bytes, run
from rsm_spark.map.cli.child_command import run_child
from rsm_spark.map.cli.connection import MapOptions
from rsm_spark.map.client.barriers import PARTIES_MAX


@options_command
def barrier(
    name: Annotated[str, typer.Argument(help="Name of the barrier, as text.")],
    at: MapOptions,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="What runs, behind --.")],
    parties: Annotated[
        int, typer.Option("--parties", min=1, max=PARTIES_MAX, help="How many begin together; the same for all.")
    ],
    ttl_ms: Annotated[
        int, typer.Option("--ttl-ms", min=1_000, help="A party that was silent for so long is gone.")
    ] = 10_000,
) -> None:
    """Wait for the other parties, run a command, wait until all have ended theirs, and end with its exit code.

    The command finds its number among the parties, from 0 on, in RSM_BARRIER_PLACE, and that of the round in
    RSM_BARRIER_TOKEN. If this party was silent for too long, the command is ended by SIGTERM, and the exit code is 1.

    Examples:
        rsm map barrier barriers/load --parties 3 --log jobs -- ./load.sh

    """

    async def _run() -> int:
        async with (
            await at.connect() as client,
            client.barrier(key_bytes(name), parties, ttl_ms) as entered,
        ):
            told = {"RSM_BARRIER_PLACE": str(entered.place), "RSM_BARRIER_TOKEN": str(entered.token)}
            return await run_child(command, told)

    raise typer.Exit(run(_run()))
