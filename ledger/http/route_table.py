"""Routes of an API by path and method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from ledger.http.parameters import decode_segment
from ledger.http.problems import HttpProblem


class ServedRoute(Protocol):
    """One method on one path, with names in braces: "/v1/logs/{name}"."""

    @property
    def method(self) -> str:
        """Method of HTTP."""

    @property
    def path(self) -> str:
        """Path, as it is described."""


_Route = TypeVar("_Route", bound=ServedRoute)


class Match(NamedTuple, Generic[_Route]):
    """A route, and the values of the names in its path."""

    route: _Route
    values: tuple[str, ...]


class _Template(NamedTuple, Generic[_Route]):
    segments: tuple[bytes, ...]  # b"" where there is a name
    methods: dict[str, _Route]

    def values(self, segments: list[bytes]) -> list[bytes] | None:
        values: list[bytes] = []
        for expected, given in zip(self.segments, segments, strict=True):
            if not expected:
                values.append(given)
            elif expected != given:
                return None
        return values


class RouteTable(Generic[_Route]):
    """Routes by path and method.

    Args:
        routes: All of them; a path without names goes before one with names.
        hint: Said to who asks for something else.

    """

    def __init__(self, routes: Iterable[_Route], hint: str) -> None:
        self.routes = list(routes)
        self._hint = hint
        self._fixed: dict[bytes, dict[str, _Route]] = {}
        self._by_length: dict[int, list[_Template[_Route]]] = {}
        for route in self.routes:
            self._add(route)

    def _add(self, route: _Route) -> None:
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

    def match(self, method: str, path: bytes) -> Match[_Route]:
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
                raise HttpProblem(404, "not-found", f"there is nothing here; {self._hint}")
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
