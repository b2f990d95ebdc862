"""Payloads of tasks that cannot run again leave early: which ones, how, and that nothing else goes with them."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine.commands import TaskSpec as Spec
from broker.machine.rules import BrokerRules
from broker.machine.statuses import TaskStatus
from broker.machine.tables import RecordType
from tests.unit.broker.machine.driven_broker import DrivenBroker

_LARGE = b"x" * 5_000


def _run(broker: DrivenBroker, *specs: Spec) -> list[int]:
    tasks = broker.submit(*specs)
    broker.appear()
    broker.fire()
    return tasks


def _gone(broker: DrivenBroker) -> list[int]:
    return [fields[0] for fields in broker.logged(RecordType.TASK_CHANGED) if not fields[3]]


def test_payloads_of_what_finished_or_was_cancelled_leave_and_nothing_else_is_changed() -> None:
    broker = DrivenBroker()
    done, cancelled = _run(broker, Spec("mail", _LARGE, slot="s", key="k", priority=3), Spec("mail", _LARGE))
    before = broker.get(done)
    broker.end(done, result=b"r" * 2_000)
    broker.run(c.CancelTasks("acme", [cancelled]))
    broker.end(cancelled, TaskStatus.CANCELLED)
    assert broker.machine.tasks.bytes > 2 * len(_LARGE)
    broker.fire()
    assert _gone(broker) == [done, cancelled]
    assert broker.machine.tasks.tenants["acme"].bytes < 3_000, "quotas count what is left"
    after = broker.get(done)
    assert (after.payload, after.payload_gone, after.result) == (b"", True, b"r" * 2_000)
    assert (after.key, after.priority, after.slot) == (before.key, before.priority, before.slot)
    assert broker.listed(statuses=[TaskStatus.FINISHED]) == [done]
    broker.check()
    assert broker.fire() == [], "once"


def test_dead_letters_keep_their_payloads_and_run_again_with_them() -> None:
    broker = DrivenBroker(BrokerRules(payload_kept_bytes=0))
    (task,) = _run(broker, Spec("mail", _LARGE, max_attempts=1))
    broker.end(task, TaskStatus.ERROR, error="no")
    broker.fire()
    assert broker.get(task).payload == _LARGE
    broker.run(c.ReplayDead("acme", [task]))
    broker.fire()
    run = broker.machine.assigned_run(task, broker.assignments(task)[-1], broker.now_ms)
    assert run is not None
    assert run.payload == _LARGE
    broker.end(task)
    broker.fire()
    assert broker.get(task).payload_gone
    broker.check()


def test_small_payloads_stay_and_an_empty_one_has_not_gone() -> None:
    broker = DrivenBroker(BrokerRules(payload_kept_bytes=1_024))
    small, empty, large = _run(
        broker, Spec("mail", b"x" * 1_024, retry='{"backoff_ms": 10}'), Spec("mail"), Spec("mail", b"x" * 1_025)
    )
    for task in (small, empty, large):
        broker.end(task)
    broker.fire()
    assert _gone(broker) == [large]
    assert [broker.get(task).payload_gone for task in (small, empty, large)] == [False, False, True]
    assert broker.get(small).payload == b"x" * 1_024
    assert broker.machine.next_due_ms(broker.promoted_ms) != 0, "nothing is left to do"
    broker.check()


def test_a_task_that_was_changed_before_its_end_keeps_its_small_payload() -> None:
    broker = DrivenBroker()
    (task,) = _run(broker, Spec("mail", b"small"))
    broker.run(c.ChangeTasks("acme", [task], priority=7))
    broker.end(task)
    broker.fire()
    shown = broker.get(task)
    assert (shown.payload, shown.payload_gone) == (b"small", False)
    broker.check()


@pytest.mark.parametrize("how", ["promote", "reboot"])
def test_the_next_leader_goes_on_with_what_is_left_and_knows_what_has_gone(how: str) -> None:
    broker = DrivenBroker()
    first, second = _run(broker, Spec("mail", _LARGE), Spec("mail", _LARGE))
    broker.end(first)
    broker.fire()
    broker.end(second)
    getattr(broker, how)()
    assert [broker.get(task).payload_gone for task in (first, second)] == [True, False]
    broker.fire()
    assert _gone(broker) == [first, second]
    assert broker.ask(q.GetTask("acme", second)).payload_gone
    broker.check()


def test_payloads_leave_before_ended_tasks_are_purged_for_a_quota() -> None:
    broker = DrivenBroker(BrokerRules(tenant_bytes_max=20_000))
    tasks = _run(broker, Spec("mail", _LARGE), Spec("mail", _LARGE), Spec("mail", _LARGE))
    for task in tasks:
        broker.end(task, result=b"r" * 4_000)
    broker.fire()
    assert broker.listed() == tasks, "none had to go"
    broker.check()


def test_a_log_of_the_first_format_level_keeps_payloads() -> None:
    broker = DrivenBroker()
    broker.machine.format_level = 1
    (task,) = _run(broker, Spec("mail", _LARGE))
    broker.end(task)
    broker.fire()
    assert broker.get(task).payload == _LARGE
    assert _gone(broker) == []
    broker.check()
