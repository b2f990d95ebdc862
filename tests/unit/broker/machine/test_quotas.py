"""What tenants may keep, in tasks and in bytes, whoever leads; and what is taken when memory is nearly used up."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine.commands import TaskSpec as Spec
from broker.machine.policies import TenantPolicy
from broker.machine.replies import Changed, Done, Refusal, Refused, TasksSubmitted
from broker.machine.rules import BrokerRules
from broker.machine.statuses import TaskStatus
from tests.unit.broker.machine.driven_broker import DrivenBroker

_KIB = 1024


def _refusal(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    return reply.refusal


def _fill(broker: DrivenBroker, tenant: str, size: int = 1_000) -> int:
    """Submit until it is refused; return how many were taken."""
    for count in range(1_000):
        reply = broker.run(c.SubmitTasks(tenant, [Spec("mail", b"x" * size)]))
        if isinstance(reply, Refused):
            assert reply.refusal == Refusal.BYTES_FULL, reply
            return count
    raise AssertionError("there is no bound")


@pytest.mark.parametrize("how", ["promote", "reboot"])
def test_a_quota_in_bytes_holds_after_a_failover_and_a_restart(how: str) -> None:
    broker = DrivenBroker(BrokerRules(tenant_bytes_max=20 * _KIB, bytes_max=30 * _KIB))
    assert 15 <= _fill(broker, "acme") <= 20
    assert isinstance(broker.run(c.SubmitTasks("bolt", [Spec("mail", b"x" * 1_000)])), TasksSubmitted)
    getattr(broker, how)()
    assert _fill(broker, "acme") == 0
    assert 5 <= _fill(broker, "bolt") <= 10, "all together"
    assert _fill(broker, "core") == 0
    broker.check()


def test_results_and_errors_count_and_a_purge_frees_what_they_took() -> None:
    broker = DrivenBroker(BrokerRules(tenant_bytes_max=9_800, retention_ms=1_000, dead_retention_ms=2_000))
    good, bad = broker.submit(Spec("mail"), Spec("mail", max_attempts=1))
    broker.appear()
    broker.fire()
    broker.end(good, result=b"r" * 5_000)
    broker.end(bad, TaskStatus.ERROR, error="e" * 4_000)
    tenant = broker.machine.tasks.tenants["acme"]
    assert 9_000 < tenant.bytes < 9_800
    assert _fill(broker, "acme") == 0
    broker.check()
    broker.pass_time(1_500)
    assert 4_000 < tenant.bytes < 5_000
    assert _fill(broker, "acme") > 0
    broker.check()


def test_results_beyond_a_quota_go_before_their_time_dead_letters_last() -> None:
    broker = DrivenBroker(BrokerRules(tenant_bytes_max=30 * _KIB))
    tasks = broker.submit(*[Spec("mail", max_attempts=1) for _ in range(10)])
    broker.appear()
    broker.fire()
    broker.end(tasks[0], TaskStatus.ERROR, error="e" * 1_000)
    for task in tasks[1:]:
        broker.end(task, result=b"r" * 10_000)
        broker.fire()
        assert broker.machine.tasks.tenants["acme"].bytes <= 30 * _KIB
        broker.check()
    assert broker.listed() == [tasks[0], *tasks[-2:]]
    other = broker.submit(Spec("mail"), tenant="bolt")
    broker.fire()
    broker.end(other[0], result=b"r" * 20_000)
    broker.rules = BrokerRules(bytes_max=25 * _KIB)
    broker.reboot()
    broker.fire()
    assert broker.machine.tasks.bytes <= 25 * _KIB
    assert broker.listed() == [tasks[0], other[0]], "of whoever has most, the oldest first"
    assert broker.machine.next_due_ms(broker.promoted_ms) != 0
    broker.check()


def test_a_policy_has_a_quota_of_its_own_and_a_change_holds_at_once() -> None:
    broker = DrivenBroker(BrokerRules(tenant_bytes_max=5 * _KIB, tenant_waiting_max=3))
    broker.run(c.SetTenant("acme", TenantPolicy(bytes_max=9 * _KIB, waiting_max=100)))
    assert _fill(broker, "acme") >= 6
    broker.run(c.RemoveTenant("acme"))
    assert _refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")]))) == Refusal.QUEUE_FULL
    broker.submit(Spec("mail"), Spec("mail"), Spec("mail"), tenant="bolt")
    assert _refusal(broker.run(c.SubmitTasks("bolt", [Spec("mail")]))) == Refusal.QUEUE_FULL
    broker.check()


def test_when_memory_is_nearly_used_up_only_what_makes_the_state_smaller_is_taken() -> None:
    broker = DrivenBroker()
    waiting, running = broker.submit(Spec("mail"), Spec("call"))
    broker.run(c.SetHold("acme", "mail"))
    broker.appear()
    broker.fire()
    broker.machine.is_full = True
    assert _refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")]))) == Refusal.MEMORY_FULL
    assert _refusal(broker.run(c.BeginTransaction("acme"))) == Refusal.MEMORY_FULL
    assert broker.run(c.CancelTasks("acme", [waiting])) == Changed(1)
    broker.end(running)
    assert broker.status(running) == TaskStatus.FINISHED
    assert isinstance(broker.run(c.SetTenant("acme", TenantPolicy(weight=2.0))), Done)
    broker.machine.is_full = False
    assert isinstance(broker.run(c.SubmitTasks("acme", [Spec("mail")])), TasksSubmitted)
    broker.check()
