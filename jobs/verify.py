"""Prove a replicated log from the log alone, and what was made of it: checkpoints, snapshots, follower tables.

    spark-submit jobs/verify.py --log orders --lake /lake/snapshots --table /lake/orders
    python jobs/verify.py --log orders --lake /lake/snapshots --no-report

All entries are linked by their hashes, the state is folded by Spark and compared with every checkpoint that the leaders
logged, with each snapshot in the lake (its rows are read back) and with each commit of the follower tables (the newest
rows are read back). A difference is followed to the table, the key, the record, its ledger and entry. A log whose
beginning has been trimmed is proved from the oldest snapshot that it continues; the last line says what is covered.

The newest snapshot that was found right is reported to the leader, which logs it as verified: it counts when ledgers
are trimmed. As for all commands of `rsm`, TLS and token come from the environment (RSM_STORE__TLS_CA,
RSM_STORE__TOKEN_FILE, …).

With --public-key it also proves who wrote the log: one pass over its entries on the driver, up to the last checkpoint
that the owner of the key signed.

Standard output: lines of progress, then the verdict in one JSON line. Exit codes: 0 = nothing differs, 1 = something
does (`differences`) or the proof failed (`error`), 2 = wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
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
from connectors.state.authorship import prove_authorship
from connectors.state.report import report_snapshot
from connectors.state.verify import Verdict, VerifySettings, verify_log


def _parser() -> JobParser:
    parser = job_parser("verify", __doc__)
    add_log_arguments(parser)
    parser.add_argument("--lake", type=table_place, help="folder or URI that holds the snapshots of all logs")
    parser.add_argument(
        "--table",
        type=table_place,
        action="append",
        default=[],
        metavar="PLACE",
        help="a follower table (jobs/materialize.py); any number",
    )
    parser.add_argument(
        "--upto", type=int, metavar="REVISION", help="prove the log up to this record (default: newest)"
    )
    parser.add_argument(
        "--public-key", metavar="FILE", type=Path, help="prove by it who wrote the log, too (rsm log key show-public)"
    )
    parser.add_argument("--no-report", action="store_true", help="do not tell the leader of a verified snapshot")
    add_storage_arguments(parser)
    return parser


def _work(arguments: argparse.Namespace, run: JobRun) -> Mapping[str, Any]:
    settings = VerifySettings(
        arguments.log,
        arguments.lake,
        tuple(arguments.table),
        arguments.upto,
        source_options(arguments),
        storage_options(arguments),
    )
    check_source({**settings.source, "log": settings.log}, is_stream=False)
    authorship = None
    if arguments.public_key is not None:
        authorship = prove_authorship(arguments.log, arguments.public_key, settings.source)
        run.say(proven_revision=authorship["proven_revision"])
    verdict = verify_log(spark_session(f"verify {arguments.log}", delta=False), settings, run.say)
    reported = None if arguments.no_report else _report(verdict, settings)
    return {**_told(verdict), "reported": reported, "authorship": authorship}


def _told(verdict: Verdict) -> dict[str, Any]:
    verified = verdict.verified
    return {
        **msgspec.to_builtins(msgspec.structs.replace(verdict, verified=None)),
        "verified": None if verified is None else verified.revision,
    }


def _report(verdict: Verdict, settings: VerifySettings) -> dict[str, Any] | None:
    if verdict.verified is None or not verdict.ok:
        return None
    refusal = report_snapshot(settings.log, verdict.verified, settings.source)
    return {"revision": verdict.verified.revision, "refusal": refusal}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(_parser(), _work, argv, shown=("log",))


if __name__ == "__main__":
    sys.exit(main())
