"""The API's description is made of what is served: it says all of it, and what is answered fits it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from broker.api.documents import Task, as_document, document_type, task_document
from broker.api.server import HttpServer
from broker.api.settings import HttpSettings
from broker.machine import views as shown
from broker.machine.policies import WorkerOffer
from broker.machine.statuses import TaskStatus, WorkerStatus
from ledger.http.problems import ProblemDocument
from tests.unit.broker.api.stand import Caller, StandIn, asking, task


def _described() -> tuple[dict[str, Any], HttpServer]:
    found: list[dict[str, Any]] = []
    servers: list[HttpServer] = []

    async def run() -> None:
        server = HttpServer(StandIn(), HttpSettings())
        servers.append(server)
        async with server:
            caller = await Caller.of(server)
            answer = await caller.ask("GET", "/api/v1/openapi.json")
            found.append(answer.json)
            caller.close()

    asyncio.run(run())
    return found[0], servers[0]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for one in value.values():
            yield from _references(one)
    elif isinstance(value, list):
        for one in value:
            yield from _references(one)


def test_every_route_but_the_dashboard_is_described_with_its_answers() -> None:
    document, server = _described()
    served = {(one.path, one.method.lower()) for one in server.edge.table.routes if one.tag != "dashboard"}
    assert {(path, method) for path, methods in document["paths"].items() for method in methods} == served
    names = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names)
    for methods in document["paths"].values():
        for operation in methods.values():
            assert any(status.startswith("2") for status in operation["responses"])
            assert operation["summary"]


def test_all_that_is_referred_to_is_there_and_all_that_is_there_is_referred_to() -> None:
    document, _ = _described()
    references = {one.removeprefix("#/components/schemas/") for one in _references(document)}
    assert references == set(document["components"]["schemas"])


def test_names_in_paths_are_parameters() -> None:
    document, _ = _described()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


def test_what_needs_a_token_says_so() -> None:
    document, server = _described()
    for route in server.edge.table.routes:
        if route.tag != "dashboard":
            operation = document["paths"][route.path][route.method.lower()]
            assert ("security" in operation) == (route.access.value != "open")


_ANSWERS: list[tuple[str, str, Any, Any]] = [
    ("GET", "/api/v1/tasks", None, "TaskList"),
    ("GET", "/api/v1/tasks/5", None, "Task"),
    ("GET", "/api/v1/tasks/5/explain", None, "Explanation"),
    ("POST", "/api/v1/tasks", {"type": "a"}, "Accepted"),
    ("POST", "/api/v1/tasks/batch", {"tasks": [{"type": "a"}]}, "AcceptedBatch"),
    ("PATCH", "/api/v1/tasks/5", {"group": 2}, "ChangedTasks"),
    ("POST", "/api/v1/tasks/5/cancel", None, "ChangedTasks"),
    ("POST", "/api/v1/transactions", {"ttl_s": 5}, "BegunTransaction"),
    ("POST", "/api/v1/transactions/77/rollback", {}, "EndedTransaction"),
    ("GET", "/api/v1/transactions", None, "Transactions"),
    ("GET", "/api/v1/tenants", None, "Tenants"),
    ("GET", "/api/v1/tenants/acme", None, "Tenant"),
    ("PUT", "/api/v1/tenants/acme", {"weight": 2}, "DoneAt"),
    ("GET", "/api/v1/workers", None, "Workers"),
    ("GET", "/api/v1/limits", None, "Limits"),
    ("PUT", "/api/v1/resources/db?type=mail", {"amount_max": 4}, "DoneAt"),
    ("PUT", "/api/v1/holds?type=mail", {"reason": "x"}, "DoneAt"),
    ("GET", "/api/v1/slots", None, "Slots"),
    ("GET", "/api/v1/code", None, "Codes"),
    ("GET", "/api/v1/overview", None, "Overview"),
    ("GET", "/api/v1/status", None, "StatusDocument"),
    ("GET", "/api/v1/tasks/6", None, "ProblemDocument"),
]


@pytest.mark.parametrize(("method", "path", "body", "schema"), _ANSWERS, ids=[f"{one[0]} {one[1]}" for one in _ANSWERS])
def test_an_answer_has_the_members_that_are_described(method: str, path: str, body: Any, schema: str) -> None:
    document, _ = _described()
    schemas = document["components"]["schemas"]
    described = schemas[schema]

    async def run() -> None:
        async with asking() as (caller, broker):
            broker.tasks[5] = task(5, status=TaskStatus.FINISHED, result=b"\xff")
            answer = (await caller.ask(method, path, body)).json
            assert set(described["required"]) <= answer.keys() <= set(described["properties"])

    asyncio.run(run())


def test_a_task_is_shown_with_all_that_the_core_shows() -> None:
    encoded = msgspec.json.encode(task_document(task(5, payload="grüß".encode(), result=b"\xff\x00")))
    fields = msgspec.json.decode(encoded)
    assert {*fields, "payload_base64", "result", "payload_gone"} >= set(shown.TaskView.__struct_fields__)
    assert (fields["status"], fields["payload"], fields["result_base64"]) == ("waiting", "grüß", "/wA=")
    assert "result" not in fields
    assert msgspec.json.decode(encoded, type=Task)
    assert "payload" not in msgspec.json.decode(msgspec.json.encode(task_document(task(5), whole=False)))


@pytest.mark.parametrize("status", list(TaskStatus))
def test_states_are_words(status: TaskStatus) -> None:
    assert msgspec.to_builtins(task_document(task(5, status=status)))["status"] == status.name.lower()
    counts = msgspec.to_builtins(as_document(shown.TypeView("mail", {int(status): 7})))
    assert counts == {"type": "mail", "by_status": {status.name.lower(): 7}}


def test_states_of_workers_are_their_own_words() -> None:
    worker = shown.WorkerView("w", "i", int(WorkerStatus.CONNECTED), "", 0, 0, WorkerOffer(), 0, {})
    assert as_document(worker).status == "connected"
    counts = {int(status): 1 for status in WorkerStatus}
    overview = shown.OverviewView({int(TaskStatus.RUNNING): 2}, [], counts, 0, 0, 0, 0, 0)
    assert as_document(overview).by_status == {"running": 2}
    assert as_document(overview).workers_by_status == {status.name.lower(): 1 for status in WorkerStatus}


def test_all_that_is_shown_can_be_a_document() -> None:
    kinds = [getattr(shown, name) for name in shown.__all__ if name != "BrokerResult"]
    for kind in kinds:
        assert msgspec.json.schema(document_type(kind))


def test_a_problem_is_described_as_it_is_sent() -> None:
    assert set(msgspec.json.schema(ProblemDocument)["$defs"]["ProblemDocument"]["properties"]) == {
        "type",
        "title",
        "status",
        "detail",
        "reason",
    }


def test_every_parameter_of_a_query_is_described() -> None:
    document, server = _described()
    for route in server.edge.table.routes:
        if route.tag != "dashboard":
            operation = document["paths"][route.path][route.method.lower()]
            named = {one["name"] for one in operation["parameters"] if one["in"] == "query"}
            assert named == set(route.query.__struct_fields__)
