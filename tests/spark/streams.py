"""A stream over logs whose rows are kept by micro-batch, run with any trigger, again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMEOUT_S = 120
STARTS_MAX = 6
SLOW_WORKER = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, whatever the machine is busy with: then one starts again."""


class Batches:
    """One query and what it has delivered over all its runs.

    Args:
        spark: Session.
        options: Of the source.
        trigger: As `DataStreamWriter.trigger` takes it.
        folder: Of the checkpoint.

    """

    def __init__(self, spark: SparkSession, options: dict[str, str], trigger: dict[str, Any], folder: Path) -> None:
        # By the id of the micro-batch: one that was stopped before it was in the checkpoint comes once more.
        self._by_id: dict[int, list[tuple[str, int]]] = {}
        self._spark, self._options, self._trigger, self._folder = spark, options, trigger, folder
        self._progress: list[Any] = []

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        rows = [(row.log, row.revision) for row in frame.select("log", "revision").collect()]
        assert sorted(self._by_id.setdefault(batch_id, rows)) == sorted(rows), "it came with other rows"

    @property
    def batches(self) -> list[list[tuple[str, int]]]:
        """Rows of each micro-batch: name of the log, revision."""
        return list(self._by_id.values())

    @property
    def rows(self) -> list[tuple[str, int]]:
        """All rows, sorted: those that came twice stand there twice."""
        return sorted(row for batch in self.batches for row in batch)

    def run_until(self, is_done: Callable[[], bool]) -> None:
        """Run: to its end with a trigger that has one, else until there was a micro-batch and `is_done` says so."""
        for _ in range(STARTS_MAX):
            try:
                self._run_until(is_done)
            except StreamingQueryException as error:
                if SLOW_WORKER not in str(error):
                    raise
            else:
                return
        raise AssertionError(f"in {STARTS_MAX} starts: {SLOW_WORKER}")

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        query = (
            self._spark.readStream.format("ledger")
            .options(**self._options)
            .load()
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self._folder))
            .trigger(**self._trigger)
            .start()
        )
        try:
            if "processingTime" not in self._trigger:
                assert query.awaitTermination(_TIMEOUT_S)
                return
            deadline = time.monotonic() + _TIMEOUT_S
            while query.lastProgress is None or not is_done():
                # Raises what ended the query.
                assert not query.awaitTermination(1)
                assert time.monotonic() < deadline, f"not done: {self.rows}"
        finally:
            self._progress = query.recentProgress
            query.stop()

    def losses(self) -> list[dict[str, Any]]:
        """What the last run has told of losses, in the end."""
        told = [json.loads(one["sources"][0]["latestOffset"]) for one in self._progress]
        losses: list[dict[str, Any]] = next((one["losses"] for one in reversed(told) if "losses" in one), [])
        return losses


def drain(frame: DataFrame, keep: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
    """Read all that there is, with Trigger.AvailableNow; a start that came to nothing on a busy machine is made again.

    Raises:
        StreamingQueryException: The query failed by itself.

    """
    for left in range(STARTS_MAX - 1, -1, -1):
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        try:
            assert writer.trigger(availableNow=True).start().awaitTermination(_TIMEOUT_S)
        except StreamingQueryException as error:
            if not left or SLOW_WORKER not in str(error):
                raise
        else:
            return
