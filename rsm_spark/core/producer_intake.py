"""Intake of a plain log's producers: what of that which they send is new, what is in the log or on its way. Pure.

1. What is on its way is known as what is in the log is, but has no answer before it is confirmed.
2. Records of one producer are appended, and confirmed, in the order of their sequences.
3. A writer that is over takes everything that was on its way with it: the next one begins with what is in the log.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from rsm_spark.core.producers import (
    OWNER_BYTES_MAX,
    PRODUCER_BYTES_MAX,
    PRODUCERS_MAX,
    PRODUCERS_OF_OWNER_MAX,
    RANGES_MAX,
    SEQUENCE_MAX,
    ForeignProducerError,
    ForgottenSequenceError,
    ProducedRange,
    ProducerError,
    ProducerGapError,
    ProducerState,
    ProducerTable,
    RecordSource,
    TooManyProducersError,
    UnknownProducerError,
)


class SentRange(NamedTuple):
    """Records of a producer that are not confirmed.

    Attributes:
        sequence: Of the first.
        record_count: How many there are.
        ticket: The shell's own: of who waits for the position of the last one.

    """

    sequence: int
    record_count: int
    ticket: Any

    def at(self, last_position: int) -> ProducedRange:
        """Return them as they are in the log."""
        return ProducedRange(self.sequence, self.record_count, last_position)


class RepeatedRange(NamedTuple):
    """Records that were sent before.

    Attributes:
        sequence: Of the first.
        record_count: How many there are.
        where: What they are a part of.

    """

    sequence: int
    record_count: int
    where: ProducedRange | SentRange


class ProducerVerdict(NamedTuple):
    """Answer to what a producer sends.

    Attributes:
        repeated: What of it was sent before, in the order of the sequences.
        fresh: How many of its records, the last ones, are to be appended.

    """

    repeated: tuple[RepeatedRange, ...]
    fresh: int


class _Way:
    """Appends of one producer that are on their way.

    Attributes:
        owner: See `ProducerState`.
        appends: Ascending and without gaps.

    """

    __slots__ = ("appends", "owner")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.appends: deque[SentRange] = deque()


class ProducerIntake:
    """Decides what of a producer's records is appended, on what is in the log and on what is on its way.

    Args:
        log: Name of the log, for errors.
        table: As composed so far; what of it is not confirmed is on its way too.

    """

    def __init__(self, log: str, table: ProducerTable) -> None:
        self._log = log
        self._table = table
        # Who has something on its way. Invariant: nobody has nothing.
        self._ways: dict[str, _Way] = {}

    @property
    def on_the_way(self) -> int:
        """Number of producers that have something on its way."""
        return len(self._ways)

    def judge(self, source: RecordSource, count: int) -> ProducerVerdict:
        """Say what is to be done with records; nothing is changed.

        Args:
            source: Whose they are.
            count: How many there are.

        Raises:
            ProducerError: See the module; nothing of it is to be appended.

        """
        producer, owner, first = source
        self._check(source, count)
        state, way = self._table.get(producer), self._ways.get(producer)
        known_owner = state.owner if state is not None else way.owner if way is not None else None
        if known_owner is None:
            self._check_new(source)
        elif known_owner != owner:
            raise ForeignProducerError(
                f"log {self._log}: producer {producer!r} belongs to somebody else: draw an id of your own"
            )
        last = self._last(state, way)
        if first > last + 1:
            raise ProducerGapError(
                f"log {self._log}: producer {producer!r} sends sequence {first}, {last + 1} must come: send what is "
                "missing first",
                last + 1,
            )
        fresh = max(0, first + count - 1 - last)
        repeated: list[RepeatedRange] = []
        sequence, end = first, first + count - fresh
        while sequence < end:
            piece = self._piece(source, state, way, sequence, end)
            repeated.append(piece)
            sequence += piece.record_count
        return ProducerVerdict(tuple(repeated), fresh)

    def take(self, source: RecordSource, count: int, ticket: Any) -> None:
        """Note that records are on their way; `judge` has said that they are the next."""
        way = self._ways.get(source.producer)
        if way is None:
            way = self._ways[source.producer] = _Way(source.owner)
        way.appends.append(SentRange(source.sequence, count, ticket))

    def confirm(self, source: RecordSource) -> None:
        """Note that records are in the log: those of a producer are confirmed in order."""
        way = self._ways[source.producer]
        oldest = way.appends.popleft()
        assert oldest.sequence == source.sequence
        if not way.appends:
            del self._ways[source.producer]

    def _last(self, state: ProducerState | None, way: _Way | None) -> int:
        if way is not None:
            newest = way.appends[-1]
            return newest.sequence + newest.record_count - 1
        return 0 if state is None else state.last_sequence

    def _piece(
        self, source: RecordSource, state: ProducerState | None, way: _Way | None, sequence: int, end: int
    ) -> RepeatedRange:
        """Return where one piece of what is repeated is.

        Raises:
            ForgottenSequenceError: That is not remembered.

        """
        for sent in () if way is None else way.appends:
            if sent.sequence <= sequence < sent.sequence + sent.record_count:
                return RepeatedRange(sequence, min(end, sent.sequence + sent.record_count) - sequence, sent)
        for one in () if state is None else state.ranges:
            if one.sequence <= sequence <= one.last_sequence:
                return RepeatedRange(sequence, min(end, one.last_sequence + 1) - sequence, one)
        raise ForgottenSequenceError(
            f"log {self._log}: sequence {sequence} of producer {source.producer!r} is in the log, its position is no "
            f"longer remembered: only that of the last {RANGES_MAX} appends is. Do not append it again"
        )

    def _check(self, source: RecordSource, count: int) -> None:
        producer, owner, first = source
        size = len(producer.encode())
        if not producer.isprintable() or not 0 < size <= PRODUCER_BYTES_MAX:
            raise ProducerError(
                f"log {self._log}: a producer's id is 1 to {PRODUCER_BYTES_MAX} bytes of printable text: draw a uuid"
            )
        if len(owner.encode()) > OWNER_BYTES_MAX:
            raise ProducerError(f"log {self._log}: the name of the producer's owner is too long")
        if first < 1 or count < 1 or first + count - 1 > SEQUENCE_MAX:
            raise ProducerError(f"log {self._log}: producer {producer!r}: sequences run 1, 2, 3, …; {first} is none")

    def _check_new(self, source: RecordSource) -> None:
        producer, owner, first = source
        if first != 1:
            raise UnknownProducerError(
                f"log {self._log}: producer {producer!r} is not known: it has never appended, or not for so long that "
                "it was forgotten. Look at what of it is in the log, then draw a new id and begin with sequence 1"
            )
        new = [way.owner for name, way in self._ways.items() if self._table.get(name) is None]
        if len(self._table) + len(new) >= PRODUCERS_MAX:
            raise TooManyProducersError(
                f"log {self._log}: it has {PRODUCERS_MAX} producers, no more go: use ids again, or wait until idle "
                "ones are forgotten"
            )
        if owner and self._table.count_of(owner) + new.count(owner) >= PRODUCERS_OF_OWNER_MAX:
            raise TooManyProducersError(
                f"log {self._log}: {PRODUCERS_OF_OWNER_MAX} producers of this owner are known, no more go: use ids "
                "again, or wait until idle ones are forgotten"
            )
