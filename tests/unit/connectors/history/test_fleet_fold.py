"""Workers come and go; tenants are told what they are entitled to."""

from __future__ import annotations

from typing import Any

from broker.machine import commands as c
from broker.machine.policies import TenantPolicy, WorkerOffer
from connectors.history.facts import facts_of
from connectors.history.fleet_fold import WorkerFold, policy_row
from connectors.history.rows import HistoryWorker
from tests.unit.connectors.history.recorded_broker import RecordedBroker


def rows_of(broker: RecordedBroker) -> dict[str, HistoryWorker]:
    facts = facts_of(broker.facts(), 0)
    fold = WorkerFold()
    for fact in facts:
        fold.apply(fact)
    return {incarnation: row for (_, incarnation), row in fold.changed.items()}


def said(row: HistoryWorker, *names: str) -> list[Any]:
    return [getattr(row, name) for name in names]


def test_a_worker_that_comes_back_is_the_same_incarnation() -> None:
    broker = RecordedBroker()
    broker.appear(offer=WorkerOffer(7))
    came_ms = broker.now_ms
    broker.pass_time(10)
    broker.run(c.WorkerLost("w", "i1", is_dead=False))
    assert said(rows_of(broker)["i1"], "status", "disconnected_at") == ["disconnected", came_ms + 10]
    broker.pass_time(10)
    broker.appear(offer=WorkerOffer(7))
    row = rows_of(broker)["i1"]
    assert said(row, "status", "connections", "came_at", "connected_at") == ["connected", 2, came_ms, came_ms + 20]
    assert said(row, "threads", "location", "end", "ended_at", "disconnected_at") == [7, "here", None, None, None]


def test_a_worker_is_lost_when_its_lease_runs_out_and_has_left_if_it_was_draining() -> None:
    broker = RecordedBroker()
    broker.appear("a")
    broker.appear("b", "i2")
    broker.pass_time(5)
    broker.run(c.WorkerChanged("b", "i2", None, is_draining=True))
    drained_ms = broker.now_ms
    broker.pass_time(5)
    broker.run(c.WorkerLost("b", "i2", is_dead=False))
    for worker_id, incarnation in (("a", "i1"), ("b", "i2")):
        broker.run(c.WorkerLost(worker_id, incarnation, is_dead=True))
    rows = rows_of(broker)
    assert said(rows["i1"], "status", "end", "ended_at") == ["dead", "lost", broker.now_ms]
    assert said(rows["i2"], "status", "end", "draining_at") == ["dead", "left", drained_ms]
    broker.pass_time(5)
    broker.run(c.RemoveWorker("a"))
    assert rows_of(broker)["i1"].removed_at == broker.now_ms


def test_a_process_that_takes_the_place_of_another_one_replaces_it() -> None:
    broker = RecordedBroker()
    broker.appear()
    broker.pass_time(5)
    broker.appear(incarnation="i2")
    rows = rows_of(broker)
    assert said(rows["i1"], "status", "end", "followed_by") == ["dead", "replaced", "i2"]
    assert said(rows["i2"], "status", "end", "came_at") == ["connected", None, broker.now_ms]


def test_one_that_was_lost_before_the_next_one_came_stays_lost() -> None:
    broker = RecordedBroker()
    broker.appear()
    broker.run(c.WorkerLost("w", "i1", is_dead=True))
    broker.pass_time(5)
    broker.appear(incarnation="i2")
    assert said(rows_of(broker)["i1"], "end", "followed_by") == ["lost", "i2"]


def test_policies_are_rows_of_the_records_that_set_them() -> None:
    broker = RecordedBroker()
    broker.run(c.SetTenant("acme", TenantPolicy(weight=3, running_max=2, group=4, priority=5)))
    broker.pass_time(5)
    broker.run(c.RemoveTenant("acme"))
    facts = facts_of(broker.facts(), 0)
    first, second = (row for row in map(policy_row, facts) if row is not None)
    assert (first.tenant, first.weight, first.running_max, first.group, first.priority) == ("acme", 3.0, 2, 4, 5)
    assert (second.tenant, second.is_removed, second.weight, second.set_at) == ("acme", True, None, broker.now_ms)
