"""Who may ask for what, whose things they see, and how often."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from broker.machine.commands import CancelTasks, ClearHold, SetHold
from broker.machine.holds import Author
from broker.machine.queries import ListTasks, ListTenants
from broker.machine.statuses import TaskStatus
from tests.unit.broker.api.stand import (
    SECRETS,
    Caller,
    StandIn,
    assert_problem,
    run_asking,
    serving,
    task,
    write_tokens,
)


@pytest.fixture
def tokens_file(tmp_path: Path) -> str:
    return write_tokens(tmp_path / "tokens.toml")


# ---- who may


_EVERYBODY = {"admin", "acme", "bolt", "viewer", "acme-viewer"}
_MAY: list[tuple[str, str, Any, set[str]]] = [
    ("GET", "/api/v1/tasks", None, _EVERYBODY),
    ("GET", "/api/v1/overview", None, _EVERYBODY),
    ("GET", "/api/v1/tenants", None, _EVERYBODY),
    ("GET", "/api/v1/limits", None, _EVERYBODY),
    ("GET", "/api/v1/slots", None, _EVERYBODY),
    ("GET", "/api/v1/transactions", None, _EVERYBODY),
    ("POST", "/api/v1/tasks", {"type": "a"}, {"admin", "acme", "bolt"}),
    ("POST", "/api/v1/tasks/batch", {"tasks": [{"type": "a"}]}, {"admin", "acme", "bolt"}),
    ("POST", "/api/v1/tasks/cancel", {"task_ids": [1]}, {"admin", "acme", "bolt"}),
    ("POST", "/api/v1/dead-letters/replay", {}, {"admin", "acme", "bolt"}),
    ("POST", "/api/v1/dead-letters/delete", {"task_ids": [1]}, {"admin", "acme", "bolt"}),
    ("POST", "/api/v1/transactions", {}, {"admin", "acme", "bolt"}),
    ("POST", "/api/v1/transactions/77/commit", None, {"admin", "acme", "bolt"}),
    ("PUT", "/api/v1/holds?type=mail", {}, {"admin", "acme", "bolt"}),
    ("DELETE", "/api/v1/holds?type=mail", None, {"admin", "acme", "bolt"}),
    ("GET", "/api/v1/workers", None, {"admin", "viewer"}),
    ("GET", "/api/v1/code", None, {"admin", "viewer"}),
    ("GET", "/metrics", None, {"admin", "viewer"}),
    ("DELETE", "/api/v1/workers/w1", None, {"admin"}),
    ("PUT", "/api/v1/tenants/acme", {"weight": 2.0}, {"admin"}),
    ("DELETE", "/api/v1/tenants/acme", None, {"admin"}),
    ("PUT", "/api/v1/resources/db", {"amount_max": 3}, {"admin"}),
    ("DELETE", "/api/v1/resources/db", None, {"admin"}),
    ("DELETE", "/api/v1/code/pool", None, {"admin"}),
]


@pytest.mark.parametrize(("method", "path", "body", "may"), _MAY, ids=[f"{one[0]} {one[1]}" for one in _MAY])
def test_a_route_is_open_to_some_roles_and_to_nobody_without_a_token(
    method: str, path: str, body: Any, may: set[str], tokens_file: str
) -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        statuses = {name: (await caller.ask(method, path, body, token=name)).status for name in _EVERYBODY}
        assert {name for name, status in statuses.items() if status < 300} == may
        assert {statuses[name] for name in _EVERYBODY - may} <= {403}
        assert_problem(await caller.ask(method, path, body), 401, "no-token")
        assert_problem(await caller.ask(method, path, body, token="nobody-at-all-knows"), 401, "bad-token")

    run_asking(scenario, tokens_file=tokens_file)


@pytest.mark.parametrize("path", ["/api/v1/status", "/status", "/healthz", "/readyz", "/api/v1/openapi.json", "/"])
def test_what_shows_nothing_of_tenants_is_open(path: str, tokens_file: str) -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        assert (await caller.ask("GET", path)).status == 200

    run_asking(scenario, tokens_file=tokens_file)


def test_nobody_is_told_which_tokens_there_are(tokens_file: str) -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        answer = await caller.ask("GET", "/api/v1/tasks")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert b"acme" not in answer.body

    run_asking(scenario, tokens_file=tokens_file)


# ---- whose


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/tasks/5", None),
        ("GET", "/api/v1/tasks/5?wait_s=30", None),
        ("GET", "/api/v1/tasks/5/payload", None),
        ("GET", "/api/v1/tasks/5/result", None),
        ("GET", "/api/v1/tasks/5/explain", None),
        ("POST", "/api/v1/tasks/5/cancel", None),
        ("PATCH", "/api/v1/tasks/5", {"priority": 9}),
    ],
)
def test_another_tenants_task_is_not_there(method: str, path: str, body: Any, tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.tasks[5] = task(5, "bolt", TaskStatus.FINISHED)
        theirs = await caller.ask(method, path, body, token="acme")
        none = await caller.ask(method, path.replace("5", "6", 1), body, token="acme")
        assert theirs.status == none.status == 404
        assert theirs.body.replace(b"5", b"6") == none.body, "not even whether it is there can be told"
        assert (await caller.ask(method, path, body, token="bolt")).status == 200
        assert (await caller.ask(method, path, body, token="admin")).status == 200

    run_asking(scenario, tokens_file=tokens_file)


@pytest.mark.parametrize(
    "path",
    ["tasks?tenant=bolt", "overview?tenant=bolt", "tenants?tenant=bolt", "tenants/bolt", "limits?tenant=bolt",
     "slots?tenant=bolt", "transactions?tenant=bolt", "events?tenant=bolt"],
)  # fmt: skip
def test_a_tenant_that_names_another_finds_nothing(path: str, tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        assert_problem(await caller.ask("GET", f"/api/v1/{path}", token="acme"), 404, "not-found")
        assert_problem(await caller.ask("GET", f"/api/v1/{path}", token="acme-viewer"), 404, "not-found")
        assert broker.queries == []

    run_asking(scenario, tokens_file=tokens_file)


def test_lists_are_of_the_callers_tenant(tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        for token in ("acme", "acme-viewer", "admin", "viewer"):
            await caller.ask("GET", "/api/v1/tasks", token=token)
        await caller.ask("GET", "/api/v1/tasks?tenant=bolt", token="admin")
        await caller.ask("GET", "/api/v1/tasks", token="admin", headers={"X-Tenant": "bolt"})
        assert [query.tenant for query in broker.queries if isinstance(query, ListTasks)] == [
            "acme", "acme", "", "", "bolt", "bolt",
        ]  # fmt: skip

    run_asking(scenario, tokens_file=tokens_file)


def test_a_tenant_cancels_and_holds_its_own_only(tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        await caller.ask("POST", "/api/v1/tasks/cancel", {"task_ids": [5]}, token="acme")
        await caller.ask("PUT", "/api/v1/holds?type=mail", {"reason": "x"}, token="acme")
        await caller.ask("DELETE", "/api/v1/holds?type=mail&key=k", token="acme")
        assert (await caller.ask("PUT", "/api/v1/holds?tenant=bolt", {}, token="acme")).status == 404
        await caller.ask("PUT", "/api/v1/holds?type=mail", {}, token="admin")
        assert broker.commands == [
            CancelTasks("acme", [5]),
            SetHold("acme", "mail", "", True, False, 0, "x", Author("tenant", "acme")),
            ClearHold("acme", "mail", "k", Author("tenant", "acme")),
            SetHold("", "mail", by=Author("operator", "admin")),
        ]

    run_asking(scenario, tokens_file=tokens_file)


def test_a_tenant_of_whom_nothing_was_said_sees_the_default_policy(tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        from broker.machine.views import Tenants

        broker.answers[ListTenants] = lambda _: Tenants([], "")
        own = await caller.ask("GET", "/api/v1/tenants/acme", token="acme")
        assert (own.status, own.json["is_default"], own.json["policy"]["weight"]) == (200, True, 1.0)
        assert_problem(await caller.ask("GET", "/api/v1/tenants/acme", token="admin"), 404, "not-found")

    run_asking(scenario, tokens_file=tokens_file)


# ---- how often


def test_a_token_has_so_many_requests_at_once_and_others_are_not_held_up(tokens_file: str) -> None:
    async def run() -> None:
        async with serving(tokens_file=tokens_file, requests_max=3) as (server, broker):
            broker.tasks[5] = task(5)
            callers = [await Caller.of(server) for _ in range(4)]
            waiting = [
                asyncio.create_task(one.ask("GET", "/api/v1/tasks/5?wait_s=60", token="acme")) for one in callers[:3]
            ]
            async with asyncio.timeout(60):
                while broker.waiting < 3:
                    await asyncio.sleep(0.005)
            late = await callers[3].ask("GET", "/api/v1/slots", token="acme")
            assert_problem(late, 429, "too-many-at-once")
            assert (await callers[3].ask("GET", "/api/v1/slots", token="bolt")).status == 200
            broker.end(5)
            assert {(await one).status for one in waiting} == {200}
            assert (await callers[3].ask("GET", "/api/v1/slots", token="acme")).status == 200
            for caller in callers:
                caller.close()

    asyncio.run(run())


def test_a_token_that_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        answers = [await caller.ask("GET", "/api/v1/slots", token="acme") for _ in range(4)]
        assert [one.status for one in answers] == [200, 200, 200, 429]
        assert_problem(answers[-1], 429, "rate-limited")
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await caller.ask("GET", "/api/v1/slots", token="bolt")).status == 200, "each has its own"

    run_asking(scenario, tokens_file=write_tokens(tmp_path / "t.toml", acme="rate_per_s = 0.01\nrate_burst = 3"))


def test_a_tenant_with_many_tokens_sends_no_more_than_one_with_one(tmp_path: Path) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        async def submit(token: str) -> int:
            return (await caller.ask("POST", "/api/v1/tasks", {"type": "mail"}, token=token)).status

        both = ("acme", again, "acme", again)
        assert [await submit(token) for token in both] == [201, 201, 201, 429]
        answer = await caller.ask("POST", "/api/v1/tasks", {"type": "mail"}, token=again)
        assert "tenant 'acme', with all its tokens" in answer.json["detail"]
        assert await submit("bolt") == 201, "each tenant has its own"
        assert (await caller.ask("GET", "/api/v1/slots", token="acme-viewer")).status == 200, "another rate: by itself"
        assert len(broker.commands) == 4

    again, rates = "the-second-one-of-acme", "rate_per_s = 0.01\nrate_burst = 3"
    path = Path(write_tokens(tmp_path / "t.toml", acme=rates))
    with path.open("a") as file:
        more = f'sha256 = "{hashlib.sha256(again.encode()).hexdigest()}"\nrole = "tenant"\ntenant = "acme"'
        file.write(f'\n[[token]]\nname = "acme too"\n{more}\n{rates}\n')
    run_asking(scenario, tokens_file=str(path))


def test_a_token_that_submits_too_many_tasks_is_told_when_to_come_again(tmp_path: Path) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        batch = {"tasks": [{"type": "mail"}] * 3}
        path = "/api/v1/tasks/batch"
        assert (await caller.ask("POST", path, batch, token="acme")).status == 200, "more than its burst, once"
        for body, where in ((batch, path), ({"type": "mail"}, "/api/v1/tasks")):
            answer = await caller.ask("POST", where, body, token="acme")
            assert_problem(answer, 429, "rate-limited")
            assert "tasks a second" in answer.json["detail"]
            assert int(answer.headers["retry-after"]) >= 100
        assert len(broker.commands) == 1
        assert (await caller.ask("GET", "/api/v1/slots", token="acme")).status == 200, "it may look, cancel and so on"
        assert (await caller.ask("POST", path, batch, token="bolt")).status == 200, "each has its own"

    run_asking(scenario, tokens_file=write_tokens(tmp_path / "t.toml", acme="rate_tasks_per_s = 0.01"))


def test_a_token_that_sends_too_many_bytes_is_told_when_to_come_again(tmp_path: Path) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        body = {"type": "mail", "payload": "x" * 2_000}
        assert (await caller.ask("POST", "/api/v1/tasks", body, token="acme")).status == 201
        for _ in range(2):
            answer = await caller.ask("POST", "/api/v1/tasks", body, token="acme")
            assert_problem(answer, 429, "rate-limited")
            assert "bytes a second" in answer.json["detail"]
        assert len(broker.commands) == 1
        assert (await caller.ask("GET", "/api/v1/slots", token="acme")).status == 200, "what has no body is no matter"
        assert (await caller.ask("POST", "/api/v1/tasks", body, token="bolt")).status == 201, "each has its own"

    run_asking(scenario, tokens_file=write_tokens(tmp_path / "t.toml", acme="rate_bytes_per_s = 10.0"))


def test_bytes_that_no_length_announces_count_too(tmp_path: Path) -> None:
    head = (
        f"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {SECRETS['acme']}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    body = '{"type": "mail", "payload": "%s"}' % ("x" * 2_000)
    request = f"{head}{len(body):x}\r\n{body}\r\n0\r\n\r\n".encode()

    async def run() -> None:
        path = write_tokens(tmp_path / "t.toml", acme="rate_bytes_per_s = 10.0")
        async with serving(tokens_file=str(path)) as (server, broker):
            said = []
            for _ in range(2):
                caller = await Caller.of(server)
                caller.writer.write(request.replace(b"localhost", caller.host.encode()))
                said.append((await caller.reader.readline()).split()[1])
                caller.close()
            assert said == [b"201", b"429"]
            assert len(broker.commands) == 1

    asyncio.run(run())
