"""What a tenant may name by itself."""

from __future__ import annotations

import hashlib
import json

import pytest

from broker.machine import commands as c
from broker.machine.commands import TaskSpec as Spec
from broker.machine.policies import TenantPolicy
from broker.machine.replies import Changed, Done, Refusal, Refused, TasksSubmitted
from broker.machine.statuses import TaskStatus
from tests.unit.broker.machine.driven_broker import DrivenBroker


@pytest.fixture
def broker() -> DrivenBroker:
    return DrivenBroker()


def refusal(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    return reply.refusal


# ---- what may be named


def _submit(broker: DrivenBroker, spec: Spec, *, is_bound: bool = True) -> object:
    return broker.run(c.SubmitTasks("acme", [spec], is_bound=is_bound))


def _deploy(broker: DrivenBroker, code: str) -> None:
    broker.run(c.DeployCode(code, b"zip", hashlib.sha256(b"zip").hexdigest()))


def test_ordinary_types_are_everybodys_guarded_ones_and_pools_are_not(broker: DrivenBroker) -> None:
    _deploy(broker, "pool")
    assert isinstance(_submit(broker, Spec("mail", resources={"gpu": 1}, group=7)), TasksSubmitted)
    for spec in (Spec("spark_sql"), Spec("spark_python"), Spec("spark_submit"), Spec("mail", code="pool", mode="a:b")):
        reply = _submit(broker, spec)
        assert refusal(reply) == Refusal.NOT_ALLOWED
        assert "rsm tenant set acme --allow-" in reply.reason  # type: ignore[attr-defined]
        assert isinstance(_submit(broker, spec, is_bound=False), TasksSubmitted), "an operator submits what it likes"


def test_a_policy_lists_what_else_may_be_named(broker: DrivenBroker) -> None:
    for code in ("pool-a", "pool-b", "other"):
        _deploy(broker, code)
    policy = TenantPolicy(group=3, types=("mail*", "spark_sql"), codes=("pool-*",), resources=("db",), groups=(4,))
    broker.run(c.SetTenant("acme", policy))
    allowed = (
        Spec("mail"), Spec("mail-2"), Spec("spark_sql"), Spec("mail", code="pool-b"),
        Spec("mail", resources={"db": 1}), Spec("mail", group=4), Spec("mail", group=3),
    )  # fmt: skip
    denied = (
        Spec("print"), Spec("mail", code="other"), Spec("mail", resources={"db": 1, "gpu": 1}), Spec("mail", group=1),
    )  # fmt: skip
    for spec in allowed:
        assert isinstance(_submit(broker, spec), TasksSubmitted), spec
    for spec in denied:
        assert refusal(_submit(broker, spec)) == Refusal.NOT_ALLOWED, spec
    broker.check()


def test_a_star_is_no_key_to_a_guarded_type(broker: DrivenBroker) -> None:
    broker.run(c.SetTenant("acme", TenantPolicy(types=("*",))))
    assert isinstance(_submit(broker, Spec("anything")), TasksSubmitted)
    for guarded in ("spark_sql", "spark_python", "spark_submit"):
        assert refusal(_submit(broker, Spec(guarded))) == Refusal.NOT_ALLOWED


def test_a_function_with_a_session_needs_its_type_and_its_code(broker: DrivenBroker) -> None:
    _deploy(broker, "pool")
    spec = Spec("spark_python", code="pool", mode="a:b")
    for policy in (TenantPolicy(types=("spark_python",)), TenantPolicy(codes=("pool",))):
        broker.run(c.SetTenant("acme", policy))
        assert refusal(_submit(broker, spec)) == Refusal.NOT_ALLOWED
    broker.run(c.SetTenant("acme", TenantPolicy(types=("spark_python",), codes=("pool",))))
    assert isinstance(_submit(broker, spec), TasksSubmitted)


def test_nor_does_a_change_or_a_replay_go_around_it(broker: DrivenBroker) -> None:
    broker.run(c.SetTenant("acme", TenantPolicy(types=("spark_sql", "mail"), resources=("db",), groups=())))
    (task,) = broker.submit(Spec("spark_sql", max_attempts=1))
    change = c.ChangeTasks("acme", [task], resources={"gpu": 1}, is_bound=True)
    assert refusal(broker.run(change)) == Refusal.NOT_ALLOWED
    assert refusal(broker.run(c.ChangeTasks("acme", [task], group=9, is_bound=True))) == Refusal.NOT_ALLOWED
    broker.appear()
    broker.fire()
    broker.end(task, TaskStatus.ERROR)
    assert broker.status(task) == TaskStatus.ERROR
    broker.run(c.SetTenant("acme", TenantPolicy(types=("mail",))))
    assert refusal(broker.run(c.ReplayDead("acme", [task], is_bound=True))) == Refusal.CONFLICT
    assert broker.run(c.ReplayDead("acme", is_bound=True)) == Changed(0)
    assert broker.run(c.ReplayDead("acme", [task])) == Changed(1)
    broker.check()


def test_a_policy_of_the_new_kind_waits_for_the_logs_format(broker: DrivenBroker) -> None:
    broker.machine.format_level = 1
    assert refusal(broker.run(c.SetTenant("acme", TenantPolicy(codes=("pool",))))) == Refusal.CONFLICT
    assert isinstance(broker.run(c.SetTenant("acme", TenantPolicy(weight=2.0))), Done)
    written = broker.log[-1][2][-1]
    assert not {"types", "codes", "resources", "groups", "bytes_max"} & set(json.loads(written))
    assert refusal(_submit(broker, Spec("spark_sql"))) == Refusal.NOT_ALLOWED, "what is dangerous is denied at once"
    broker.machine.format_level = 2
    assert isinstance(broker.run(c.SetTenant("acme", TenantPolicy(codes=("pool",)))), Done)
    broker.check()
