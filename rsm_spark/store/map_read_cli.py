"""`rsm map get | scan | ttl`: what the map holds, now or at a revision."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.freshness import STALE, Freshness, bounded
from rsm_spark.snapshots.manifest import SnapshotStore
from rsm_spark.store.client import MapClient, MapValue
from rsm_spark.store.kv.queries import KeyValue
from rsm_spark.store.map_calls import scan_range
from rsm_spark.store.terminal import (
    TIMEOUT_S,
    Json,
    KeyArgument,
    LogName,
    MetadataUriOption,
    ReplicaOption,
    RsmRoot,
    TimeoutOption,
    key_bytes,
    print_json,
    run,
    shown,
)

__all__ = ["get", "scan", "ttl"]

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


def get(
    key: KeyArgument,
    log: LogName,
    at_revision: _AtRevision = None,
    data_dir: _DataDir = None,
    lake: _Lake = None,
    stale: _Stale = False,
    max_lag_ms: _MaxLag = None,
    metadata_uri: MetadataUriOption = None,
    replica: ReplicaOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Print the value of a key, byte for byte; exit code 1 if there is no such key.

    Examples:
        rsm map get order/1 --log orders

        rsm map get order/1 --log orders --json

        rsm map get order/1 --log orders --at-revision 1000 --data-dir /var/lib/orders/a

    """
    read = _freshness(stale=stale, max_lag_ms=max_lag_ms)

    async def _get() -> MapValue | None:
        if at_revision is not None:
            name = key_bytes(key)
            rows = await _past(log, metadata_uri, rsm_root, at_revision, name, name + b"\0", data_dir, lake)
            return MapValue(rows[0].value, rows[0].revision) if rows else None
        async with await MapClient.connect(
            log,
            metadata_uri,
            replica=replica,
            read_from="leader" if read is None else "any",
            rsm_root=rsm_root,
            timeout_s=timeout,
        ) as client:
            return await client.get(key_bytes(key), read=read)

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


def scan(
    log: LogName,
    prefix: _Prefix = "",
    start: Annotated[str | None, typer.Option("--start", help="First key.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Behind the last key.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most rows.")] = None,
    at_revision: _AtRevision = None,
    data_dir: _DataDir = None,
    lake: _Lake = None,
    metadata_uri: MetadataUriOption = None,
    replica: ReplicaOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Print keys and values in order of the keys.

    Examples:
        rsm map scan --log orders --prefix order/ --limit 10

        rsm map scan --log orders --json

    """
    first = None if start is None else key_bytes(start)
    last = None if end is None else key_bytes(end)

    async def _scan() -> None:
        if at_revision is not None:
            bounds = scan_range(key_bytes(prefix), first, last)
            rows = await _past(log, metadata_uri, rsm_root, at_revision, *bounds, data_dir, lake)
            for row in rows[:limit]:
                _show(row, json=json)
            return
        async with await MapClient.connect(
            log, metadata_uri, replica=replica, rsm_root=rsm_root, timeout_s=timeout
        ) as client:
            async for row in client.scan(prefix=key_bytes(prefix), start=first, end=last, limit=limit):
                _show(row, json=json)

    run(_scan())
    sys.stdout.flush()


def ttl(
    key: KeyArgument,
    log: LogName,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    timeout: TimeoutOption = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Say how long a key lives; exit code 1 if there is no such key.

    Examples:
        rsm map ttl session/7 --log web

    """

    async def _ttl() -> Any:
        async with await MapClient.connect(log, metadata_uri, rsm_root=rsm_root, timeout_s=timeout) as client:
            return await client.expiry(key_bytes(key))

    found = run(_ttl())
    if found is None:
        if json:
            print_json({"key": key, "found": False})
        typer.echo(f"rsm: log {log}: there is no key {key!r}", err=True)
        raise typer.Exit(1)
    ends_ms = found.since_ms + found.ttl_ms if found.ttl_ms else None
    if json:
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


def _show(row: KeyValue, *, json: bool) -> None:
    if json:
        print_json({"key": shown(row.key), "value": shown(row.value), "revision": row.revision})
    else:
        sys.stdout.buffer.write(row.key + b"\t" + row.value + b"\n")


async def _past(
    log: str,
    metadata_uri: str | None,
    rsm_root: str,
    revision: int,
    start: bytes,
    end: bytes | None,
    data_dirs: list[Path] | None,
    lake: str | None,
) -> list[KeyValue]:
    """Return rows as they were, from the snapshots of these places and the log."""
    from ledger.client.client import LedgerClient  # noqa: PLC0415 - only who asks for the past reads ledgers
    from rsm_spark.snapshots.local import LocalSnapshots  # noqa: PLC0415 - pyarrow only where it is used
    from rsm_spark.store.past import rows_at  # noqa: PLC0415
    from rsm_spark.store.service import SNAPSHOTS_FOLDER  # noqa: PLC0415

    stores: list[SnapshotStore] = [LocalSnapshots(folder / SNAPSHOTS_FOLDER) for folder in data_dirs or ()]
    if lake is not None:
        from rsm_spark.snapshots.lake import LakeSnapshots, lake_place  # noqa: PLC0415

        stores.append(LakeSnapshots(lake_place(lake, log)))
    client = await LedgerClient.connect(metadata_uri)
    try:
        return await rows_at(client, log, revision, start, end, stores=stores, rsm_root=rsm_root)
    finally:
        await client.close()
