"""`rsm audit`: who changed rights, code, holds or the log itself, from the log's own records."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ledger.configuration import options_command
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, printable, run
from rsm_spark.core.kernel_tables import KERNEL_RECORDS
from rsm_spark.core.records import AUDIT_LEVEL, KernelRecord
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.described_records import log_rows
from rsm_spark.runtime.auditing import no_audit

_AUDITED = next(record.name for record in KERNEL_RECORDS if record.type == KernelRecord.AUDITED)


@options_command
def audit(
    log: LogArgument,
    at: LogsOptions,
    from_revision: Annotated[
        int | None,
        typer.Option("--from", metavar="REV", min=1, help="First revision; default: what is left of the log."),
    ] = None,
    principal: Annotated[str | None, typer.Option("--principal", help="Only what this one did.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as records are committed.")] = False,
) -> None:
    """Print who changed what, as the log holds it: rights, code, holds, the log itself.

    Each change is there twice: "asked" before it was done, and then what came of it.

    Examples:
        rsm audit broker

        rsm audit broker --principal ops --follow --json

    """

    async def _audit() -> None:
        async with await at.connect_ledgers() as client:
            first = from_revision
            chain, _ = await ChainStore(client.store, log, at.rsm_root).read()
            if chain.format_level < AUDIT_LEVEL:
                typer.echo(no_audit(log, chain.format_level), err=True)
            if first is None:
                first = chain.ledgers[0].first_revision if chain.ledgers else 1
            async for row in log_rows(client, log, at.rsm_root, first, follow=follow, limit=None):
                if row["type"] == _AUDITED and principal in {None, row["fields"]["principal"]}:
                    _show(row, json=at.json)
        sys.stdout.flush()

    run(_audit())


def _show(row: dict[str, Any], *, json: bool) -> None:
    at = datetime.fromtimestamp(row["logged_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
    said = row["fields"]
    if json:
        print_json({"revision": row["revision"], "time": at, **said})
        return
    who = f"{said['principal'] or '-'} ({said['role'] or '-'}) from {said['source'] or '-'}"
    typer.echo(printable(f"{row['revision']} {at} {who}: {said['action']} on {said['target']}: {said['outcome']}"))
