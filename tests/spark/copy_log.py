"""A plain query: copies a log into a Delta table, Parquet files or a service, until there is nothing more.

python copy_log.py FORMAT FOLDER RECORDS_PER_BATCH OPTION=VALUE…

A service is that of the log `copied-FOLDER`; each record has a row of its own there. Its FORMAT is a kind of rows, or
`partitions`, a log that has some. Options of the sink begin with `sink.`, the others are the source's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from connectors.session import spark_session

ROWS = {
    "map": ("cast(revision as string) key", "hex(coalesce(entry_hash, X'')) value"),
    # A put: the msgpack array of 1, the key and an empty value.
    "commands": ("unhex(concat('9301C4', lpad(hex(length(k)), 2, '0'), hex(k), 'C400')) command",),
    "table": ("k",),
    "log": ("k payload",),
    "partitions": ("k payload", "k key"),
    "tasks": ("concat('tenant-', revision % 3) tenant", "'copy' type", "cast(revision as string) key"),
}


def main(arguments: Sequence[str]) -> None:
    sink, folder, limit, *given = arguments
    options = dict(option.split("=", 1) for option in given if not option.startswith("sink."))
    spark = spark_session("copy", delta=sink == "delta", checkpoint=f"{folder}/checkpoint")
    frame = (
        spark.readStream.format("ledger")
        .options(**options)
        .options(startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        .load()
    )
    more: dict[str, str] = {}
    if sink in ROWS:
        frame = frame.selectExpr("*", "cast(revision as string) k").selectExpr(*ROWS[sink])
        kind = "log" if sink == "partitions" else sink
        more = {"log": f"copied-{Path(folder).name}", "as": kind, "writer": "copy"}
        more["metadataUri"] = options["metadataUri"]
        more |= dict(option.removeprefix("sink.").split("=", 1) for option in given if option.startswith("sink."))
        if sink == "table":
            more["table"] = "copied"
    query = (
        frame.writeStream.format("ledger" if more else sink)
        .options(**more)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(None if more else f"{folder}/table")
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
