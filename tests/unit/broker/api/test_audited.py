"""Who changes rights, code and holds is written down before it is done; who is refused is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.machine.commands import SetHold
from broker.machine.replies import Refusal, Refused
from rsm_spark.errors import NotLeaderError, OverloadedError
from tests.unit.broker.api.stand import Caller, StandIn, assert_problem, run_asking, write_tokens

_AUDITED = [
    ("PUT", "/api/v1/holds?type=mail", {}),
    ("DELETE", "/api/v1/holds?type=mail", None),
    ("PUT", "/api/v1/tenants/acme", {"weight": 2.0}),
    ("DELETE", "/api/v1/tenants/acme", None),
    ("PUT", "/api/v1/resources/db", {"amount_max": 3}),
    ("DELETE", "/api/v1/resources/db", None),
    ("DELETE", "/api/v1/code/pool", None),
    ("DELETE", "/api/v1/workers/w1", None),
]


@pytest.fixture
def tokens_file(tmp_path: Path) -> str:
    return write_tokens(tmp_path / "tokens.toml")


@pytest.mark.parametrize(("method", "path", "body"), _AUDITED, ids=[f"{one[0]} {one[1]}" for one in _AUDITED])
def test_a_change_is_written_down_before_and_after(method: str, path: str, body: object, tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        assert (await caller.ask(method, path, body, token="admin")).status == 200
        before, after = broker.audit.told
        assert (before.outcome, after.outcome) == ("asked", "done")
        assert (before.principal, before.role) == ("admin", "operator")
        assert before.source.startswith("127.0.0.1:")
        assert before.action.startswith(f"{method} /api/v1/")
        assert before.target == path

    run_asking(scenario, tokens_file=tokens_file)


def test_what_is_no_change_of_that_kind_is_not_written_down(tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        await caller.ask("GET", "/api/v1/limits", token="admin")
        await caller.ask("POST", "/api/v1/tasks", {"type": "mail"}, token="acme")
        assert broker.audit.told == []

    run_asking(scenario, tokens_file=tokens_file)


@pytest.mark.parametrize("failure", [NotLeaderError("elsewhere"), OverloadedError("full")])
def test_what_cannot_be_written_down_is_not_done(failure: Exception) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.audit.failure = failure
        answer = await caller.ask("PUT", "/api/v1/holds?type=mail", {})
        assert answer.status >= 300
        assert broker.commands == []

    run_asking(scenario)


def test_a_change_that_the_broker_refuses_is_written_down_as_refused() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.answers[SetHold] = lambda _command: Refused(Refusal.CONFLICT, "no")
        await caller.ask("PUT", "/api/v1/holds?type=mail", {})
        assert [told.outcome for told in broker.audit.told] == ["asked", "refused: conflict"]

    run_asking(scenario)


def test_who_may_not_is_counted_under_its_own_name_and_a_stranger_under_none(tokens_file: str) -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        assert_problem(await caller.ask("PUT", "/api/v1/tenants/acme", {}, token="acme"), 403, "not-allowed")
        assert_problem(await caller.ask("PUT", "/api/v1/tenants/acme", {}, token="not-one-at-all"), 401, "bad-token")
        known, stranger = broker.audit.refusals
        assert (known.role, known.outcome) == ("tenant", "not-allowed")
        assert "acme" in known.principal
        assert (stranger.principal, stranger.outcome) == ("nobody", "bad-token")
        assert broker.audit.told == []
        assert broker.commands == []

    run_asking(scenario, tokens_file=tokens_file)
