"""The airlines' totals as Spark writes them, in a process that starts Spark.

``python -m rsm_demo.totals_writer METADATA_URI LOG TABLES_LOG TABLE``. Spark reads the state of the map from its log,
sums the accounts up by airline, and writes the totals into an SQL table: twice, under one writer and number, so the
second time changes nothing. Says ``{"airlines": …, "flights": …}``.
"""

from __future__ import annotations

import logging
import sys

from connectors.session import spark_session
from rsm_demo.speech import say

_TAIL_BYTES = "1g"
_TOTALS = """
SELECT airline, sum(one[0]) AS flights, sum(one[1]) AS cancelled, sum(one[2]) AS delay
FROM (
    SELECT explode(from_json(get_json_object(CAST(value AS STRING), '$[4]'), 'map<string,array<bigint>>'))
           AS (airline, one)
    FROM accounts
) GROUP BY airline ORDER BY airline
"""


def main(metadata_uri: str, log: str, tables_log: str, table: str) -> None:
    """Read, sum up, write, say."""
    for name in ("py4j", "kazoo"):
        logging.getLogger(name).setLevel(logging.ERROR)
    spark = spark_session("rsm demo totals", delta=False, local="local[2]", conf={"spark.ui.enabled": "false"})
    where = {"metadataUri": metadata_uri, "log": log, "table": "map", "maxTailBytes": _TAIL_BYTES}
    spark.read.format("ledger_state").options(**where).load().createOrReplaceTempView("accounts")
    totals = spark.sql(_TOTALS).coalesce(1).cache()
    sink = {"metadataUri": metadata_uri, "log": tables_log, "as": "table", "table": table}
    for _ in range(2):
        totals.write.format("ledger").options(**sink, writer="totals", batch="1").mode("append").save()
    rows = totals.collect()
    say({"airlines": len(rows), "flights": sum(row.flights for row in rows)})
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
