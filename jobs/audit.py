"""Keep the audit of a log as a Delta table: who changed rights, code, holds or the log itself, when and from where.

    spark-submit jobs/audit.py --log broker --table /lake/audit --available-now
    python jobs/audit.py --log broker --table /lake/audit --trigger 10s

From the log's records of type `audited` alone. The table says up to which record it holds them: the job may be killed
and started again at any time, or run twice.
Standard output: a JSON line for each commit that brought rows, and a summary as the last line.
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
from connectors.history.audit import AuditProgress, AuditRecorder, AuditSettings
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
    parser = job_parser("audit", __doc__)
    add_log_arguments(parser)
    parser.add_argument("--table", type=table_place, required=True, help="path or URI of the Delta table")
    add_hold_arguments(parser)
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--trigger", default="5 seconds", help="interval between micro-batches (%(default)s)")
    when.add_argument("--available-now", action="store_true", help="apply what there is, then end")
    parser.add_argument("--begin-late", action="store_true", help="of a log that was trimmed, begin with what is left")
    add_storage_arguments(parser)
    return parser


def _work(arguments: argparse.Namespace, run: JobRun) -> Mapping[str, Any]:
    settings = AuditSettings(
        log=arguments.log,
        table=arguments.table,
        source=source_options(arguments),
        hold=hold_options(arguments),
        trigger=interval(arguments.trigger),
        available_now=arguments.available_now,
        begins_late=arguments.begin_late,
        storage_options=storage_options(arguments),
    )

    def report(progress: AuditProgress) -> None:
        run.say(**msgspec.structs.asdict(progress))

    check_stream(settings)
    # The checkpoint of a run is a local folder, wherever that is.
    spark = spark_session(f"audit {settings.log}", delta=False, checkpoint="file:")
    summary = AuditRecorder(spark, settings, report=report, should_stop=run.should_stop).run()
    return msgspec.structs.asdict(summary)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(_parser(), _work, argv, shown=("log", "table"), is_stoppable=True)


if __name__ == "__main__":
    sys.exit(main())
