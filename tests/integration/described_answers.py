"""Answers of a gateway, held against what its own description says of them."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema_rs


async def assert_as_described(http: httpx.AsyncClient, path: str, method: str, answer: httpx.Response) -> None:
    """Hold an answer against the description of a path, which has `{log}` in it."""
    document: dict[str, Any] = (await http.get("/v1/openapi.json")).json()
    described = document["paths"][path][method.lower()]["responses"][str(answer.status_code)]
    media = answer.headers["content-type"].partition(";")[0]
    schema = {"components": document["components"], **described["content"][media]["schema"]}
    jsonschema_rs.validator_for(schema).validate(answer.json())
