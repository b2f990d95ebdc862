"""`rsm map lease`: leases from the command line."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer

from ledger.configuration import options_command
from ledger.exit_codes import ExitCode
from rsm_spark.cli.terminal import print_json, print_result, run
from rsm_spark.map.cli.connection import MapOptions

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Leases: keys attached to one go when nobody keeps it.",
    pretty_exceptions_enable=False,
)

_Lease = Annotated[int, typer.Argument(min=1, help="Number of the lease.")]
_Ttl = Annotated[int, typer.Argument(min=1, metavar="TTL_MS", help="It ends when nobody has kept it for so long.")]


@app.command()
@options_command
def grant(
    ttl_ms: _Ttl,
    at: MapOptions,
) -> None:
    """Begin a lease; print its number.

    Examples:
        rsm map lease grant 10000 --log workers

    """
    lease = at.ask(lambda client: client.grant_lease(ttl_ms))
    print_result(at.json, {"lease": lease, "ttl_ms": ttl_ms}, str(lease))


@app.command()
@options_command
def keep(
    lease: _Lease,
    at: MapOptions,
) -> None:
    """Give a lease its full time again, once; exit code 4 if it has ended.

    Examples:
        rsm map lease keep 17 --log workers

    """
    _tell(at.log, lease, is_there=at.ask(lambda client: client.keep_lease(lease)), json=at.json, told={"kept": True})


@app.command()
@options_command
def hold(
    ttl_ms: _Ttl,
    at: MapOptions,
) -> None:
    """Begin a lease, print its number, and keep it until this command is ended (ctrl-C revokes it).

    Examples:
        rsm map lease hold 10000 --log workers

    """

    async def _hold() -> None:
        async with (
            await at.connect() as client,
            client.holding_lease(ttl_ms) as lease,
        ):
            if at.json:
                print_json({"lease": lease, "ttl_ms": ttl_ms})
            else:
                typer.echo(str(lease))
                sys.stdout.flush()
            await asyncio.get_running_loop().create_future()

    run(_hold())


@app.command()
@options_command
def revoke(
    lease: _Lease,
    at: MapOptions,
) -> None:
    """End a lease now, and remove its keys; exit code 4 if it had ended before.

    Examples:
        rsm map lease revoke 17 --log workers

    """
    count = at.ask(lambda client: client.revoke_lease(lease))
    _tell(at.log, lease, is_there=count is not None, json=at.json, told={"keys": count})


@app.command()
@options_command
def show(
    lease: _Lease,
    at: MapOptions,
) -> None:
    """Show a lease; exit code 4 if it has ended.

    Examples:
        rsm map lease show 17 --log workers

    """
    found = at.ask(lambda client: client.lease(lease))
    told = {} if found is None else {"ttl_ms": found.ttl_ms, "since_ms": found.since_ms, "keys": found.key_count}
    _tell(at.log, lease, is_there=found is not None, json=at.json, told=told)


@app.command("list")
@options_command
def list_(
    at: MapOptions,
) -> None:
    """List all leases.

    Examples:
        rsm map lease list --log workers --json

    """
    for one in at.ask(lambda client: client.leases()):
        told = {"ttl_ms": one.ttl_ms, "since_ms": one.since_ms, "keys": one.key_count}
        _tell(at.log, one.lease, is_there=True, json=at.json, told=told)


def _tell(log: str, lease: int, *, is_there: bool, json: bool, told: dict[str, Any]) -> None:
    if json:
        print_json({"lease": lease, "found": is_there, **(told if is_there else {})})
    elif is_there:
        typer.echo(f"lease {lease}: " + ", ".join(f"{name} {value}" for name, value in told.items()))
    if not is_there:
        if not json:
            typer.echo(f"rsm: log {log}: there is no lease {lease}: it has ended, or was never granted", err=True)
        raise typer.Exit(ExitCode.NOT_FOUND)
