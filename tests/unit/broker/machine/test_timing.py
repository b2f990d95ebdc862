"""What time makes due, and only by a record."""

from __future__ import annotations

import hashlib

import pytest

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine import timing
from broker.machine.index import demands
from broker.machine.outbox import OutboxKind
from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.rules import BrokerRules
from broker.machine.statuses import Outcome, TaskStatus
from broker.machine.tables import RecordType, Table
from broker.machine.views import Nothing
from tests.unit.broker.machine.driven_broker import START_MS, DrivenBroker

Spec = c.TaskSpec


def running(broker: DrivenBroker, spec: c.TaskSpec) -> int:
    (task,) = broker.submit(spec)
    broker.fire()
    assert broker.status(task) == TaskStatus.RUNNING
    return task


def test_a_delayed_task_is_dispatched_in_the_entry_in_which_it_falls_due(broker: DrivenBroker) -> None:
    (task,) = broker.submit(Spec("mail", delay_ms=1_000))
    broker.fire()
    assert broker.machine.next_due_ms(0) == START_MS + 1_000
    assert broker.pass_time(999) == []
    fired = broker.pass_time(1)
    assert [kind for kind, _ in fired] == [RecordType.TASK_REQUEUED, RecordType.TASK_ASSIGNED]
    assert broker.status(task) == TaskStatus.RUNNING
    broker.check()


def test_a_deadline_ends_what_waits_and_what_is_delayed(broker: DrivenBroker) -> None:
    broker.run(c.SetHold("acme", "held"))
    delayed, waiting = broker.submit(Spec("mail", delay_ms=500, ttl_ms=100, slot="s"), Spec("held", ttl_ms=100))
    broker.pass_time(99)
    assert (broker.status(delayed), broker.status(waiting)) == (TaskStatus.DELAYED, TaskStatus.WAITING)
    broker.pass_time(1)
    for task in (delayed, waiting):
        shown = broker.get(task)
        assert (shown.status, shown.outcome) == (TaskStatus.ERROR, Outcome.DEADLINE_EXPIRED)
    assert broker.submit(Spec("mail", slot="s")) != [0]
    broker.check()


def test_a_deadline_of_a_run_asks_its_worker_and_a_run_that_fails_after_it_is_not_repeated(
    broker: DrivenBroker,
) -> None:
    task = running(broker, Spec("mail", ttl_ms=100))
    broker.pass_time(100)
    assert broker.told[-1][0] == OutboxKind.CANCEL
    assert broker.status(task) == TaskStatus.RUNNING
    assert broker.pass_time(10**6) == [], "it is asked once"
    broker.end(task, TaskStatus.CANCELLED)
    assert (broker.status(task), broker.get(task).outcome) == (TaskStatus.ERROR, Outcome.DEADLINE_EXPIRED)
    broker.check()


def test_a_run_that_fails_past_its_deadline_is_an_error_and_one_that_ends_well_is_finished(
    broker: DrivenBroker,
) -> None:
    bad, good = running(broker, Spec("mail", ttl_ms=100)), running(broker, Spec("mail", ttl_ms=100))
    broker.now_ms += 200
    broker.end(bad, TaskStatus.ERROR, outcome=Outcome.FAILED)
    broker.end(good)
    assert (broker.status(bad), broker.status(good)) == (TaskStatus.ERROR, TaskStatus.FINISHED)


def test_a_run_that_takes_too_long_is_asked_to_end_after_its_worker_had_the_time_to(broker: DrivenBroker) -> None:
    task = running(broker, Spec("mail", timeout_ms=1_000, max_attempts=2))
    broker.pass_time(1_000 + broker.rules.timeout_grace_ms - 1)
    assert not broker.logged(RecordType.TASK_CANCEL_ASKED)
    broker.pass_time(1)
    assert broker.told[-1][0] == OutboxKind.CANCEL
    broker.end(task, TaskStatus.CANCELLED)
    shown = broker.get(task)
    assert (shown.status, shown.outcome, shown.attempts) == (TaskStatus.DELAYED, Outcome.TIMED_OUT, 1)
    broker.check()


@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_run_of_which_nothing_is_heard_is_lost(broker: DrivenBroker, at_most_once: bool) -> None:
    task = running(broker, Spec("mail", heartbeat_ms=1_000, at_most_once=at_most_once, max_attempts=2))
    assignment = broker.get(task).assignment_id
    broker.pass_time(800)
    broker.run(c.ReportRuns("w", "i1", [], [c.ProgressOf(task, assignment)]))
    broker.pass_time(999)
    assert broker.status(task) == TaskStatus.RUNNING
    broker.pass_time(1)
    assert (OutboxKind.CANCEL, "w", task, assignment) in broker.told
    shown = broker.get(task)
    if at_most_once:
        assert (shown.status, shown.outcome) == (TaskStatus.ERROR, Outcome.OUTCOME_UNKNOWN)
    else:
        assert (shown.status, shown.attempts) == (TaskStatus.RUNNING, 2)
        assert shown.assignment_id > assignment
    broker.check()


def test_a_new_leader_gives_heartbeats_and_timeouts_their_full_time_again(broker: DrivenBroker) -> None:
    task = running(broker, Spec("mail", heartbeat_ms=1_000))
    timed = running(broker, Spec("mail", timeout_ms=1_000))
    broker.now_ms += 50_000
    broker.promote()
    broker.fire()
    assert broker.status(task) == TaskStatus.RUNNING
    broker.pass_time(999)
    assert broker.status(task) == TaskStatus.RUNNING
    broker.pass_time(1)
    assert broker.status(task) == TaskStatus.WAITING
    broker.pass_time(broker.rules.timeout_grace_ms)
    assert broker.get(timed).cancel_ms
    broker.check()


def test_a_hold_ends_by_itself_and_what_it_held_is_dispatched_then(broker: DrivenBroker) -> None:
    broker.run(c.SetHold("acme", "", "k", until_ms=START_MS + 500, reason="not before"))
    (held, free) = broker.submit(Spec("mail", key="k"), Spec("mail"))
    broker.fire()
    assert (broker.status(held), broker.status(free)) == (TaskStatus.WAITING, TaskStatus.RUNNING)
    broker.pass_time(500)
    assert broker.status(held) == TaskStatus.RUNNING
    assert broker.machine.count(Table.HOLDS) == 0
    broker.check()


def test_ended_tasks_go_after_their_retention_oldest_first_and_bounded(broker: DrivenBroker) -> None:
    driven = DrivenBroker(BrokerRules(retention_ms=1_000, purge_tasks_max=3))
    driven.appear()
    ids = driven.submit(*[Spec("mail")] * 8)
    driven.fire()
    for task in ids:
        driven.end(task)
        driven.now_ms += 1
    driven.now_ms += 990
    assert driven.fire() == []
    driven.now_ms += 100
    removed = [fields[0] for kind, fields in _entry(driven) if kind == RecordType.TASK_REMOVED]
    assert removed == ids[:3]
    driven.fire()
    assert driven.machine.count(Table.TASKS) == driven.machine.count(Table.STATES) == 0
    assert driven.machine.next_due_ms(0) is None
    driven.check()


def _entry(broker: DrivenBroker, limit: int = 2_000) -> list[tuple[int, tuple[object, ...]]]:
    fired = []
    for record_type, fields in broker.machine.due(broker.now_ms, broker.promoted_ms, limit):
        broker.log_record(record_type, fields)
        fired.append((record_type, fields))
    return fired


def test_tenants_and_dead_letters_have_retentions_of_their_own(broker: DrivenBroker) -> None:
    broker.run(c.SetTenant("acme", TenantPolicy(retention_ms=100, dead_retention_ms=300)))
    good, bad = running(broker, Spec("mail")), running(broker, Spec("mail", at_most_once=True))
    broker.end(good)
    broker.end(bad, TaskStatus.ERROR)
    broker.pass_time(100)
    assert broker.listed() == [bad]
    broker.run(c.SetTenant("acme", TenantPolicy(dead_retention_ms=200)))
    broker.pass_time(100)
    assert broker.listed() == []
    broker.check()


def test_an_entry_that_ends_in_the_middle_leaves_no_half_state() -> None:
    """Majordodo's #10: whatever is cut, the rest is done by the next entry, also by another leader."""
    driven = DrivenBroker(BrokerRules(retention_ms=1_000))
    driven.appear()
    driven.submit(*[Spec("mail", slot=f"s{n}", ttl_ms=100, delay_ms=500) for n in range(5)])
    driven.now_ms += 100
    while (next_ms := driven.machine.next_due_ms(0)) is not None and next_ms <= driven.now_ms:
        for record_type, fields in driven.machine.due(driven.now_ms, 0, 2_000):
            driven.log_record(record_type, fields)
            break
        driven.check()
        driven.reboot()
    assert driven.machine.count(Table.SLOTS) == 0
    assert driven.listed(statuses=[TaskStatus.ERROR]) == driven.listed()
    driven.now_ms += driven.rules.dead_retention_ms
    while driven.machine.next_due_ms(0) is not None:
        for record_type, fields in driven.machine.due(driven.now_ms, 0, 2_000):
            driven.log_record(record_type, fields)
            break
        assert driven.listed(statuses=[TaskStatus.WAITING]) == [], "a purged task seems to wait"
        driven.check()
        driven.reboot()
    assert driven.machine.count(Table.TASKS) == driven.machine.count(Table.STATES) == 0


def test_a_code_pool_goes_when_it_is_old_and_nothing_needs_it(broker: DrivenBroker) -> None:
    archive = b"zip"
    broker.run(c.DeployCode("pool", archive, hashlib.sha256(archive).hexdigest(), 1_000))
    task = running(broker, Spec("mail", code="pool"))
    broker.pass_time(2_000)
    assert not isinstance(broker.ask(q.GetCode("pool")), Nothing)
    broker.reboot()
    broker.fire()
    broker.end(task)
    broker.fire()
    assert isinstance(broker.ask(q.GetCode("pool")), Nothing)
    broker.check()


def test_timers_of_tasks_that_ended_do_not_pile_up(broker: DrivenBroker) -> None:
    for _ in range(60):
        ids = broker.submit(*[Spec("mail", ttl_ms=10**9, timeout_ms=10**9)] * 100)
        broker.run(c.CancelTasks("acme", ids))
    assert len(broker.machine.timers) == 0
    assert len(broker.machine.timers._heap) < 3_000


def test_nothing_is_due_early(broker: DrivenBroker) -> None:
    broker.appear("v", "j", offer=WorkerOffer(0))
    broker.submit(Spec("mail", delay_ms=10), Spec("mail", delay_ms=20, ttl_ms=30))
    broker.run(c.BeginTransaction("acme", 25))
    times = []
    while (next_ms := broker.machine.next_due_ms(0)) is not None and next_ms < START_MS + 100:
        broker.now_ms = max(next_ms, broker.now_ms)
        times.append(broker.now_ms - START_MS)
        assert broker.fire()
    assert [time for time in times if time] == [10, 20, 25, 30]


def test_no_more_ended_tasks_and_replies_are_kept_than_there_is_room_for() -> None:
    driven = DrivenBroker(BrokerRules(ended_max=3, requests_max=2))
    driven.appear()
    ids = [driven.submit(Spec("mail"), request_key=f"k{n}")[0] for n in range(6)]
    driven.fire()
    for task in ids:
        driven.end(task)
        driven.now_ms += 1
    driven.fire()
    assert driven.listed() == ids[3:]
    assert driven.machine.count(Table.REQUESTS) == 2
    assert driven.submit(Spec("mail"), request_key="k5") == ids[5:]
    driven.check()


def test_a_change_of_a_tenants_priority_reaches_very_many_waiting_tasks_by_and_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demands, "_AT_ONCE_MAX", 3)
    monkeypatch.setattr(timing, "_TOLD_MAX", 2)
    driven = DrivenBroker()
    ids = driven.submit(*[Spec("mail")] * 10)
    driven.run(c.SetTenant("acme", TenantPolicy(priority=5, group=2)))
    driven.run(c.CancelTasks("acme", ids[4:6]))
    assert driven.machine.next_due_ms(0) == 0
    driven.fire()
    driven.check()
    driven.run(c.SetTenant("acme", TenantPolicy()))
    driven.promote()
    driven.fire()
    driven.check()


def test_no_task_starts_by_a_former_policy_of_its_tenant_while_very_many_are_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demands, "_AT_ONCE_MAX", 1)
    monkeypatch.setattr(timing, "_TOLD_MAX", 1)
    driven = DrivenBroker()
    driven.submit(*[Spec("mail", priority=9 - place) for place in range(9)], *[Spec("mail")] * 20)
    driven.run(c.SetTenant("acme", TenantPolicy(group=2)))
    driven.appear("old", offer=WorkerOffer(threads_max=50, groups=(1,)))
    driven.appear("new", offer=WorkerOffer(threads_max=3, groups=(2,)))
    driven.fire()
    driven.check()
    workers = [driven.get(task_id).worker_id for task_id in driven.listed(statuses=[TaskStatus.RUNNING])]
    assert workers == ["new"] * 3
