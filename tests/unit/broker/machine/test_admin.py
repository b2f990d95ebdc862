"""Tenants, holds, limits, code pools."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine.policies import ErrorRule, RetryPolicy, TenantPolicy
from broker.machine.replies import Refusal, Refused
from broker.machine.statuses import TaskStatus
from tests.unit.broker.machine.driven_broker import START_MS, DrivenBroker

Spec = c.TaskSpec


def refusal(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    return reply.refusal


def test_a_policy_is_shown_as_it_was_set_also_after_a_snapshot(broker: DrivenBroker) -> None:
    policy = TenantPolicy(
        2.5, 10, {"mail": 3}, 7, 4, -2, 9, RetryPolicy(5, 1.5, 50, 0.2, (ErrorRule("X", retry=False),)), 5, 6
    )
    broker.run(c.SetTenant("acme", policy))
    broker.reboot()
    (shown,) = broker.ask(q.ListTenants("acme")).tenants
    assert (shown.policy, shown.is_default) == (policy, False)
    broker.run(c.RemoveTenant("acme"))
    assert broker.ask(q.ListTenants()).tenants == []
    assert refusal(broker.run(c.RemoveTenant("acme"))) == Refusal.NOT_FOUND
    broker.check()


@pytest.mark.parametrize(
    "policy",
    [
        TenantPolicy(weight=0), TenantPolicy(weight=-1), TenantPolicy(weight=float("nan")),
        TenantPolicy(weight=float("inf")), TenantPolicy(running_max=-1), TenantPolicy(waiting_max=-1),
        TenantPolicy(group=0), TenantPolicy(priority=10**9), TenantPolicy(max_attempts=-1),
        TenantPolicy(retention_ms=-1), TenantPolicy(dead_retention_ms=2**62), TenantPolicy(running_max_by_type={"": 1}),
        TenantPolicy(running_max_by_type={"mail": -1}), TenantPolicy(retry=RetryPolicy(backoff_ms=-1)),
        TenantPolicy(retry=RetryPolicy(factor=float("nan"))), TenantPolicy(retry=RetryPolicy(factor=0.5)),
        TenantPolicy(retry=RetryPolicy(jitter=1.5)), TenantPolicy(retry=RetryPolicy(rules=(ErrorRule("X"),) * 101)),
        TenantPolicy(retry=RetryPolicy(rules=(ErrorRule("X", max_attempts=-1),))),
    ],
)  # fmt: skip
def test_an_unsound_policy_is_refused(broker: DrivenBroker, policy: TenantPolicy) -> None:
    assert refusal(broker.run(c.SetTenant("acme", policy))) == Refusal.INVALID


def test_a_cap_of_a_tenant_holds_from_the_next_dispatch(broker: DrivenBroker) -> None:
    broker.run(c.SetTenant("acme", TenantPolicy(running_max=1)))
    ids = broker.submit(*[Spec("mail")] * 3)
    broker.fire()
    assert sum(broker.status(one) == TaskStatus.RUNNING for one in ids) == 1
    broker.run(c.SetTenant("acme", TenantPolicy(running_max=2)))
    broker.fire()
    assert sum(broker.status(one) == TaskStatus.RUNNING for one in ids) == 2
    broker.check()


def test_a_limit_of_a_resource_is_never_exceeded_and_its_use_is_shown(broker: DrivenBroker) -> None:
    broker.run(c.LimitResource("db", 3))
    ids = broker.submit(*[Spec("mail", resources={"db": 2})] * 2, Spec("mail", resources={"db": 1, "gpu": 1}))
    broker.fire()
    assert [broker.status(one) == TaskStatus.RUNNING for one in ids] == [True, False, True]
    used = {shown.resource: (shown.amount_max, shown.used) for shown in broker.ask(q.ListLimits()).resources}
    assert used == {"db": (3, 3), "gpu": (None, 1)}
    broker.reboot()
    used = {shown.resource: (shown.amount_max, shown.used) for shown in broker.ask(q.ListLimits()).resources}
    assert used == {"db": (3, 3), "gpu": (None, 1)}
    broker.end(ids[0])
    broker.fire()
    assert broker.status(ids[1]) == TaskStatus.RUNNING
    broker.run(c.LimitResource("db", None))
    assert refusal(broker.run(c.LimitResource("db", None))) == Refusal.NOT_FOUND
    broker.check()


@pytest.mark.parametrize(
    "command",
    [
        c.LimitResource("", 1), c.LimitResource("a=b", 1), c.LimitResource("db", -1), c.LimitResource("db", 2**50),
        c.SetHold("", "", "key"), c.SetHold("acme", "", is_paused=False), c.SetHold("acme", "", until_ms=-1),
        c.SetHold("acme", "", until_ms=START_MS), c.SetHold("acme", "", reason="x" * 5_000),
    ],
)  # fmt: skip
def test_an_unsound_limit_or_hold_is_refused(broker: DrivenBroker, command: object) -> None:
    assert refusal(broker.run(command)) == Refusal.INVALID


def test_a_hold_is_shown_and_cleared(broker: DrivenBroker) -> None:
    broker.run(c.SetHold("acme", "mail", reason="busy"))
    (task,) = broker.submit(Spec("mail"))
    broker.fire()
    assert broker.status(task) == TaskStatus.WAITING
    (shown,) = broker.ask(q.ListLimits("acme")).holds
    assert (shown.type, shown.is_paused, shown.reason) == ("mail", True, "busy")
    assert broker.ask(q.ListLimits("other")).holds == []
    broker.run(c.ClearHold("acme", "mail"))
    broker.fire()
    assert broker.status(task) == TaskStatus.RUNNING
    assert refusal(broker.run(c.ClearHold("acme", "mail"))) == Refusal.NOT_FOUND
    broker.check()
