"""`rsm map lease`: leases from the command line."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer

from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.store.client import LeaseState, MapClient
from rsm_spark.store.terminal import (
    TIMEOUT_S,
    Json,
    LogName,
    MetadataUriOption,
    RsmRoot,
    TimeoutOption,
    print_json,
    run,
)

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Leases: keys attached to one go when nobody keeps it.",
    pretty_exceptions_enable=False,
)

_Lease = Annotated[int, typer.Argument(min=1, help="Number of the lease.")]
_Ttl = Annotated[int, typer.Argument(min=1, metavar="TTL_MS", help="It ends when nobody has kept it for so long.")]


@app.command()
def grant(
    ttl_ms: _Ttl,
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Begin a lease; print its number.

    Examples:
        rsm map lease grant 10000 --log workers

    """

    async def _grant() -> int:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.grant_lease(ttl_ms)

    lease = run(_grant())
    if json:
        print_json({"lease": lease, "ttl_ms": ttl_ms})
    else:
        typer.echo(str(lease))


@app.command()
def keep(
    lease: _Lease,
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Give a lease its full time again, once; exit code 1 if it has ended.

    Examples:
        rsm map lease keep 17 --log workers

    """

    async def _keep() -> bool:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.keep_lease(lease)

    _tell(log, lease, is_there=run(_keep()), json=json, told={"kept": True})


@app.command()
def hold(
    ttl_ms: _Ttl,
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Begin a lease, print its number, and keep it until this command is ended (ctrl-C revokes it).

    Examples:
        rsm map lease hold 10000 --log workers

    """

    async def _hold() -> None:
        async with (
            await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client,
            client.holding_lease(ttl_ms) as lease,
        ):
            if json:
                print_json({"lease": lease, "ttl_ms": ttl_ms})
            else:
                typer.echo(str(lease))
                sys.stdout.flush()
            await asyncio.get_running_loop().create_future()

    run(_hold())


@app.command()
def revoke(
    lease: _Lease,
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """End a lease now, and remove its keys; exit code 1 if it had ended before.

    Examples:
        rsm map lease revoke 17 --log workers

    """

    async def _revoke() -> int | None:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.revoke_lease(lease)

    count = run(_revoke())
    _tell(log, lease, is_there=count is not None, json=json, told={"keys": count})


@app.command()
def show(
    lease: _Lease,
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Show a lease; exit code 1 if it has ended.

    Examples:
        rsm map lease show 17 --log workers

    """

    async def _show() -> LeaseState | None:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.lease(lease)

    found = run(_show())
    told = {} if found is None else {"ttl_ms": found.ttl_ms, "since_ms": found.since_ms, "keys": found.key_count}
    _tell(log, lease, is_there=found is not None, json=json, told=told)


@app.command("list")
def list_(
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """List all leases.

    Examples:
        rsm map lease list --log workers --json

    """

    async def _list() -> list[LeaseState]:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.leases()

    for one in run(_list()):
        told = {"ttl_ms": one.ttl_ms, "since_ms": one.since_ms, "keys": one.key_count}
        _tell(log, one.lease, is_there=True, json=json, told=told)


def _tell(log: str, lease: int, *, is_there: bool, json: bool, told: dict[str, Any]) -> None:
    if json:
        print_json({"lease": lease, "found": is_there, **(told if is_there else {})})
    elif is_there:
        typer.echo(f"lease {lease}: " + ", ".join(f"{name} {value}" for name, value in told.items()))
    if not is_there:
        if not json:
            typer.echo(f"rsm: log {log}: there is no lease {lease}: it has ended, or was never granted", err=True)
        raise typer.Exit(1)
