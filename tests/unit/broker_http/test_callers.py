"""Who may ask for what, whose things they see, and how often."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.core.commands import CancelTasks, ClearHold, SetHold
from broker.core.queries import ListTasks, ListTenants
from broker.core.statuses import TaskStatus
from tests.unit.broker_http.stand import Caller, StandIn, assert_problem, run_asking, serving, task, write_tokens


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


@pytest.mark.parametrize("path", ["/api/v1/status", "/healthz", "/readyz", "/api/v1/openapi.json", "/"])
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
            SetHold("acme", "mail", "", True, False, 0, "x"),
            ClearHold("acme", "mail", "k"),
            SetHold("", "mail"),
        ]

    run_asking(scenario, tokens_file=tokens_file)


def test_a_tenant_of_whom_nothing_was_said_sees_the_default_policy(tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        from broker.core.shown import Tenants

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
            async with asyncio.timeout(20):
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
