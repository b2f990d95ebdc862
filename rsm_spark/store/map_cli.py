"""`rsm map`: the replicated map from the command line."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from ledger.errors import UsageError
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.store import map_lease_cli, map_read_cli, map_txn_cli, map_watch_cli
from rsm_spark.store.client import MapClient
from rsm_spark.store.terminal import (
    TIMEOUT_S,
    Json,
    KeyArgument,
    LogName,
    MetadataUriOption,
    RsmRoot,
    TimeoutOption,
    key_bytes,
    print_json,
    run,
)

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Put, get, scan, watch: the replicated map.",
    pretty_exceptions_enable=False,
)
app.add_typer(map_lease_cli.app, name="lease")
app.command()(map_read_cli.get)
app.command()(map_read_cli.scan)
app.command()(map_read_cli.ttl)
app.command()(map_txn_cli.txn)
app.command()(map_watch_cli.watch)

_Prefix = Annotated[str, typer.Option("--prefix", help="Only keys that begin with it.")]


@app.command()
def put(
    key: KeyArgument,
    value: Annotated[str, typer.Argument(help="The value, as text; '-' reads it from standard input.")],
    log: LogName,
    ttl_ms: Annotated[int, typer.Option("--ttl-ms", min=0, help="It goes by itself after so long; 0 = it stays.")] = 0,
    lease: Annotated[int, typer.Option("--lease", min=0, help="It goes with this lease; 0 = none.")] = 0,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Write a key.

    Examples:
        rsm map put order/1 new --log orders

        rsm map put picture - --log files < picture.png

        rsm map put session/7 open --ttl-ms 60000 --log web

    """
    content = sys.stdin.buffer.read() if value == "-" else key_bytes(value)

    async def _put() -> int:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.put(key_bytes(key), content, ttl_ms=ttl_ms, lease=lease)

    revision = run(_put())
    if json:
        print_json({"key": key, "revision": revision})
    else:
        typer.echo(f"revision {revision}")


@app.command()
def delete(
    key: KeyArgument,
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Remove a key; that there is none is no error.

    Examples:
        rsm map delete order/1 --log orders

    """

    async def _delete() -> int | None:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.delete(key_bytes(key))

    revision = run(_delete())
    if json:
        print_json({"key": key, "deleted": revision is not None, "revision": revision})
    else:
        typer.echo("there was no such key" if revision is None else f"revision {revision}")


@app.command()
def cas(
    key: KeyArgument,
    value: Annotated[str | None, typer.Argument(help="The new value, as text; without one the key is removed.")] = None,
    *,
    log: LogName,
    expect: Annotated[str | None, typer.Option("--expect", help="The value that it must have.")] = None,
    expect_revision: Annotated[int | None, typer.Option("--expect-revision", help="Or its mod revision.")] = None,
    absent: Annotated[bool, typer.Option("--absent", help="Or that there is no such key.")] = False,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Compare and set: write a key only if it is as expected; exit code 1 if it is not.

    Examples:
        rsm map cas lock mine --absent --log locks

        rsm map cas order/1 paid --expect new --log orders

        rsm map cas lock --expect mine --log locks

    """
    if (expect is not None) + (expect_revision is not None) + absent != 1:
        raise UsageError("rsm map cas: say what is expected by one of --expect, --expect-revision, --absent")
    expected: bytes | int | None = key_bytes(expect) if expect is not None else expect_revision

    async def _cas() -> Any:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            new = None if value is None else key_bytes(value)
            return await client.compare_and_set(key_bytes(key), expected=expected, value=new)

    result = run(_cas())
    if json:
        print_json({"key": key, "succeeded": result.succeeded, "revision": result.revision})
    elif result.succeeded:
        typer.echo(f"revision {result.revision}")
    else:
        found = f"its mod revision is {result.revision}" if result.revision else "there is no such key"
        typer.echo(f"rsm: log {log}: {key!r} is not as expected: {found}", err=True)
    if not result.succeeded:
        raise typer.Exit(1)


@app.command()
def incr(
    key: KeyArgument,
    log: LogName,
    by: Annotated[int, typer.Option("--by", help="What is added; may be below 0.")] = 1,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Add to the integer of a key, once; print what it holds then. A key that does not exist counts as 0.

    Examples:
        rsm map incr visits --log web

        rsm map incr stock/7 --by -3 --log shop

    """

    async def _incr() -> Any:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.increment(key_bytes(key), by)

    result = run(_incr())
    if json:
        print_json({"key": key, "value": result.value, "revision": result.revision})
    else:
        typer.echo(str(result.value))


@app.command()
def delete_range(
    log: LogName,
    prefix: _Prefix = "",
    start: Annotated[str | None, typer.Option("--start", help="First key; '' for the very first.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Behind the last key.")] = None,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Remove all keys of a range at once: 10,000 at most.

    Examples:
        rsm map delete-range --prefix order/1 --log orders

    """

    async def _delete() -> Any:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.delete_range(
                prefix=key_bytes(prefix),
                start=None if start is None else key_bytes(start),
                end=None if end is None else key_bytes(end),
            )

    removed = run(_delete())
    if json:
        print_json({"keys": removed.key_count, "revision": removed.revision})
    else:
        typer.echo(f"{removed.key_count} keys")
