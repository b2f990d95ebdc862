"""Tasks that are there already: cancelled, changed, replayed."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine.outbox import OutboxKind
from broker.machine.replies import Changed, Refusal, Refused
from broker.machine.statuses import Outcome, TaskStatus
from broker.machine.tables import RecordType
from broker.machine.views import ExplanationView
from tests.unit.broker.machine.driven_broker import DrivenBroker

Spec = c.TaskSpec


def running(broker: DrivenBroker, *specs: c.TaskSpec) -> list[int]:
    ids = broker.submit(*specs)
    broker.fire()
    assert [broker.status(one) for one in ids] == [TaskStatus.RUNNING] * len(ids)
    return ids


def refusal(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    return reply.refusal


# ---- cancel


def test_what_waits_is_cancelled_at_once_and_gives_its_slot(broker: DrivenBroker) -> None:
    waiting, delayed = broker.submit(Spec("mail", slot="s"), Spec("mail", delay_ms=100))
    assert broker.run(c.CancelTasks("acme", [waiting, delayed, waiting])) == Changed(2)
    assert {broker.status(one) for one in (waiting, delayed)} == {TaskStatus.CANCELLED}
    assert broker.submit(Spec("mail", slot="s")) != [0]
    broker.pass_time(200)
    assert not broker.assignments(delayed)
    broker.check()


def test_what_runs_is_cancelled_when_its_worker_confirms_it(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    assignment = broker.get(task).assignment_id
    assert broker.run(c.CancelTasks("acme", [task])) == Changed(0, 1)
    assert broker.told[-1] == (OutboxKind.CANCEL, "w", task, assignment)
    assert broker.status(task) == TaskStatus.RUNNING
    assert broker.run(c.CancelTasks("acme", [task])) == Changed(0, 1)
    assert len(broker.logged(RecordType.TASK_CANCEL_ASKED)) == 1
    broker.end(task, TaskStatus.CANCELLED)
    shown = broker.get(task)
    assert (shown.status, shown.outcome, shown.cancel_ms) == (TaskStatus.CANCELLED, Outcome.CANCELLED, broker.now_ms)
    broker.check()


def test_a_run_that_ends_well_before_it_hears_of_its_cancellation_is_finished(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    broker.run(c.CancelTasks("acme", [task]))
    broker.end(task, result=b"r")
    assert broker.status(task) == TaskStatus.FINISHED


@pytest.mark.parametrize("how", ["fails", "is lost", "was not delivered"])
def test_a_run_to_be_cancelled_never_runs_again(broker: DrivenBroker, how: str) -> None:
    (task,) = running(broker, Spec("mail"))
    assignment = broker.get(task).assignment_id
    broker.run(c.CancelTasks("acme", [task]))
    if how == "fails":
        broker.end(task, TaskStatus.ERROR, outcome=Outcome.FAILED, error="ValueError")
    else:
        broker.appear(delivered_up_to=assignment if how == "is lost" else 0)
    assert broker.status(task) == TaskStatus.CANCELLED
    broker.check()


def test_a_cancellation_is_told_again_to_a_worker_that_comes_back_with_the_run(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    assignment = broker.get(task).assignment_id
    broker.run(c.CancelTasks("acme", [task]))
    broker.promote()
    broker.appear(delivered_up_to=assignment, held=[c.HeldRun(task, assignment)])
    assert broker.told == [(OutboxKind.CANCEL, "w", task, assignment)]


def test_a_cancellation_of_what_is_not_there_is_passed_over(broker: DrivenBroker) -> None:
    (ended,) = running(broker, Spec("mail"))
    broker.end(ended)
    (foreign,) = broker.submit(Spec("mail"), tenant="other")
    assert broker.run(c.CancelTasks("acme", [ended, foreign, 99, -1])) == Changed(0, 0, 4)
    assert broker.run(c.CancelTasks("", [foreign])) == Changed(1)
    assert refusal(broker.run(c.CancelTasks("acme", []))) == Refusal.INVALID
    assert refusal(broker.run(c.CancelTasks("acme", list(range(5_001))))) == Refusal.INVALID


# ---- change


def test_a_change_holds_for_what_waits_from_the_next_dispatch(broker: DrivenBroker) -> None:
    broker.run(c.SetHold("", "", is_paused=True))
    first, second = broker.submit(Spec("mail"), Spec("mail"))
    assert broker.run(c.ChangeTasks("acme", [second], priority=5, resources={"db": 1})) == Changed(1)
    assert (broker.get(second).priority, broker.get(second).resources) == (5, {"db": 1})
    broker.run(c.ClearHold("", ""))
    broker.fire()
    assert broker.get(second).assignment_id < broker.get(first).assignment_id
    broker.check()


def test_what_runs_keeps_its_resources(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail", resources={"db": 2}))
    broker.run(c.ChangeTasks("acme", [task], priority=3, resources={"db": 1}))
    assert (broker.get(task).priority, broker.get(task).resources) == (3, {"db": 2})
    broker.check()


def test_a_deadline_is_moved_and_taken_away(broker: DrivenBroker) -> None:
    broker.run(c.SetHold("", "", is_paused=True))
    soon, later, never = broker.submit(*[Spec("mail", ttl_ms=100)] * 3)
    broker.run(c.ChangeTasks("acme", [later], deadline_ms=broker.now_ms + 500))
    broker.run(c.ChangeTasks("acme", [never], deadline_ms=0))
    broker.pass_time(100)
    assert [broker.status(one) for one in (soon, later)] == [TaskStatus.ERROR, TaskStatus.WAITING]
    broker.pass_time(400)
    assert [broker.status(one) for one in (later, never)] == [TaskStatus.ERROR, TaskStatus.WAITING]
    broker.check()


def test_a_change_out_of_bounds_or_too_large_is_refused_whole(broker: DrivenBroker) -> None:
    broker.run(c.SetHold("", "", is_paused=True))
    ids = [broker.submit(Spec("mail", bytes(1024 * 1024)))[0] for _ in range(5)]
    assert refusal(broker.run(c.ChangeTasks("acme", ids, priority=10**9))) == Refusal.INVALID
    assert refusal(broker.run(c.ChangeTasks("acme", ids, group=0))) == Refusal.INVALID
    assert refusal(broker.run(c.ChangeTasks("acme", ids, deadline_ms=-1))) == Refusal.INVALID
    assert refusal(broker.run(c.ChangeTasks("acme", ids, priority=1))) == Refusal.TOO_LARGE
    assert broker.run(c.ChangeTasks("acme", ids[:3], priority=1)) == Changed(3)
    assert broker.get(ids[0]).payload == bytes(1024 * 1024)


# ---- dead letters


def dead(broker: DrivenBroker, spec: c.TaskSpec, outcome: str = Outcome.FAILED) -> int:
    (task,) = running(broker, spec)
    broker.end(task, TaskStatus.ERROR, outcome=outcome)
    assert broker.status(task) == TaskStatus.ERROR
    return task


def test_a_dead_letter_waits_again_with_all_its_attempts_and_its_slot(broker: DrivenBroker) -> None:
    task = dead(broker, Spec("mail", max_attempts=1, slot="s"))
    assert broker.run(c.ReplayDead("acme", [task])) == Changed(1)
    assert (broker.status(task), broker.get(task).attempts) == (TaskStatus.WAITING, 0)
    assert broker.submit(Spec("mail", slot="s")) == [0]
    broker.check()
    broker.fire()
    broker.end(task)
    assert broker.status(task) == TaskStatus.FINISHED
    broker.check()


def test_dead_letters_are_replayed_all_or_none(broker: DrivenBroker) -> None:
    first, second = dead(broker, Spec("mail", max_attempts=1)), dead(broker, Spec("mail", max_attempts=1, slot="s"))
    broker.submit(Spec("mail", slot="s"))
    assert refusal(broker.run(c.ReplayDead("acme", [first, second]))) == Refusal.SLOT_TAKEN
    assert refusal(broker.run(c.ReplayDead("acme", [first, 99]))) == Refusal.NOT_FOUND
    assert refusal(broker.run(c.ReplayDead("other", [first]))) == Refusal.NOT_FOUND
    (waiting,) = broker.submit(Spec("mail"))
    assert refusal(broker.run(c.ReplayDead("acme", [first, waiting]))) == Refusal.CONFLICT
    assert broker.status(first) == TaskStatus.ERROR


def test_two_dead_letters_of_one_slot_are_not_both_replayed(broker: DrivenBroker) -> None:
    ids = [dead(broker, Spec("mail", max_attempts=1, slot="s")) for _ in range(2)]
    assert refusal(broker.run(c.ReplayDead("acme", ids))) == Refusal.SLOT_TAKEN
    assert broker.run(c.ReplayDead("acme", ids[1:])) == Changed(1)
    broker.check()


def test_what_may_have_run_and_is_to_run_at_most_once_stays_dead(broker: DrivenBroker) -> None:
    ran = dead(broker, Spec("mail", at_most_once=True))
    broker.run(c.SetHold("acme", "held"))
    (never_ran,) = broker.submit(Spec("held", at_most_once=True, ttl_ms=5))
    broker.pass_time(5)
    assert refusal(broker.run(c.ReplayDead("acme", [ran]))) == Refusal.CONFLICT
    assert broker.run(c.ReplayDead("acme")) == Changed(1)
    assert [broker.status(one) for one in (ran, never_ran)] == [TaskStatus.ERROR, TaskStatus.WAITING]
    broker.pass_time(1_000)
    assert broker.status(never_ran) == TaskStatus.WAITING, "the deadline that had passed is gone"
    broker.check()


def test_dead_letters_are_replayed_by_type_and_outcome(broker: DrivenBroker) -> None:
    mail = dead(broker, Spec("mail", max_attempts=1))
    timed = dead(broker, Spec("mail", max_attempts=1), Outcome.TIMED_OUT)
    sms = dead(broker, Spec("sms", max_attempts=1))
    assert broker.run(c.ReplayDead("acme", [], "mail", Outcome.FAILED)) == Changed(1)
    assert [broker.status(one) for one in (mail, timed, sms)] == [
        TaskStatus.WAITING, TaskStatus.ERROR, TaskStatus.ERROR,
    ]  # fmt: skip
    assert broker.run(c.ReplayDead("", [], "", Outcome.TIMED_OUT)) == Changed(1)


def test_a_deleted_dead_letter_is_gone_and_what_is_none_stays(broker: DrivenBroker) -> None:
    gone, kept = (dead(broker, Spec("mail", b"p", max_attempts=1, slot=slot)) for slot in ("s", "t"))
    (waiting,) = broker.submit(Spec("mail"))
    assert broker.run(c.DeleteDead("other", [gone])) == Changed(0, 0, 1)
    assert broker.run(c.DeleteDead("acme", [gone, gone, waiting, 99])) == Changed(1, 0, 2)
    broker.check()
    assert [broker.status(one) for one in (kept, waiting)] == [TaskStatus.ERROR, TaskStatus.WAITING]
    assert broker.listed() == [kept, waiting]
    assert refusal(broker.run(c.ReplayDead("acme", [gone]))) == Refusal.NOT_FOUND
    assert broker.run(c.DeleteDead("", [kept])) == Changed(1)
    for ids in ([], list(range(1, 5_002))):
        assert refusal(broker.run(c.DeleteDead("acme", ids))) == Refusal.INVALID
    broker.pass_time(broker.rules.dead_retention_ms + 1_000)
    broker.check()


def test_a_replayed_task_is_not_purged_by_its_first_end(broker: DrivenBroker) -> None:
    task = dead(broker, Spec("mail", max_attempts=1))
    broker.now_ms += broker.rules.dead_retention_ms - 10
    broker.run(c.ReplayDead("acme", [task]))
    broker.fire()
    broker.end(task)
    broker.pass_time(20)
    assert broker.status(task) == TaskStatus.FINISHED
    broker.check()


# ---- why


def test_explain_says_for_every_state_why_a_task_is_in_it(broker: DrivenBroker) -> None:
    def reason(task: int) -> str:
        shown = broker.ask(q.ExplainTask("acme", task))
        assert isinstance(shown, ExplanationView)
        assert shown.text
        return shown.reason

    (run,) = running(broker, Spec("mail"))
    (delayed,) = broker.submit(Spec("mail", delay_ms=10))
    broker.run(c.SetHold("acme", "held"))
    (held,) = broker.submit(Spec("held"))
    broker.fire()
    prepared = broker.submit(Spec("mail"), transaction=broker.run(c.BeginTransaction("acme")).transaction)[0]
    over = dead(broker, Spec("mail", at_most_once=True))
    assert [reason(one) for one in (run, delayed, held, prepared, over)] == [
        "running", "delayed", "held", "prepared", "ended",
    ]  # fmt: skip
