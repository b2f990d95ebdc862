"""`rsm demo`."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from ledger.errors import LedgerError
from rsm_demo.conductor import Act, Conductor, DemoOutcome
from rsm_demo.screen import Screen
from rsm_demo.stack import LOG, TASK_LOG, Stack
from rsm_demo.totals_act import said_of
from rsm_spark.errors import RsmError

_SABOTAGES = ("delta-row",)


def demo(
    metadata_uri: Annotated[
        str | None, typer.Option(help="Use this cluster instead of starting one; its bookies are not killed.")
    ] = None,
    flights: Annotated[int | None, typer.Option(min=1, help="Load only the first FLIGHTS of the 336,776.")] = None,
    clients: Annotated[int, typer.Option(min=1, max=64, help="Clients that load side by side.")] = 8,
    data_dir: Annotated[Path | None, typer.Option(help="Keep the data here; default: a temporary folder.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end.")] = False,
    sabotage: Annotated[
        str | None, typer.Option(help="delta-row: change one row of the Delta table, which must be found.")
    ] = None,
    last_act: Annotated[Act, typer.Option(help="Leave out what comes behind this act.")] = Act.POOL,
    json_only: Annotated[bool, typer.Option("--json", help="Print nothing but the last JSON line.")] = False,
) -> None:
    """Load a year of real flights through three replicas while leaders and a bookie are killed; compare five answers.

    Then Spark writes each airline's totals into an SQL table, on which the map, SQL, Delta and the CSV agree.
    It proves from the log alone what was made of it, and says what the map held half-way.
    A service of one's own gets its second release, replica by replica, while it is called.
    The log is forked at a revision half-way: the fork's state is shown beside that of its origin.
    Two airlines share three workers of a task broker: a weight is changed live, and the leading broker is killed.
    At last Spark works for them: a pool that grows with what waits, loses a process, and is drained.

    Example: rsm demo --flights 50000 --keep
    """
    if sabotage not in (None, *_SABOTAGES):
        raise typer.BadParameter(f"{sabotage}: choose from {', '.join(_SABOTAGES)}", param_hint="--sabotage")
    work_dir = data_dir or Path(tempfile.mkdtemp(prefix="rsm-demo-"))
    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise typer.BadParameter(f"{data_dir} is not empty: name a new folder", param_hint="--data-dir")
    work_dir.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    stack = Stack(work_dir, metadata_uri=metadata_uri)
    screen = Screen(console, is_quiet=json_only)
    conductor = Conductor(stack, screen, client_count=clients, limit=flights, sabotage=sabotage, last_act=last_act)
    try:
        outcome = asyncio.run(_run(conductor, stack, screen, keep=keep, console=None if json_only else console))
    except (RsmError, LedgerError) as error:
        sys.stdout.write(msgspec.json.encode({"ok": False, "error": str(error)}).decode() + "\n")
        raise
    if data_dir is None and not keep and outcome.ok:
        shutil.rmtree(work_dir, ignore_errors=True)  # after a failure the logs are what one wants to see
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    raise typer.Exit(0 if outcome.ok else 1)


async def _run(
    conductor: Conductor, stack: Stack, screen: Screen, *, keep: bool, console: Console | None
) -> DemoOutcome:
    is_kept = False
    try:
        with screen:
            outcome = await conductor.run()
        is_kept = keep
        if console is not None:
            _print_table(console, conductor, outcome)
            if keep:
                _print_next(console, stack)
    finally:
        await stack.stop(keep_services=is_kept)
    return outcome


def _print_table(console: Console, conductor: Conductor, outcome: DemoOutcome) -> None:
    assert conductor.answers is not None
    table = Table(title="One question, five independent answers")
    for heading in ("source", "tail numbers", "flights", "cancelled", "delay minutes"):
        table.add_column(heading, justify="left" if heading == "source" else "right")
    for source, totals in conductor.answers.totals().items():
        table.add_row(source, *(f"{value:,}" for value in totals))
    console.print(table)
    console.print(
        "Equal row by row." if outcome.answers_equal else "[bold red]They differ:[/] " + "; ".join(outcome.differences)
    )
    if outcome.totals is not None:
        console.print(f"{said_of(outcome.totals)}.", highlight=False, markup=False)
    if outcome.lake is not None:
        lake = outcome.lake
        console.print(
            f"Proved from the log alone: {lake.proved_entries:,} entries, {lake.proved_checkpoints} checkpoints, "
            f"{lake.proved_commits} commits of the Delta table"
            + ("." if not lake.differences else "; [bold red]not so:[/] " + "; ".join(lake.differences)),
            highlight=False,
        )
    if outcome.upgrade is not None:
        upgrade = outcome.upgrade
        console.print(
            f"Release 2 of a service in place of release 1 under load: {upgrade.commands:,} commands, "
            f"{upgrade.applied_wrongly} accounts wrong, the longest wait {upgrade.longest_wait_s:.2f} s"
            + ("." if upgrade.digests_equal else "; [bold red]replicas differ.[/]"),
            highlight=False,
        )
    if outcome.fork is not None:
        fork = outcome.fork
        console.print(
            f"A fork of the log at revision {fork.revision:,} in {fork.seconds:.2f} s, {fork.shared} ledgers shared: "
            f"{fork.flights_then:,} flights beside the origin's {fork.flights_now:,}"
            + (", as the log was then." if fork.equals_past else "; [bold red]not what the log was then.[/]"),
            highlight=False,
        )
    if outcome.tasks is not None:
        tasks = outcome.tasks
        console.print(
            f"{tasks.tasks:,} tasks of two airlines: {tasks.ratio_before:.2f} to 1 at equal weights, "
            f"{tasks.ratio_after:.2f} to 1 at 3 to 1; fail-over of the broker {tasks.failover_s:.2f} s; "
            f"{tasks.never_ran} never ran, {tasks.ran_twice} ran twice; results "
            + ("equal the CSV." if tasks.results_equal else "[bold red]differ from the CSV.[/]"),
            highlight=False,
        )
    if outcome.pool is not None:
        pool = outcome.pool
        console.print(
            f"{pool.tasks:,} tasks on Spark, on {pool.workers_max} workers at most: {pool.ratio:.2f} to 1 at 3 to 1; "
            f"{pool.killed} was killed and worked again after {pool.again_s:.2f} s; {pool.never_ran} never ran, "
            f"{pool.ran_twice} ran twice; results "
            + ("equal the CSV." if pool.results_equal else "[bold red]differ from the CSV.[/]"),
            highlight=False,
        )


def _print_next(console: Console, stack: Stack) -> None:
    uri = f"--metadata-uri '{stack.metadata_uri}'"
    console.print(
        "Still running. Try:\n"
        f"  .venv/bin/rsm status {uri} --log {LOG}\n"
        f"  .venv/bin/rsm map get N14228 {uri} --log {LOG}\n"
        f"  .venv/bin/rsm log cat {LOG} --from 1 --json {uri} | head\n"
        f"  .venv/bin/rsm task list --limit 5 {uri} --log {TASK_LOG}\n"
        f"  {_dashboard(stack)}   # the broker's dashboard, in a browser\n"
        f"  {_stop_command(stack)}   # to end it\n"
        f"The Delta table is {stack.table}; data and logs are in {stack.work_dir}.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _dashboard(stack: Stack) -> str:
    return str(next(child.said["http_address"] for child in stack.brokers.values() if child.is_running))


def _stop_command(stack: Stack) -> str:
    pids = " ".join(str(child.pid) for child in stack.services)
    down = f" && .venv/bin/rsm down --data-dir {stack.cluster.data_dir}" if stack.cluster else ""
    return f"kill {pids}{down}"
