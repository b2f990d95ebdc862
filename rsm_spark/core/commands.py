"""What a replica is asked and what it answers: the border between a service and the kernel."""

from __future__ import annotations

from enum import IntEnum

import msgspec

__all__ = ["Answer", "AnswerStatus", "Command", "OpenSession", "Query", "Request"]


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


class OpenSession(msgspec.Struct, frozen=True, gc=False):
    """Open a client session; opening it again is answered the same way."""

    session: bytes


Request = Command | Query | OpenSession


class AnswerStatus(IntEnum):
    """Outcome of a request.

    OK: decided and committed (a refusal by the machine is inside the payload).
    NOT_LEADER: certainly not applied, and never will be by this attempt.
    OUTCOME_UNKNOWN: may have been applied; the same command (session, sequence) may be sent again to the leader.
    SESSION_EXPIRED, SEQUENCE_GAP, OVERLOADED: not executed.
    TOO_LARGE: refused for good, its records do not fit one entry or its reply is too long; logged like a reply.
    """

    OK = 0
    NOT_LEADER = 1
    OUTCOME_UNKNOWN = 2
    SESSION_EXPIRED = 3
    SEQUENCE_GAP = 4
    OVERLOADED = 5
    TOO_LARGE = 6


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Answer to one request.

    Attributes:
        status: See `AnswerStatus`.
        revision: Revision of the state that the answer shows.
        payload: The machine's reply or query result; empty unless OK.

    """

    status: AnswerStatus
    revision: int
    payload: bytes
