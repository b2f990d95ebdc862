"""`rsm snapshot list | show | verify | restore`: snapshots on a disk, in a lake, and of the replicas that run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.options import Option
from rsm_spark.cli.markup import plain
from rsm_spark.cli.snapshot_restore import restore
from rsm_spark.cli.snapshot_source import (
    Holding,
    SnapshotSource,
    logged_checkpoint,
    open_replicas,
    open_store,
)
from rsm_spark.cli.terminal import LogsOptions, print_json, run
from rsm_spark.errors import CorruptSnapshotError, MissingLogError, NoSuchSnapshotError, SnapshotError
from rsm_spark.object_stores.storage_options import StorageFile
from rsm_spark.runtime.snapshot_proof import checkpoint_difference
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.transport.snapshot_report import report_lake

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List, describe and verify snapshots; begin a log with one.",
    pretty_exceptions_enable=False,
)
app.command()(restore)
_Report = Annotated[
    bool, typer.Option("--report", help="With --lake: have the leader log it as verified, so that it counts in trims.")
]
_Revision = Annotated[int | None, typer.Argument(help="Its revision.", show_default="the newest")]


class PlaceOptions(LogsOptions, frozen=True, kw_only=True):
    """Places to look at: running replicas, unless a folder or a lake is named."""

    data_dir: Annotated[Path | None, Option("Those on this disk: a replica's folder.")] = None
    lake: Annotated[str | None, Option("Those in this lake.", metavar="PATH", shown="running replicas'")] = None
    storage_options_file: StorageFile = None
    log: Annotated[str | None, Option("Name of the log.", variables=("RSM_LOG",))] = None
    replica: Annotated[str | None, Option("Of the running ones, only this.", shown="all")] = None

    def __post_init__(self) -> None:
        """Refuse two places."""
        if self.data_dir is not None and self.lake is not None:
            raise UsageError("--data-dir and --lake are two places: name one")

    @property
    def is_running(self) -> bool:
        return self.data_dir is None and self.lake is None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SnapshotSource]:
        if not self.is_running:
            yield open_store(self.data_dir, self.lake, self.log, self.storage_options_file)
            return
        if self.log is None:
            raise UsageError("name the log of the running replicas (--log), a folder (--data-dir) or a lake (--lake)")
        async with (
            await self.connect_ledgers() as client,
            open_replicas(client, self.log, self.rsm_root, self.replica) as source,
        ):
            yield source


@app.command("list")
@options_command
def list_snapshots(
    place: PlaceOptions,
) -> None:
    """List snapshots, newest first, and the damaged ones.

    Examples:
        rsm snapshot list --log orders

        rsm snapshot list --data-dir /var/lib/orders-a --json

        rsm snapshot list --lake s3://bucket/snapshots --log orders

    """

    async def _list() -> None:
        async with place.open() as source:
            holdings = await source.holdings()
        if place.json:
            for one in holdings:
                print_json(_told(one))
        else:
            _print(holdings)

    run(_list())


@app.command()
@options_command
def show(
    place: PlaceOptions,
    revision: _Revision = None,
) -> None:
    """Show all that a snapshot says of itself.

    Examples:
        rsm snapshot show 120345 --data-dir /var/lib/orders-a

        rsm snapshot show --lake /lake --log orders --json

    """

    async def _show() -> None:
        async with place.open() as source:
            where, manifest = _chosen(await source.holdings(), revision)[0]
        said = {"place": where, **msgspec.to_builtins(manifest)}
        if place.json:
            print_json(said)
        else:
            for name, value in said.items():
                typer.echo(f"{name}: {_line(name, value)}")

    run(_show())


@app.command()
@options_command
def verify(
    place: PlaceOptions,
    revision: _Revision = None,
    report: _Report = False,
) -> None:
    """Read a snapshot back, every byte and row, and compare it with its manifest and with the log.

    The log is asked for its checkpoint of that revision if --metadata-uri is given, or for running replicas. Exit
    code 0 only if nothing differs. Two replicas or more verify, and log it, by themselves; the lake of one that is
    alone is verified by --report.

    Examples:
        rsm snapshot verify --data-dir /var/lib/orders-a

        rsm snapshot verify 120345 --log orders --metadata-uri zk+hierarchical://127.0.0.1:2181/ledgers

    """
    if report and place.lake is None:
        raise UsageError("--report is for a lake (--lake): replicas verify each other")

    async def _verify() -> bool:
        async with place.open() as source:
            verdicts = [
                await _verdict(place, source, where, manifest)
                for where, manifest in _chosen(await source.holdings(), revision)
            ]
            if report and verdicts[0]["ok"]:
                await _report(place, _chosen(await source.holdings(), revision)[0][1])
        for verdict in verdicts:
            if place.json:
                print_json(verdict)
            else:
                result = "whole" if verdict["ok"] else f"WRONG: {verdict['reason']}"
                typer.echo(
                    f"{verdict['place']}: revision {verdict['revision']:,}, {verdict['rows']:,} rows: {result}; "
                    f"checkpoint in the log: {verdict['checkpoint']}"
                )
        return all(verdict["ok"] for verdict in verdicts)

    if not run(_verify()):
        raise typer.Exit(1)


async def _verdict(
    place: PlaceOptions, source: SnapshotSource, where: str, manifest: SnapshotManifest
) -> dict[str, Any]:
    verdict: dict[str, Any] = {
        "place": where,
        "log": manifest.log_name,
        "revision": manifest.revision,
        "rows": manifest.row_count,
        "digest": manifest.digest,
        "ok": True,
        "reason": "",
        "checkpoint": "not compared",
    }
    try:
        await source.read_back(where, manifest)
        if place.is_running or place.metadata_uri is not None:
            verdict["checkpoint"] = await _compared(place, manifest)
    except CorruptSnapshotError as error:
        verdict.update(ok=False, reason=str(error))
    return verdict


async def _report(place: PlaceOptions, manifest: SnapshotManifest) -> None:
    """Have the leader log what was verified.

    Raises:
        SnapshotError: It refuses.

    """
    async with await place.connect_ledgers() as client:
        refusal = await report_lake(client, place.log or manifest.log_name, place.rsm_root, manifest)
    if refusal:
        raise SnapshotError(f"the snapshot is whole, but the leader does not log it as verified: {refusal}")


async def _compared(place: PlaceOptions, manifest: SnapshotManifest) -> str:
    """Compare with the log; return what was found.

    Raises:
        CorruptSnapshotError: They differ.

    """
    async with await place.connect_ledgers() as client:
        try:
            logged = await logged_checkpoint(client, place.log or manifest.log_name, place.rsm_root, manifest.revision)
        except MissingLogError as error:
            return f"gone: {error}"
    if logged is None:
        return "none for this revision"
    difference = checkpoint_difference(manifest, logged.digest.hex(), logged.row_count, logged.prefix_hash.hex())
    if difference:
        raise CorruptSnapshotError(difference)
    return "agrees"


def _chosen(holdings: list[Holding], revision: int | None) -> list[tuple[str, SnapshotManifest]]:
    """Return the snapshot of a revision, or the newest, of each place that has it.

    Raises:
        NoSuchSnapshotError: Nobody has it.

    """
    found = [(one.place, next((m for m in one.manifests if revision in (None, m.revision)), None)) for one in holdings]
    there = [(where, manifest) for where, manifest in found if manifest is not None]
    if there:
        return there
    places = ", ".join(one.place for one in holdings) or "no replica that runs"
    known = sorted({m.revision for one in holdings for m in one.manifests})
    reasons = [line for one in holdings for line in ([one.error] if one.error else one.damaged)]
    raise NoSuchSnapshotError(
        f"no whole snapshot{'' if revision is None else f' of revision {revision}'} in: {places}; there are: "
        f"{', '.join(map(str, known)) or 'none'}{''.join(f'; {line}' for line in reasons)}"
    )


def _told(holding: Holding) -> dict[str, Any]:
    return {
        "place": holding.place,
        "snapshots": [
            {
                "log": one.log_name,
                "log_id": one.log_id,
                "revision": one.revision,
                "rows": one.row_count,
                "bytes": sum(file.bytes for file in one.files),
                "created_ms": one.created_ms,
                "digest": one.digest,
                "ledger_id": one.ledger_id,
                "entry_id": one.entry_id,
                "written_by": one.written_by,
            }
            for one in holding.manifests
        ],
        "damaged": holding.damaged,
        "error": holding.error,
    }


def _print(holdings: list[Holding]) -> None:
    console = Console()
    table = Table(box=None)
    for title in ("place", "log", "revision", "rows", "bytes", "written by", "digest"):
        table.add_column(title, no_wrap=True, overflow="fold")
    for holding in holdings:
        for one in holding.manifests:
            size = sum(file.bytes for file in one.files)
            table.add_row(
                plain(holding.place),
                plain(one.log_name),
                f"{one.revision:,}",
                f"{one.row_count:,}",
                f"{size:,}" if size else "-",
                plain(one.written_by or "?"),
                plain(one.digest[:8]),
            )
    if table.row_count:
        console.print(table)
    for holding in holdings:
        for line in [f"damaged: {line}" for line in holding.damaged] + ([holding.error] if holding.error else []):
            console.print(plain(f"{holding.place}: {line}"), soft_wrap=True, highlight=False)
    if not table.row_count:
        places = ", ".join(plain(one.place) for one in holdings)
        console.print(f"no snapshots in: {places or 'no replica runs'}")


def _line(name: str, value: Any) -> str:
    if name == "machine":
        return f"{value['name']}, version {value['version']}, tables {', '.join(t['name'] for t in value['tables'])}"
    if name == "files":
        return ", ".join(f"{one['name']} ({one['rows']:,} rows, {one['bytes']:,} bytes)" for one in value) or "none"
    return str(value)
