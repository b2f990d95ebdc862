"""Problems of a broker: what its state machine refuses, and what its replica raises, as answers over HTTP.

Their reasons are those of `broker.machine.replies.Refusal`, and those that are raised here.
"""

from __future__ import annotations

from http import HTTPStatus

from broker.machine.replies import Refusal, Refused
from ledger.http.problems import HttpProblem, retry_after
from rsm_spark.errors import (
    ConnectionLostError,
    InvalidCommandError,
    NoLeaderError,
    NotLeaderError,
    NotReadyError,
    OutcomeUnknownError,
    OverloadedError,
    TooStaleError,
)

_RETRY_S = 1

_STATUS_OF_REFUSAL: dict[str, int] = {
    Refusal.INVALID: 400,
    Refusal.TOO_LARGE: 413,
    Refusal.NOT_FOUND: 404,
    Refusal.SLOT_TAKEN: 409,
    Refusal.QUEUE_FULL: 429,
    Refusal.BYTES_FULL: 429,
    Refusal.MEMORY_FULL: 507,
    Refusal.DRAINING: 409,
    Refusal.TRANSACTION_OVER: 409,
    Refusal.TRANSACTION_FULL: 409,
    Refusal.CONFLICT: 409,
    Refusal.IN_USE: 409,
    Refusal.UNKNOWN_CODE: 409,
    Refusal.STALE_WORKER: 409,
    Refusal.NOT_ALLOWED: 403,
}


def problem_of_refusal(refused: Refused) -> HttpProblem:
    """Translate what the state machine refused."""
    status = _STATUS_OF_REFUSAL.get(refused.refusal, 409)
    headers = retry_after(_RETRY_S) if status == HTTPStatus.TOO_MANY_REQUESTS else ()
    return HttpProblem(status, refused.refusal, refused.reason, headers=headers)


def redirection(leader: str | None, target: str) -> HttpProblem:
    """Say who takes what this broker, which follows, does not take.

    Args:
        leader: URL of the leader, as far as known.
        target: Path and query that were asked for.

    """
    if leader is None:
        return HttpProblem(
            503, "no-leader", "no broker leads at the moment, or none is known here yet: nothing was executed; "
            "send it again", headers=retry_after(_RETRY_S)
        )  # fmt: skip
    location = leader.rstrip("/") + target
    return HttpProblem(
        307, "not-leader", f"this broker follows: nothing was executed; the leader is {leader}",
        headers=((b"location", location.encode("latin-1", "replace")),), leader=leader,
    )  # fmt: skip


def problem_of_error(error: Exception, *, leader: str | None, target: str) -> HttpProblem | None:
    """Translate what the replica raised; None if it is none of what it says on purpose."""
    match error:
        case NotLeaderError():
            return redirection(leader, target)
        case InvalidCommandError():
            return HttpProblem(400, Refusal.INVALID, str(error))
        case OverloadedError():
            return HttpProblem(503, "overloaded", f"{error}; nothing was executed", headers=retry_after(_RETRY_S))
        case OutcomeUnknownError() | TimeoutError():
            return HttpProblem(
                504, "outcome-unknown", "whether it was executed is not known: look, or send it again with the same "
                "Idempotency-Key, which is executed once"
            )  # fmt: skip
        case TooStaleError() | NotReadyError() | NoLeaderError() | ConnectionLostError():
            reason = "too-stale" if isinstance(error, TooStaleError) else "not-ready"
            return HttpProblem(503, reason, str(error), headers=retry_after(_RETRY_S))
    return None
