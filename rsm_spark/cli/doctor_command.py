"""`rsm doctor`: look at this installation and at the cluster, and say what to do about what is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from ledger.configuration import options_command
from ledger.errors import LedgerError
from rsm_spark.cli.doctor import Finding, Grade, look_at_cluster, look_at_disk, look_at_here, look_at_log
from rsm_spark.cli.doctor_spark import look_at_spark
from rsm_spark.cli.log import log_names
from rsm_spark.cli.status import describe_log
from rsm_spark.cli.terminal import LogsOptions, print_json, run
from rsm_spark.errors import RsmError

_CONNECT_S = 15.0
_STYLES = {Grade.GOOD: "green", Grade.NOTE: "yellow", Grade.BAD: "bold red"}


@options_command
def doctor(
    at: LogsOptions,
    data_dir: Annotated[list[Path] | None, typer.Option(help="Look at the disk of this folder too.")] = None,
    here: Annotated[bool, typer.Option("--here", help="This installation only, no cluster.")] = False,
) -> None:
    """Look at Python, packages, Java, Spark, configuration; at ZooKeeper, bookies, replicas and logs.

    Exit code 1 if something is bad.

    Examples:
        rsm doctor

        rsm doctor --here --data-dir /var/lib/orders-a

    """

    async def _look() -> list[Finding]:
        found = [*look_at_here(), *look_at_spark(), *(look_at_disk(folder) for folder in data_dir or ())]
        return found if here else found + await _cluster(at)

    findings = run(_look())
    if at.json:
        for finding in findings:
            print_json(msgspec.to_builtins(finding))
    else:
        _print(findings)
    if any(finding.verdict is Grade.BAD for finding in findings):
        raise typer.Exit(1)


async def _cluster(at: LogsOptions) -> list[Finding]:
    try:
        async with asyncio.timeout(_CONNECT_S):
            client = await at.connect_ledgers()
    except (LedgerError, TimeoutError) as error:
        seen = str(error) or f"no answer within {_CONNECT_S:g} s"
        return [Finding("ZooKeeper", Grade.BAD, seen, "is it running? `rsm up` starts one for development")]
    try:
        found = await look_at_cluster(client)
        bookies = await client.ledgers.writable_bookies()
        for name in await log_names(client, at.rsm_root):
            found += look_at_log(await describe_log(client, name, at.rsm_root, bookies))
    except (LedgerError, RsmError) as error:
        return [Finding("cluster", Grade.BAD, str(error))]
    else:
        return found
    finally:
        await client.close()


def _print(findings: list[Finding]) -> None:
    console = Console()
    for finding in findings:
        style = _STYLES[finding.verdict]
        line = f"[{style}]{finding.verdict:>4}[/{style}]  "
        console.print(line, end="")
        console.print(f"{finding.what}: {finding.seen}", markup=False, highlight=False, soft_wrap=True)
        if finding.advice:
            console.print(f"      -> {finding.advice}", markup=False, highlight=False, soft_wrap=True)
