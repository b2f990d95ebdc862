"""`rsm map lock`: a command that runs while a lock is held."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.exit_codes import ExitCode
from rsm_spark.cli.terminal import key_bytes, print_result, run
from rsm_spark.map.cli.child_command import run_child
from rsm_spark.map.cli.connection import MapOptions
from rsm_spark.map.client.locks import LockHolder


@options_command
def lock(
    name: Annotated[str, typer.Argument(help="Name of the lock, as text.")],
    at: MapOptions,
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="What runs, behind --.")] = None,
    ttl_ms: Annotated[
        int, typer.Option("--ttl-ms", min=1_000, help="The lock goes to the next one after so long a silence.")
    ] = 10_000,
    value: Annotated[str, typer.Option("--value", help="Told to others who ask for the holder.")] = "",
    show: Annotated[bool, typer.Option("--show", help="Say who holds it; exit code 4 if nobody does.")] = False,
) -> None:
    """Wait for a lock, run a command while it is held, and end with the command's exit code.

    The command finds its fencing token in RSM_LOCK_TOKEN. If the lock is lost, the command is ended by SIGTERM, and the
    exit code is 1.

    Examples:
        rsm map lock locks/nightly --log jobs -- ./nightly.sh

        rsm map lock locks/nightly --log jobs --show

    """
    if show is bool(command):
        raise UsageError("rsm map lock NAME needs either --show, or -- and a command")
    if show:
        _show(at, name, at.ask(lambda client: client.lock_holder(key_bytes(name))))
        return

    async def _run() -> int:
        async with (
            await at.connect() as client,
            client.holding_lock(key_bytes(name), ttl_ms, value=key_bytes(value)) as held,
        ):
            return await run_child(command or [], {"RSM_LOCK_TOKEN": str(held.token)})

    raise typer.Exit(run(_run()))


def _show(at: MapOptions, name: str, holder: LockHolder | None) -> None:
    if holder is None:
        print_result(at.json, {"lock": name, "held": False}, f"nobody holds {name}")
        raise typer.Exit(ExitCode.NOT_FOUND)
    value = holder.value.decode(errors="replace")
    told = {"lock": name, "held": True, "value": value, "token": holder.token}
    print_result(at.json, told, f"{value or '?'} holds {name}, token {holder.token}")
