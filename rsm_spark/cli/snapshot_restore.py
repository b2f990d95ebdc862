"""`rsm snapshot restore`: a new log begins with a replica's folder or a lake, after the metadata were lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.operator_commands import AuditOptions, this_operator
from ledger.options import Option
from rsm_spark.backup.beginning import BegunLog, LossReport, StateRestore
from rsm_spark.backup.restore_mark import sweep_restores
from rsm_spark.backup.state_choice import StateRequest
from rsm_spark.cli.copying import LogKeyOption, MadeLogOptions
from rsm_spark.cli.new_log import made_log
from rsm_spark.cli.terminal import LogArgument, print_json, run
from rsm_spark.object_stores.storage_options import shown_uri
from rsm_spark.server.replica_server import SNAPSHOTS_FOLDER
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotStore
from rsm_spark.snapshots.opening import lake_snapshots
from rsm_spark.snapshots.pace import no_pace

_From = Annotated[str, typer.Option("--from", metavar="PLACE", help="A replica's folder, or a lake.")]
_As = Annotated[
    str | None, typer.Option("--as", metavar="NEW", help="Name of the new log.", show_default="that of the old")
]


class BeginOptions(MadeLogOptions, frozen=True, kw_only=True):
    """Options of a log that begins with a snapshot."""

    revision: Annotated[
        int | None, Option("Begin with the snapshot of this revision.", metavar="REV", shown="the newest", ge=1)
    ] = None
    at_least: Annotated[int, Option("Refuse a place that does not reach this revision.", metavar="REV", ge=0)] = 0
    log_id: Annotated[str, Option("Id of the log, where the place has snapshots of several.", metavar="ID")] = ""
    accept_loss: Annotated[bool, Option("Begin the log; without this the command only says what is lost.")] = False
    accept_unproven: Annotated[
        bool, Option("Believe the folder, though no entry of the log, which has a key, says that it is right.")
    ] = False

    @property
    def last_revision(self) -> int | None:
        return self.revision


@options_command
def restore(
    log: LogArgument,
    place: _From,
    how: BeginOptions,
    audit: AuditOptions,
    name: _As = None,
    log_key: LogKeyOption = None,
) -> None:
    """Begin a new log with a replica's folder or a lake, after the metadata of the log were lost.

    Says what the place holds and what is lost for ever, and begins the log only with --accept-loss. A backup, where
    there is one, loses less: rsm backup restore. Start the first replica with --data-dir, or all with --lake, then.

    Examples:
        rsm snapshot restore orders --from /var/lib/orders-a

        rsm snapshot restore orders --from /var/lib/orders-a --data-dir /var/lib/orders-new --accept-loss

        rsm snapshot restore orders --from s3://bucket/lake --as orders-2 --lake s3://bucket/lake --accept-loss

    """
    if how.accept_loss and how.data_dir is None and how.lake is None:
        raise UsageError(
            "where is the first replica to find the state? Name its folder (--data-dir), or a lake (--lake)"
        )
    source, shown, is_lake = _opened(place, log, how.storage_options_file)
    new = name or log

    async def _restore(request: StateRequest) -> BegunLog | None:
        async with await how.connect_ledgers() as client:
            await sweep_restores(client, how.rsm_root)
            work = StateRestore(client, request)
            report = await work.look()
            _tell(report, shown, as_json=how.json)
            return await work.begin(report) if how.accept_loss else None

    with made_log(new, how, log_key, audit, "rsm snapshot restore", shown, this_operator()) as target:
        request = StateRequest(
            **msgspec.structs.asdict(target),
            log=log,
            source=source,
            shown=shown,
            is_open_place=is_lake,
            log_id=how.log_id,
            at_least=how.at_least,
            is_unproven_accepted=how.accept_unproven,
        )
        begun = run(_restore(request))
    if begun is None:
        typer.echo("nothing was begun: to begin the log without what is lost, say --accept-loss", err=True)
        raise typer.Exit(1)
    if how.json:
        print_json({"begun": msgspec.to_builtins(begun)})
        return
    typer.echo(
        f"log {begun.log}, id {begun.log_id}, begins with the state of revision {begun.snapshot_revision:,}; the "
        f"snapshot is in {how.data_dir or how.lake}"
    )
    if begun.key_id:
        typer.echo(f"  its replicas need key {begun.key_id}: --log-key {log_key}")


def _opened(place: str, log: str, storage_options_file: Path | None) -> tuple[SnapshotStore, str, bool]:
    """Return the snapshots of a place, its name for people, and whether it is a lake."""
    folder = Path(place)
    if "://" in place or (folder / log / "_delta_log").is_dir():
        return lake_snapshots(place, log, storage_options_file), f"lake {shown_uri(place)}", True
    if not folder.is_dir():
        raise UsageError(f"--from {place}: there is no such folder")
    inner = folder / SNAPSHOTS_FOLDER
    return LocalSnapshots(inner if inner.is_dir() else folder, pace=lambda: no_pace), f"folder {place}", False


def _tell(report: LossReport, shown: str, *, as_json: bool) -> None:
    snapshot = report.snapshot
    if as_json:
        said = msgspec.to_builtins(report)
        said["snapshot"].pop("machine")
        print_json({"place": shown, "machine": snapshot.machine.name, **said})
        return
    logged = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(snapshot.logged_ms / 1000))
    proof = "entries of the log say so too" if report.is_proven else "no entry that can be read says so"
    typer.echo(
        f"{shown}: log {snapshot.log_name}, id {snapshot.log_id}, machine {snapshot.machine.name}\n"
        f"  state of revision {snapshot.revision:,}, logged {logged}, ledger {snapshot.ledger_id} entry "
        f"{snapshot.entry_id}\n"
        f"  prefix hash {snapshot.prefix_hash}\n"
        f"  {snapshot.row_count:,} rows, read back: digest {snapshot.digest}; {proof}\n"
        "What is lost:"
    )
    for line in report.lost:
        typer.echo(f"  - {line}")
