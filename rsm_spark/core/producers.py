"""Producers of a plain log: who appends to it through its one writer, each record exactly once. Pure.

A producer numbers its records 1, 2, 3, … The log tells of every append whose it is and with which number it begins. So
the table of producers is a fold of the log, and whoever writes the log next knows what the writer before knew.

    producer_opened   [producer, owner]             a producer that was not known; it belongs to its owner for ever
    produced          [producer, sequence, count]   the next `count` appended records are its, from this sequence on
    producers_noted   [rows]                        all of them so far, packed; who is left out is forgotten

1. A sequence is in the log once. One that is there already is answered with its position; a gap is refused.
2. Of each producer the last `RANGES_MAX` appends are remembered. What is older is in the log, and is refused by name.
3. A producer is forgotten only by a note that leaves it out. The writer leaves out who has appended nothing for a time,
   counted in logged time; the fold knows no clock.
4. The last ledger that holds anything holds a note, or the ledger before it does: see `rsm_spark.core.append_queue`.
5. Writers (`rsm_spark.core.writers`) are remembered beside producers, by the kernel's records of them. A note begins
   their table anew: all rows of it stand right behind the note, in the same entry.

* `ProducerError`                  a `PlainLogError`: what a producer sends does not follow what it has sent
    * `ProducerGapError`           sequences are missing before this one
    * `ForgottenSequenceError`     it is in the log, where is no longer remembered
    * `UnknownProducerError`       a sequence above 1 of a producer that the log does not know, or has forgotten
    * `ForeignProducerError`       the producer belongs to another owner
    * `TooManyProducersError`      the log, or the owner, has as many producers as it may have
    * `PartitionsChangedError`     the log is partitioned, and has another number of partitions now
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ledger.decoding import msgpack_decoder
from rsm_spark.core.envelope import body_of, decode_envelope
from rsm_spark.core.machine import decode_description
from rsm_spark.core.plain_log import PRODUCED_LOG, PlainLogError, PlainRecord
from rsm_spark.core.records import KernelRecord, decode_records, pack
from rsm_spark.core.writers import WriterTable
from rsm_spark.errors import CorruptLogError

PRODUCERS_MAX = 4_096
"""Producers of one log: a note of all of them has to fit an entry, beside records."""

PRODUCERS_OF_OWNER_MAX = PRODUCERS_MAX // 4
PRODUCER_BYTES_MAX = 64
OWNER_BYTES_MAX = 200
RANGES_MAX = 8
"""Appends remembered of each producer: more than it should have under way at once."""

SEQUENCE_MAX = 2**63 - 1

_Row = tuple[str, str, int, int, list[tuple[int, int, int]]]


class ProducerError(PlainLogError):
    """Wish of a producer that does not follow what it has sent."""


class ProducerGapError(ProducerError):
    """Sequences are missing before this one.

    Args:
        message: For people.
        expected: The sequence that must come.

    """

    def __init__(self, message: str, expected: int) -> None:
        super().__init__(message)
        self.expected = expected


class ForgottenSequenceError(ProducerError):
    """The sequence is in the log; its position is no longer remembered."""


class UnknownProducerError(ProducerError):
    """The log does not know this producer, or has forgotten it."""


class ForeignProducerError(ProducerError):
    """The producer belongs to somebody else."""


class TooManyProducersError(ProducerError):
    """There is no room for another producer."""


class PartitionsChangedError(ProducerError):
    """The log has grown: records that are not in it go by another number of partitions now.

    Args:
        message: For people.
        partition_count: How many there are now.
        positions: Of the first ones, which are in the log; those behind them are not, and never will be by this call.

    """

    def __init__(self, message: str, partition_count: int, positions: list[int]) -> None:
        super().__init__(message)
        self.partition_count = partition_count
        self.positions = positions


class RecordSource(NamedTuple):
    """Origin of records that are appended together.

    Attributes:
        producer: Its id: 1 to 64 bytes of printable text.
        owner: Principal that it belongs to.
        sequence: Of the first of the records.

    """

    producer: str
    owner: str
    sequence: int


class ProducedRange(NamedTuple):
    """Records of a producer that stand in the log one behind the other.

    Attributes:
        sequence: Of the first.
        record_count: How many there are.
        last_position: Of the last.

    """

    sequence: int
    record_count: int
    last_position: int

    @property
    def last_sequence(self) -> int:
        return self.sequence + self.record_count - 1

    def position(self, sequence: int) -> int:
        """Return where a sequence of the range stands."""
        return self.last_position - (self.last_sequence - sequence)


class ProducerState:
    """One producer.

    Attributes:
        owner: Who it belongs to.
        last_sequence: Of the last record in the log.
        used_ms: Logged time of that.
        ranges: The last ones, ascending and without gaps. Invariant: the last one ends with `last_sequence`.

    """

    __slots__ = ("last_sequence", "owner", "ranges", "used_ms")

    def __init__(self, owner: str, used_ms: int) -> None:
        self.owner = owner
        self.last_sequence = 0
        self.used_ms = used_ms
        self.ranges: deque[ProducedRange] = deque(maxlen=RANGES_MAX)

    def add(self, found: ProducedRange, logged_ms: int) -> None:
        """Take what has been appended."""
        self.ranges.append(found)
        self.last_sequence = found.last_sequence
        self.used_ms = logged_ms

    def position(self, sequence: int) -> int | None:
        """Return where a sequence stands; None = that is not remembered."""
        for one in self.ranges:
            if one.sequence <= sequence <= one.last_sequence:
                return one.position(sequence)
        return None


class ProducerTable:
    """All producers of a log, as of some place in it.

    Attributes:
        writers: All writers, as of the same place.

    """

    def __init__(self) -> None:
        self.writers = WriterTable()
        # In the order of `used_ms`, oldest first: forgetting looks at the front only.
        self._states: dict[str, ProducerState] = {}
        self._counts: dict[str, int] = {}  # By owner; none is 0.

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def get(self, producer: str) -> ProducerState | None:
        """Return a producer; None = it is not known."""
        return self._states.get(producer)

    def count_of(self, owner: str) -> int:
        """Return how many producers an owner has."""
        return self._counts.get(owner, 0)

    def open(self, producer: str, owner: str, logged_ms: int) -> None:
        """Fold `producer_opened`.

        Raises:
            CorruptLogError: It is known already.

        """
        if producer in self._states:
            raise CorruptLogError(f"producer {producer!r} is opened twice")
        self._states[producer] = ProducerState(owner, logged_ms)
        self._counts[owner] = self._counts.get(owner, 0) + 1

    def add(self, producer: str, found: ProducedRange, logged_ms: int) -> None:
        """Fold `produced`.

        Raises:
            CorruptLogError: It is not known, or the sequence is not its next.

        """
        state = self._states.get(producer)
        if state is None or found.sequence != state.last_sequence + 1 or found.record_count < 1:
            last = "not known" if state is None else f"at {state.last_sequence}"
            raise CorruptLogError(
                f"position {found.last_position} is sequence {found.sequence} of producer {producer!r}, which is {last}"
            )
        state.add(found, logged_ms)
        self._states[producer] = self._states.pop(producer)

    def forget_idle(self, now_ms: int, ttl_ms: int) -> None:
        """Leave out who has appended nothing for a time; a note has to follow, which says so."""
        for producer in self._idle(now_ms, ttl_ms):
            owner = self._states.pop(producer).owner
            left = self._counts[owner] - 1
            if left:
                self._counts[owner] = left
            else:
                del self._counts[owner]

    def has_idle(self, now_ms: int, ttl_ms: int) -> bool:
        """Return whether a note would leave somebody out."""
        return bool(self._idle(now_ms, ttl_ms))

    def _idle(self, now_ms: int, ttl_ms: int) -> list[str]:
        idle: list[str] = []
        for producer, state in self._states.items():
            if now_ms - state.used_ms < ttl_ms:
                break
            idle.append(producer)
        return idle

    def rows(self) -> bytes:
        """Return the content of a note."""
        return pack([
            (producer, state.owner, state.last_sequence, state.used_ms, [tuple(one) for one in state.ranges])
            for producer, state in self._states.items()
        ])  # fmt: skip

    def restore(self, rows: bytes) -> None:
        """Fold `producers_noted`: these are all.

        Raises:
            CorruptLogError: It is no note.

        """
        try:
            found: list[_Row] = msgpack_decoder(list[_Row]).decode(rows)
        except msgspec.MsgspecError as error:
            raise CorruptLogError(f"a note of the log's producers cannot be read: {error}") from error
        self._states, self._counts = {}, {}
        for producer, owner, last_sequence, used_ms, ranges in found:
            self.open(producer, owner, used_ms)
            state = self._states[producer]
            state.ranges.extend(ProducedRange(*one) for one in ranges)
            state.last_sequence = last_sequence

    def validate(self) -> None:
        """Check the invariants; tests call this."""
        used = [state.used_ms for state in self._states.values()]
        assert used == sorted(used)
        assert sum(self._counts.values()) == len(self._states)
        for state in self._states.values():
            sequences = [n for one in state.ranges for n in range(one.sequence, one.last_sequence + 1)]
            assert sequences == list(range(state.last_sequence - len(sequences) + 1, state.last_sequence + 1))


class ProducerFact(NamedTuple):
    """One record of a log about producers.

    Attributes:
        logged_ms: Logged time.
        producer: Whom it is about; "" in a note.
        owner: Of one that is opened.
        range: What it has appended.
        rows: Content of a note.
        mark: Record of a writer: its type, its fields, its revision.

    """

    logged_ms: int
    producer: str = ""
    owner: str | None = None
    range: ProducedRange | None = None
    rows: bytes | None = None
    mark: tuple[int, tuple[Any, ...], int] | None = None


def fold_all(table: ProducerTable, facts: Iterable[ProducerFact]) -> None:
    """Fold what the log tells of producers, in its order.

    Raises:
        CorruptLogError: It does not fit together.

    """
    for fact in facts:
        if fact.mark is not None:
            table.writers.fold(*fact.mark)
        elif fact.rows is not None:
            table.restore(fact.rows)
            table.writers = WriterTable()
        elif fact.owner is not None:
            table.open(fact.producer, fact.owner, fact.logged_ms)
        else:
            assert fact.range is not None
            table.add(fact.producer, fact.range, fact.logged_ms)


class EntryFacts(NamedTuple):
    """Facts about producers in one entry.

    Attributes:
        facts: In order.
        is_begin: Who wrote it knew of no producers: there are none before it.

    """

    facts: tuple[ProducerFact, ...]
    is_begin: bool

    @property
    def has_note(self) -> bool:
        """True if what is before it need not be read."""
        return self.is_begin or any(fact.rows is not None for fact in self.facts)


def facts_of(payload: bytes) -> EntryFacts:
    """Return what an entry tells of producers.

    Raises:
        CorruptLogError: It is no entry of a plain log.

    """
    envelope = decode_envelope(payload)
    facts: list[ProducerFact] = []
    is_begin = False
    logged_ms = envelope.logged_ms
    for revision, record in enumerate(decode_records(body_of(payload)), envelope.first_revision):
        try:
            if record.type == PlainRecord.PRODUCED:
                producer, sequence, count = record.fields
                found = ProducedRange(sequence, count, revision + count)
                facts.append(ProducerFact(logged_ms, producer, range=found))
            elif record.type == PlainRecord.PRODUCER_OPENED:
                producer, owner = record.fields
                facts.append(ProducerFact(logged_ms, producer, owner))
            elif record.type == PlainRecord.PRODUCERS_NOTED:
                (rows,) = record.fields
                facts.append(ProducerFact(logged_ms, rows=rows))
            elif record.type in (KernelRecord.WRITER_MARKED, KernelRecord.WRITER_FORGOTTEN):
                facts.append(ProducerFact(logged_ms, mark=(record.type, record.fields, revision)))
            elif record.type == KernelRecord.MACHINE_DESCRIBED:
                is_begin = is_begin or decode_description(record.fields[0]).version < PRODUCED_LOG.version
        except (TypeError, ValueError, IndexError) as error:
            raise CorruptLogError(f"the record of revision {revision} tells nothing of producers: {error}") from error
    return EntryFacts(tuple(facts), is_begin)


def folded(entries: Iterable[EntryFacts]) -> ProducerTable:
    """Return the table after these entries, the first of which has a note or is the first of the log."""
    table = ProducerTable()
    for entry in entries:
        fold_all(table, entry.facts)
    return table
