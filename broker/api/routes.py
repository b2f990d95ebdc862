"""Routes of requests: the table that is served, and that OpenAPI is made from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any

import msgspec

from broker.api.call import ApiRequest
from ledger.http.replies import HttpReply
from ledger.http.strict_json import StrictDecoder


class Access(Enum):
    """Access to a route: OPEN to everybody; the others by the right that `broker.api.edge` names for each."""

    OPEN = "open"
    READ = "read"
    WRITE = "write"
    CLUSTER = "cluster"
    ADMIN = "admin"


class Nowhere(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body or a query string that says nothing."""


class Route:
    """One method on one path.

    Args:
        method: "GET", "POST", …
        path: With names in braces: "/api/v1/tasks/{task_id}".
        handler: Answers; None = it has answered by itself, as a stream.
        access: Who may.
        summary: One line, for people.
        body: Struct of the JSON body; None = there is none; bytes = it is taken as it is.
        is_body_optional: No body means an empty object.
        body_bytes_max: 0 = the server's.
        query: Struct of the query string.
        answers: (status, struct or content type of the body, description) of what is not a problem.
        problems: Statuses of problems that are its own, besides those of every route.
        headers: Of the request: (name, description).
        tag: Group in OpenAPI.
        is_read: It shows the state, at a revision; None = a GET for callers does.
        is_audited: Who asks is logged before it is done; None = what only administrators may change is.

    """

    def __init__(
        self,
        method: str,
        path: str,
        handler: Callable[[ApiRequest], Awaitable[HttpReply | None]],
        *,
        access: Access,
        summary: str,
        body: Any = None,
        is_body_optional: bool = False,
        body_bytes_max: int = 0,
        query: type[msgspec.Struct] = Nowhere,
        answers: Sequence[tuple[int, Any, str]] = (),
        problems: Sequence[int] = (),
        headers: Sequence[tuple[str, str]] = (),
        tag: str = "",
        is_read: bool | None = None,
        is_audited: bool | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.handler = handler
        self.access = access
        self.summary = summary
        self.body = body
        self.is_body_optional = is_body_optional
        self.body_bytes_max = body_bytes_max
        self.query = query
        self.answers = tuple(answers)
        self.problems = tuple(problems)
        self.headers = tuple(headers)
        self.tag = tag
        self.is_read = (method == "GET" and access is not Access.OPEN) if is_read is None else is_read
        self.is_audited = (access is Access.ADMIN and method != "GET") if is_audited is None else is_audited
        self.decoder = StrictDecoder(body) if body is not None and body is not bytes else None
        # What is counted; filled in by the entry.
        self.counts: dict[int, int] = {}
        self.seconds = 0.0
