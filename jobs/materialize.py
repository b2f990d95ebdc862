"""Keep a table of a replicated log as a Delta table.

    spark-submit jobs/materialize.py --log orders --table /lake/orders --available-now
    python jobs/materialize.py --log orders --table /lake/orders --trigger "1 second"

The table says where it stands; it may be killed and started again at any time, with or without its checkpoint.
Standard output: a JSON line when a micro-batch has been read, one when it has changed the table, and a summary as the
last line.
Exit codes: 0 = done, or ended by a signal with everything applied that was read; 1 = failed, the summary says why;
2 = wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from connectors.delta.materialize import Materializer, MaterializeSettings, Progress
from connectors.job import JobParser, JobRun, job_parser, run_job
from connectors.job_arguments import add_log_arguments, add_storage_arguments, source_options, storage_options
from connectors.session import spark_session


def _parser() -> JobParser:
    parser = job_parser("materialize", __doc__)
    add_log_arguments(parser)
    parser.add_argument("--table", required=True, help="path or URI of the Delta table")
    parser.add_argument(
        "--machine-table", default="", help="table of the machine; default: its only one, or the one of its name"
    )
    parser.add_argument("--checkpoint", help="folder for Spark's checkpoints (default: _rsm_checkpoint in the table)")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--trigger", default="1 second", help="interval between micro-batches (%(default)s)")
    when.add_argument("--available-now", action="store_true", help="apply what there is, then end")
    parser.add_argument("--max-records", type=int, default=100_000, help="records of one micro-batch (%(default)s)")
    add_storage_arguments(parser)
    return parser


def _settings(arguments: argparse.Namespace) -> MaterializeSettings:
    return MaterializeSettings(
        log=arguments.log,
        place=arguments.table,
        checkpoint=arguments.checkpoint or f"{arguments.table.rstrip('/')}/_rsm_checkpoint",
        source=source_options(arguments),
        machine_table=arguments.machine_table,
        trigger=_interval(arguments.trigger),
        available_now=arguments.available_now,
        records_per_batch_max=arguments.max_records,
        storage_options=storage_options(arguments),
    )


def _interval(text: str) -> str:
    """Write "1s", "500ms", "5m" as Spark wants them; leave its own form alone."""
    for short, long in (("ms", "milliseconds"), ("s", "seconds"), ("m", "minutes")):
        if text.endswith(short) and text.removesuffix(short).isdigit():
            return f"{text.removesuffix(short)} {long}"
    return text


def _work(arguments: argparse.Namespace, run: JobRun) -> Mapping[str, Any]:
    settings = _settings(arguments)

    def report(progress: Progress) -> None:
        run.say(**msgspec.structs.asdict(progress))

    def report_read(revision: int) -> None:
        run.say(read_revision=revision)

    spark = spark_session(f"materialize {settings.log}", delta=False, checkpoint=settings.checkpoint)
    materializer = Materializer(spark, settings, report=report, on_read=report_read, should_stop=run.should_stop)
    return dict(msgspec.to_builtins(materializer.run()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(_parser(), _work, argv, shown=("log", "table"), is_stoppable=True)


if __name__ == "__main__":
    sys.exit(main())
