"""Keep a table of a replicated log as a Delta table.

    spark-submit jobs/materialize.py --log orders --table /lake/orders --available-now
    python jobs/materialize.py --log orders --table /lake/orders --trigger "1 second"

The table says where it stands; it may be killed and started again at any time, with or without its checkpoint.
Standard output: a JSON line when a micro-batch has been read, one when it has changed the table, and a summary as the
last line.
Exit code: 0 = done, or ended by a signal with everything applied that was read; 1 = failed, the summary says why;
2 = wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from typing import Any

import msgspec

from connectors.delta.materialize import Materializer, MaterializeSettings, Progress
from connectors.session import spark_session


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True, help="name of the log")
    parser.add_argument("--table", required=True, help="path or URI of the Delta table")
    parser.add_argument(
        "--machine-table", default="", help="table of the machine; default: its only one, or the one of its name"
    )
    parser.add_argument("--metadata-uri", help="default: $RSM_METADATA_URI, else ZooKeeper on this machine")
    parser.add_argument("--rsm-root", default="/rsm", help="where logs are registered (%(default)s)")
    parser.add_argument("--checkpoint", help="folder for Spark's checkpoints (default: _rsm_checkpoint in the table)")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--trigger", default="1 second", help="interval between micro-batches (%(default)s)")
    when.add_argument("--available-now", action="store_true", help="apply what there is, then end")
    parser.add_argument("--max-records", type=int, default=100_000, help="records of one micro-batch (%(default)s)")
    parser.add_argument("--password-file", help="file with the password of the ledgers")
    parser.add_argument("--storage-option", action="append", default=[], metavar="KEY=VALUE", help="for object stores")
    return parser.parse_args()


def _settings(arguments: argparse.Namespace) -> MaterializeSettings:
    source = {
        "metadataUri": arguments.metadata_uri,
        "rsmRoot": arguments.rsm_root,
        "passwordFile": arguments.password_file,
    }
    return MaterializeSettings(
        log=arguments.log,
        place=arguments.table,
        checkpoint=arguments.checkpoint or f"{arguments.table.rstrip('/')}/_rsm_checkpoint",
        source={key: value for key, value in source.items() if value},
        machine_table=arguments.machine_table,
        trigger=_interval(arguments.trigger),
        available_now=arguments.available_now,
        records_per_batch_max=arguments.max_records,
        storage_options=dict(option.split("=", 1) for option in arguments.storage_option),
    )


def _interval(text: str) -> str:
    """Write "1s", "500ms", "5m" as Spark wants them; leave its own form alone."""
    for short, long in (("ms", "milliseconds"), ("s", "seconds"), ("m", "minutes")):
        if text.endswith(short) and text.removesuffix(short).isdigit():
            return f"{text.removesuffix(short)} {long}"
    return text


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main() -> int:
    """Run the job and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("py4j", "kazoo"):
        logging.getLogger(name).setLevel(logging.ERROR)
    settings = _settings(_arguments())
    stops: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: stops.append(received))

    def report(progress: Progress) -> None:
        _say({"job": "materialize", "log": settings.log, **msgspec.structs.asdict(progress)})

    def report_read(revision: int) -> None:
        _say({"job": "materialize", "log": settings.log, "read_revision": revision})

    try:
        spark = spark_session(f"materialize {settings.log}", delta=False, checkpoint=settings.checkpoint)
        materializer = Materializer(
            spark, settings, report=report, on_read=report_read, should_stop=lambda: bool(stops)
        )
        summary = materializer.run()
    except Exception as error:
        logging.getLogger(__name__).exception("materialize failed")
        _say({"job": "materialize", "ok": False, "log": settings.log, "table": settings.place, "error": str(error)})
        return 1
    _say({"job": "materialize", "ok": True, "table": settings.place, **msgspec.to_builtins(summary)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
