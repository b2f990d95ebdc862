"""Description of a gateway's API: OpenAPI 3.1, made of the routes that are served and the shapes of both ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from ledger.http.api_description import api_description
from ledger.http.problems import PROBLEM_TYPE, ProblemDocument
from ledger.rights.table import Right
from rsm_spark.gateway.calls import GatewayRoute

_NAME = re.compile(r"\{(\w+)\}")
_JSON = "application/json"
_STREAM = "text/event-stream"
_ALWAYS = frozenset({400, 405, 408, 414, 421, 431, 500})
_WITH_RIGHT = frozenset({401, 403, 429, 503})
_OF_A_LOG = frozenset({404, 409})
_WITH_BODY = frozenset({413, 415})
_ELSEWHERE = frozenset({307})


def describe_gateway(routes: Iterable[GatewayRoute], *, version: str) -> bytes:
    """Return the description as JSON.

    Args:
        routes: Those that are served.
        version: Of the distribution.

    """
    described = list(routes)
    kinds: list[Any] = [ProblemDocument]
    for route in described:
        kinds += [kind for kind in (route.body, *_answers(route)) if kind not in {None, bytes}]
    return api_description(
        described, kinds, _operation, title="RSM gateway of logs", version=version,
        text="Plain logs over HTTP. Errors are problem documents (RFC 9457) whose `reason` is a machine-readable word. "
        "A gateway that does not write a log sends producers to the one that does by 307.",
    )  # fmt: skip


def _answers(route: GatewayRoute) -> tuple[Any, ...]:
    """Return the shapes that an answer may have; none if it is no JSON."""
    if isinstance(route.answer, str):
        return ()
    return route.answer if isinstance(route.answer, tuple) else (route.answer,)


def _operation(route: GatewayRoute, by_kind: dict[Any, Any]) -> dict[str, Any]:
    name = f"{route.method.lower()}{re.sub(r'[^a-z0-9]+', '_', route.path.removeprefix('/v1'))}".rstrip("_")
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": _responses(route, by_kind),
    }
    if route.right is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = f"Needs the right: {route.right.value}."
    if route.body is bytes:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    elif route.body is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": by_kind[route.body]}}}
    return operation


def _parameters(route: GatewayRoute) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _NAME.findall(route.path)
    ]
    (described,) = msgspec.json.schema(route.query)["$defs"].values()
    required = described.get("required", [])
    for name, schema in described.get("properties", {}).items():
        parameters.append({"name": name, "in": "query", "required": name in required, "schema": schema})
    if route.answer == _STREAM:
        parameters.append(
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "Id of the event behind which to go on.",
            }
        )
    return parameters


def _responses(route: GatewayRoute, by_kind: dict[Any, Any]) -> dict[str, Any]:
    schemas = [by_kind[kind] for kind in _answers(route)]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    content = {_JSON: {"schema": schema}} if schemas else {route.answer: {}}
    responses: dict[str, Any] = {"200": {"description": HTTPStatus.OK.phrase, "content": content}}
    statuses = set(_ALWAYS)
    if route.right is not None:
        statuses |= _WITH_RIGHT
    if "{log}" in route.path:
        statuses |= _OF_A_LOG
    if route.body is not None:
        statuses |= _WITH_BODY
    if route.right is Right.STATE_WRITE or route.method == "DELETE":
        statuses |= _ELSEWHERE
    if route.right is Right.STATE_READ and "{log}" in route.path:
        statuses.add(410)
    problem = {PROBLEM_TYPE.decode(): {"schema": by_kind[ProblemDocument]}}
    if route.path == "/readyz":
        responses["503"] = {"description": "Not ready", "content": {"text/plain": {}}}
    for status in sorted(statuses):
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": problem})
    return dict(sorted(responses.items()))
