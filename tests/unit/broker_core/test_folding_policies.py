"""What records of workers and policies do to the index."""

from __future__ import annotations

import pytest

from broker.core import commands as c
from broker.core.outbox import OutboxKind
from broker.core.policies import TenantPolicy, WorkerOffer
from broker.core.statuses import WorkerStatus
from broker.core.timers import PlanKind
from tests.unit.broker_core.driven_broker import DrivenBroker


@pytest.mark.parametrize("status", [WorkerStatus.DISCONNECTED, WorkerStatus.DEAD, WorkerStatus.DRAINING])
def test_only_a_connected_worker_gets_work(status: WorkerStatus) -> None:
    broker = DrivenBroker()
    broker.appear()
    if status == WorkerStatus.DRAINING:
        broker.run(c.WorkerChanged("w", "i1", is_draining=True))
    else:
        broker.run(c.WorkerLost("w", "i1", is_dead=status == WorkerStatus.DEAD))
    assert broker.machine.workers["w"].status == status
    broker.submit(c.TaskSpec("mail"))
    assert broker.fire() == []
    broker.appear()
    broker.fire()
    assert [told[0] for told in broker.told] == [OutboxKind.ASSIGN]
    broker.check()


def test_another_offer_counts_from_the_next_dispatch() -> None:
    broker = DrivenBroker()
    broker.appear(offer=WorkerOffer(1))
    broker.submit(*[c.TaskSpec("mail")] * 3)
    broker.fire()
    broker.run(c.WorkerChanged("w", "i1", WorkerOffer(2)))
    broker.fire()
    assert len(broker.told) == 2
    broker.check()


def test_a_hold_that_is_set_again_has_its_new_end_only() -> None:
    broker = DrivenBroker()
    hold = ("acme", "", "")
    broker.run(c.SetHold("acme", "", until_ms=broker.now_ms + 5))
    assert broker.machine.timers.planned_ms(PlanKind.HOLD, hold) == broker.now_ms + 5
    broker.run(c.SetHold("acme", "", is_draining=True))
    assert broker.machine.timers.planned_ms(PlanKind.HOLD, hold) is None
    assert list(broker.machine.draining) == [hold]
    broker.run(c.SetHold("acme", ""))
    assert not broker.machine.draining
    broker.check()


def test_a_policy_without_another_group_or_priority_files_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = DrivenBroker()
    broker.submit(c.TaskSpec("mail"))
    monkeypatch.setattr(broker.machine.scheduler, "change", lambda _demand: pytest.fail("it was filed anew"))
    broker.run(c.SetTenant("acme", TenantPolicy(weight=3, running_max=4)))
    broker.run(c.SetTenant("other", TenantPolicy(priority=3)))
