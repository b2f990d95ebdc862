"""The sink inside `foreachBatch`: a micro-batch is written to as many places as you like, to each of them once.

write_totals = batch_writer(log="totals", writer="job-7", **{"as": "map"})
write_audit = batch_writer(log="shop", writer="job-7", table="audit", **{"as": "table"})

def each(frame, batch_id):
frame.persist()
write_totals(frame.select("key", "value"), batch_id)
write_audit(frame.selectExpr("cast(key as string) who"), batch_id)

rows.writeStream.foreachBatch(each).option("checkpointLocation", …).start()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from connectors.errors import OptionError
from connectors.source.traced_batches import query_id_of

if TYPE_CHECKING:
    # A client of Spark Connect has another class of this name.
    from pyspark.sql import DataFrame


def batch_writer(**options: str) -> Callable[[DataFrame, int], None]:
    """Return a function that writes a micro-batch by `format("ledger")`, with its number and the id of its query.

    A micro-batch that is run again is known by them, and is written once. Without the option `checkpoint` the id is
    that of the query that calls; Spark Connect does not tell it, so there give one.

    Args:
        options: Of the sink; `log`, `as` and `writer` at least.

    Raises:
        OptionError: There is no `writer`, or `batch` is given.

    """
    if not options.get("writer"):
        raise OptionError("option writer is missing: it is the name under which the log remembers what was written")
    if "batch" in options:
        raise OptionError("option batch is the number that foreachBatch gives: leave it out")

    def write(frame: DataFrame, batch_id: int) -> None:
        named = {**options, "batch": str(batch_id), "checkpoint": options.get("checkpoint") or _query_id(frame)}
        frame.write.format("ledger").options(**named).mode("append").save()

    return write


def _query_id(frame: DataFrame) -> str:
    """Return the id of the stream that this thread runs a micro-batch of.

    Raises:
        OptionError: It is not told.

    """
    found = query_id_of(frame)
    if not found:
        raise OptionError(
            "the id of the stream is not told here: call this inside foreachBatch, or give option checkpoint, a name "
            "that stays as long as the stream's checkpoint does"
        )
    return found
