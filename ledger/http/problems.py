"""Answers to wrong requests: `application/problem+json` (RFC 9457), never a stack trace.

    {"type": "urn:rsm-spark:problem:slot-taken", "title": "Conflict", "status": 409,
     "detail": "slot 'nightly' is held by task 17", "reason": "slot-taken", "slot_task_id": 17}

`reason` is the machine-readable word: each server has its own, beside those that are raised here.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from ledger.http.replies import HttpReply

PROBLEM_TYPE = b"application/problem+json"
_TYPE_PREFIX = "urn:rsm-spark:problem:"


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
        """Phrase of the status."""
        return HTTPStatus(self.status).phrase

    def reply(self) -> HttpReply:
        """Return it as an answer."""
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
