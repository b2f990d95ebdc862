"""Write the state of a replicated log at a revision to the lake, from the log alone.

    spark-submit jobs/snapshot.py --log orders --lake /lake/snapshots
    python jobs/snapshot.py --log orders --lake /lake/snapshots --at-revision 100000

The whole log is read, its hash chain checked, the state folded by Spark and compared with what the leader logged of
its own. A replica that names the same lake boots from the snapshot, without a JVM. Run again, it writes nothing new.
Standard output: one JSON line. Exit code: 0 = written (or there already), 1 = failed, 2 = wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

import msgspec

from connectors.session import spark_session
from connectors.spark.snapshot import snapshot_log


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True, help="name of the log")
    parser.add_argument("--lake", required=True, help="folder or URI that holds the snapshots of all logs")
    parser.add_argument("--at-revision", type=int, help="take the state right after this record (default: newest)")
    parser.add_argument("--metadata-uri", help="default: $RSM_METADATA_URI, else ZooKeeper on this machine")
    parser.add_argument("--rsm-root", default="/rsm", help="where logs are registered (%(default)s)")
    parser.add_argument("--password-file", help="file with the password of the ledgers")
    parser.add_argument("--storage-option", action="append", default=[], metavar="KEY=VALUE", help="for object stores")
    return parser.parse_args()


def main() -> int:
    """Run the job and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("py4j", "kazoo"):
        logging.getLogger(name).setLevel(logging.ERROR)
    arguments = _arguments()
    source = {
        "metadataUri": arguments.metadata_uri,
        "rsmRoot": arguments.rsm_root,
        "passwordFile": arguments.password_file,
    }
    try:
        summary = snapshot_log(
            spark_session(f"snapshot {arguments.log}", delta=False),
            arguments.log,
            arguments.lake,
            revision=arguments.at_revision,
            source={key: value for key, value in source.items() if value},
            storage_options=dict(option.split("=", 1) for option in arguments.storage_option) or None,
        )
    except Exception as error:
        logging.getLogger(__name__).exception("snapshot failed")
        print(json.dumps({"job": "snapshot", "ok": False, "log": arguments.log, "error": str(error)}), flush=True)
        return 1
    print(json.dumps({"job": "snapshot", "ok": True, **msgspec.to_builtins(summary)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
