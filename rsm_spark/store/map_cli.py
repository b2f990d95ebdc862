"""`rsm map put | get | delete | cas | scan`: the replicated map from the command line."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from ledger.errors import UsageError
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.store.client import MapClient
from rsm_spark.store.terminal import Json, LogName, MetadataUriOption, RsmRoot, key_bytes, print_json, run, shown

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Put, get, scan: the replicated map.",
    pretty_exceptions_enable=False,
)

_Key = Annotated[str, typer.Argument(help="The key, as text.")]
_Timeout = Annotated[float, typer.Option("--timeout", min=0.01, help="Seconds to wait for a leader.")]
_Replica = Annotated[
    str | None,
    typer.Option("--replica", metavar="HOST:PORT", help="Read from this replica, at the revision that it has."),
]
_TIMEOUT_S = 15.0


@app.command()
def put(
    key: _Key,
    value: Annotated[str, typer.Argument(help="The value, as text; '-' reads it from standard input.")],
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: _Timeout = _TIMEOUT_S,
    json: Json = False,
) -> None:
    """Write a key.

    Examples:
        rsm map put order/1 new --log orders

        rsm map put picture - --log files < picture.png

    """
    content = sys.stdin.buffer.read() if value == "-" else key_bytes(value)

    async def _put() -> int:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.put(key_bytes(key), content)

    revision = run(_put())
    if json:
        print_json({"key": key, "revision": revision})
    else:
        typer.echo(f"revision {revision}")


@app.command()
def get(
    key: _Key,
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    replica: _Replica = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: _Timeout = _TIMEOUT_S,
    json: Json = False,
) -> None:
    """Print the value of a key, byte for byte; exit code 1 if there is no such key.

    Examples:
        rsm map get order/1 --log orders

        rsm map get order/1 --log orders --json

    """

    async def _get() -> Any:
        async with await MapClient.connect(
            log, metadata_uri, replica=replica, rsm_root=rsm_root, timeout_s=timeout
        ) as client:
            return await client.get(key_bytes(key))

    found = run(_get())
    if json:
        if found is None:
            print_json({"key": key, "found": False})
        else:
            print_json({"key": key, "found": True, "value": shown(found.value), "revision": found.revision})
    elif found is not None:
        sys.stdout.buffer.write(found.value + (b"\n" if sys.stdout.isatty() else b""))
        sys.stdout.buffer.flush()
    else:
        typer.echo(f"rsm: log {log}: there is no key {key!r}", err=True)
    if found is None:
        raise typer.Exit(1)


@app.command()
def delete(
    key: _Key,
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: _Timeout = _TIMEOUT_S,
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
    key: _Key,
    value: Annotated[str | None, typer.Argument(help="The new value, as text; without one the key is removed.")] = None,
    *,
    log: LogName,
    expect: Annotated[str | None, typer.Option("--expect", help="The value that it must have.")] = None,
    expect_revision: Annotated[int | None, typer.Option("--expect-revision", help="Or its mod revision.")] = None,
    absent: Annotated[bool, typer.Option("--absent", help="Or that there is no such key.")] = False,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: _Timeout = _TIMEOUT_S,
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
def scan(
    log: LogName,
    prefix: Annotated[str, typer.Option("--prefix", help="Only keys that begin with it.")] = "",
    start: Annotated[str | None, typer.Option("--start", help="First key.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Behind the last key.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most rows.")] = None,
    metadata_uri: MetadataUriOption = None,
    replica: _Replica = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: _Timeout = _TIMEOUT_S,
    json: Json = False,
) -> None:
    """Print keys and values in order of the keys.

    Examples:
        rsm map scan --log orders --prefix order/ --limit 10

        rsm map scan --log orders --json

    """

    async def _scan() -> None:
        async with await MapClient.connect(
            log, metadata_uri, replica=replica, rsm_root=rsm_root, timeout_s=timeout
        ) as client:
            rows = client.scan(
                prefix=key_bytes(prefix),
                start=None if start is None else key_bytes(start),
                end=None if end is None else key_bytes(end),
                limit=limit,
            )
            async for row in rows:
                if json:
                    print_json({"key": shown(row.key), "value": shown(row.value), "revision": row.revision})
                else:
                    sys.stdout.buffer.write(row.key + b"\t" + row.value + b"\n")
        sys.stdout.flush()

    run(_scan())
