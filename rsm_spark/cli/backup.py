"""`rsm backup create | list | verify | restore`: copies of logs elsewhere, and logs made of them again."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.cluster_options import Json
from ledger.configuration import options_command
from ledger.operator_commands import AuditOptions, this_operator
from rsm_spark.backup.catalog import choose_backup, find_backups
from rsm_spark.backup.manifest import CorruptBackupError
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.restore_mark import sweep_restores
from rsm_spark.backup.restoring import LogRestore, RestoreOutcome
from rsm_spark.backup.verifying import lacking_keys, verify_backup
from rsm_spark.cli.backup_create import PlaceOption, create, summary_of
from rsm_spark.cli.copying import CopyProgress, LogKeyOption, NewLogOptions
from rsm_spark.cli.new_log import made_log, tell_made
from rsm_spark.cli.terminal import LogArgument, print_json, run
from rsm_spark.log.key_file import KeyFile, read_public_keys
from rsm_spark.object_stores.storage_options import StorageFile, read_storage_options

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Copy logs elsewhere, verify the copies, make a log of one again.",
    pretty_exceptions_enable=False,
)
app.command()(create)

_LogId = Annotated[str | None, typer.Option("--log-id", help="Of several logs that had this name, the one of this id.")]
_Name = Annotated[
    str | None, typer.Option("--backup", metavar="NAME", help="As rsm backup list has it.", show_default="the newest")
]


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a command that only reads a place of backups."""

    json: Json = False
    storage_options_file: StorageFile = None

    def open(self, place: str) -> BackupPlace:
        return BackupPlace(place, read_storage_options(self.storage_options_file))


@app.command("list")
@options_command
def list_backups(
    place: PlaceOption,
    how: ReadOptions,
    log: Annotated[str | None, typer.Option("--log", help="Only of this log.", envvar="RSM_LOG")] = None,
) -> None:
    """List backups, newest first. Exit code 1 if a manifest is damaged; files are looked at by rsm backup verify.

    Examples:
        rsm backup list --place /backups

        rsm backup list --place s3://bucket/backups --log orders --json

    """
    at = how.open(place)
    found = find_backups(at, log)
    for manifest in found.whole:
        if how.json:
            print_json(summary_of(manifest))
            continue
        made_at = datetime.fromtimestamp(manifest.made_ms / 1000).astimezone().isoformat(timespec="seconds")
        snapshots = ", ".join(f"{one.revision:,}" for one in manifest.snapshots) or "none"
        key = f", needs key {', '.join(manifest.key_ids)}" if manifest.key_ids else ""
        typer.echo(
            f"{manifest.log} {manifest.name}: revisions {manifest.first_revision:,} to {manifest.last_revision:,}, "
            f"snapshots {snapshots}, {sum(manifest.files.values()) / 1e6:,.1f} MB, made {made_at}{key}"
        )
    for line in found.damaged:
        if how.json:
            print_json({"damaged": line})
        else:
            typer.echo(f"damaged: {line}")
    if not found.whole and not found.damaged and not how.json:
        typer.echo(f"no backups in {at.shown}")
    if found.damaged:
        raise typer.Exit(1)


@app.command()
@options_command
def verify(
    log: LogArgument,
    place: PlaceOption,
    how: ReadOptions,
    name: _Name = None,
    log_id: _LogId = None,
    log_key: LogKeyOption = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", metavar="FILE", help="What rsm log key show-public printed.")
    ] = None,
    at_least: Annotated[
        int, typer.Option("--at-least", metavar="REV", min=0, help="Refuse a backup that does not reach so far.")
    ] = 0,
) -> None:
    """Read a backup from the first byte to the last: every hash, every snapshot's rows; seals and signatures too.

    Seals are checked with --log-key, signed checkpoints with --public-key. A newest backup that somebody removed is
    missed by nobody but --at-least. Exit code 0 only if all is right.

    Examples:
        rsm backup verify orders --place /backups

        rsm backup verify orders --place /backups --public-key orders.pub --at-least 120345

    """
    at = how.open(place)
    keys = None if log_key is None else KeyFile.read(log_key, may_sign=False)
    public_keys = {} if public_key is None else read_public_keys(public_key)
    manifest = choose_backup(at, log, log_id=log_id, name=name)
    if manifest.last_revision < at_least:
        raise CorruptBackupError(
            f"backup {manifest.name} of log {log} ends with revision {manifest.last_revision}, it should reach "
            f"{at_least}: a newer one is missing, or was replaced by an older one"
        )
    found, unnamed = verify_backup(at, manifest, keys=keys, public_keys=public_keys)
    if public_keys and not found.signatures:
        raise CorruptBackupError(f"backup {manifest.name} of log {log}: no checkpoint is signed by the given keys")
    lacking = lacking_keys(manifest, keys)
    seals = "none" if not manifest.key_ids else "not checked" if keys is None else "right"
    if how.json:
        print_json({
            **summary_of(manifest), "ok": True, "entries": found.entries, "prefix_hash": found.prefix_hash,
            "signatures": found.signatures, "proven_revision": found.proven_revision, "seals": seals,
            "unnamed_snapshots": unnamed,
        })  # fmt: skip
        return
    typer.echo(
        f"log {log}: backup {manifest.name} is whole: revisions {found.first_revision:,} to {found.last_revision:,}, "
        f"{found.entries:,} entries continue each other, {len(manifest.snapshots) - len(unnamed)} snapshots have the "
        f"digest that the log names; seals: {seals}"
    )
    for revision in unnamed:
        typer.echo(f"  snapshot of revision {revision:,} is whole, but no checkpoint in the backup names its digest")
    if found.signatures:
        typer.echo(f"  {found.signatures} checkpoints are signed, up to revision {found.proven_revision:,}")
    if lacking and keys is None:
        typer.echo(f"  a restore needs key {', '.join(lacking)}")


@app.command()
@options_command
def restore(
    log: LogArgument,
    place: PlaceOption,
    how: NewLogOptions,
    audit: AuditOptions,
    name: Annotated[str, typer.Option("--as", metavar="NEW", help="Name of the new log.")],
    backup: _Name = None,
    log_id: _LogId = None,
    log_key: LogKeyOption = None,
) -> None:
    """Make a new log of a backup, up to its end, a revision or a time; the new log names its origin.

    It ends with a whole entry: a command is never halved. Entries are copied byte for byte, so that every proof of
    them holds. Start replicas with --log NEW afterwards; the first of them with --data-dir, if one was named here.

    Examples:
        rsm backup restore orders --place /backups --as orders-again --data-dir /var/lib/orders-again-a

        rsm backup restore orders --place /backups --as orders-before --at-time 2026-11-23T14:00:00Z

    """
    at = BackupPlace(place, read_storage_options(how.storage_options_file))
    manifest = choose_backup(at, log, log_id=log_id, name=backup, revision=how.at_revision)
    began_s = time.monotonic()
    with made_log(
        name, how, log_key, audit, "rsm backup restore", f"backup {manifest.name}", this_operator()
    ) as target:

        async def _restore() -> RestoreOutcome:
            async with await how.connect_ledgers() as client:
                await sweep_restores(client, how.rsm_root)
                return await LogRestore(client, at, manifest, target, CopyProgress(f"log {name}", how.json)).make()

        outcome = run(_restore())
    took_s = time.monotonic() - began_s
    if how.json:
        print_json({**msgspec.to_builtins(outcome), "backup": manifest.name, "seconds": round(took_s, 3)})
        return
    typer.echo(
        f"log {name}, id {outcome.log_id}: log {log} up to revision {outcome.revision:,}, {outcome.entries:,} entries, "
        f"{outcome.bytes / 1e6:,.1f} MB in {took_s:.1f} s"
    )
    tell_made(outcome, how, log_key)
