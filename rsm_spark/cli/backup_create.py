"""`rsm backup create`: a backup now, or one after the other."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ledger.client.client import LedgerClient
from ledger.configuration import options_command
from ledger.errors import LedgerError, UsageError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.options import Option
from rsm_spark.backup.catalog import remove_expired
from rsm_spark.backup.creating import BackupOutcome, LogBackup
from rsm_spark.backup.manifest import BackupManifest, RetentionError
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.restore_mark import sweep_restores
from rsm_spark.cli.copying import CopyProgress, LogKeyOption
from rsm_spark.cli.log import log_names
from rsm_spark.cli.snapshot_source import CopiedSource, SnapshotSource, find_store, open_replicas
from rsm_spark.cli.terminal import LogsOptions, print_json, run
from rsm_spark.errors import RsmError
from rsm_spark.log.key_file import KeyFile
from rsm_spark.object_stores.storage_options import StorageFile, read_storage_options

_DURATION = re.compile(r"(\d+)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

PlaceOption = Annotated[
    str,
    typer.Option("--place", metavar="PATH", envvar="RSM_BACKUPS", help="Folder or URI of the backups: s3://bucket/…"),
]


class CreateOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of what a backup copies, when and how fast."""

    all_logs: Annotated[bool, Option("All logs that there are.", name="all")] = False
    lake: Annotated[str | None, Option("Take snapshots from here.", metavar="PATH", shown="the running replicas")] = (
        None
    )
    data_dir: Annotated[Path | None, Option("Take snapshots from this replica's folder.")] = None
    no_snapshot: Annotated[bool, Option("Copy entries alone: a restore replays them all.")] = False
    storage_options_file: StorageFile = None
    rate_mb: Annotated[float, Option("Megabytes a second at most; 0: as fast as it goes.", ge=0)] = 0.0
    every: Annotated[str | None, Option("Go on, a backup each 30s, 15m, 1h, 1d.", shown="one, then end")] = None
    keep: Annotated[int, Option("Backups of a log to keep; older ones are removed; 0: all.", ge=0)] = 0


def summary_of(manifest: BackupManifest) -> dict[str, Any]:
    """Return what is told of a backup as JSON."""
    return {
        "log": manifest.log,
        "log_id": manifest.log_id,
        "backup": manifest.name,
        "made_ms": manifest.made_ms,
        "made_by": manifest.made_by,
        "first_revision": manifest.first_revision,
        "last_revision": manifest.last_revision,
        "snapshots": [one.revision for one in manifest.snapshots],
        "contents": sum(one.is_kept for one in manifest.contents),
        "bytes": sum(manifest.files.values()),
        "key_ids": list(manifest.key_ids),
    }


@options_command
def create(
    place: PlaceOption,
    how: CreateOptions,
    audit: AuditOptions,
    logs: Annotated[list[str] | None, typer.Argument(help="Names of logs.", show_default=False)] = None,
    log_key: LogKeyOption = None,
) -> None:
    """Copy what is new of logs while they are served: entries, the newest snapshot, the metadata.

    What an earlier backup of the place has is not copied again. No key and no password is ever copied. Exit code 1 if
    a log could not be backed up; with --every it is told, and tried again the next time.

    Examples:
        rsm backup create orders --place /backups

        rsm backup create --all --place s3://bucket/backups --every 1h --keep 48 --rate-mb 50

    """
    if bool(logs) == how.all_logs:
        raise UsageError("name the logs, or say --all")
    if how.data_dir is not None and how.all_logs:
        raise UsageError("--data-dir is the folder of one log's replica: name that log")
    every_s = None if how.every is None else seconds_of(how.every)
    at = BackupPlace(place, read_storage_options(how.storage_options_file))
    run(_create(logs or [], at, how, audit, log_key, every_s))


def seconds_of(text: str) -> int:
    """Return the seconds of a duration such as 15m.

    Raises:
        UsageError: It is none.

    """
    found = _DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise UsageError(f"--every {text!r}: expected a number and s, m, h or d, such as 1h")
    return int(found[1]) * _SECONDS[found[2]]


async def _create(
    logs: list[str],
    place: BackupPlace,
    how: CreateOptions,
    audit: AuditOptions,
    log_key: Path | None,
    every_s: int | None,
) -> None:
    due_s = time.monotonic()
    while True:
        failed = await _create_once(logs, place, how, audit, log_key, is_once=every_s is None)
        if every_s is None:
            if failed:
                raise typer.Exit(1)
            return
        # From due time to due time, so that a backup does not move the next; one that took longer is not made up for.
        now_s = time.monotonic()
        due_s += every_s * max(1, -int((due_s - now_s) // every_s))
        await asyncio.sleep(max(0.0, due_s - now_s))


async def _create_once(
    logs: list[str], place: BackupPlace, how: CreateOptions, audit: AuditOptions, log_key: Path | None, *, is_once: bool
) -> int:
    failed = 0
    async with await how.connect_ledgers() as client:
        await sweep_restores(client, how.rsm_root)
        names = await log_names(client, how.rsm_root) if how.all_logs else logs
        for log in names:
            try:
                with audited_command(audit.audit_file, "rsm backup create", f"log {log}", this_operator()):
                    await _create_one(client, log, place, how, log_key)
            except (RsmError, LedgerError) as error:
                if is_once and len(names) == 1:
                    raise
                failed += 1
                what = "no retention" if isinstance(error, RetentionError) else "no backup"
                typer.echo(f"log {log}: {what}: {error}", err=True)
    return failed


async def _create_one(
    client: LedgerClient, log: str, place: BackupPlace, how: CreateOptions, log_key: Path | None
) -> None:
    began_s = time.monotonic()
    keys = None if log_key is None else KeyFile.read(log_key, may_sign=False)
    async with _snapshots(client, log, how) as source:
        outcome = await LogBackup(
            client,
            log,
            rsm_root=how.rsm_root,
            place=place,
            supply=None if source is None else CopiedSource(source),
            keys=keys,
            rate=int(how.rate_mb * 1e6),
            by=this_operator().name,
            progress=CopyProgress(f"log {log}", how.json),
        ).make()
    gone: list[str] = []
    try:
        if how.keep:
            gone = await asyncio.to_thread(remove_expired, place, log, outcome.manifest.log_id, how.keep)
    finally:  # There is a backup, whatever becomes of older ones.
        _tell_created(outcome, gone, time.monotonic() - began_s, as_json=how.json)


@asynccontextmanager
async def _snapshots(client: LedgerClient, log: str, how: CreateOptions) -> AsyncIterator[SnapshotSource | None]:
    if how.no_snapshot:
        yield None
    elif how.lake is not None or how.data_dir is not None:
        yield await find_store(client, how.rsm_root, how.data_dir, how.lake, log, how.storage_options_file)
    else:
        async with open_replicas(client, log, how.rsm_root, None) as source:
            yield source


def _tell_created(outcome: BackupOutcome, gone: list[str], took_s: float, *, as_json: bool) -> None:
    manifest = outcome.manifest
    if as_json:
        print_json(
            {
                **summary_of(manifest),
                "new_entries": outcome.new_entries,
                "new_bytes": outcome.new_bytes,
                "new_snapshot": outcome.new_snapshot or None,
                "new_contents": outcome.new_contents,
                "removed": gone,
                "swept": outcome.swept,
                "seconds": round(took_s, 3),
            }
        )
        return
    if not outcome.new_entries and not outcome.new_snapshot and not outcome.new_contents:
        typer.echo(f"log {manifest.log}: nothing new since backup {manifest.name}")
    else:
        snapshot = f", snapshot of revision {outcome.new_snapshot:,}" if outcome.new_snapshot else ""
        snapshot += f", {outcome.new_contents:,} large files" if outcome.new_contents else ""
        typer.echo(
            f"log {manifest.log}: backup {manifest.name}, revisions {manifest.first_revision:,} to "
            f"{manifest.last_revision:,}; new: {outcome.new_entries:,} entries{snapshot}, "
            f"{outcome.new_bytes / 1e6:,.1f} MB in {took_s:.1f} s"
        )
    if outcome.swept:
        typer.echo(f"log {manifest.log}: {outcome.swept} files of backups that were cut off were removed")
    for name in gone:
        typer.echo(f"log {manifest.log}: backup {name} was removed: --keep")
    sys.stdout.flush()
