"""`rsm map get | scan | ttl`: what the map holds, now or at a revision."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.exit_codes import ExitCode
from rsm_spark.cli.copying import StorageFileOption
from rsm_spark.cli.terminal import KeyArgument, key_bytes, print_json, print_result, run, shown
from rsm_spark.core.freshness import STALE, Freshness, bounded
from rsm_spark.map.cli.connection import MapOptions, MapReadOptions
from rsm_spark.map.client.calls import scan_range
from rsm_spark.map.client.results import MapValue
from rsm_spark.map.queries import KeyValue
from rsm_spark.snapshots.manifest import SnapshotStore

_Prefix = Annotated[str, typer.Option("--prefix", help="Only keys that begin with it.")]
_Stale = Annotated[bool, typer.Option("--stale", help="Any replica may answer, however far behind it is.")]
_MaxLag = Annotated[
    int | None, typer.Option("--max-lag-ms", min=0, help="Any replica may answer that is at most so far behind.")
]
_AtRevision = Annotated[
    int | None, typer.Option("--at-revision", min=0, help="As it was then: from a snapshot and the log behind it.")
]
_DataDir = Annotated[
    list[Path] | None,
    typer.Option("--data-dir", help="With --at-revision: folder of a replica, whose snapshots may be read; repeat it."),
]
_Lake = Annotated[str | None, typer.Option("--lake", metavar="PATH", help="With --at-revision: the lake's snapshots.")]


@options_command
def get(
    key: KeyArgument,
    at: MapReadOptions,
    at_revision: _AtRevision = None,
    data_dir: _DataDir = None,
    lake: _Lake = None,
    storage_options_file: StorageFileOption = None,
    stale: _Stale = False,
    max_lag_ms: _MaxLag = None,
) -> None:
    """Print the value of a key, byte for byte; exit code 4 if there is no such key.

    Examples:
        rsm map get order/1 --log orders

        rsm map get order/1 --log orders --json

        rsm map get order/1 --log orders --at-revision 1000 --data-dir /var/lib/orders/a

    """
    read = _freshness(stale=stale, max_lag_ms=max_lag_ms)

    async def _get() -> MapValue | None:
        if at_revision is not None:
            name = key_bytes(key)
            rows = await _past(at, at_revision, name, name + b"\0", data_dir, lake, storage_options_file)
            return MapValue(*rows[0][1:]) if rows else None
        async with await at.connect("leader" if read is None else "any") as client:
            return await client.get(key_bytes(key), read=read)

    found = run(_get())
    if at.json:
        if found is None:
            print_json({"key": key, "found": False})
        else:
            print_json({"key": key, "found": True, **found._asdict(), "value": shown(found.value)})
    elif found is not None:
        sys.stdout.buffer.write(found.value + (b"\n" if sys.stdout.isatty() else b""))
        sys.stdout.buffer.flush()
    else:
        typer.echo(f"rsm: log {at.log}: there is no key {key!r}", err=True)
    if found is None:
        raise typer.Exit(ExitCode.NOT_FOUND)


@options_command
def scan(
    at: MapReadOptions,
    prefix: _Prefix = "",
    start: Annotated[str | None, typer.Option("--start", help="First key.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Behind the last key.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most rows.")] = None,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="Print no values.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Print how many keys there are, and no row.")] = False,
    at_revision: _AtRevision = None,
    data_dir: _DataDir = None,
    lake: _Lake = None,
    storage_options_file: StorageFileOption = None,
) -> None:
    """Print keys and values in order of the keys.

    Examples:
        rsm map scan --log orders --prefix order/ --limit 10

        rsm map scan --log orders --json

        rsm map scan --log orders --prefix order/ --count

    """
    if count and (limit is not None or keys_only):
        raise UsageError("--count prints no rows: leave --limit and --keys-only out")
    first = None if start is None else key_bytes(start)
    last = None if end is None else key_bytes(end)

    async def _scan() -> None:
        if at_revision is not None:
            bounds = scan_range(key_bytes(prefix), first, last)
            rows = await _past(at, at_revision, *bounds, data_dir, lake, storage_options_file)
            if count:
                print_result(at.json, {"count": len(rows)}, str(len(rows)))
            for row in [] if count else rows[:limit]:
                _show(row, json=at.json, keys_only=keys_only)
            return
        async with await at.connect() as client:
            if count:
                found = await client.count(prefix=key_bytes(prefix), start=first, end=last)
                print_result(at.json, {"count": found}, str(found))
                return
            asked = client.scan(prefix=key_bytes(prefix), start=first, end=last, limit=limit, keys_only=keys_only)
            async for row in asked:
                _show(row, json=at.json, keys_only=keys_only)

    run(_scan())
    sys.stdout.flush()


@options_command
def ttl(
    key: KeyArgument,
    at: MapOptions,
) -> None:
    """Say how long a key lives; exit code 4 if there is no such key.

    Examples:
        rsm map ttl session/7 --log web

    """
    found = at.ask(lambda client: client.expiry(key_bytes(key)))
    if found is None:
        if at.json:
            print_json({"key": key, "found": False})
        typer.echo(f"rsm: log {at.log}: there is no key {key!r}", err=True)
        raise typer.Exit(ExitCode.NOT_FOUND)
    ends_ms = found.since_ms + found.ttl_ms if found.ttl_ms else None
    if at.json:
        print_json({"key": key, "found": True, "ttl_ms": found.ttl_ms, "ends_ms": ends_ms, "lease": found.lease})
    elif ends_ms is None:
        typer.echo("it stays until it is deleted")
    else:
        ends = datetime.fromtimestamp(ends_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
        with_lease = f", with lease {found.lease}" if found.lease else ""
        typer.echo(f"{found.ttl_ms} ms, until {ends} at the earliest{with_lease}")


def _freshness(*, stale: bool, max_lag_ms: int | None) -> Freshness | None:
    if max_lag_ms is not None:
        return bounded(max_lag_ms=max_lag_ms)
    return STALE if stale else None


def _show(row: KeyValue, *, json: bool, keys_only: bool) -> None:
    if json:
        told = row._asdict() | {"key": shown(row.key), "value": shown(row.value)}
        if keys_only:
            del told["value"]
        print_json(told)
    elif keys_only:
        sys.stdout.buffer.write(row.key + b"\n")
    else:
        sys.stdout.buffer.write(row.key + b"\t" + row.value + b"\n")


async def _past(
    at: MapOptions,
    revision: int,
    start: bytes,
    end: bytes | None,
    data_dirs: list[Path] | None,
    lake: str | None,
    storage_options_file: Path | None,
) -> list[KeyValue]:
    """Return rows as they were, from the snapshots of these places and the log."""
    from rsm_spark.map.past import rows_at  # noqa: PLC0415
    from rsm_spark.server.replica_server import SNAPSHOTS_FOLDER  # noqa: PLC0415
    from rsm_spark.snapshots.local import LocalSnapshots  # noqa: PLC0415 - pyarrow only where it is used

    stores: list[SnapshotStore] = [LocalSnapshots(folder / SNAPSHOTS_FOLDER) for folder in data_dirs or ()]
    async with await at.connect_ledgers() as client:
        if lake is not None:
            from rsm_spark.runtime.lake_names import follow_renames  # noqa: PLC0415
            from rsm_spark.snapshots.opening import lake_snapshots  # noqa: PLC0415

            stores.append(found := lake_snapshots(lake, at.log, storage_options_file))
            await follow_renames(found, client.store, at.log, at.rsm_root)
        return await rows_at(client, at.log, revision, start, end, stores=stores, rsm_root=at.rsm_root)
