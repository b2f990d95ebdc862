"""What is named once does not stay for ever; what counts does."""

from __future__ import annotations

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.sweeping import sweep
from tests.unit.broker.machine.scheduling.brute_force import Checked
from tests.unit.broker.machine.scheduling.test_costs import NOW_MS, Crowd


def test_what_is_named_once_is_forgotten(monkeypatch):
    monkeypatch.setattr("broker.machine.scheduling.scheduler._QUEUES_MAX", 500)
    crowd = Crowd(threads=100)
    for n in range(2_000):
        crowd.submit(f"tenant-{n}", resources=[("r", n + 1)])
        for task_id in crowd.dispatch():
            crowd.scheduler.end(task_id, NOW_MS)
    state = crowd.scheduler._state
    assert len(state.classes) < 600
    assert len(state.tenants) < 600
    assert len(state.limits) < 4 * 600
    crowd.scheduler.validate()


def test_what_waits_runs_or_is_ruled_survives():
    checked = Checked()
    checked.worker("w", WorkerOffer(threads_max=1))
    checked.tenant("ruled", TenantPolicy(weight=2.0))
    checked.hold("held", "", "", True)
    checked.limit("db", "", "", 7)
    checked.submit("runs", resources=[("gpu", 2)])
    checked.dispatch()
    checked.submit("waits")
    checked.dispatch()
    state = checked.scheduler._state
    sweep(state)
    assert set(state.tenants) == {"ruled", "held", "runs", "waits"}
    assert checked.scheduler.used("gpu") == 2
    assert state.limits["db", "", ""].used_max == 7
    checked.end(1)
    checked.check_limits()
    assert len(checked.dispatch()) == 1


def test_a_tenant_far_ahead_of_the_others_is_remembered():
    checked = Checked()
    checked.worker("w", WorkerOffer(threads_max=1))
    (task_id,) = checked.submit("long")
    checked.dispatch()
    checked.now_ms += 3_600_000
    checked.end(task_id)
    sweep(checked.scheduler._state)
    assert "long" in checked.scheduler._state.tenants
