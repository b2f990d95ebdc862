"""The API's description: OpenAPI 3.1, made of the table that is served and the structs that are read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from broker.api.call import CONSISTENCY_HEADER, REVISION_HEADER, TENANT_HEADER
from broker.api.routes import Access, Route
from broker.machine.limits import NAME_BYTES_MAX
from ledger.http.api_description import api_description
from ledger.http.problems import PROBLEM_TYPE, ProblemDocument

_NAME = re.compile(r"\{(\w+)\}")
_NUMBERS = frozenset({"task_id", "transaction"})
_TENANT_HEADER = (TENANT_HEADER, "Tenant; only the administrator may name another than the own.")
_READ_HEADERS = (
    (REVISION_HEADER, "The answer is to show this revision or a later one."),
    (CONSISTENCY_HEADER, "linearizable: what is confirmed now, by the leader alone; stale (default)."),
)


def describe_api(routes: Iterable[Route], *, version: str) -> bytes:
    """Return the description as JSON.

    Args:
        routes: Those that are served.
        version: Of the distribution.

    """
    described = [route for route in routes if route.tag != "dashboard"]
    kinds: list[Any] = [ProblemDocument]
    for route in described:
        kinds += [one for one in (route.body, *(answer[1] for answer in route.answers)) if _is_struct(one)]
    return api_description(
        described, kinds, _operation, title="RSM broker", version=version,
        text="The task broker's HTTP API. Errors are problem documents (RFC 9457) whose `reason` is a machine-readable "
        "word. A broker that follows answers reads, and sends writers to the leader by 307.",
    )  # fmt: skip


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _operation(route: Route, by_kind: dict[Any, Any]) -> dict[str, Any]:
    name = f"{route.method.lower()}{re.sub(r'[^a-z0-9]+', '_', route.path.removeprefix('/api/v1'))}".rstrip("_")
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": _parameters(route),
        "responses": _responses(route, by_kind),
    }
    if route.access is not Access.OPEN:
        operation["security"] = [{"token": []}]
        operation["description"] = f"Access: {route.access.value}."
    if route.body is bytes:
        content = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    elif route.body is not None:
        content = {"application/json": {"schema": by_kind[route.body]}}
        operation["requestBody"] = {"required": not route.is_body_optional, "content": content}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for name in _NAME.findall(route.path):
        schema = {"type": "integer", "minimum": 0, "maximum": 10**16 - 1} if name in _NUMBERS else {
            "type": "string", "minLength": 1}  # fmt: skip
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    (described,) = msgspec.json.schema(route.query)["$defs"].values()
    required = described.get("required", [])
    for name, schema in described.get("properties", {}).items():
        parameters.append({"name": name, "in": "query", "required": name in required, "schema": schema})
    headers = list(route.headers)
    if route.access in {Access.READ, Access.WRITE}:
        headers.append(_TENANT_HEADER)
    if route.is_read:
        headers += _READ_HEADERS
    for name, description in headers:
        parameters.append(
            {"name": name, "in": "header", "required": False, "description": description, "schema": _header(name)}
        )
    return parameters


def _header(name: str) -> dict[str, Any]:
    if name == REVISION_HEADER:
        return {"type": "integer", "minimum": 0}
    if name == CONSISTENCY_HEADER:
        return {"type": "string", "enum": ["linearizable", "stale"]}
    if name == "Last-Event-ID":
        return {"type": "string", "pattern": "^[0-9]{1,16}$"}
    if name == TENANT_HEADER:
        return {"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX}
    return {"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX, "pattern": "^[ -~]+$"}


def _responses(route: Route, by_kind: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind, description in route.answers:
        content = {"application/json": {"schema": by_kind[kind]}} if _is_struct(kind) else {str(kind): {}}
        responses[str(status)] = {"description": description, "content": content}
    problem = {PROBLEM_TYPE.decode(): {"schema": by_kind[ProblemDocument]}}
    statuses = {400, 405, 408, 414, 421, 431, 500, *route.problems}
    if route.access is not Access.OPEN:
        statuses |= {307, 401, 403, 404, 429, 503, 504}
    if route.body is not None:
        statuses |= {409, 413, 415}
    for status in sorted(statuses):
        if str(status) not in responses:
            responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    return responses
