"""Write the state of a replicated log at a revision to the lake, from the log alone.

    spark-submit jobs/snapshot.py --log orders --lake /lake/snapshots
    python jobs/snapshot.py --log orders --lake /lake/snapshots --at-revision 100000

The log is read, its hash chain checked, the state folded by Spark and compared with every checkpoint that the leaders
logged; the executors write the rows, so the lake must be a place that all of them reach. If the beginning of the log
has been trimmed, the fold begins with the lake's newest snapshot that the log continues. A replica that names the same
lake boots from the snapshot, without a JVM. Run again, it writes nothing new. With --at-checkpoint, jobs/verify.py can
have the leader log the snapshot as verified, so that it counts when ledgers are trimmed. Typed tables are not written
here: they are made table by table in one process, and the files of this job hold rows of all tables side by side. The
next snapshot that a replica with this lake writes brings them.

Standard output: one JSON line. Exit codes: 0 = written (or there already), 1 = failed, 2 = wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from connectors.job import JobParser, JobRun, job_parser, run_job
from connectors.job_arguments import (
    add_log_arguments,
    add_storage_arguments,
    source_options,
    storage_options,
    table_place,
)
from connectors.session import spark_session
from connectors.source.preflight import check_source
from connectors.state.snapshot import snapshot_log


def _parser() -> JobParser:
    parser = job_parser("snapshot", __doc__)
    add_log_arguments(parser)
    parser.add_argument(
        "--lake", type=table_place, required=True, help="folder or URI that holds the snapshots of all logs"
    )
    parser.add_argument("--at-revision", type=int, help="take the state right after this record (default: newest)")
    parser.add_argument(
        "--at-checkpoint", action="store_true", help="take the state of the leaders' newest checkpoint up to there"
    )
    add_storage_arguments(parser)
    return parser


def _work(arguments: argparse.Namespace, _run: JobRun) -> Mapping[str, Any]:
    store = storage_options(arguments)
    check_source({**source_options(arguments), "log": arguments.log}, is_stream=False)
    summary = snapshot_log(
        spark_session(f"snapshot {arguments.log}", delta=False),
        arguments.log,
        arguments.lake,
        revision=arguments.at_revision,
        at_checkpoint=arguments.at_checkpoint,
        source=source_options(arguments),
        storage_options=store or None,
    )
    return dict(msgspec.to_builtins(summary))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(_parser(), _work, argv, shown=("log",))


if __name__ == "__main__":
    sys.exit(main())
