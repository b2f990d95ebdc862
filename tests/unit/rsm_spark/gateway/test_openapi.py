"""The description of a gateway's API is made of what is served, says all of it, and is OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from rsm_spark.gateway.calls import GatewayRoute
from rsm_spark.gateway.names_api import name_routes
from rsm_spark.gateway.openapi import describe_gateway
from rsm_spark.gateway.pages import GatewayPages
from rsm_spark.gateway.reading_api import reading_routes
from rsm_spark.gateway.records_api import record_routes


def _routes() -> list[GatewayRoute]:
    pages = GatewayPages(None)  # type: ignore[arg-type]
    return [*record_routes(), *reading_routes(), *name_routes(), *pages.own_routes()]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(describe_gateway(_routes(), version="1.2.3"))
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for one in value.values():
            yield from _references(one)
    elif isinstance(value, list):
        for one in value:
            yield from _references(one)


def test_a_validator_of_openapi_finds_nothing_wrong(document: dict[str, Any]) -> None:
    import schemathesis  # noqa: PLC0415 - takes a while to import

    schemathesis.openapi.from_dict(document).validate()
    with pytest.raises(Exception, match=r"(?i)paths|schema"):
        schemathesis.openapi.from_dict({**document, "paths": {"/x": {"get": {"responses": 1}}}}).validate()


def test_every_route_is_described_with_its_parameters_and_answers(document: dict[str, Any]) -> None:
    routes = {(one.path, one.method.lower()): one for one in _routes()}
    assert {(path, method) for path, methods in document["paths"].items() for method in methods} == set(routes)
    names = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names)
    for (path, method), route in routes.items():
        operation = document["paths"][path][method]
        assert operation["summary"]
        assert "200" in operation["responses"]
        assert ("security" in operation) == (route.right is not None)
        assert ("requestBody" in operation) == (route.body is not None)
        named = {
            kind: {one["name"] for one in operation["parameters"] if one["in"] == kind} for kind in ("path", "query")
        }
        assert named["path"] == set(re.findall(r"\{(\w+)\}", path))
        assert named["query"] == {field.encode_name for field in msgspec.structs.fields(route.query)}


def test_all_that_is_referred_to_is_there_and_all_that_is_there_is_referred_to(document: dict[str, Any]) -> None:
    references = {one.removeprefix("#/components/schemas/") for one in _references(document)}
    assert references == set(document["components"]["schemas"])
