"""`rsm doctor`: look at this installation and at the cluster, and say what to do about what is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.doctor import Finding, Verdict, look_at_cluster, look_at_disk, look_at_here, look_at_log
from rsm_spark.doctor_spark import look_at_spark
from rsm_spark.errors import RsmError
from rsm_spark.store.log_cli import log_names
from rsm_spark.store.status_cli import describe_log
from rsm_spark.store.terminal import Json, MetadataUriOption, RsmRoot, print_json, run

__all__ = ["doctor"]

_CONNECT_S = 15.0
_STYLES = {Verdict.GOOD: "green", Verdict.NOTE: "yellow", Verdict.BAD: "bold red"}


def doctor(
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    data_dir: Annotated[list[Path] | None, typer.Option(help="Look at the disk of this folder too.")] = None,
    here: Annotated[bool, typer.Option("--here", help="This installation only, no cluster.")] = False,
    json: Json = False,
) -> None:
    """Look at Python, packages, Java, Spark, configuration; at ZooKeeper, bookies, replicas and logs.

    Exit code 1 if something is bad.

    Examples:
        rsm doctor

        rsm doctor --here --data-dir /var/lib/orders-a

    """

    async def _look() -> list[Finding]:
        found = [*look_at_here(), *look_at_spark(), *(look_at_disk(folder) for folder in data_dir or ())]
        return found if here else found + await _cluster(metadata_uri, rsm_root)

    findings = run(_look())
    if json:
        for finding in findings:
            print_json(msgspec.to_builtins(finding))
    else:
        _print(findings)
    if any(finding.verdict is Verdict.BAD for finding in findings):
        raise typer.Exit(1)


async def _cluster(metadata_uri: str | None, rsm_root: str) -> list[Finding]:
    try:
        async with asyncio.timeout(_CONNECT_S):
            client = await LedgerClient.connect(metadata_uri)
    except (LedgerError, TimeoutError) as error:
        seen = str(error) or f"no answer within {_CONNECT_S:g} s"
        return [Finding("ZooKeeper", Verdict.BAD, seen, "is it running? `rsm up` starts one for development")]
    try:
        found = await look_at_cluster(client)
        bookies = await client.ledgers.writable_bookies()
        for name in await log_names(client, rsm_root):
            found += look_at_log(await describe_log(client, name, rsm_root, bookies))
    except (LedgerError, RsmError) as error:
        return [Finding("cluster", Verdict.BAD, str(error))]
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
