"""`rsm log delete`: a log and its ledgers are gone for good."""

from __future__ import annotations

import random
import sys
from typing import Annotated

import msgspec
import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, run
from rsm_spark.log.deletion import DeletedLog, delete_log
from rsm_spark.log.partition_names import is_partitioned
from rsm_spark.log.partitioned_deletion import delete_partitioned_log

_CONSUMERS_NAMED_MAX = 10


@options_command
def delete(
    log: LogArgument,
    at: LogsOptions,
    audit: AuditOptions,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; the audit keeps it.")] = "",
) -> None:
    """Delete a log with all its ledgers. There is no way back, but from a backup or a lake.

    Every replica has to be stopped. The replicas' folders, snapshots in a lake and Delta tables stay, and so do ledgers
    that forks of it use. Of a partitioned log all partitions go. A deletion that was cut off is finished by the same
    command, a fork that was cut off undone.

    Examples:
        rsm log delete orders

        rsm log delete orders --yes --reason "moved to orders-2"

    """
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"rsm log delete {log}: say --yes where nobody can be asked")
        typed = typer.prompt(f"This deletes the log {log} for good. Type its name")
        if typed != log:
            raise UsageError(f"{typed!r} is not {log!r}: nothing was deleted")

    async def _delete() -> list[DeletedLog]:
        async with await at.connect_ledgers() as client:
            if await is_partitioned(client.store, log, at.rsm_root):
                rng = random.SystemRandom()
                return await delete_partitioned_log(client, log, at.rsm_root, rng=rng, on_progress=_show_progress)
            return await delete_log(client, log, at.rsm_root, on_progress=_show_progress)

    with audited_command(audit.audit_file, "rsm log delete", f"log {log}", this_operator(reason)):
        done = run(_delete())
    for one in done:
        if at.json:
            print_json(msgspec.to_builtins(one))
        else:
            begun = ", which an earlier deletion had begun with" if one.was_begun else ""
            kept = f", {len(one.kept)} stay, since other logs use them" if one.kept else ""
            typer.echo(f"log {one.log}, id {one.log_id}{begun}: {len(one.ledger_ids)} ledgers are deleted{kept}")
            if one.consumers:
                names = ", ".join(one.consumers[:_CONSUMERS_NAMED_MAX])
                typer.echo(f"  {len(one.consumers)} consumers were registered: {names}")
            _tell_unread(one)


def _tell_unread(one: DeletedLog) -> None:
    """Say what nobody has looked at: it is of other log-ins, most probably of other logs."""
    seen = [f"{len(one.unread)} ledgers"] if one.unread else []
    seen += [f"{len(one.unread_notes)} notes about logs"] if one.unread_notes else []
    if seen:
        typer.echo(
            f"  {' and '.join(seen)} are of other log-ins at ZooKeeper and could not be looked at: should any be of "
            f"this log, they stay, until whoever has that log-in runs rsm log delete {one.log} once more",
            err=True,
        )


def _show_progress(done: int, all_: int) -> None:
    if sys.stderr.isatty() and (done % 10 == 0 or done == all_):
        sys.stderr.write(f"\r{done} of {all_} ledgers{chr(10) if done == all_ else ''}")
        sys.stderr.flush()
