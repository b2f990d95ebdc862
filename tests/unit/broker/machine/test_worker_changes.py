"""Workers that come and go, and what becomes of their runs."""

from __future__ import annotations

import json

import pytest

from broker.machine import commands as c
from broker.machine.outbox import OutboxKind
from broker.machine.policies import WorkerOffer
from broker.machine.replies import Done, Refusal, Refused
from broker.machine.statuses import Outcome, TaskStatus, WorkerStatus
from broker.machine.tables import RecordType
from tests.unit.broker.machine.driven_broker import DrivenBroker

Spec = c.TaskSpec


def running(broker: DrivenBroker, *specs: c.TaskSpec) -> list[int]:
    ids = broker.submit(*specs)
    broker.fire()
    assert [broker.status(one) for one in ids] == [TaskStatus.RUNNING] * len(ids)
    return ids


def test_what_was_never_delivered_waits_again_without_counting_also_at_most_once(broker: DrivenBroker) -> None:
    first, second = running(broker, Spec("mail", at_most_once=True), Spec("mail", at_most_once=True))
    delivered = broker.get(first).assignment_id
    held = [c.HeldRun(first, delivered)]
    broker.appear(delivered_up_to=delivered, held=held)
    assert broker.get(first).status == TaskStatus.RUNNING
    shown = broker.get(second)
    assert (shown.status, shown.attempts) == (TaskStatus.WAITING, 0)
    broker.fire()
    assert (broker.get(second).status, broker.get(second).attempts) == (TaskStatus.RUNNING, 1)
    broker.check()


def test_what_was_delivered_and_is_not_there_is_lost(broker: DrivenBroker) -> None:
    once, often, last = running(broker, Spec("mail", at_most_once=True), Spec("mail"), Spec("mail", max_attempts=1))
    broker.appear(delivered_up_to=broker.revision)
    shown = broker.get(once)
    assert (shown.status, shown.outcome) == (TaskStatus.ERROR, Outcome.OUTCOME_UNKNOWN)
    assert (broker.status(often), broker.get(often).attempts) == (TaskStatus.WAITING, 1)
    assert (broker.status(last), broker.get(last).outcome) == (TaskStatus.ERROR, Outcome.WORKER_DIED)
    broker.check()


def test_what_ended_while_the_stream_was_down_ends_as_it_says(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail", at_most_once=True))
    assignment = broker.get(task).assignment_id
    broker.run(c.WorkerLost("w", "i1"))
    assert broker.status(task) == TaskStatus.RUNNING
    broker.appear(delivered_up_to=assignment, ended=[c.EndedRun(task, assignment, 2, result=b"r")])
    assert (broker.status(task), broker.get(task).result) == (TaskStatus.FINISHED, b"r")
    assert not broker.logged(RecordType.LATE_END)


def test_of_a_new_incarnation_nothing_is_known_of_what_the_old_one_got(broker: DrivenBroker) -> None:
    once, often = running(broker, Spec("mail", at_most_once=True), Spec("mail"))
    broker.appear(incarnation="i2", delivered_up_to=0)
    assert (broker.status(once), broker.get(once).outcome) == (TaskStatus.ERROR, Outcome.OUTCOME_UNKNOWN)
    assert (broker.status(often), broker.get(often).attempts) == (TaskStatus.WAITING, 1)
    broker.check()


def test_a_late_end_of_a_task_while_its_next_run_is_lost_does_not_save_that_run(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    first = broker.get(task).assignment_id
    broker.end(task, TaskStatus.ERROR, outcome=Outcome.FAILED)
    broker.pass_time(1_000)
    second = broker.get(task).assignment_id
    broker.appear(delivered_up_to=second, ended=[c.EndedRun(task, first, TaskStatus.FINISHED)])
    assert broker.status(task) == TaskStatus.WAITING
    assert len(broker.logged(RecordType.LATE_END)) == 1


def test_a_disconnected_worker_keeps_its_runs_and_a_dead_one_loses_them(broker: DrivenBroker) -> None:
    once, often = running(broker, Spec("mail", at_most_once=True), Spec("mail"))
    broker.run(c.WorkerLost("w", "i1"))
    (waiting,) = broker.submit(Spec("mail"))
    broker.pass_time(10**6)
    assert [broker.status(one) for one in (once, often, waiting)] == [
        TaskStatus.RUNNING, TaskStatus.RUNNING, TaskStatus.WAITING,
    ]  # fmt: skip
    broker.run(c.WorkerLost("w", "i1", is_dead=True))
    assert [broker.status(one) for one in (once, often)] == [TaskStatus.ERROR, TaskStatus.WAITING]
    assert broker.machine.workers.by_id["w"].status == WorkerStatus.DEAD
    broker.check()


def test_a_finish_of_a_lost_at_most_once_task_is_on_record_and_changes_nothing(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail", at_most_once=True))
    assignment = broker.get(task).assignment_id
    broker.run(c.WorkerLost("w", "i1", is_dead=True))
    broker.appear(delivered_up_to=assignment, ended=[c.EndedRun(task, assignment, 2, result=b"r")])
    assert (broker.status(task), broker.get(task).outcome) == (TaskStatus.ERROR, Outcome.OUTCOME_UNKNOWN)
    assert len(broker.logged(RecordType.LATE_END)) == 1


def test_a_replaced_incarnation_is_refused_whatever_it_says(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    end = c.EndedRun(task, broker.get(task).assignment_id, 2)
    broker.appear(incarnation="i2")
    broker.reboot()
    for command in (
        c.ReportRuns("w", "i1", [end]),
        c.WorkerLost("w", "i1", is_dead=True),
        c.WorkerChanged("w", "i1", WorkerOffer(1)),
        c.WorkerAppeared("w", "i1", "", WorkerOffer(1)),
        c.ReportRuns("nobody", "i1"),
    ):
        reply = broker.run(command)
        assert isinstance(reply, Refused)
        assert reply.refusal == Refusal.STALE_WORKER
    assert broker.machine.workers.by_id["w"].status == WorkerStatus.CONNECTED


def test_messages_of_a_worker_that_came_back_are_not_sent_over_its_new_stream() -> None:
    broker = DrivenBroker()
    broker.appear()
    broker.machine.outbox.take(broker.revision)
    task = broker.submit(Spec("mail"))[0]
    for record_type, fields in broker.machine.due(broker.now_ms, 0, 10):
        broker.log_record(record_type, fields)
    assert len(broker.machine.outbox) == 1
    broker.appear()
    assert broker.status(task) == TaskStatus.WAITING
    assert not broker.told


def test_a_draining_worker_ends_what_it_runs_and_gets_nothing_more(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    broker.run(c.WorkerChanged("w", "i1", is_draining=True))
    broker.run(c.WorkerChanged("w", "i1", WorkerOffer(20)))
    (other,) = broker.submit(Spec("mail"))
    broker.fire()
    assert (broker.status(task), broker.status(other)) == (TaskStatus.RUNNING, TaskStatus.WAITING)
    broker.end(task)
    broker.appear()
    broker.fire()
    assert broker.status(other) == TaskStatus.RUNNING


def test_only_dead_workers_are_removed(broker: DrivenBroker) -> None:
    assert broker.run(c.RemoveWorker("w")).refusal == Refusal.IN_USE
    broker.run(c.WorkerLost("w", "i1", is_dead=True))
    assert isinstance(broker.run(c.RemoveWorker("w")), Done)
    assert broker.run(c.RemoveWorker("w")).refusal == Refusal.NOT_FOUND
    broker.check()


@pytest.mark.parametrize(
    "command",
    [
        c.WorkerAppeared("", "i", "", WorkerOffer(1)),
        c.WorkerAppeared("w", "", "", WorkerOffer(1)),
        c.WorkerAppeared("w", "i,j", "", WorkerOffer(1)),
        c.WorkerAppeared("w", "i", "x" * 201, WorkerOffer(1)),
        c.WorkerAppeared("w", "i", "", WorkerOffer(-1)),
        c.WorkerAppeared("w", "i", "", WorkerOffer(10**6)),
        c.WorkerAppeared("w", "i", "", WorkerOffer(1, groups=(-1,))),
        c.WorkerAppeared("w", "i", "", WorkerOffer(1, groups=(1, 1))),
        c.WorkerAppeared("w", "i", "", WorkerOffer(1, threads_by_type={"": 1})),
        c.WorkerAppeared("w", "i", "", WorkerOffer(1, resources={"a": -1})),
        c.WorkerAppeared("w", "i", "", WorkerOffer(1, tenant_share_percent=101)),
        c.WorkerAppeared("w", "i", "", WorkerOffer(1), 0, [c.HeldRun(-1, 5)]),
        c.WorkerAppeared("w", "i", "", WorkerOffer(1), 0, [c.HeldRun(1, 2**64 - 1)]),
        c.WorkerAppeared("w", "i", "", WorkerOffer(1), 0, [c.HeldRun(1, 1)] * 9_000),
    ],
)
def test_an_unsound_offer_is_refused(command: c.WorkerAppeared) -> None:
    broker = DrivenBroker()
    assert broker.run(command).refusal == Refusal.INVALID


def test_a_worker_is_told_to_end_runs_that_it_holds_and_that_are_nobodys_any_more(broker: DrivenBroker) -> None:
    """A stalled run that was given to another, by a leader that died before it could say so."""
    kept, stalled = running(broker, Spec("mail"), Spec("mail", heartbeat_ms=100, at_most_once=True))
    held = [c.HeldRun(one, broker.get(one).assignment_id) for one in (kept, stalled)]
    broker.pass_time(100)
    broker.promote()
    broker.appear(delivered_up_to=held[1].assignment_id, held=held)
    assert broker.told == [(OutboxKind.CANCEL, "w", stalled, held[1].assignment_id)]
    assert broker.status(kept) == TaskStatus.RUNNING
    broker.told.clear()
    broker.appear(incarnation="i2", delivered_up_to=held[1].assignment_id, held=held)
    assert [told[2:] for told in broker.told] == [(run.task_id, run.assignment_id) for run in held]
    broker.check()


def test_a_new_leader_assigns_nothing_to_workers_that_have_not_come_to_it(broker: DrivenBroker) -> None:
    kept, *_ = running(broker, c.TaskSpec("mail"))
    broker.pass_time(1_000)
    broker.promote()
    [waiting] = broker.submit(c.TaskSpec("mail"))
    broker.fire()
    assert broker.status(waiting) == TaskStatus.WAITING
    assert broker.status(kept) == TaskStatus.RUNNING
    broker.appear("w", stream=2, held=[c.HeldRun(kept, broker.assignments(kept)[-1])], delivered_up_to=broker.revision)
    broker.fire()
    assert broker.status(waiting) == broker.status(kept) == TaskStatus.RUNNING
    broker.check()


def test_workers_that_have_not_come_are_found_over_several_entries(broker: DrivenBroker) -> None:
    for number in range(10):
        broker.appear(f"w{number}")
    broker.pass_time(1_000)
    broker.promote()
    broker.fire(limit=3)
    assert {row.status for row in broker.machine.workers.by_id.values()} == {WorkerStatus.DISCONNECTED}
    assert broker.machine.next_due_ms(broker.promoted_ms) != 0


def test_a_worker_that_is_bound_to_tenants_waits_for_the_logs_format(broker: DrivenBroker) -> None:
    bound = WorkerOffer(2, tenants=("acme",))
    broker.machine.format_level = 1
    for command in (c.WorkerAppeared("b", "i1", "", bound), c.WorkerChanged("w", "i1", bound)):
        refused = broker.run(command)
        assert isinstance(refused, Refused)
        assert refused.refusal == Refusal.CONFLICT
        assert "raise-format" in refused.reason
    assert isinstance(broker.run(c.WorkerAppeared("free", "i1", "", WorkerOffer(2))), Done)
    assert "tenants" not in json.loads(broker.machine.workers.by_id["free"].offer), "level 1 does not know the word"
    broker.machine.format_level = 2
    assert isinstance(broker.run(c.WorkerAppeared("b", "i1", "", bound)), Done)
    assert json.loads(broker.machine.workers.by_id["b"].offer)["tenants"] == ["acme"]
    broker.check()


def test_a_worker_that_is_bound_to_tenants_runs_theirs_alone_also_after_a_rebuild(broker: DrivenBroker) -> None:
    broker.run(c.WorkerChanged("w", "i1", WorkerOffer(10, tenants=("acme",))))
    (own,), (foreign,) = broker.submit(Spec("mail"), tenant="acme"), broker.submit(Spec("mail"), tenant="bolt")
    broker.fire()
    tasks = broker.machine.tasks.by_id
    assert [tasks[one].status for one in (own, foreign)] == [TaskStatus.RUNNING, TaskStatus.WAITING]
    broker.check()
    fault = broker.run(c.WorkerChanged("w", "i1", WorkerOffer(10, tenants=("a\x00",))))
    assert isinstance(fault, Refused)
    broker.run(c.WorkerChanged("w", "i1", WorkerOffer(10)))
    broker.fire()
    assert tasks[foreign].status == TaskStatus.RUNNING
    broker.check()
