"""Requests to a replica and its answers: the border between a service and the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import overload

import msgspec


class Command(msgspec.Struct, frozen=True, gc=False):
    """Change the state, once.

    Attributes:
        session: 16 bytes; opened before by `OpenSession`.
        sequence: 1, 2, 3, … within the session; the same number is the same command.
        answered_up_to: The client has the answers up to here, inclusive, or has given those commands up.
        payload: What `StateMachine.decide` gets.

    """

    session: bytes
    sequence: int
    answered_up_to: int
    payload: bytes


class Query(msgspec.Struct, frozen=True, gc=False):
    """Read the state; on a leader always linearizable, on a follower at its applied revision."""

    payload: bytes


class QueryColumn(Sequence[Query]):
    """Queries that came together, nearly always all of a message: their payloads, without an object for each.

    Attributes:
        payloads: One each, in order.

    """

    __slots__ = ("payloads",)

    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads = payloads

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> Query: ...

    @overload
    def __getitem__(self, index: slice) -> QueryColumn: ...

    def __getitem__(self, index: int | slice) -> Query | QueryColumn:
        """Return one as an object, or some."""
        found = self.payloads[index]
        return Query(found) if isinstance(found, bytes) else QueryColumn(found)

    def __eq__(self, other: object) -> bool:
        """Return whether it holds the same queries."""
        return isinstance(other, QueryColumn) and self.payloads == other.payloads

    __hash__ = None  # type: ignore[assignment]  # as of a list


class ReadIndex(msgspec.Struct, frozen=True, gc=False):
    """Prove that this replica leads; the answer's revision is that of a confirmed state, its payload is empty.

    That state holds all that anybody was told before the request came: who has applied it may answer reads that came
    before, too. Never sent by clients: a follower asks for its readers.
    """


class OpenSession(msgspec.Struct, frozen=True, gc=False):
    """Open a client session; opening it again is answered the same way."""

    session: bytes


class ReportVerified(msgspec.Struct, frozen=True, gc=False):
    """The process `by` has read the snapshot at `place` back and found these.

    Answered OK once that is logged, or was before. REFUSED with the reason: it contradicts the checkpoint of its
    revision, no such checkpoint is known (verify a newer one), or the place has a newer one already.

    Attributes:
        place: "replica:<replica id>" or "lake".
        domain: What fails together with that place.
        revision: Of the snapshot.
        digest: 16 bytes.
        prefix_hash: 32 bytes.
        row_count: Rows.
        by: Replica id, or name of a job; not the writer.

    """

    place: str
    domain: str
    revision: int
    digest: bytes
    prefix_hash: bytes
    row_count: int
    by: str


class ReportWithdrawn(msgspec.Struct, frozen=True, gc=False):
    """The snapshot verified at `place` is not to be relied on any more: gone, or found damaged."""

    place: str
    by: str
    reason: str


class ReportDiverged(msgspec.Struct, frozen=True, gc=False):
    """The replica `by` had another digest (16 bytes) at the checkpoint of this revision, and has stopped.

    Never logged. OK: the leader is contradicted. REFUSED: the digest is the leader's, or the checkpoint is not known.
    """

    revision: int
    digest: bytes
    by: str


ASKED = "asked"
"""Outcome of what is audited before it is done."""


class Audited(msgspec.Struct, frozen=True, gc=False):
    """Somebody is about to change rights, code, holds or the log itself, or has: a line of the audit in the log.

    Answered OK once it is logged. REFUSED: the log's format level does not know audits yet; nothing is logged.

    Attributes:
        principal: Who, as its credential names it; "" = nobody had to say.
        role: As which.
        source: Address that it came from.
        action: What, by method or route: "PUT /api/v1/code/{code}".
        target: On what: "code greetings".
        outcome: `ASKED` before it is done; afterwards "done", or why it was refused.

    """

    principal: str
    role: str
    source: str
    action: str
    target: str
    outcome: str


class CommandColumn(Sequence["Command | Query"]):
    """Commands of one session that came together, and the queries behind them: without an object for each.

    Attributes:
        session: 16 bytes; see `Command`.
        answered_up_to: The same.
        sequences: Of the commands, in order.
        payloads: Of the commands, then of the queries.

    """

    __slots__ = ("answered_up_to", "payloads", "sequences", "session")

    def __init__(self, session: bytes, answered_up_to: int, sequences: list[int], payloads: list[bytes]) -> None:
        self.session = session
        self.answered_up_to = answered_up_to
        self.sequences = sequences
        self.payloads = payloads

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> Command | Query: ...

    @overload
    def __getitem__(self, index: slice) -> list[Command | Query]: ...

    def __getitem__(self, index: int | slice) -> Command | Query | list[Command | Query]:
        """Return one as an object, or some."""
        places = range(len(self.payloads))[index]
        return self._at(places) if isinstance(places, int) else [self._at(place) for place in places]

    def _at(self, place: int) -> Command | Query:
        if place < len(self.sequences):
            return Command(self.session, self.sequences[place], self.answered_up_to, self.payloads[place])
        return Query(self.payloads[place])

    def __iter__(self) -> Iterator[Command | Query]:
        """Iterate over all as objects."""
        return map(self._at, range(len(self.payloads)))

    def __eq__(self, other: object) -> bool:
        """Return whether it holds the same requests."""
        return isinstance(other, CommandColumn) and self._parts == other._parts

    __hash__ = None  # type: ignore[assignment]  # as of a list

    @property
    def _parts(self) -> tuple[bytes, int, list[int], list[bytes]]:
        return self.session, self.answered_up_to, self.sequences, self.payloads


Report = ReportVerified | ReportWithdrawn | ReportDiverged
Request = Command | Query | ReadIndex | OpenSession | Audited | ReportVerified | ReportWithdrawn | ReportDiverged


class AnswerStatus(IntEnum):
    """Outcome of a request.

    * OK: decided and committed (a refusal by the machine is inside the payload).
    * NOT_LEADER: certainly not applied, and never will be by this attempt.
    * OUTCOME_UNKNOWN: may have been applied; the same command (session, sequence) may be sent again to the leader.
    * SESSION_EXPIRED, SEQUENCE_GAP, OVERLOADED: not executed.
    * TOO_LARGE: refused for good, its records do not fit one entry or its reply is too long; logged like a reply.
    * TOO_STALE: a read that this follower is not fresh enough for.
    * NOT_READY: this replica has no state to read yet, it installs a snapshot.
    * REFUSED: a report that is not accepted, or a request on which the machine failed: a bug of its code; a command is
      then refused for good, logged like a reply. The payload is the reason, UTF-8.
    """

    OK = 0
    NOT_LEADER = 1
    OUTCOME_UNKNOWN = 2
    SESSION_EXPIRED = 3
    SEQUENCE_GAP = 4
    OVERLOADED = 5
    TOO_LARGE = 6
    TOO_STALE = 7
    NOT_READY = 8
    REFUSED = 9


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Answer to one request.

    Attributes:
        status: See `AnswerStatus`.
        revision: Revision of the state that the answer shows.
        payload: The machine's reply or query result; the reason of a refusal; else empty.

    """

    status: AnswerStatus
    revision: int
    payload: bytes
