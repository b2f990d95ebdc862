"""What is true of a partitioned log for readers of finished batches. Each partition shows a batch by itself.

* `finished-early`  rows of a batch are handed out when all of them are in the log, and its end was asked for
* `finished-once`   a reader gets a row once
* `finished-whole`  the rows that a partition has of a batch come all together, in the order of their positions
* `finished-all`    who reads all of a log that was not trimmed gets all rows of a batch, in all partitions, or none;
                    and all rows of those whose end was acknowledged
"""

from __future__ import annotations

from collections.abc import Sequence

from rsm_spark.logs import PartitionRecord
from tests.sim.partition_truth import PartitionTruth

Batch = tuple[bytes, int]
"""Writer and number."""


def batch_of(payload: bytes) -> Batch | None:
    """Return of which batch a row is; None = of none."""
    if not payload.startswith(b"batch-"):
        return None
    key, _, number = payload.partition(b":")
    return key.split(b".")[0], int(number) // 10_000


class FinishedPartsRun:
    """What one reader of finished batches has handed out, by partition, in its order."""

    def __init__(self) -> None:
        self.handed: dict[int, list[PartitionRecord]] = {}
        self.payloads: set[bytes] = set()


class FinishedPartsTruth:
    """Witness of readers of finished batches.

    Args:
        truth: Of the log.

    Attributes:
        row_count: Rows of batches that were handed out.

    """

    def __init__(self, truth: PartitionTruth) -> None:
        self.row_count = 0
        self._truth = truth
        self._runs: list[FinishedPartsRun] = []

    def run(self) -> FinishedPartsRun:
        """Return what a reader has handed out that begins now."""
        self._runs.append(FinishedPartsRun())
        return self._runs[-1]

    def see(self, run: FinishedPartsRun, record: PartitionRecord) -> None:
        """Take what a reader hands out."""
        if record.payload in run.payloads:
            self._truth.fail("finished-once", f"{record.payload!r} is handed out twice")
        run.payloads.add(record.payload)
        run.handed.setdefault(record.partition, []).append(record)
        if batch_of(record.payload) is not None:
            self.row_count += 1
            if record.payload not in self._truth.ending:
                self._truth.fail("finished-early", f"{record.payload!r} is handed out, nobody has ended its batch")

    def judge(self, final: Sequence[PartitionRecord], last: FinishedPartsRun | None) -> None:
        """Compare what was handed out with what the log holds in the end.

        Args:
            final: That.
            last: The run that has read all of the log; None = it was trimmed.

        """
        held: dict[tuple[int, Batch], set[bytes]] = {}
        for record in final:
            batch = batch_of(record.payload)
            if batch is not None:
                held.setdefault((record.partition, batch), set()).add(record.payload)
        for run in self._runs:
            for partition, records in run.handed.items():
                self._judge_partition(partition, records, held, is_trimmed=last is None)
        if last is None:
            return
        got = last.payloads
        lost = self._truth.ended - got
        if lost:
            self._truth.fail("finished-all", f"the end of {min(lost)!r} was acknowledged, it is not handed out")
        whole: dict[Batch, set[bytes]] = {}
        for (_, batch), payloads in held.items():
            whole.setdefault(batch, set()).update(payloads)
        for batch, payloads in whole.items():
            missed = payloads - got
            if missed and missed != payloads:
                self._truth.fail("finished-all", f"of batch {batch} rows are handed out, {min(missed)!r} is not")

    def _judge_partition(
        self,
        partition: int,
        records: Sequence[PartitionRecord],
        held: dict[tuple[int, Batch], set[bytes]],
        *,
        is_trimmed: bool,
    ) -> None:
        groups: list[tuple[Batch | None, list[PartitionRecord]]] = []
        for record in records:
            batch = batch_of(record.payload)
            if not groups or groups[-1][0] != batch or batch is None:
                groups.append((batch, []))
            groups[-1][1].append(record)
        batches = [batch for batch, _ in groups if batch is not None]
        if len(set(batches)) < len(batches):
            self._truth.fail("finished-whole", f"partition {partition} has other records amid the rows of a batch")
        for number, (batch, some) in enumerate(groups):
            positions = [record.position for record in some]
            if positions != sorted(positions):
                self._truth.fail("finished-whole", f"rows of {batch} come at {positions} of partition {partition}")
            is_over = number < len(groups) - 1
            if batch is None or not is_over or is_trimmed:
                continue
            missed = held.get((partition, batch), set()) - {record.payload for record in some}
            if missed:
                self._truth.fail("finished-whole", f"partition {partition} shows {batch} without {min(missed)!r}")
