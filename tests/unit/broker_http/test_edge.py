"""Who may ask for what, and what is answered when something is wrong."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.core.commands import CancelTasks, ClearHold, CommitTransaction, SetHold, SubmitTasks
from broker.core.queries import GetTask, ListTasks, ListTenants
from broker.core.replies import Changed, Refusal, Refused
from broker.core.statuses import TaskStatus
from rsm_spark.core.freshness import LINEARIZABLE, STALE, at_least
from rsm_spark.errors import (
    InvalidCommandError,
    NoLeaderError,
    NotLeaderError,
    NotReadyError,
    OutcomeUnknownError,
    OverloadedError,
    TooStaleError,
)
from tests.unit.broker_http.stand import Answer, Caller, StandIn, asking, task, write_tokens


def _run(scenario: Callable[[Caller, StandIn], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with asking(**settings) as (caller, broker):
            await scenario(caller, broker)

    asyncio.run(run())


@pytest.fixture
def tokens_file(tmp_path: Path) -> str:
    return write_tokens(tmp_path / "tokens.toml")


def _raising(error: Exception) -> Callable[[Any], Any]:
    def fail(_: Any) -> Any:
        raise error

    return fail


def _assert_problem(answer: Answer, status: int, reason: str) -> None:
    assert (answer.status, answer.json["status"], answer.json["reason"]) == (status, status, reason)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["type"].endswith(reason)
    assert answer.json["title"]
    assert answer.json["detail"]
    assert b"Traceback" not in answer.body


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
        _assert_problem(await caller.ask(method, path, body), 401, "no-token")
        _assert_problem(await caller.ask(method, path, body, token="nobody-at-all-knows"), 401, "bad-token")

    _run(scenario, tokens_file=tokens_file)


@pytest.mark.parametrize("path", ["/api/v1/status", "/healthz", "/readyz", "/api/v1/openapi.json", "/"])
def test_what_shows_nothing_of_tenants_is_open(path: str, tokens_file: str) -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        assert (await caller.ask("GET", path)).status == 200

    _run(scenario, tokens_file=tokens_file)


def test_nobody_is_told_which_tokens_there_are(tokens_file: str) -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        answer = await caller.ask("GET", "/api/v1/tasks")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert b"acme" not in answer.body

    _run(scenario, tokens_file=tokens_file)


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

    _run(scenario, tokens_file=tokens_file)


@pytest.mark.parametrize(
    "path",
    ["tasks?tenant=bolt", "overview?tenant=bolt", "tenants?tenant=bolt", "tenants/bolt", "limits?tenant=bolt",
     "slots?tenant=bolt", "transactions?tenant=bolt", "events?tenant=bolt"],
)  # fmt: skip
def test_a_tenant_that_names_another_finds_nothing(path: str, tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        _assert_problem(await caller.ask("GET", f"/api/v1/{path}", token="acme"), 404, "not-found")
        _assert_problem(await caller.ask("GET", f"/api/v1/{path}", token="acme-viewer"), 404, "not-found")
        assert broker.queries == []

    _run(scenario, tokens_file=tokens_file)


def test_lists_are_of_the_callers_tenant(tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        for token in ("acme", "acme-viewer", "admin", "viewer"):
            await caller.ask("GET", "/api/v1/tasks", token=token)
        await caller.ask("GET", "/api/v1/tasks?tenant=bolt", token="admin")
        await caller.ask("GET", "/api/v1/tasks", token="admin", headers={"X-Tenant": "bolt"})
        assert [query.tenant for query in broker.queries if isinstance(query, ListTasks)] == [
            "acme", "acme", "", "", "bolt", "bolt",
        ]  # fmt: skip

    _run(scenario, tokens_file=tokens_file)


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

    _run(scenario, tokens_file=tokens_file)


def test_a_tenant_of_whom_nothing_was_said_sees_the_default_policy(tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        from broker.core.shown import Tenants

        broker.answers[ListTenants] = lambda _: Tenants([], "")
        own = await caller.ask("GET", "/api/v1/tenants/acme", token="acme")
        assert (own.status, own.json["is_default"], own.json["policy"]["weight"]) == (200, True, 1.0)
        _assert_problem(await caller.ask("GET", "/api/v1/tenants/acme", token="admin"), 404, "not-found")

    _run(scenario, tokens_file=tokens_file)


# ---- how often


def test_a_token_that_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        answers = [await caller.ask("GET", "/api/v1/slots", token="acme") for _ in range(4)]
        assert [one.status for one in answers] == [200, 200, 200, 429]
        _assert_problem(answers[-1], 429, "rate-limited")
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await caller.ask("GET", "/api/v1/slots", token="bolt")).status == 200, "each has its own"

    _run(scenario, tokens_file=write_tokens(tmp_path / "t.toml", acme="rate_per_s = 0.01\nrate_burst = 3"))


# ---- what is wrong


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/nothing", 404, "not-found"),
        ("GET", "/api/v1/tasks/", 404, "not-found"),
        ("GET", "/api/v1/tenants/", 404, "not-found"),
        ("GET", "//api/v1/tasks", 404, "not-found"),
        ("GET", "/api/v1/../../etc/passwd", 404, "not-found"),
        ("GET", "/static/..%2f..%2fserver.py", 404, "not-found"),
        ("GET", "/api/v1/tenants/%00", 400, "invalid"),
        ("GET", "/api/v1/tenants/%ff", 400, "invalid"),
        ("GET", "/api/v1/tasks/abc", 400, "invalid"),
        ("GET", "/api/v1/tasks/-1", 400, "invalid"),
        ("GET", "/api/v1/tasks/" + "9" * 5_000, 400, "invalid"),
        ("GET", "/api/v1/tasks/%D9%A3", 400, "invalid"),
        ("GET", "/api/v1/tasks?limit=0", 400, "invalid"),
        ("GET", "/api/v1/tasks?limit=1.5", 400, "invalid"),
        ("GET", "/api/v1/tasks?limit=" + "9" * 5_000, 400, "invalid"),
        ("GET", "/api/v1/tasks?limit=1&limit=2", 400, "invalid"),
        ("GET", "/api/v1/tasks?stat=waiting", 400, "invalid"),
        ("GET", "/api/v1/tasks?status=wating", 400, "invalid"),
        ("GET", "/api/v1/tasks?order=up", 400, "invalid"),
        ("GET", "/api/v1/tasks?type=%ff", 400, "invalid"),
        ("GET", "/api/v1/tasks?type=%00", 400, "invalid"),
        ("GET", "/api/v1/tasks?" + "&".join(["type=a"] * 40), 400, "invalid"),
        ("GET", "/api/v1/tasks/5?wait_s=61", 400, "invalid"),
        ("GET", "/api/v1/tasks/5?wait_s=nan", 400, "invalid"),
        ("GET", "/api/v1/tasks/5?wait_s=inf", 400, "invalid"),
        ("DELETE", "/api/v1/tasks", 405, "method-not-allowed"),
        ("TRACE", "/api/v1/tasks", 405, "method-not-allowed"),
        ("OPTIONS", "/api/v1/tasks", 405, "method-not-allowed"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_problem(method: str, path: str, status: int, reason: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        _assert_problem(await caller.ask(method, path), status, reason)
        assert broker.queries == []
        assert (await caller.ask("GET", "/healthz")).status == 200, "the connection goes on"

    _run(scenario)


def test_a_method_that_means_nothing_is_told_those_that_do() -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        assert (await caller.ask("DELETE", "/api/v1/tasks")).headers["allow"] == "GET, HEAD, POST"

    _run(scenario)


def test_an_unknown_parameter_is_told_the_nearest() -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        assert "did you mean 'status'?" in (await caller.ask("GET", "/api/v1/tasks?stats=a")).json["detail"]

    _run(scenario)


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "json"]
)
def test_a_body_that_is_not_declared_as_json_is_not_read(content_type: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        headers = {"Content-Type": content_type} if content_type else {"Content-Type": "application/octet-stream"}
        _assert_problem(await caller.ask("POST", "/api/v1/tasks", {"type": "a"}, headers=headers), 415, "not-json")
        assert broker.commands == []

    _run(scenario)


def test_json_may_say_that_it_is_utf_8() -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        headers = {"Content-Type": "application/json; charset=UTF-8"}
        assert (await caller.ask("POST", "/api/v1/tasks", {"type": "a"}, headers=headers)).status == 201

    _run(scenario)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (NotLeaderError("no"), 503, "no-leader"),
        (NoLeaderError("nobody led"), 503, "not-ready"),
        (OverloadedError("full"), 503, "overloaded"),
        (OutcomeUnknownError("unknown"), 504, "outcome-unknown"),
        (TimeoutError(), 504, "outcome-unknown"),
        (TooStaleError("old"), 503, "too-stale"),
        (NotReadyError("installs"), 503, "not-ready"),
        (InvalidCommandError("bad"), 400, Refusal.INVALID),
    ],
)
def test_what_a_replica_says_is_told_as_what_it_means(error: Exception, status: int, reason: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.answers[SubmitTasks] = broker.answers[GetTask] = _raising(error)
        for method, path, body in (("POST", "/api/v1/tasks", {"type": "a"}), ("GET", "/api/v1/tasks/5", None)):
            answer = await caller.ask(method, path, body)
            _assert_problem(answer, status, reason)
            assert ("retry-after" in answer.headers) == (status == 503)

    _run(scenario)


def test_an_error_of_our_own_is_logged_with_a_number_and_told_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.answers[SubmitTasks] = _raising(KeyError("secret detail"))
        answer = await caller.ask("POST", "/api/v1/tasks", {"type": "a"})
        _assert_problem(answer, 500, "unexpected")
        assert b"secret" not in answer.body
        assert answer.json["error"] in caplog.text
        assert "secret detail" in caplog.text
        assert (await caller.ask("GET", "/healthz")).status == 200

    with caplog.at_level(logging.ERROR):
        _run(scenario)


def test_a_reply_that_cannot_be_is_an_error_of_our_own() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.answers[SubmitTasks] = lambda _: Changed(1)
        _assert_problem(await caller.ask("POST", "/api/v1/tasks", {"type": "a"}), 500, "unexpected")

    _run(scenario)


def test_what_is_wrong_with_a_commit_is_told_in_words() -> None:
    # Majordodo: the error text of commit and rollback is lost.
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.answers[CommitTransaction] = lambda _: Refused(Refusal.TRANSACTION_OVER, "transaction 9 expired")
        answer = await caller.ask("POST", "/api/v1/transactions/9/commit", {})
        _assert_problem(answer, 409, "transaction-over")
        assert answer.json["detail"] == "transaction 9 expired"

    _run(scenario)


# ---- followers


def test_a_follower_sends_writers_to_the_leader_and_names_it() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.leader = "http://broker-b:8080"
        broker.answers[SubmitTasks] = broker.answers[CommitTransaction] = _raising(NotLeaderError("follows"))
        answer = await caller.ask("POST", "/api/v1/tasks", {"type": "a"})
        _assert_problem(answer, 307, "not-leader")
        assert answer.headers["location"] == "http://broker-b:8080/api/v1/tasks"
        assert answer.json["leader"] == "http://broker-b:8080"
        answer = await caller.ask("POST", "/api/v1/transactions/9/commit")
        assert answer.headers["location"] == "http://broker-b:8080/api/v1/transactions/9/commit"

    _run(scenario)


def test_a_read_says_which_revision_it_shows() -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        for path in ("tasks", "overview", "workers", "tenants", "limits", "slots", "transactions", "status"):
            assert (await caller.ask("GET", f"/api/v1/{path}")).headers["x-rsm-revision"] == "70"

    _run(scenario)


def test_a_reader_says_how_new_the_state_has_to_be() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        for headers in ({}, {"X-Rsm-Min-Revision": "12"}, {"X-Rsm-Consistency": "linearizable"},
                        {"X-Rsm-Consistency": "stale"}):  # fmt: skip
            assert (await caller.ask("GET", "/api/v1/slots", headers=headers)).status == 200
        assert broker.freshness == [STALE, at_least(12), LINEARIZABLE, STALE]
        for headers in ({"X-Rsm-Min-Revision": "-1"}, {"X-Rsm-Min-Revision": "x"}, {"X-Rsm-Consistency": "strong"}):
            _assert_problem(await caller.ask("GET", "/api/v1/slots", headers=headers), 400, "invalid")

    _run(scenario)


# ---- what every answer carries


def test_answers_are_neither_kept_nor_framed_nor_sniffed_nor_shared() -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        for path in ("/api/v1/slots", "/nothing", "/healthz"):
            headers = (await caller.ask("GET", path)).headers
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "server" not in headers
            assert not [name for name in headers if name.startswith("access-control")]

    _run(scenario)


def test_what_a_tenant_wrote_is_never_a_page_of_this_origin() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.tasks[5] = task(5, status=TaskStatus.FINISHED, payload=b"<script>", result=b"<img onerror>")
        for name, content in (("payload", b"<script>"), ("result", b"<img onerror>")):
            answer = await caller.ask("GET", f"/api/v1/tasks/5/{name}")
            assert (answer.status, answer.body) == (200, content)
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-disposition"] == "attachment"
            assert answer.headers["x-content-type-options"] == "nosniff"

    _run(scenario)


def test_requests_under_a_foreign_name_or_from_a_foreign_page_are_refused() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        _assert_problem(await caller.ask("GET", "/api/v1/tasks", headers={"Host": "evil.example"}), 421, "foreign-host")
        answer = await caller.ask("POST", "/api/v1/tasks", {"type": "a"}, headers={"Origin": "http://evil.example"})
        _assert_problem(answer, 403, "foreign-origin")
        assert broker.commands == broker.queries == []
        own = {"Origin": f"http://{caller.host}"}
        assert (await caller.ask("POST", "/api/v1/tasks", {"type": "a"}, headers=own)).status == 201

    _run(scenario)


@pytest.mark.parametrize("name", ["Host", "Authorization", "X-Tenant", "Idempotency-Key", "Content-Type"])
def test_a_header_that_decides_must_not_be_there_twice(name: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        twice = {name: "application/json", name.lower(): "application/json"}
        if name == "Content-Type":
            twice = {"content-type": "application/json"}
        answer = await caller.ask("POST", "/api/v1/tasks", {"type": "a"}, headers=twice)
        _assert_problem(answer, 400, "invalid")
        assert broker.commands == []

    _run(scenario)


def test_code_is_deployed_as_a_zip_under_a_plain_name() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        zipped = {"Content-Type": "application/zip"}
        archive = b"PK\x03\x04" + os.urandom(50)
        answer = await caller.ask("PUT", "/api/v1/code/pool-1?ttl_s=60", archive, headers=zipped)
        assert answer.status == 200
        (command,) = broker.commands
        assert (command.code, command.archive, command.ttl_ms) == ("pool-1", archive, 60_000)
        assert answer.json["sha256"] == command.sha256
        for path, body, headers, status in (
            ("pool", archive, {}, 415),
            ("pool", b"no zip", zipped, 400),
            ("..%2fpool", archive, zipped, 400),
            ("Pool", archive, zipped, 400),
            ("pool", archive + bytes(3 * 1024 * 1024), zipped, 413),
        ):
            assert (await caller.ask("PUT", f"/api/v1/code/{path}", body, headers=headers)).status == status
        got = await caller.ask("GET", "/api/v1/code/pool")
        assert (got.status, got.body, got.headers["content-type"]) == (200, b"PK\x03\x04", "application/zip")
        assert len(broker.commands) == 1

    _run(scenario)
