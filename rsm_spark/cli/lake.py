"""`rsm lake tables`: typed tables of a log's state in a lake, and which version of each holds a revision."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.options import Option
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, print_rows, printable, run
from rsm_spark.errors import NoSuchSnapshotError
from rsm_spark.object_stores.storage_options import StorageFile, checked_uri, read_storage_options, shown_uri
from rsm_spark.runtime.lake_names import follow_renames
from rsm_spark.snapshots.pace import no_pace

if TYPE_CHECKING:
    # deltalake is loaded only where it is used.
    from rsm_spark.snapshots.lake import LakeSnapshots
    from rsm_spark.snapshots.tables.revisions import TableVersion

_NAMED_MAX = 10
"""So many revisions are named in an error."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List the typed tables that a lake has of a log's state.",
    pretty_exceptions_enable=False,
)


@app.callback()
def _lake() -> None:
    # Keeps `tables` a sub-command of its own.
    pass


class LakeTablesOptions(LogsOptions, frozen=True, kw_only=True):
    """Place of the lake; with the metadata store's address a log that was renamed is found too."""

    lake: Annotated[str | None, Option("Folder or URI of the lake.", metavar="PATH", shown="must be given")] = None
    storage_options_file: StorageFile = None
    at_revision: Annotated[
        int | None, Option("Only the newest versions up to this revision.", metavar="REV", shown="all", ge=0)
    ] = None

    def opened(self, log: str) -> LakeSnapshots:
        """Return what the lake has of a log.

        Raises:
            UsageError: No lake is named, there is none, or its address holds a secret.

        """
        from rsm_spark.snapshots.lake import LakeSnapshots, lake_place  # noqa: PLC0415 - deltalake only where it is used

        if self.lake is None:
            raise UsageError("name the lake (--lake): a folder or a URI, as the log's replicas have it")
        if "://" not in self.lake and not Path(self.lake).is_dir():
            raise UsageError(f"--lake {self.lake}: there is no such folder")
        place, options = lake_place(checked_uri(self.lake), log), read_storage_options(self.storage_options_file)
        return LakeSnapshots(place, storage_options=options, pace=lambda: no_pace)


@app.command()
@options_command
def tables(
    log: LogArgument,
    of: LakeTablesOptions,
) -> None:
    """List the typed tables of a log's state, newest revision first: which version of which table it is.

    With --at-revision only those of the newest revision up to there: a lake has the state at the revisions of its
    snapshots. The path is the table's folder, below the place that the first line names.

    Examples:
        rsm lake tables orders --lake /lake

        rsm lake tables orders --lake s3://bucket/lake --storage-options-file s3.json --at-revision 120345 --json

    """
    lake = of.opened(log)

    async def _tables() -> tuple[str, list[TableVersion]]:
        if of.metadata_uri is not None:
            async with await of.connect_ledgers() as client:
                await follow_renames(lake, client.store, log, of.rsm_root)
        return lake.tables.place, await asyncio.to_thread(_found, lake, log, of.at_revision)

    place, found = run(_tables())
    if of.json:
        print_json({"log": log, "place": shown_uri(place), "tables": [_told(one) for one in found]})
    else:
        _print(shown_uri(place), found)


def _found(lake: LakeSnapshots, log: str, at_revision: int | None) -> list[TableVersion]:
    """Return the tables that are asked for.

    Raises:
        NoSuchSnapshotError: There are none.
        SnapshotError: The lake cannot be read.

    """
    versions = lake.tables.versions()
    if not versions:
        raise NoSuchSnapshotError(_why_none(lake, log))
    if at_revision is None:
        return versions
    revision = max((one.revision for one in versions if one.revision <= at_revision), default=None)
    if revision is None:
        known = sorted({one.revision for one in versions})
        more = f" and {len(known) - _NAMED_MAX:,} newer ones" if len(known) > _NAMED_MAX else ""
        raise NoSuchSnapshotError(
            f"{shown_uri(lake.tables.place)}: no typed tables are of revision {at_revision} or an older one; there "
            f"are those of {', '.join(map(str, known[:_NAMED_MAX]))}{more}. For an older state read the log: "
            f"format('ledger_state') with asOfRevision"
        )
    return [one for one in versions if one.revision == revision]


def _why_none(lake: LakeSnapshots, log: str) -> str:
    manifests, place = lake.manifests(), shown_uri(lake.place)
    if not manifests:
        return (
            f"{place}: the lake has neither snapshots nor typed tables of a log {log}: is its name right? If it was "
            f"renamed, say where its metadata are (--metadata-uri); if it is new, its replicas write after --lake-s"
        )
    return (
        f"{place}: the lake has no typed tables of log {log} yet, and a snapshot of revision {manifests[0].revision}: "
        f"a replica with --lake writes them unless it has --lake-without-tables; rsm status tells its alarms"
    )


def _told(one: TableVersion) -> dict[str, Any]:
    return {
        "table": one.table,
        "path": one.path,
        "version": one.version,
        "revision": one.revision,
        "rows": one.rows,
        "ledger_id": one.ledger_id,
        "entry_id": one.entry_id,
        "prefix_hash": one.prefix_hash,
        "digest": one.digest,
        "logged_at": one.logged_at,
        "written_at": one.written_at,
        "log_id": one.log_id,
        "problem": one.problem,
    }


def _print(place: str, found: list[TableVersion]) -> None:
    typer.echo(printable(f"typed tables in {place}, of log {found[0].log} with id {found[0].log_id}"))
    print_rows(
        ("table", "path", "version", "revision", "rows", "logged at", "problem"),
        [
            (
                one.table,
                one.path,
                "-" if one.version < 0 else one.version,
                f"{one.revision:,}",
                f"{one.rows:,}",
                one.logged_at.isoformat(timespec="seconds"),
                one.problem or "-",
            )
            for one in found
        ],
        right=(2, 3, 4),
    )
