"""Keep tables of a replicated log as Delta tables.

    spark-submit jobs/materialize.py --log orders --table /lake/orders --available-now
    python jobs/materialize.py --log orders --table /lake/orders --trigger "1 second" --optimize-every 500
    python jobs/materialize.py --log tasks --tables /lake/tasks --lake /lake/snapshots
    python jobs/materialize.py --log orders --table /lake/orders_history --mode append
    python jobs/materialize.py --log sales --table /lake/sales    # sales is partitioned: /lake/sales/p0, p1, …
    python jobs/materialize.py --log orders --table /lake/orders --wait-for 120000 --timeout 10

The tables say where they stand; the job may be killed and started again at any time, and run twice. With --wait-for it
starts no Spark: it waits until the table holds that revision.
Standard output: a JSON line when a micro-batch has been read, one when it has been applied, and a summary as the last
line.
Exit codes: 0 = done, or ended by a signal with everything applied that was read, or the table holds the revision that
was waited for; 1 = failed, the summary says why; 2 = wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from connectors.delta.follower import POSITION_INTERVAL_S
from connectors.delta.materialize import Materializer
from connectors.delta.place import APPEND_MODE, MERGE_MODE
from connectors.delta.settings import BATCH_BYTES_MAX, MaterializeSettings, Progress
from connectors.delta.stream import check_stream
from connectors.delta.wait import wait_for
from connectors.errors import OptionError
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
from rsm_spark.object_stores.storage_options import is_s3


class _EveryTable(argparse.Action):
    """`--tables`: where several tables are."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,  # noqa: ARG002
    ) -> None:
        """Note place and plural."""
        namespace.table, namespace.is_every_table = values, True


def _parser() -> JobParser:
    parser = job_parser("materialize", __doc__)
    parser.set_defaults(is_every_table=False)
    add_log_arguments(parser)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--table",
        type=table_place,
        help="path or URI of the Delta table; of a partitioned log, of the folder of those of its partitions",
    )
    place.add_argument(
        "--tables",
        type=table_place,
        action=_EveryTable,
        metavar="FOLDER",
        help="a Delta table here for each table of the machine",
    )
    parser.add_argument(
        "--machine-table", default="", help="with --table, table of the machine; default: its only one, or its namesake"
    )
    parser.add_argument(
        "--mode",
        default=MERGE_MODE,
        choices=(MERGE_MODE, APPEND_MODE),
        help="a row a key, or a row a change (%(default)s)",
    )
    parser.add_argument(
        "--change-feed",
        action="store_true",
        help="commits tell each change of a row, for Delta's readChangeFeed (a table that has that keeps it)",
    )
    parser.add_argument(
        "--lake", type=table_place, default="", help="snapshots to begin with where the log's beginning was trimmed"
    )
    add_hold_arguments(parser)
    _add_pace(parser)
    _add_upkeep(parser)
    _add_waiting(parser)
    add_storage_arguments(parser)
    return parser


def _add_pace(parser: JobParser) -> None:
    pace = parser.add_argument_group("pace")
    when = pace.add_mutually_exclusive_group()
    when.add_argument("--trigger", default="1 second", help="interval between micro-batches (%(default)s)")
    when.add_argument("--available-now", action="store_true", help="apply what there is, then end")
    pace.add_argument(
        "--max-records", type=int, default=100_000, help="records of a micro-batch, which is one commit (%(default)s)"
    )
    pace.add_argument(
        "--max-bytes", default=BATCH_BYTES_MAX, help="the same in bytes of the log, whichever comes first (%(default)s)"
    )
    pace.add_argument(
        "--position-interval",
        type=float,
        default=POSITION_INTERVAL_S,
        metavar="SECONDS",
        help="commits that change no row, only the position, happen at most so often (%(default)s)",
    )
    pace.add_argument(
        "--checkpoint",
        help="folder for Spark's checkpoints (default: _rsm_checkpoint in the table; of one in S3 a local folder)",
    )


def _add_upkeep(parser: JobParser) -> None:
    upkeep = parser.add_argument_group("upkeep")
    upkeep.add_argument(
        "--optimize-every", type=int, default=0, metavar="COMMITS", help="merge small files so often (never)"
    )
    upkeep.add_argument(
        "--vacuum-retain",
        type=int,
        metavar="HOURS",
        help="with --optimize-every, remove files that no version of the last so many hours needs (never)",
    )


def _add_waiting(parser: JobParser) -> None:
    waiting = parser.add_argument_group("wait for a revision, without Spark")
    waiting.add_argument("--wait-for", type=int, metavar="REVISION", help="until the table holds this record")
    waiting.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="then fail, and name the lag (%(default)s)"
    )


def _settings(arguments: argparse.Namespace) -> MaterializeSettings:
    _check(arguments)
    return MaterializeSettings(
        log=arguments.log,
        place=arguments.table,
        checkpoint=arguments.checkpoint or _checkpoint_of(arguments.table),
        source=source_options(arguments),
        hold=hold_options(arguments),
        machine_table=arguments.machine_table,
        is_every_table=arguments.is_every_table,
        mode=arguments.mode,
        has_change_feed=arguments.change_feed,
        trigger=interval(arguments.trigger),
        available_now=arguments.available_now,
        records_per_batch_max=arguments.max_records,
        bytes_per_batch_max=arguments.max_bytes,
        position_interval_s=arguments.position_interval,
        lake=arguments.lake,
        optimize_every=arguments.optimize_every,
        vacuum_retain_hours=arguments.vacuum_retain,
        storage_options=storage_options(arguments),
    )


def _checkpoint_of(table: str) -> str:
    """Return where Spark's checkpoints lie unless an argument says it; "" = in a local folder of each run.

    They need not last: the table says where to go on. Spark itself may have no access to the store of the table.
    """
    return "" if is_s3(table) else f"{table.rstrip('/')}/_rsm_checkpoint"


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what no run could mean.

    Raises:
        OptionError: Arguments contradict each other, or are out of range.

    """
    least = {"max_records": 1, "position_interval": 0, "optimize_every": 0, "vacuum_retain": 0, "timeout": 0}
    for name, low in least.items():
        value = getattr(arguments, name)
        if value is not None and value < low:
            raise OptionError(f"--{name.replace('_', '-')} is {value:g}: at least {low}")
    if arguments.vacuum_retain is not None and not arguments.optimize_every:
        raise OptionError("--vacuum-retain needs --optimize-every: files are removed after they were merged")
    if arguments.is_every_table and arguments.machine_table:
        raise OptionError("--machine-table goes with --table: --tables takes every table of the machine")
    if arguments.is_every_table and arguments.wait_for is not None:
        raise OptionError("--wait-for goes with --table: name the Delta table that is read afterwards")


def _work(arguments: argparse.Namespace, run: JobRun) -> Mapping[str, Any]:
    settings = _settings(arguments)
    if arguments.wait_for is not None:
        options = settings.storage_options or None
        held = wait_for(settings.place, arguments.wait_for, arguments.timeout, storage_options=options)
        return {"wait_for": arguments.wait_for, "revision": held}

    def report(progress: Progress) -> None:
        run.say(**msgspec.structs.asdict(progress))

    def report_read(revision: int) -> None:
        run.say(read_revision=revision)

    check_stream(settings)
    spark = spark_session(f"materialize {settings.log}", delta=False, checkpoint=settings.checkpoint or "file:")
    materializer = Materializer(spark, settings, report=report, on_read=report_read, should_stop=run.should_stop)
    return dict(msgspec.to_builtins(materializer.run()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(_parser(), _work, argv, shown=("log", "table"), is_stoppable=True)


if __name__ == "__main__":
    sys.exit(main())
