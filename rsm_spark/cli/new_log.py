"""Frame of a command that makes a new log: of a backup, or of another log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from ledger.operator_commands import AuditOptions, audited_command
from ledger.operators import Operator
from rsm_spark.backup.restoring import RestoreOutcome, RestoreRequest, check_new_folder
from rsm_spark.cli.copying import MadeLogOptions, NewLogOptions
from rsm_spark.log.key_file import KeyFile
from rsm_spark.server.replica_options import password_of, quorum_of
from rsm_spark.server.replica_server import SNAPSHOTS_FOLDER
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.opening import lake_snapshots


@contextmanager
def made_log(
    name: str, how: MadeLogOptions, log_key: Path | None, audit: AuditOptions, command: str, what: str, by: Operator
) -> Iterator[RestoreRequest]:
    """Yield what is to be made, as the options say; what lies in the folder goes if it comes to nothing.

    Args:
        name: Of the new log.
        how: The options.
        log_key: Key file of the log that it is made of.
        audit: Where the audit goes.
        command: For the audit.
        what: What it is made of, for the audit.
        by: Who makes it.

    """
    time_ms = how.time_ms
    if how.data_dir is not None:
        check_new_folder(how.data_dir)
    target = RestoreRequest(
        name=name,
        rsm_root=how.rsm_root,
        revision=how.last_revision,
        time_ms=time_ms,
        keys=None if log_key is None else KeyFile.read(log_key, may_sign=False),
        password=password_of(how.password_file),
        quorum=quorum_of(how.bookies),
        snapshots=None if how.data_dir is None else LocalSnapshots(how.data_dir / SNAPSHOTS_FOLDER),
        lake=None if how.lake is None else lake_snapshots(how.lake, name, how.storage_options_file),
        by=by.name,
    )
    with audited_command(audit.audit_file, command, f"log {name} of {what}", by):
        try:
            yield target
        except BaseException:
            if how.data_dir is not None:  # It was empty: what is in it came from here, and is of no log.
                shutil.rmtree(how.data_dir / SNAPSHOTS_FOLDER, ignore_errors=True)
            raise


def tell_made(outcome: RestoreOutcome, how: NewLogOptions, log_key: Path | None) -> None:
    """Print all that one has to know who starts replicas of a new log."""
    if how.at_revision is not None and outcome.revision < how.at_revision:
        typer.echo(f"  revision {how.at_revision:,} is within an entry, which was left out as a whole")
    if outcome.snapshot_revision:
        typer.echo(f"  snapshot of revision {outcome.snapshot_revision:,} in {how.data_dir or how.lake}")
    if outcome.contents:
        typer.echo(f"  with {outcome.contents:,} contents beside its entries")
    if outcome.key_ids:
        typer.echo(f"  its replicas need key {', '.join(outcome.key_ids)}: --log-key {log_key or 'FILE'}")
