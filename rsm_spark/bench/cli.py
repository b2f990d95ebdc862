"""`rsm bench ycsb`: YCSB's workloads A to D on a replicated map that runs."""

from __future__ import annotations

import asyncio
import enum
import sys
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from ledger.configuration import options_command
from ledger.options import Option
from rsm_spark.bench.latencies import LatencySummary
from rsm_spark.bench.workloads import RECORD_BYTES, WORKLOADS
from rsm_spark.bench.ycsb import PhaseReport, YcsbLoad, YcsbSettings
from rsm_spark.cli.terminal import print_json, run
from rsm_spark.map.cli.connection import MapOptions
from rsm_spark.map.messages import VALUE_BYTES_MAX

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Put a known load on a running store and measure it.",
    pretty_exceptions_enable=False,
)

_Letter = enum.StrEnum("_Letter", {name: name for name in WORKLOADS})  # type: ignore[misc]


class _Phases(enum.StrEnum):
    BOTH = "both"
    LOAD = "load"
    RUN = "run"


@app.callback()
def _bench() -> None:
    # Keeps `ycsb` a sub-command of its own.
    pass


_WorkloadOption = Annotated[_Letter, typer.Option("--workload", help="a: update heavy, b: read mostly, c: read only, "
                                                  "d: read latest.")]  # fmt: skip
_Records = Annotated[int, typer.Option("--records", min=1, help="Records to load.")]
_Operations = Annotated[int, typer.Option("--operations", min=1, help="Operations of the run phase.")]
_Threads = Annotated[int, typer.Option("--threads", min=1, help="Operations outstanding at once.")]
_Clients = Annotated[int, typer.Option("--clients", min=1, help="Connections that the threads share, at most.")]
_RecordBytes = Annotated[int, typer.Option("--record-bytes", min=1, max=VALUE_BYTES_MAX, help="Size of each record.")]
_PhasesOption = Annotated[_Phases, typer.Option("--phase", help="Load, run on what is loaded, or both.")]
_Seed = Annotated[int, typer.Option("--seed", help="Of all random choices.")]


class YcsbOptions(MapOptions, frozen=True, kw_only=True):
    """Options of the map that is measured."""

    timeout_s: Annotated[float, Option("Seconds after which an operation has failed.", name="timeout", ge=0.01)] = 30.0


@app.command()
@options_command
def ycsb(
    at: YcsbOptions,
    workload: _WorkloadOption,
    records: _Records = 10_000,
    operations: _Operations = 10_000,
    threads: _Threads = 16,
    clients: _Clients = 8,
    record_bytes: _RecordBytes = RECORD_BYTES,
    phase: _PhasesOption = _Phases.BOTH,
    seed: _Seed = 0,
) -> None:
    """Load records `user…` into a map, run one of YCSB's workloads on them, and report throughput and latencies.

    The records stay. Reads are linearizable, a record is one value, an update writes it whole. Exit code 1 if an
    operation failed or a record was missing.

    Examples:
        rsm bench ycsb --workload a --log scratch

        rsm bench ycsb --workload d --log scratch --records 100000 --operations 200000 --threads 64 --json

        rsm bench ycsb --workload c --log scratch --records 100000 --phase run

    """
    settings = YcsbSettings(
        workload=WORKLOADS[workload.value],
        record_count=records,
        operation_count=operations,
        thread_count=threads,
        record_bytes=record_bytes,
        seed=seed,
    )

    async def _ycsb() -> list[PhaseReport]:
        count = min(clients, threads)
        async with asyncio.TaskGroup() as group:
            connecting = [group.create_task(at.connect()) for _ in range(count)]
        stores = [task.result() for task in connecting]
        try:
            load = YcsbLoad(settings, stores, _progress())
            reports = []
            for name, carry_out in ((_Phases.LOAD, load.load), (_Phases.RUN, load.run)):
                if phase in (name, _Phases.BOTH):
                    reports.append(await carry_out())
                    _report(reports[-1], json=at.json)
        finally:
            await asyncio.gather(*(store.close() for store in stores))
        return reports

    if not all(report.is_good for report in run(_ycsb())):
        raise typer.Exit(1)


def _progress() -> Callable[[str, int, int, float], None]:
    """Return what shows progress on standard error: one line that moves, or lines where it is no terminal."""
    moves = sys.stderr.isatty()

    def _on_progress(phase: str, done: int, count: int, per_s: float) -> None:
        line = f"{phase}: {done:,} of {count:,} operations, {per_s:,.0f}/s"
        sys.stderr.write(f"\r\x1b[K{line}" + ("\n" if done == count else "") if moves else f"{line}\n")
        sys.stderr.flush()

    return _on_progress


def _report(report: PhaseReport, *, json: bool) -> None:
    if json:
        print_json(msgspec.to_builtins(report))
        return
    typer.echo(
        f"workload {report.workload}, {report.phase}: {report.ops_per_s:,.0f} operations/s in {report.seconds} s, "
        f"{report.threads} threads, {report.records:,} records"
    )
    for name, summary in report.operations.items():
        typer.echo(f"  {name:7} {_latencies(summary)}")
    if report.missing:
        typer.echo(
            f"  {report.missing:,} records were not there or not whole: load them first (--phase load)", err=True
        )
    if report.first_failure:
        typer.echo(f"  first failure: {report.first_failure}", err=True)


def _latencies(summary: LatencySummary) -> str:
    failed = f", {summary.failed:,} failed" if summary.failed else ""
    return (
        f"{summary.count:>9,}{failed}; ms: mean {summary.mean_ms:.2f}, p50 {summary.p50_ms:.2f}, "
        f"p95 {summary.p95_ms:.2f}, p99 {summary.p99_ms:.2f}, max {summary.max_ms:.2f}"
    )
