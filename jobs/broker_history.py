"""Keep the history of a task broker as Delta tables that outlive its purge of ended tasks.

    spark-submit jobs/broker_history.py --log broker --lake /lake/broker --available-now
    python jobs/broker_history.py --log broker --lake /lake/broker --trigger 10s

From the broker's log alone: `tasks` (a row a task), `attempts` (a row an assignment), `waits` (how long each attempt
waited), `workers` (a row an incarnation), `policies` (a row a change of a tenant's policy). The tables say where they
stand: the job may be killed and started again at any time, or run twice.
Standard output: a JSON line for each micro-batch that changed the tables, and a summary as the last line.
Exit codes: 0 = done, or ended by a signal with everything applied that was read; 1 = failed, the summary says why;
2 = wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from connectors.delta.stream import check_stream
from connectors.history.recorder import HistoryProgress, HistoryRecorder, HistorySummary
from connectors.history.settings import HistorySettings
from connectors.job import JobParser, JobRun, job_parser, run_job
from connectors.job_arguments import (
    add_hold_arguments,
    add_log_arguments,
    add_storage_arguments,
    hold_options,
    interval,
    source_options,
    storage_options,
    table_place,
)
from connectors.session import spark_session


def _parser() -> JobParser:
    parser = job_parser("broker_history", __doc__)
    add_log_arguments(parser)
    parser.add_argument(
        "--lake", type=table_place, required=True, help="folder or URI that holds the tables of this broker"
    )
    add_hold_arguments(parser)
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--trigger", default="5 seconds", help="interval between micro-batches (%(default)s)")
    when.add_argument("--available-now", action="store_true", help="apply what there is, then end")
    parser.add_argument("--payloads", action="store_true", help="keep payloads and results too")
    parser.add_argument("--begin-late", action="store_true", help="of a log that was trimmed, begin with what is left")
    parser.add_argument("--max-records", type=_positive, default=50_000, help="records of a micro-batch (%(default)s)")
    parser.add_argument("--max-bytes", default="64m", help="bytes of log of a micro-batch (%(default)s)")
    parser.add_argument(
        "--optimize-every", type=_count, default=100, help="commits after which small files are merged; 0 = never"
    )
    parser.add_argument(
        "--vacuum-retain", type=_count, metavar="HOURS", help="then delete files that are older and not needed"
    )
    add_storage_arguments(parser)
    return parser


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no count")
    return int(text)


def _positive(text: str) -> int:
    if not _count(text):
        raise argparse.ArgumentTypeError("0 would be none: at least 1")
    return int(text)


def _settings(arguments: argparse.Namespace) -> HistorySettings:
    return HistorySettings(
        log=arguments.log,
        lake=arguments.lake,
        source=source_options(arguments),
        hold=hold_options(arguments),
        trigger=interval(arguments.trigger),
        available_now=arguments.available_now,
        records_per_batch_max=arguments.max_records,
        bytes_per_batch_max=arguments.max_bytes,
        payloads=arguments.payloads,
        begins_late=arguments.begin_late,
        optimize_every=arguments.optimize_every,
        vacuum_retain_hours=arguments.vacuum_retain,
        storage_options=storage_options(arguments),
    )


def _flat(told: HistoryProgress | HistorySummary) -> dict[str, Any]:
    """Return what is told with the rows of each table beside the rest."""
    fields: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(told).items():
        fields |= value if name == "rows" else {name: value}
    return fields


def _work(arguments: argparse.Namespace, run: JobRun) -> Mapping[str, Any]:
    settings = _settings(arguments)

    def report(progress: HistoryProgress) -> None:
        run.say(**_flat(progress))

    check_stream(settings)
    # The checkpoint of a run is a local folder, wherever that is.
    spark = spark_session(f"broker history {settings.log}", delta=False, checkpoint="file:")
    summary = HistoryRecorder(spark, settings, report=report, should_stop=run.should_stop).run()
    return _flat(summary)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(_parser(), _work, argv, shown=("log", "lake"), is_stoppable=True)


if __name__ == "__main__":
    sys.exit(main())
