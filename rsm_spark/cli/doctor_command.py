"""`rsm doctor`: look at this installation and at the cluster, and say what to do about what is wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from ledger.configuration import options_command
from ledger.errors import LedgerError, MetadataDeniedError, MetadataUnavailableError, UsageError
from ledger.operator_commands import this_operator
from ledger.replication.copies_report import report_copies
from rsm_spark.cli.doctor import Finding, Grade, look_at_cluster, look_at_disk, look_at_here, look_at_log
from rsm_spark.cli.doctor_copies import look_at_copies
from rsm_spark.cli.doctor_placement import look_at_placement
from rsm_spark.cli.doctor_spark import look_at_spark
from rsm_spark.cli.log import log_names
from rsm_spark.cli.status import describe_log
from rsm_spark.cli.terminal import LogsOptions, print_json, run
from rsm_spark.errors import NoSuchLogError, RsmError
from rsm_spark.log.forgetting import forget_log

_CONNECT_S = 15.0
_STYLES = {Grade.GOOD: "green", Grade.NOTE: "yellow", Grade.BAD: "bold red"}


@options_command
def doctor(
    at: LogsOptions,
    data_dir: Annotated[list[Path] | None, typer.Option(help="Look at the disk of this folder too.")] = None,
    here: Annotated[bool, typer.Option("--here", help="This installation only, no cluster.")] = False,
    forget: Annotated[
        list[str] | None,
        typer.Option(metavar="LOG", help="This log is served no more: note it from now on, until a replica leads it."),
    ] = None,
) -> None:
    """Look at Python, packages, Java, Spark, configuration; at ZooKeeper, bookies, copies, replicas and logs.

    Exit code 1 if something is bad. Copies are counted here, whether an auditor has noticed or not. Replicas that are
    gone are not asked; a log that nobody serves is bad until it is deleted, or forgotten here.

    Examples:
        rsm doctor

        rsm doctor --here --data-dir /var/lib/orders-a

        rsm doctor --forget experiment-3

    """
    if here and forget:
        raise UsageError("--forget is about a log, --here about this installation: say one of them")

    async def _look() -> list[Finding]:
        found = [*look_at_here(), *look_at_spark(), *(look_at_disk(folder) for folder in data_dir or ())]
        return found if here else found + await _cluster(at, forget or ())

    findings = run(_look())
    if at.json:
        for finding in findings:
            print_json(msgspec.to_builtins(finding))
    else:
        _print(findings)
    if any(finding.verdict is Grade.BAD for finding in findings):
        raise typer.Exit(1)


async def _cluster(at: LogsOptions, forget: Sequence[str]) -> list[Finding]:
    try:
        async with asyncio.timeout(_CONNECT_S):
            client = await at.connect_ledgers()
    except (LedgerError, TimeoutError) as error:
        seen = str(error) or f"no answer within {_CONNECT_S:g} s"
        return [Finding("ZooKeeper", Grade.BAD, seen, "is it running? `rsm up` starts one for development")]
    try:
        for log in forget:
            at_ms = time.time_ns() // 1_000_000
            await forget_log(client.store, log, at.rsm_root, by=this_operator().name, at_ms=at_ms)
        found = await look_at_cluster(client)
        found += look_at_copies(await report_copies(client.ledgers))
        found += await look_at_placement(client.ledgers)
        bookies = await client.ledgers.writable_bookies()
        for name in await log_names(client, at.rsm_root):
            try:
                found += look_at_log(await describe_log(client, name, at.rsm_root, bookies))
            except MetadataUnavailableError:
                raise
            except NoSuchLogError:
                pass  # It has just been deleted.
            except MetadataDeniedError as error:
                advice = "look with the log-in that it belongs to (RSM_ZK_AUTH_FILE)"
                found.append(Finding(f"log {name}", Grade.NOTE, f"may not be looked at: {error}", advice))
            except (LedgerError, RsmError) as error:
                found.append(Finding(f"log {name}", Grade.BAD, str(error)))
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
