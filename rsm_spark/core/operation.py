"""Operations of clients: what they ask, how they travel, how they end."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from rsm_spark.core.commands import AnswerStatus
from rsm_spark.core.freshness import LINEARIZABLE, Freshness


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

    def reopen(self) -> None:
        """Take back the end of a query: it is asked elsewhere."""
        assert self.is_query
        self.outcome = None


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

    """

    message_id: int
    session: bytes
    opens_session: bool
    answered_up_to: int
    commands: list[Operation]
    queries: list[Operation]
    freshness: Freshness = LINEARIZABLE
