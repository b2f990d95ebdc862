"""`rsm map`: the replicated map from the command line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.exit_codes import ExitCode
from rsm_spark.cli.terminal import KeyArgument, key_bytes, print_json, print_result
from rsm_spark.map.cli import barrier as map_barrier_cli
from rsm_spark.map.cli import lease as map_lease_cli
from rsm_spark.map.cli import lock as map_lock_cli
from rsm_spark.map.cli import read as map_read_cli
from rsm_spark.map.cli import txn as map_txn_cli
from rsm_spark.map.cli import watch as map_watch_cli
from rsm_spark.map.cli.connection import MapOptions

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
app.command()(map_lock_cli.lock)
app.command()(map_barrier_cli.barrier)
app.command()(map_watch_cli.watch)

_Prefix = Annotated[str, typer.Option("--prefix", help="Only keys that begin with it.")]


@app.command()
@options_command
def put(
    key: KeyArgument,
    value: Annotated[str, typer.Argument(help="The value, as text; '-' reads it from standard input.")],
    at: MapOptions,
    ttl_ms: Annotated[int, typer.Option("--ttl-ms", min=0, help="It goes by itself after so long; 0 = it stays.")] = 0,
    lease: Annotated[int, typer.Option("--lease", min=0, help="It goes with this lease; 0 = none.")] = 0,
) -> None:
    """Write a key.

    Examples:
        rsm map put order/1 new --log orders

        rsm map put picture - --log files < picture.png

        rsm map put session/7 open --ttl-ms 60000 --log web

    """
    content = sys.stdin.buffer.read() if value == "-" else key_bytes(value)

    revision = at.ask(lambda client: client.put(key_bytes(key), content, ttl_ms=ttl_ms, lease=lease))
    print_result(at.json, {"key": key, "revision": revision}, f"revision {revision}")


@app.command()
@options_command
def delete(
    key: KeyArgument,
    at: MapOptions,
) -> None:
    """Remove a key; that there is none is no error.

    Examples:
        rsm map delete order/1 --log orders

    """
    revision = at.ask(lambda client: client.delete(key_bytes(key)))
    print_result(
        at.json,
        {"key": key, "deleted": revision is not None, "revision": revision},
        "there was no such key" if revision is None else f"revision {revision}",
    )


@app.command()
@options_command
def cas(
    key: KeyArgument,
    value: Annotated[str | None, typer.Argument(help="The new value, as text; without one the key is removed.")] = None,
    *,
    at: MapOptions,
    expect: Annotated[str | None, typer.Option("--expect", help="The value that it must have.")] = None,
    expect_revision: Annotated[int | None, typer.Option("--expect-revision", help="Or its mod revision.")] = None,
    absent: Annotated[bool, typer.Option("--absent", help="Or that there is no such key.")] = False,
) -> None:
    """Compare and set: write a key only if it is as expected; exit code 7 if it is not.

    Examples:
        rsm map cas lock mine --absent --log locks

        rsm map cas order/1 paid --expect new --log orders

        rsm map cas lock --expect mine --log locks

    """
    if (expect is not None) + (expect_revision is not None) + absent != 1:
        raise UsageError("rsm map cas: expected what? Give one of --expect, --expect-revision, --absent")
    expected: bytes | int | None = key_bytes(expect) if expect is not None else expect_revision

    new = None if value is None else key_bytes(value)
    result = at.ask(lambda client: client.compare_and_set(key_bytes(key), expected=expected, value=new))
    if at.json:
        print_json({"key": key, "succeeded": result.succeeded, "revision": result.revision})
    elif result.succeeded:
        typer.echo(f"revision {result.revision}")
    else:
        found = f"its mod revision is {result.revision}" if result.revision else "there is no such key"
        typer.echo(f"rsm: log {at.log}: {key!r} is not as expected: {found}", err=True)
    if not result.succeeded:
        raise typer.Exit(ExitCode.CONFLICT)


@app.command()
@options_command
def incr(
    key: KeyArgument,
    at: MapOptions,
    by: Annotated[int, typer.Option("--by", help="What is added; may be below 0.")] = 1,
) -> None:
    """Add to the integer of a key, once; print what it holds then. A key that does not exist counts as 0.

    Examples:
        rsm map incr visits --log web

        rsm map incr stock/7 --by -3 --log shop

    """
    result = at.ask(lambda client: client.increment(key_bytes(key), by))
    if at.json:
        print_json({"key": key, "value": result.value, "revision": result.revision})
    else:
        typer.echo(str(result.value))


@app.command()
@options_command
def delete_range(
    at: MapOptions,
    prefix: _Prefix = "",
    start: Annotated[str | None, typer.Option("--start", help="First key; '' for the very first.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Behind the last key.")] = None,
) -> None:
    """Remove all keys of a range at once: 10,000 at most.

    Examples:
        rsm map delete-range --prefix order/1 --log orders

    """
    first = None if start is None else key_bytes(start)
    last = None if end is None else key_bytes(end)
    removed = at.ask(lambda client: client.delete_range(prefix=key_bytes(prefix), start=first, end=last))
    print_result(at.json, {"keys": removed.key_count, "revision": removed.revision}, f"{removed.key_count} keys")
