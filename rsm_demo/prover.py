"""The proof of the demonstration's log and a look into its past, in a process that starts Spark.

``python -m rsm_demo.prover METADATA_URI LOG TABLE REVISION``. Says ``{"verdict": …}`` once the log, the checkpoints of
its leaders and the Delta table are proved from the log alone, then ``{"then": …, "now": …, "tail": …}``: how much the
map held right after that record and holds now, and what it said of one aircraft.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec

from connectors.session import spark_session
from connectors.state.verify import VerifySettings, verify_log
from rsm_demo.accounts import accounts_of
from rsm_demo.speech import say

_TAIL_BYTES = "1g"


def main(metadata_uri: str, log: str, table: str, revision: int) -> None:
    """Prove, ask, say."""
    for name in ("py4j", "kazoo"):
        logging.getLogger(name).setLevel(logging.ERROR)
    spark = spark_session("rsm demo", delta=False, local="local[2]", conf={"spark.ui.enabled": "false"})
    settings = VerifySettings(log, tables=(table,), source={"metadataUri": metadata_uri})
    verdict = verify_log(spark, settings, lambda **fields: say({"progress": fields}))
    say({"verdict": msgspec.to_builtins(verdict)})
    states = {}
    for moment, options in (("then", {"asOfRevision": str(revision)}), ("now", {})):
        where = {"metadataUri": metadata_uri, "log": log, "table": "map", "maxTailBytes": _TAIL_BYTES}
        rows = spark.read.format("ledger_state").options(**where, **options).load().select("key", "value").collect()
        states[moment] = accounts_of((bytes(row.key), bytes(row.value)) for row in rows)
    tail = _busiest(states["now"], states["then"])
    said = {
        moment: {"rows": len(rows), "flights": sum(row[1] for row in rows.values()), "account": rows.get(tail)}
        for moment, rows in states.items()
    }
    say({"tail": tail, **said})
    spark.stop()


def _busiest(now: dict[str, Any], then: dict[str, Any]) -> str:
    """Return the tail number with most flights since, of the aircraft of which it is known where they are."""
    known = [tail for tail in sorted(now) if now[tail][0]]
    return max(known, key=lambda tail: now[tail][1] - then.get(tail, ("", 0))[1], default="")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
