"""Routes of requests: the table that is served, and that OpenAPI is made from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from broker.api.call import ApiRequest
from ledger.http.parameters import decode_segment
from ledger.http.problems import HttpProblem
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


class Match(NamedTuple):
    """A route, and the values of the names in its path."""

    route: Route
    values: tuple[str, ...]


class _Template(NamedTuple):
    segments: tuple[bytes, ...]  # b"" where there is a name
    methods: dict[str, Route]

    def values(self, segments: list[bytes]) -> list[bytes] | None:
        values: list[bytes] = []
        for expected, given in zip(self.segments, segments, strict=True):
            if not expected:
                values.append(given)
            elif expected != given:
                return None
        return values


class RouteTable:
    """Routes by path and method.

    Args:
        routes: All of them; a path without names goes before one with names.

    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = list(routes)
        self._fixed: dict[bytes, dict[str, Route]] = {}
        self._by_length: dict[int, list[_Template]] = {}
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        path = route.path.encode("ascii")
        segments = tuple(b"" if part.startswith(b"{") else part for part in path.split(b"/")[1:])
        if b"{" not in path:
            methods = self._fixed.setdefault(path, {})
        else:
            templates = self._by_length.setdefault(len(segments), [])
            found = next((one for one in templates if one.segments == segments), None)
            if found is None:
                found = _Template(segments, {})
                templates.append(found)
            methods = found.methods
        assert route.method not in methods, route.path
        methods[route.method] = route
        if route.method == "GET":
            methods.setdefault("HEAD", route)

    def match(self, method: str, path: bytes) -> Match:
        """Find the route of a request.

        Args:
            method: As in the request.
            path: As in the request, percent signs and all.

        Raises:
            Problem: 404, or 405 with the methods that there are.

        """
        methods = self._fixed.get(path)
        values: list[bytes] = []
        if methods is None:
            segments = path.split(b"/")[1:]
            for template in self._by_length.get(len(segments), ()):
                found = template.values(segments)
                if found is not None:
                    methods, values = template.methods, found
                    break
            else:
                raise HttpProblem(404, "not-found", "there is nothing here; /api/v1/openapi.json says what there is")
        route = methods.get(method)
        if route is None:
            allow = ", ".join(sorted(methods))
            raise HttpProblem(
                405, "method-not-allowed", f"{method[:20]} means nothing here; {allow} do",
                headers=((b"allow", allow.encode()),),
            )  # fmt: skip
        if not all(values):
            raise HttpProblem(404, "not-found", "a name in the path is empty")
        return Match(route, tuple([decode_segment(value) for value in values]))
