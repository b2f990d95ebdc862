"""What is true of a partitioned log under faults: of each partition what is true of a plain log, and

* `key-order`    a reader gets the records of a key in the order of their appends, whatever partition they lie in
* `one-place`    a record lies in one partition
* `shared-order` the readers that share a subscription get the records of a key in that order, whichever gets them;
                 what a reader has not processed may come again to itself, not behind what another one has got
* `batch-once`   all rows of a writer's batch are in the log once its end was acknowledged
* `batch-known`  a writer that runs a batch again with the same rows is never refused
"""

from __future__ import annotations

from collections.abc import Callable

from rsm_spark.core.plain_log import LogRecord
from rsm_spark.logs import PartitionedLogReader, PartitionPosition, PartitionRecord
from rsm_spark.testing.ghosts import BrokenInvariantError
from tests.sim.log_truth import LogTruth, ReaderRun


class PartitionedRun:
    """What one reader of a partitioned log has handed out, from its opening on."""

    def __init__(self, reader: PartitionedLogReader) -> None:
        self.reader = reader
        self.numbers: dict[bytes, int] = {}  # By key, that of its last record.
        self.parts: dict[int, ReaderRun] = {}

    def part(self, partition: int) -> ReaderRun:
        if partition not in self.parts:
            self.parts[partition] = ReaderRun(self.reader._parts[partition].reader._start.position)
        return self.parts[partition]


class PartitionTruth:
    """Witness of all writers and readers.

    Attributes:
        parts: What is true of each partition.
        acked: Acknowledged payloads, and where.
        ended: Rows of batches whose end was acknowledged.
        ending: Rows of batches whose end was sent.
        on_broken: Called with an error before it is raised: code under test may well swallow it.

    """

    def __init__(self) -> None:
        self.parts: dict[int, LogTruth] = {}
        self.acked: dict[bytes, PartitionPosition] = {}
        self.denied: set[bytes] = set()
        self.on_broken: Callable[[BrokenInvariantError], None] = lambda _error: None
        self.ended: set[bytes] = set()
        self.ending: set[bytes] = set()
        self.growths = 0
        self.shared = 0
        self._places: dict[bytes, int] = {}
        self._numbers: dict[bytes, int] = {}
        self._shared: dict[bytes, dict[int, int]] = {}  # By key and member, the highest number that it got.

    def fail(self, name: str, what: str) -> None:
        error = BrokenInvariantError(f"{name}: {what}")
        self.on_broken(error)
        raise error

    def part(self, partition: int) -> LogTruth:
        if partition not in self.parts:
            truth = self.parts[partition] = LogTruth()
            truth.denied = self.denied  # Whoever is denied is not told of which partition.
            truth.on_broken = self.on_broken
        return self.parts[partition]

    def new_payload(self, key: bytes) -> bytes:
        """Return the next record of a key: its number is that of the append."""
        self._numbers[key] = self._numbers.get(key, 0) + 1
        return b"%b:%d" % (key, self._numbers[key])

    def acknowledge(self, payload: bytes, place: PartitionPosition) -> None:
        self.acked[payload] = place
        self._at(payload, place.partition)
        self.part(place.partition).acknowledge(payload, place.position)

    def deny(self, payload: bytes) -> None:
        self.denied.add(payload)
        for truth in self.parts.values():
            truth._check(payload)

    def _at(self, payload: bytes, partition: int) -> None:
        known = self._places.setdefault(payload, partition)
        if known != partition:
            self.fail("one-place", f"{payload!r} is in partition {known} and in {partition}")

    def see(self, run: PartitionedRun, record: PartitionRecord) -> None:
        """Take what a reader hands out."""
        partition = record.partition
        self._at(record.payload, partition)
        truth, part = self.part(partition), run.part(partition)
        if not part.positions:
            truth.runs.append(part)
        truth.see(part, LogRecord(*record[1:]))
        self._check_order(run, record)

    def _check_order(self, run: PartitionedRun, record: PartitionRecord) -> None:
        key, _, number = record.payload.partition(b":")
        last = run.numbers.get(key, 0)
        if int(number) <= last:
            self.fail(
                "key-order",
                f"number {int(number)} of key {key!r}, in partition {record.partition} at {record.position}, comes "
                f"behind number {last}",
            )
        run.numbers[key] = int(number)

    def share(self, member: int, record: PartitionRecord) -> None:
        """Take what a member of the shared subscription gets."""
        key, _, text = record.payload.partition(b":")
        number, got = int(text), self._shared.setdefault(key, {})
        other = max((one for who, one in got.items() if who != member), default=0)
        if number <= other:
            self.fail(
                "shared-order",
                f"member {member} gets number {number} of key {key!r}, in partition {record.partition} at "
                f"{record.position}, and another one has got number {other}",
            )
        self.shared += number > got.get(member, 0)
        got[member] = max(number, got.get(member, 0))

    def judge(self, final: list[PartitionRecord], trimmed: dict[int, int]) -> None:
        """Compare all that was said and seen with what is in the log in the end."""
        by_partition: dict[int, list[LogRecord]] = {partition: [] for partition in self.parts}
        for record in final:
            by_partition.setdefault(record.partition, []).append(LogRecord(*record[1:]))
        for partition, records in by_partition.items():
            self.part(partition).judge(records, trimmed[partition])
        self._judge_batches(final, is_trimmed=any(trimmed.values()))

    def _judge_batches(self, final: list[PartitionRecord], *, is_trimmed: bool) -> None:
        """Look for rows of ended batches that are nowhere: in a trimmed log for those between others of their key."""
        found: dict[bytes, dict[int, int]] = {}
        for record in final:
            key, _, number = record.payload.partition(b":")
            found.setdefault(key, {})[int(number)] = record.partition
        for payload in sorted(self.ended - self._places.keys()):
            key, _, number = payload.partition(b":")
            there = found.get(key, {})
            before = [partition for one, partition in there.items() if one < int(number)]
            behind = [partition for one, partition in there.items() if one > int(number)]
            if not is_trimmed or set(before) & set(behind):
                self.fail("batch-once", f"the end of {payload!r} was acknowledged, it is not in the log")
