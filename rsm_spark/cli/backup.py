"""`rsm backup create | list | verify | restore`: copies of logs elsewhere, and logs made of them again."""

from __future__ import annotations

import shutil
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.cluster_options import Json
from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.options import Option
from rsm_spark.backup.catalog import choose_backup, find_backups
from rsm_spark.backup.manifest import CorruptBackupError
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.restoring import LogRestore, RestoreOutcome, RestoreRequest, check_new_folder
from rsm_spark.backup.verifying import lacking_keys, verify_backup
from rsm_spark.cli.backup_create import CopyProgress, LogKeyOption, PlaceOption, create, summary_of
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, run
from rsm_spark.log.key_file import KeyFile, read_public_keys
from rsm_spark.server.replica_options import password_of, quorum_of
from rsm_spark.server.replica_server import SNAPSHOTS_FOLDER
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.opening import lake_snapshots

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


class RestoreOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of what is made of a backup."""

    at_revision: Annotated[
        int | None, Option("Leave out all entries that go beyond this revision.", ge=1, metavar="REV")
    ] = None
    at_time: Annotated[
        str | None, Option("Leave out what was logged later: 2026-11-23T14:00:00Z, or ms since 1970.", metavar="TIME")
    ] = None
    data_dir: Annotated[
        Path | None, Option("Put a snapshot into this folder, with which the first replica is to be started.")
    ] = None
    lake: Annotated[str | None, Option("Put a snapshot into this lake.", metavar="PATH")] = None
    bookies: Annotated[str, Option("Ensemble, write quorum and ack quorum.", metavar="E/Qw/Qa")] = "2/2/2"
    password_file: Annotated[
        Path | None, Option("Password of the new ledgers, as rsm store run takes it.", metavar="FILE")
    ] = None


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
    found = find_backups(BackupPlace(place), log)
    for manifest in found.whole:
        if how.json:
            print_json(summary_of(manifest))
            continue
        at = datetime.fromtimestamp(manifest.made_ms / 1000).astimezone().isoformat(timespec="seconds")
        snapshots = ", ".join(f"{one.revision:,}" for one in manifest.snapshots) or "none"
        key = f", needs key {', '.join(manifest.key_ids)}" if manifest.key_ids else ""
        typer.echo(
            f"{manifest.log} {manifest.name}: revisions {manifest.first_revision:,} to {manifest.last_revision:,}, "
            f"snapshots {snapshots}, {sum(manifest.files.values()) / 1e6:,.1f} MB, made {at}{key}"
        )
    for line in found.damaged:
        if how.json:
            print_json({"damaged": line})
        else:
            typer.echo(f"damaged: {line}")
    if not found.whole and not found.damaged and not how.json:
        typer.echo(f"no backups in {BackupPlace(place).shown}")
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
    at = BackupPlace(place)
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
    how: RestoreOptions,
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
    if how.at_revision is not None and how.at_time is not None:
        raise UsageError("--at-revision and --at-time are two ends: name one")
    at = BackupPlace(place)
    by = this_operator()
    if how.data_dir is not None:
        check_new_folder(how.data_dir)
    target = RestoreRequest(
        name=name,
        rsm_root=how.rsm_root,
        revision=how.at_revision,
        time_ms=None if how.at_time is None else ms_of(how.at_time),
        keys=None if log_key is None else KeyFile.read(log_key, may_sign=False),
        password=password_of(how.password_file),
        quorum=quorum_of(how.bookies),
        snapshots=None if how.data_dir is None else LocalSnapshots(how.data_dir / SNAPSHOTS_FOLDER),
        lake=None if how.lake is None else lake_snapshots(how.lake, name),
        by=by.name,
    )
    manifest = choose_backup(at, log, log_id=log_id, name=backup, revision=how.at_revision)
    began_s = time.monotonic()

    async def _restore() -> RestoreOutcome:
        async with await how.connect_ledgers() as client:
            return await LogRestore(client, at, manifest, target, CopyProgress(f"log {name}", how.json)).make()

    with audited_command(audit.audit_file, "rsm backup restore", f"log {name} of backup {manifest.name}", by):
        try:
            outcome = run(_restore())
        except BaseException:
            if how.data_dir is not None:  # It was empty: what is in it came from here, and is of no log.
                shutil.rmtree(how.data_dir / SNAPSHOTS_FOLDER, ignore_errors=True)
            raise
    took_s = time.monotonic() - began_s
    if how.json:
        print_json({**msgspec.to_builtins(outcome), "backup": manifest.name, "seconds": round(took_s, 3)})
        return
    typer.echo(
        f"log {name}, id {outcome.log_id}: log {log} up to revision {outcome.revision:,}, {outcome.entries:,} entries, "
        f"{outcome.bytes / 1e6:,.1f} MB in {took_s:.1f} s"
    )
    if how.at_revision is not None and outcome.revision < how.at_revision:
        typer.echo(f"  revision {how.at_revision:,} is within an entry, which was left out as a whole")
    if outcome.snapshot_revision:
        typer.echo(f"  snapshot of revision {outcome.snapshot_revision:,} in {how.data_dir or how.lake}")
    if outcome.key_ids:
        typer.echo(f"  its replicas need key {', '.join(outcome.key_ids)}: --log-key {log_key}")


def ms_of(text: str) -> int:
    """Return a time in ms since 1970.

    Raises:
        UsageError: It is none, or of no time zone.

    """
    if text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--at-time {text!r}: expected 2026-11-23T14:00:00Z, or milliseconds since 1970") from None
    if found.tzinfo is None:
        raise UsageError(f"--at-time {text!r}: of which time zone? Put Z behind it for UTC, or +02:00")
    return int(found.timestamp() * 1000)
