"""What is true of a plain log under faults, whoever writes and reads it.

* `one-log`           every reader has the same record at a position, and a record is at one position
* `no-gap`            a reader misses none and has none twice
* `acked-is-durable`  a record that was acknowledged is there, at that position, until it is trimmed
* `denied`            a record that is certainly not in the log is not in it
* `txid-rises`        transaction ids never fall along the log
* `held-is-kept`      what a subscription has not read is not trimmed
* `end-is-final`      nothing follows the end mark
* `producer-order`    sequences of a producer rise along the log
* `batch-once`      a row of a writer's batch is in the log once, and all of them are once its end was acknowledged
* `batch-known`     a writer that runs a batch again with the same rows is never refused
* `producer-known`    a producer that sends what comes next, or what it has sent, is never refused
"""

from __future__ import annotations

from collections.abc import Callable

from rsm_spark.core.plain_log import LogRecord
from rsm_spark.testing.ghosts import BrokenInvariantError


class ReaderRun:
    """What one reader has handed out, from its opening on.

    Attributes:
        start: First position that it may hand out.
        positions: What it did.

    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.positions: list[int] = []


class LogTruth:
    """Witness of all writers and readers.

    Attributes:
        acked: Position of each acknowledged record, by payload.
        denied: Payloads of records that are certainly not in the log.
        seen: Record by position, as any reader has handed it out.
        runs: Of all readers.
        ended: Rows of batches whose end was acknowledged.
        ending: Rows of batches whose end was sent.
        on_broken: Called with an error before it is raised: code under test may well swallow it.

    """

    def __init__(self) -> None:
        self.acked: dict[bytes, int] = {}
        self.denied: set[bytes] = set()
        self.seen: dict[int, LogRecord] = {}
        self.runs: list[ReaderRun] = []
        self.on_broken: Callable[[BrokenInvariantError], None] = lambda _error: None
        self.ended: set[bytes] = set()
        self.ending: set[bytes] = set()
        self._places: dict[bytes, int] = {}

    def fail(self, name: str, what: str) -> None:
        """Say that an invariant does not hold."""
        error = BrokenInvariantError(f"{name}: {what}")
        self.on_broken(error)
        raise error

    def acknowledge(self, payload: bytes, position: int) -> None:
        self.acked[payload] = position
        self._check(payload)

    def deny(self, payload: bytes) -> None:
        self.denied.add(payload)
        self._check(payload)

    def see(self, run: ReaderRun, record: LogRecord) -> None:
        """Take what a reader hands out."""
        if run.positions and record.position <= run.positions[-1]:
            self.fail("no-gap", f"a reader hands out position {record.position} behind {run.positions[-1]}")
        run.positions.append(record.position)
        known = self.seen.setdefault(record.position, record)
        if known != record:
            self.fail("one-log", f"position {record.position} is {known} to one reader and {record} to another")
        place = self._places.setdefault(record.payload, record.position)
        if place != record.position:
            self.fail("one-log", f"{record.payload!r} is at {place} and at {record.position}")
        self._check(record.payload)

    def _check(self, payload: bytes) -> None:
        place, acked = self._places.get(payload), self.acked.get(payload)
        if place is not None and payload in self.denied:
            self.fail("denied", f"{payload!r} is certainly not in the log, and is at position {place}")
        if place is not None and acked is not None and place != acked:
            self.fail("acked-is-durable", f"{payload!r} was acknowledged at {acked}, and is at {place}")

    def judge(self, final: list[LogRecord], trimmed: int) -> None:
        """Compare all that was said and seen with what is in the log in the end.

        Args:
            final: What the log still holds.
            trimmed: Last position that has left it.

        """
        there = {record.position: record for record in final}
        for position, record in self.seen.items():
            if position > trimmed and there.get(position) != record:
                self.fail("one-log", f"a reader has seen {record}; in the end there is {there.get(position)}")
        for payload, position in self.acked.items():
            held = there.get(position)
            if position > trimmed and (held is None or held.payload != payload):
                self.fail("acked-is-durable", f"{payload!r} was acknowledged at {position}; there is {held}")
        all_of_it = {**self.seen, **there}
        for record in all_of_it.values():
            if record.payload in self.denied:
                self.fail("denied", f"{record.payload!r} is certainly not in the log, and is at {record.position}")
        txid = 0
        for position in sorted(all_of_it):
            if all_of_it[position].txid < txid:
                self.fail("txid-rises", f"position {position} has {all_of_it[position].txid} behind {txid}")
            txid = all_of_it[position].txid
        self._judge_producers(all_of_it)
        self._judge_batches(all_of_it, trimmed)
        for run in self.runs:
            if run.positions:
                span = [one for one in sorted(all_of_it) if run.start <= one <= run.positions[-1]]
                if span != run.positions:
                    missed = sorted(set(span) - set(run.positions))
                    self.fail("no-gap", f"a reader that began at {run.start} misses positions {missed}")

    def _judge_batches(self, records: dict[int, LogRecord], trimmed: int) -> None:
        found = [record.payload for record in records.values() if record.payload.startswith(b"batch-")]
        for payload in set(found):
            if found.count(payload) > 1:
                self.fail("batch-once", f"{payload!r} is in the log {found.count(payload)} times")
        missing = self.ended - set(found)
        if missing and not trimmed:
            self.fail("batch-once", f"the end of {min(missing)!r} was acknowledged, it is not in the log")

    def _judge_producers(self, records: dict[int, LogRecord]) -> None:
        last: dict[bytes, int] = {}
        for position in sorted(records):
            name, _, number = records[position].payload.partition(b" ")
            if not name.startswith(b"producer-"):
                continue
            if int(number) <= last.get(name, 0):
                self.fail("producer-order", f"position {position} has {name!r} {int(number)} behind {last[name]}")
            last[name] = int(number)
