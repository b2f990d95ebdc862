"""A plain query: copies a log into a Delta table or Parquet files until there is nothing more.

python copy_log.py FORMAT FOLDER RECORDS_PER_BATCH OPTION=VALUE…

"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from connectors.session import spark_session


def main(arguments: Sequence[str]) -> None:
    sink, folder, limit, *options = arguments
    spark = spark_session("copy", delta=sink == "delta", checkpoint=f"{folder}/checkpoint")
    query = (
        spark.readStream.format("ledger")
        .options(**dict(option.split("=", 1) for option in options))
        .options(startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        .load()
        .writeStream.format(sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/table")
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
