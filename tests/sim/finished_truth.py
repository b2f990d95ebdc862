"""What is true of a plain log for readers of finished batches.

* `finished-whole`   rows of a batch are handed out all together, in the order of their positions, and once
* `finished-order`   batches of a writer come in their order, and none is left out
* `finished-rest`    records of no batch are handed out each at its place
* `finished-all`     a batch whose end was acknowledged is handed out
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rsm_spark.core.plain_log import LogRecord
from tests.sim.log_truth import LogTruth

BatchPayloads = Callable[[str, int], list[bytes]]
"""(writer, batch) -> its rows."""


class FinishedRun:
    """What one reader of finished batches has handed out, from its opening on.

    Attributes:
        start: First position that it may hand out.
        through: How far it says that all was.
        is_whole: It has read to the end of the log.

    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.through = 0
        self.is_whole = False
        self.rest: list[int] = []
        self.batches: list[tuple[str, int]] = []
        self.open: list[LogRecord] = []  # Rows of the batch that is handed out now.


class FinishedTruth:
    """Witness of readers of finished batches.

    Args:
        truth: Of the log.
        payloads: What batches have.

    Attributes:
        batch_count: Batches that were handed out.

    """

    def __init__(self, truth: LogTruth, payloads: BatchPayloads) -> None:
        self.batch_count = 0
        self._truth = truth
        self._payloads = payloads
        self._runs: list[FinishedRun] = []

    def run(self, start: int) -> FinishedRun:
        """Return what a reader has handed out that begins now."""
        self._runs.append(FinishedRun(start))
        return self._runs[-1]

    def see(self, run: FinishedRun, record: LogRecord) -> None:
        """Take what a reader hands out."""
        known = self._truth.seen.get(record.position, record)
        if known != record:
            self._truth.fail("one-log", f"position {record.position} is {known} to one reader and {record} to another")
        if not record.payload.startswith(b"batch-"):
            if run.open:
                self._truth.fail("finished-whole", f"{record.payload!r} comes amid a batch of {len(run.open)} rows")
            if record.position <= max([run.start - 1, *run.rest[-1:]]):
                self._truth.fail("finished-rest", f"{record.payload!r} is handed out at {record.position}, late")
            run.rest.append(record.position)
            return
        writer, batch = record.payload.decode().split()[:2]
        if run.open and run.open[-1].position >= record.position:
            self._truth.fail("finished-whole", f"{record.payload!r} comes behind a row of a later position")
        run.open.append(record)
        wanted = self._payloads(writer, int(batch))
        if len(run.open) < len(wanted):
            return
        if sorted(one.payload for one in run.open) != sorted(wanted):
            self._truth.fail("finished-whole", f"batch {batch} of {writer} is not {[one.payload for one in run.open]}")
        before = [number for name, number in run.batches if name == writer]
        if before and int(batch) != before[-1] + 1:
            self._truth.fail("finished-order", f"batch {batch} of {writer} comes behind batch {before[-1]}")
        run.batches.append((writer, int(batch)))
        run.open = []
        self.batch_count += 1

    def judge(self, final: Sequence[LogRecord], trimmed: int) -> None:
        """Compare what was handed out with what the log holds in the end.

        Args:
            final: What it holds.
            trimmed: Last position that has left it.

        """
        there = {one.position: one for one in final} | self._truth.seen
        last: dict[tuple[str, int], int] = {}  # Of each batch the last row.
        for at in sorted(there):
            if there[at].payload.startswith(b"batch-"):
                writer, batch = there[at].payload.decode().split()[:2]
                last[writer, int(batch)] = at
        rest = sorted(at for at, one in there.items() if not one.payload.startswith(b"batch-"))
        for run in self._runs:
            if run.rest:
                missed = {at for at in rest if run.start <= at <= run.rest[-1]} - set(run.rest)
                if missed:
                    self._truth.fail("finished-rest", f"a reader that began at {run.start} misses {sorted(missed)}")
            self._judge_first(run, last)
            if not run.is_whole:
                continue
            if run.open:
                self._truth.fail("finished-whole", f"{len(run.open)} rows of a batch are handed out, no more come")
            handed = {payload for writer, batch in run.batches for payload in self._payloads(writer, batch)}
            present = {one.payload for one in final}
            lost = (self._truth.ended & present) - handed
            if lost and not trimmed:
                self._truth.fail("finished-all", f"the end of {min(lost)!r} was acknowledged, it is not handed out")

    def _judge_first(self, run: FinishedRun, last: Mapping[tuple[str, int], int]) -> None:
        """Check that no batch was left out before the first one of each writer: its end is behind its last row."""
        for writer, batch in dict(reversed(run.batches)).items():
            before = last.get((writer, batch - 1))
            if before is not None and before >= run.start:
                self._truth.fail("finished-order", f"a reader from {run.start} on misses batch {batch - 1} of {writer}")
