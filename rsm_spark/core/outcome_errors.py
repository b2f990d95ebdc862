"""Errors for the ends of commands and queries: the one place where a status becomes an error."""

from __future__ import annotations

from typing import NamedTuple

from rsm_spark.core.commands import Answer, AnswerStatus
from rsm_spark.core.operation import Ending, Operation
from rsm_spark.errors import (
    AccessDeniedError,
    InvalidCommandError,
    NoLeaderError,
    NotLeaderError,
    NotReadyError,
    OutcomeUnknownError,
    OverloadedError,
    RsmError,
    TooStaleError,
)

_ENDINGS = {
    AnswerStatus.TOO_LARGE: Ending.TOO_LARGE,
    AnswerStatus.REFUSED: Ending.REFUSED,
    AnswerStatus.TOO_STALE: Ending.TOO_STALE,
    AnswerStatus.NOT_READY: Ending.NOT_READY,
    AnswerStatus.OVERLOADED: Ending.NEVER_APPLIED,
}
"""End of a query that was asked once, by status; with any other status the replica does not lead."""


class AskedReplica(NamedTuple):
    """Replica that was asked, as messages name it.

    Attributes:
        name: Of the replica: "this broker".
        log: Of which log; "" = that need not be said.
        leader: Who leads, as far as the replica knows; "" = it does not.
        trouble: What keeps operations from being answered; "" = nothing known.
        advice: What else the caller can do when the outcome is unknown.

    """

    name: str = "the replica asked"
    log: str = ""
    leader: str = ""
    trouble: str = ""
    advice: str = ""


def error_of_operation(operation: Operation, asked: AskedReplica) -> RsmError:
    """Return the error that an operation without an answer ended in."""
    log = f"log {asked.log}: " if asked.log else ""
    what, done = ("query", "answered") if operation.is_query else ("command", "applied")
    why = f" ({asked.trouble})" if asked.trouble else ""
    match operation.outcome:
        case Ending.UNKNOWN:
            if operation.refusal is AnswerStatus.REFUSED:
                why = f" (it was sent again, and refused: {operation.reason.decode(errors='replace')})"
            return OutcomeUnknownError(
                f"{log}no answer to command {operation.sequence}; it may have been applied{why}. Read what it writes "
                f"before sending it anew{asked.advice}"
            )
        case Ending.NOT_LEADER:
            leads = f". {asked.leader} leads, as far as it knows" if asked.leader else ""
            message = f"{log}{asked.name} does not lead; the {what} was not {done}{leads}"
            return NotLeaderError(message, leader=asked.leader or None)
        case Ending.TOO_LARGE:
            return InvalidCommandError(
                f"{log}what the command writes, or its reply, does not fit one entry of the log: send less at once, or "
                "have the service reply with less"
            )
        case Ending.REFUSED:
            reason = operation.reason.decode(errors="replace")
            return InvalidCommandError(f"{log}the {what} was refused, nothing was changed: {reason}")
        case Ending.TOO_STALE:
            lag_ms = int(operation.reason) if operation.reason.isdigit() else None
            lag = "an unknown time" if lag_ms is None else f"{lag_ms} ms"
            return TooStaleError(
                f"{log}{asked.name} is at revision {operation.revision}, {lag} behind: not new enough for this read. "
                "Ask the leader, or allow for more",
                lag_ms=lag_ms,
            )
        case Ending.DENIED:
            return AccessDeniedError(f"{log}the {what} was not {done}{why}")
        case Ending.NOT_READY:
            return NotReadyError(f"{log}{asked.name} installs a snapshot; ask another one, or again later")
        case _ if operation.refusal is AnswerStatus.OVERLOADED:
            return OverloadedError(f"{log}the queues were full; the {what} was not {done}. Send less, or later")
        case _:
            return NoLeaderError(f"{log}no leader answered in time; the {what} was not {done}{why}")


def error_of_answer(answer: Answer, asked: AskedReplica) -> RsmError:
    """Return the error that a query ended in which one replica was asked once."""
    query = Operation(b"", 0.0, None, is_query=True)
    query.outcome = _ENDINGS.get(answer.status, Ending.NOT_LEADER)
    query.refusal, query.reason, query.revision = answer.status, answer.payload, answer.revision
    return error_of_operation(query, asked)
