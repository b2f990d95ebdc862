"""Answers to wrong requests: `application/problem+json` (RFC 9457), never a stack trace.

    {"type": "urn:rsm-spark:problem:slot-taken", "title": "Conflict", "status": 409,
     "detail": "slot 'nightly' is held by task 17", "reason": "slot-taken", "slot_task_id": 17}

`reason` is the machine-readable word: one of `broker.machine.replies.Refusal`, or of those that are raised here.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from broker.api.replies import HttpReply
from broker.machine.replies import Refusal, Refused
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

PROBLEM_TYPE = b"application/problem+json"
_TYPE_PREFIX = "urn:rsm-spark:problem:"
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


class ProblemDocument(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """Body of every answer of 400 or more, and of a redirection to the leader.

    Attributes:
        kind: URI of the kind of problem.
        title: Of the status.
        status: As in the head.
        detail: For people: what was asked, what was seen, what to do.
        reason: Machine-readable word.

    """

    kind: str
    title: str
    status: int
    detail: str
    reason: str


class HttpProblem(Exception):  # noqa: N818 - it is RFC 9457's word
    """A request that is not answered as it asked.

    Args:
        status: HTTP status.
        reason: Machine-readable word.
        detail: For people.
        headers: More of the head.
        more: Further members of the document.

    """

    def __init__(
        self, status: int, reason: str, detail: str, *, headers: tuple[tuple[bytes, bytes], ...] = (), **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.headers = headers
        self.more = more

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase

    def reply(self) -> HttpReply:
        document = {
            "type": _TYPE_PREFIX + self.reason,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "reason": self.reason,
            **self.more,
        }
        return HttpReply(self.status, msgspec.json.encode(document), self.headers, PROBLEM_TYPE)


def retry_after(seconds: float) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header that says when to come again, in whole seconds, 1 at least."""
    return ((b"retry-after", b"%d" % max(1, round(seconds + 0.499))),)


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
