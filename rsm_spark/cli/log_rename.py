"""`rsm log rename`: a log that nobody serves gets another name."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, run
from rsm_spark.log.former_names import FormerName
from rsm_spark.log.renaming import RenamedLog, forget_former_name, rename_log


@options_command
def rename(
    log: LogArgument,
    at: LogsOptions,
    audit: AuditOptions,
    new: Annotated[str | None, typer.Argument(help="Name that it is to have.", metavar="NEW")] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Rename nothing: tell no more which log had this name before.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; the audit keeps it.")] = "",
) -> None:
    """Give a log another name. Every replica has to be stopped, and is started with --log NEW afterwards.

    It is renamed in one step, or not at all. Who uses the former name hears the new one, until a log of that name is
    made, or --forget is said. Folders of replicas stay as they are, and snapshots in a lake go on where they lie.

    Examples:
        rsm log rename orders orders-2026

        rsm log rename orders --forget

    """
    if (new is None) is not forget:
        raise UsageError(f"rsm log rename {log}: name what it is to be called, or say --forget")

    async def _rename(name: str) -> RenamedLog:
        async with await at.connect_ledgers() as client:
            by, at_ms = this_operator().name, time.time_ns() // 1_000_000
            return await rename_log(client.store, log, name, at.rsm_root, by=by, at_ms=at_ms)

    async def _forget() -> FormerName:
        async with await at.connect_ledgers() as client:
            return await forget_former_name(client.store, log, at.rsm_root)

    with audited_command(audit.audit_file, "rsm log rename", f"log {log} to {new or 'nothing'}", this_operator(reason)):
        done: RenamedLog | FormerName = run(_forget()) if new is None else run(_rename(new))
    if at.json:
        print_json(msgspec.to_builtins(done))
    elif isinstance(done, RenamedLog):
        before = ", as an earlier try has done" if done.was_done else ""
        typer.echo(f"log {log}, id {done.log_id}, has the name {done.new_name}{before}: start its replicas with that")
    else:
        typer.echo(f"name {log}: it is not told any more that the log {done.new_name} had it")
