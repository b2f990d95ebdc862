"""Description of an HTTP API: OpenAPI 3.1, made of the routes that are served and their shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

_REFERENCE = "#/components/schemas/{name}"


class _DescribedRoute(Protocol):
    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...


_Route = TypeVar("_Route", bound=_DescribedRoute)


def api_description(
    routes: Sequence[_Route],
    kinds: Sequence[Any],
    operation: Callable[[_Route, dict[Any, Any]], dict[str, Any]],
    *,
    title: str,
    version: str,
    text: str,
) -> bytes:
    """Return the description as JSON.

    Args:
        routes: Those that are described.
        kinds: Shapes that they name; one may be there several times.
        operation: Describes a route, given the schemas by shape.
        title: Of the API.
        version: Of the distribution.
        text: What it is, and what holds for all of it.

    """
    kinds = list(dict.fromkeys(kinds))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    by_kind = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route, by_kind)
    document = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": text},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(document)
