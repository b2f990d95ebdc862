"""Runs: assigned, ended, failed, again, lost."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine.outbox import OutboxKind
from broker.machine.policies import ErrorRule, RetryPolicy, TenantPolicy, WorkerOffer
from broker.machine.replies import Done
from broker.machine.statuses import Outcome, TaskStatus
from broker.machine.tables import RecordType, Table
from tests.unit.broker.machine.driven_broker import DrivenBroker

Spec = c.TaskSpec


def running(broker: DrivenBroker, *specs: c.TaskSpec) -> list[int]:
    ids = broker.submit(*specs)
    broker.fire()
    assert [broker.status(one) for one in ids] == [TaskStatus.RUNNING] * len(ids)
    return ids


def test_an_assignment_has_the_revision_of_its_record_as_id_and_is_told_to_its_worker(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    (assignment,) = broker.assignments(task)
    shown = broker.get(task)
    assert (shown.assignment_id, shown.worker_id, shown.attempts) == (assignment, "w", 1)
    assert broker.told == [(OutboxKind.ASSIGN, "w", task, assignment)]
    run = broker.machine.assigned_run(task, assignment, broker.now_ms)
    assert run is not None
    assert (run.type, run.attempt, run.tenant) == ("mail", 1, "acme")
    assert broker.machine.assigned_run(task, assignment - 1, broker.now_ms) is None
    broker.check()


def test_the_id_of_an_assignment_survives_a_snapshot_and_what_is_asked_of_it(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    assignments = broker.assignments(task)
    broker.reboot()
    assert [broker.get(task).assignment_id] == assignments
    broker.run(c.CancelTasks("acme", [task]))
    broker.reboot()
    assert [broker.get(task).assignment_id] == assignments
    broker.check()


def test_a_run_that_ends_well_gives_its_result_and_its_slot(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail", slot="s"))
    broker.end(task, result=b"42")
    shown = broker.get(task)
    assert (shown.status, shown.result, shown.worker_id) == (TaskStatus.FINISHED, b"42", "w")
    assert broker.machine.count(Table.SLOTS) == 0
    assert broker.machine.next_due_ms(0) == broker.now_ms + broker.rules.retention_ms, "nothing is left over"
    assert broker.submit(Spec("mail", slot="s")) != [0]
    broker.check()


def test_a_run_that_fails_is_repeated_until_its_attempts_are_used_up(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail", max_attempts=3, slot="s"))
    for attempt in (1, 2, 3):
        assert broker.get(task).attempts == attempt
        assert broker.submit(Spec("mail", slot="s")) == [0], "a retry keeps its slot"
        broker.end(task, TaskStatus.ERROR, outcome=Outcome.FAILED, error="ValueError: no")
        broker.pass_time(2_000)
    shown = broker.get(task)
    assert (shown.status, shown.outcome, shown.error) == (TaskStatus.ERROR, Outcome.FAILED, "ValueError: no")
    assert len(broker.assignments(task)) == 3
    assert broker.submit(Spec("mail", slot="s")) != [0]
    broker.check()


def test_an_at_most_once_task_that_fails_is_never_run_again(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail", at_most_once=True))
    broker.end(task, TaskStatus.ERROR, outcome=Outcome.FAILED)
    broker.pass_time(10**6)
    assert broker.status(task) == TaskStatus.ERROR
    assert len(broker.assignments(task)) == 1


def test_backoff_grows_is_spread_the_same_everywhere_and_is_bounded(broker: DrivenBroker) -> None:
    retry = RetryPolicy(backoff_ms=1_000, factor=3, backoff_ms_max=5_000, jitter=0.5)
    broker.run(c.SetTenant("acme", TenantPolicy(retry=retry)))
    (task,) = running(broker, Spec("mail"))
    waits = []
    for _ in range(4):
        broker.end(task, TaskStatus.ERROR, outcome=Outcome.FAILED)
        shown = broker.get(task)
        assert shown.status == TaskStatus.DELAYED
        waits.append(shown.due_ms - broker.now_ms)
        broker.pass_time(waits[-1] - 1)
        assert broker.status(task) == TaskStatus.DELAYED
        broker.pass_time(1)
        assert broker.status(task) == TaskStatus.RUNNING
    for wait, length in zip(waits, (1_000, 3_000, 5_000, 5_000), strict=True):
        assert length / 2 <= wait <= length
    assert waits[2] != waits[3]
    broker.check()


def test_rules_for_errors_decide_before_the_policy(broker: DrivenBroker) -> None:
    rules = (
        ErrorRule("KeyError", retry=False),
        ErrorRule("[timed_out]", max_attempts=1),
        ErrorRule("Value", backoff_ms=700, max_attempts=5),
    )
    broker.run(c.SetTenant("acme", TenantPolicy(max_attempts=2, retry=RetryPolicy(jitter=0, rules=rules))))
    key, timed, value, other = running(broker, *[Spec("mail")] * 4)
    broker.end(key, TaskStatus.ERROR, outcome=Outcome.FAILED, error="KeyError: 3")
    broker.end(timed, TaskStatus.ERROR, outcome=Outcome.TIMED_OUT, error="it took long")
    broker.end(value, TaskStatus.ERROR, outcome=Outcome.FAILED, error="ValueError")
    broker.end(other, TaskStatus.ERROR, outcome=Outcome.FAILED, error="TypeError")
    assert [broker.status(one) for one in (key, timed, value, other)] == [
        TaskStatus.ERROR, TaskStatus.ERROR, TaskStatus.DELAYED, TaskStatus.DELAYED,
    ]  # fmt: skip
    assert [broker.get(one).due_ms - broker.now_ms for one in (value, other)] == [700, 1_000]
    for _ in range(4):
        broker.pass_time(20_000)
        broker.end(value, TaskStatus.ERROR, outcome=Outcome.FAILED, error="ValueError")
    assert broker.status(value) == TaskStatus.ERROR
    assert broker.get(value).attempts == 5


def test_an_own_retry_policy_of_a_task_counts_instead_of_its_tenants(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail", retry='{"backoff_ms": 50, "jitter": 0}'))
    broker.end(task, TaskStatus.ERROR, outcome=Outcome.FAILED)
    assert broker.get(task).due_ms == broker.now_ms + 50


def test_an_end_of_an_older_assignment_is_noted_and_changes_nothing(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    first = broker.get(task).assignment_id
    broker.end(task, TaskStatus.ERROR, outcome=Outcome.FAILED)
    broker.fire()
    before = broker.get(task)
    broker.run(c.ReportRuns("w", "i1", [c.EndedRun(task, first, TaskStatus.FINISHED, result=b"late")]))
    assert broker.get(task) == before
    ((noted, assignment, worker, *_, result),) = broker.logged(RecordType.LATE_END)
    assert (noted, assignment, worker, result) == (task, first, "w", b"late")


def test_an_end_said_twice_is_taken_once_and_not_noted_as_late(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    end = c.EndedRun(task, broker.get(task).assignment_id, TaskStatus.FINISHED)
    broker.run(c.ReportRuns("w", "i1", [end, end]))
    assert broker.run(c.ReportRuns("w", "i1", [end])) == Done(broker.revision + 1)
    assert len(broker.logged(RecordType.TASK_ENDED)) == 1
    assert not broker.logged(RecordType.LATE_END)


def test_ends_of_other_workers_runs_and_of_no_task_at_all_are_only_noted(broker: DrivenBroker) -> None:
    broker.appear("v", "j1", offer=WorkerOffer(0))
    (task,) = running(broker, Spec("mail"))
    assignment = broker.get(task).assignment_id
    broker.run(
        c.ReportRuns("v", "j1", [c.EndedRun(task, assignment, 2), c.EndedRun(999, 998, 2), c.EndedRun(-1, 0, 2)])
    )
    assert broker.status(task) == TaskStatus.RUNNING
    assert len(broker.logged(RecordType.LATE_END)) == 2
    broker.check()


@pytest.mark.parametrize(
    "end", [{"status": 99}, {"status": 4, "error": "x" * 10_000}, {"status": 2, "result": bytes(1024 * 1024 + 1)}]
)
def test_an_end_out_of_bounds_counts_as_a_failure(broker: DrivenBroker, end: dict[str, object]) -> None:
    (task,) = running(broker, Spec("mail", max_attempts=1))
    broker.end(task, **end)  # type: ignore[arg-type]
    shown = broker.get(task)
    assert (shown.status, shown.outcome) == (TaskStatus.ERROR, Outcome.FAILED)
    assert 0 < len(shown.error.encode()) <= 4096
    broker.check()


def test_progress_is_shown_while_a_task_runs_and_forgotten_with_its_run(broker: DrivenBroker) -> None:
    (task,) = running(broker, Spec("mail"))
    assignment = broker.get(task).assignment_id
    progress = [c.ProgressOf(task, assignment, 0.2, "a"), c.ProgressOf(task, assignment, 0.5, "b")]
    broker.run(c.ReportRuns("w", "i1", [], progress))
    assert (broker.get(task).progress, broker.get(task).progress_message) == (0.5, "b")
    broker.run(c.ReportRuns("w", "i1", [], [c.ProgressOf(task, assignment, float("nan"))]))
    assert broker.get(task).progress == -1
    broker.run(c.ReportRuns("w", "i1", [], [c.ProgressOf(task, assignment - 1, 0.9)]))
    assert broker.get(task).progress == -1
    broker.run(c.ReportRuns("w", "i1", [c.EndedRun(task, assignment, 2)], [c.ProgressOf(task, assignment, 0.9)]))
    assert broker.get(task).progress_ms == 0
    broker.check()
