"""Write the state of a replicated log at a revision to the lake, from the log alone.

    spark-submit jobs/snapshot.py --log orders --lake /lake/snapshots
    python jobs/snapshot.py --log orders --lake /lake/snapshots --at-revision 100000

The whole log is read, its hash chain checked, the state folded by Spark and compared with what the leader logged of
its own. A replica that names the same lake boots from the snapshot, without a JVM. Run again, it writes nothing new.
Standard output: one JSON line. Exit codes: 0 = written (or there already), 1 = failed, 2 = wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from connectors.job import JobParser, JobRun, job_parser, run_job
from connectors.job_arguments import add_log_arguments, add_storage_arguments, source_options, storage_options
from connectors.session import spark_session
from connectors.spark.snapshot import snapshot_log


def _parser() -> JobParser:
    parser = job_parser("snapshot", __doc__)
    add_log_arguments(parser)
    parser.add_argument("--lake", required=True, help="folder or URI that holds the snapshots of all logs")
    parser.add_argument("--at-revision", type=int, help="take the state right after this record (default: newest)")
    add_storage_arguments(parser)
    return parser


def _work(arguments: argparse.Namespace, _run: JobRun) -> Mapping[str, Any]:
    store = storage_options(arguments)
    summary = snapshot_log(
        spark_session(f"snapshot {arguments.log}", delta=False),
        arguments.log,
        arguments.lake,
        revision=arguments.at_revision,
        source=source_options(arguments),
        storage_options=store or None,
    )
    return dict(msgspec.to_builtins(summary))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(_parser(), _work, argv, shown=("log",))


if __name__ == "__main__":
    sys.exit(main())
