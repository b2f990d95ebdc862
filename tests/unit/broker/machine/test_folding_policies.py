"""What records of workers and policies do to the index."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine.index.timers import PlanKind
from broker.machine.outbox import OutboxKind
from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.statuses import WorkerStatus
from tests.unit.broker.machine.driven_broker import DrivenBroker


@pytest.mark.parametrize("status", [WorkerStatus.DISCONNECTED, WorkerStatus.DEAD, WorkerStatus.DRAINING])
def test_only_a_connected_worker_gets_work(status: WorkerStatus) -> None:
    broker = DrivenBroker()
    broker.appear()
    if status == WorkerStatus.DRAINING:
        broker.run(c.WorkerChanged("w", "i1", is_draining=True))
    else:
        broker.run(c.WorkerLost("w", "i1", is_dead=status == WorkerStatus.DEAD))
    assert broker.machine.workers.by_id["w"].status == status
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
    assert list(broker.machine.holds.draining) == [hold]
    broker.run(c.SetHold("acme", ""))
    assert not broker.machine.holds.draining
    broker.check()


def test_a_policy_without_another_group_or_priority_files_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = DrivenBroker()
    broker.submit(c.TaskSpec("mail"))
    monkeypatch.setattr(broker.machine.scheduler, "change", lambda _demand: pytest.fail("it was filed anew"))
    broker.run(c.SetTenant("acme", TenantPolicy(weight=3, running_max=4)))
    broker.run(c.SetTenant("other", TenantPolicy(priority=3)))
