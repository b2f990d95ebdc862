"""Operations of clients: what they ask, how they travel, how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from rsm_spark.core.commands import AnswerStatus
from rsm_spark.core.freshness import LINEARIZABLE, Freshness

TRACES_MAX: Final = 16
"""Contexts of one message: traces are samples."""


class Ending(Enum):
    """End of an operation.

    ANSWERED: its reply or result is in `Operation.payload`.
    TOO_LARGE: refused for good, never applied.
    REFUSED: the machine failed on it; a command was never applied, and never will be.
    NEVER_APPLIED: the time limit passed; no attempt was or will be executed (or it is a query).
    UNKNOWN: the time limit passed, or the session expired, and an attempt may have been executed.
    NOT_LEADER: the one replica that this client was told to use does not lead; this was the only attempt.
    TOO_STALE: the one replica that this client was told to use is not new enough for the query.
    DENIED: the replica refuses this caller; no attempt was executed.
    NOT_READY: the one replica that this client was told to use has no state to read now.
    """

    ANSWERED = "answered"
    TOO_LARGE = "too large"
    REFUSED = "refused"
    NEVER_APPLIED = "never applied"
    UNKNOWN = "unknown"
    NOT_LEADER = "not leader"
    TOO_STALE = "too stale"
    NOT_READY = "not ready"
    DENIED = "denied"


class Operation(msgspec.Struct, eq=False):
    """A command or a query of one caller.

    Attributes:
        payload: What the machine gets; once answered, what it said.
        deadline_s: On the clock of `CommandStream.expire`.
        ticket: The shell's own.
        is_query: Reads; takes no sequence and may be sent at will.
        freshness: Of a query.
        sequence: Within the session; 0 before it is first sent.
        is_unsure: An attempt was sent whose outcome will never be heard.
        outcome: None until it has ended.
        refusal: Why it was sent back last, while it has no outcome or one for want of an answer.
        reason: What came with `refusal`.
        revision: Of the state that the answer shows.
        tries: Replicas that were asked in the leader's stead.
        trace: The shell's own: the span that it ends; None = it is not traced.

    """

    payload: bytes
    deadline_s: float
    ticket: Any
    is_query: bool = False
    freshness: Freshness = LINEARIZABLE
    sequence: int = 0
    is_unsure: bool = False
    outcome: Ending | None = None
    refusal: AnswerStatus | None = None
    reason: bytes = b""
    revision: int = 0
    tries: int = 0
    trace: Any = None

    def reopen(self) -> None:
        """Take back the end of a query: it is asked elsewhere."""
        assert self.is_query
        self.outcome = None


class OperationColumn:
    """Operations of one kind that one caller waits for together: one object for all, for as long as all goes well.

    waiting    not taken yet                       -> the column stands in a queue of the stream; `taken` <= place
    in flight  in a message                        -> a `ColumnPart` of it
    answered   the message was answered, all OK    -> `answers`, `revisions`
    apart      anything else became of it          -> `operations`: an `Operation` each, whose ticket is the column

    Args:
        payloads: One each, in order; one at least.
        deadline_s: See `Operation`.
        on_end: Called once, when the last of them has ended.
        is_query: See `Operation`.
        freshness: The same.

    Attributes:
        payloads: The same.
        deadline_s: The same.
        is_query: The same.
        freshness: The same.
        answers: What the machine said, of each that is answered.
        revisions: Of the states that the answers show.
        operations: By place, those that were taken apart.
        taken: So many have left the queue.
        left: So many have not ended.
        trace: See `Operation`.

    """

    __slots__ = (
        "_on_end", "answers", "deadline_s", "freshness", "is_query", "left", "operations", "payloads", "revisions",
        "taken", "trace",
    )  # fmt: skip

    def __init__(
        self,
        payloads: list[bytes],
        deadline_s: float,
        on_end: Callable[[], object],
        *,
        is_query: bool = False,
        freshness: Freshness = LINEARIZABLE,
    ) -> None:
        self.payloads = payloads
        self.deadline_s = deadline_s
        self.is_query = is_query
        self.freshness = freshness
        self.answers = [b""] * len(payloads)
        self.revisions = [0] * len(payloads)
        self.operations: dict[int, Operation] = {}
        self.taken = 0
        self.left = len(payloads)
        self.trace: Any = None
        self._on_end = on_end

    def take(self, room: int, room_bytes: int, *, has_some: bool) -> tuple[ColumnPart | None, int]:
        """Take out what fits a message; return it, None if that is nothing, and the bytes of its payloads.

        Args:
            room: At most so many; one at least.
            room_bytes: Of their payloads at most, unless it is a single one of a message.
            has_some: The message has operations already.

        """
        first = self.taken
        sizes = [len(payload) for payload in self.payloads[first : first + room]]
        count, total = len(sizes), sum(sizes)
        least = 0 if has_some else 1
        while total > room_bytes and count > least:
            count -= 1
            total -= sizes[count]
        if not count:
            return None, 0
        self.taken += count
        return ColumnPart(self, first, self.taken), total

    def take_rest_apart(self) -> list[Operation]:
        """Take out what waits, as operations."""
        first, self.taken = self.taken, len(self.payloads)
        return ColumnPart(self, first, self.taken).apart() if first < self.taken else []

    def answered(self, part: ColumnPart, revisions: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Take the answers to a part, which are all OK."""
        self.revisions[part.first : part.end] = revisions
        self.answers[part.first : part.end] = payloads
        self._end(part.end - part.first)

    def ended(self) -> None:
        """Take note that an operation that was taken apart has ended; to be called by who is told of that."""
        self._end(1)

    def _end(self, count: int) -> None:
        self.left -= count
        if self.left:
            return
        for place, operation in self.operations.items():
            if operation.outcome is Ending.ANSWERED:
                self.answers[place], self.revisions[place] = operation.payload, operation.revision
        on_end, self._on_end = self._on_end, _nothing  # What it refers to mostly refers back.
        on_end()


def _nothing() -> None:
    """Nobody is to be told any more."""


class ColumnPart:
    """Operations of a column that travel in one message.

    Attributes:
        column: Theirs.
        first: Place of the first of them.
        end: Place behind the last.
        sequence: Of the first; the others follow. 0 = they are queries.

    """

    __slots__ = ("column", "end", "first", "sequence")

    def __init__(self, column: OperationColumn, first: int, end: int) -> None:
        self.column = column
        self.first = first
        self.end = end
        self.sequence = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return self.end - self.first

    @property
    def payloads(self) -> list[bytes]:
        """One each, in order."""
        return self.column.payloads[self.first : self.end]

    @property
    def sequences(self) -> range:
        """Of each."""
        return range(self.sequence, self.sequence + self.end - self.first)

    def apart(self) -> list[Operation]:
        """Return them as operations, which from now on end by themselves."""
        column, made = self.column, []
        for place in range(self.first, self.end):
            operation = Operation(column.payloads[place], column.deadline_s, column, column.is_query, column.freshness)
            if self.sequence:
                operation.sequence = self.sequence + place - self.first
            column.operations[place] = operation
            made.append(operation)
        return made


Sent = Operation | ColumnPart
"""Cargo of a message: an operation, or several of one caller."""


def count_of(sent: Sequence[Sent]) -> int:
    """Return how many operations these are."""
    return len(sent) + sum([len(one) - 1 for one in sent if type(one) is ColumnPart])


def payloads_of(sent: Iterable[Sent]) -> list[bytes]:
    """Return what is asked, of each operation."""
    payloads: list[bytes] = []
    for one in sent:
        if isinstance(one, ColumnPart):
            payloads += one.payloads
        else:
            payloads.append(one.payload)
    return payloads


def sequences_of(sent: Iterable[Sent]) -> list[int]:
    """Return the sequence of each operation."""
    sequences: list[int] = []
    for one in sent:
        if isinstance(one, ColumnPart):
            sequences += one.sequences
        else:
            sequences.append(one.sequence)
    return sequences


def taken_apart(sent: Iterable[Sent]) -> list[Operation]:
    """Return these as operations; parts of columns are taken apart."""
    operations: list[Operation] = []
    for one in sent:
        if isinstance(one, ColumnPart):
            operations += one.apart()
        else:
            operations.append(one)
    return operations


class SeenRevision:
    """Highest revision that a client has seen: its session reads never go back behind it. Shared by its connections."""

    __slots__ = ("revision",)

    def __init__(self) -> None:
        self.revision = 0


class StreamLimits(msgspec.Struct, frozen=True):
    """Bounds of what is sent at once.

    Attributes:
        message_operations_max: In one message.
        message_bytes_max: Payload bytes of one message, unless it has a single operation.
        messages_in_flight_max: One is being committed, the next waits at the leader; more would only be smaller.
        waiting_operations_max: Without an answer, sent or not; a call beyond it is refused at once.

    """

    message_operations_max: int = 2_000
    message_bytes_max: int = 1024 * 1024
    messages_in_flight_max: int = 2
    waiting_operations_max: int = 200_000


class Message(msgspec.Struct, frozen=True, gc=False):
    """Message that is sent next.

    Attributes:
        message_id: 1, 2, 3, …; answers name it.
        session: 16 bytes.
        opens_session: The session is to be opened; the answer to that comes first. There are no commands then.
        answered_up_to: Commands up to here are answered or given up.
        commands: In order of their sequences.
        queries: Evaluated after the commands.
        freshness: Of the queries.
        traces: Contexts of the operations that are traced, as `traceparent`; None = this client traces nothing, so
            whoever gets it may.

    """

    message_id: int
    session: bytes
    opens_session: bool
    answered_up_to: int
    commands: list[Sent]
    queries: list[Sent]
    freshness: Freshness = LINEARIZABLE
    traces: tuple[str, ...] | None = None
