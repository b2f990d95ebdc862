"""How tasks end, or wait again: which records that takes."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine.completion import ended, failed, lost, undelivered
from broker.machine.index.tasks import TaskState
from broker.machine.statuses import Outcome, TaskStatus
from broker.machine.tables import RecordType
from tests.unit.broker.machine.driven_broker import DrivenBroker


def running(spec: c.TaskSpec) -> tuple[DrivenBroker, TaskState]:
    broker = DrivenBroker()
    broker.appear()
    (task_id,) = broker.submit(spec)
    broker.fire()
    task = broker.machine.tasks.by_id[task_id]
    broker.run(c.ReportRuns("w", "i1", [], [c.ProgressOf(task_id, task.assignment_id)]))
    return broker, task


def test_an_end_releases_the_slot_and_forgets_the_progress() -> None:
    broker, task = running(c.TaskSpec("mail", slot="s"))
    records = ended(broker.machine, task, broker.now_ms, TaskStatus.FINISHED)
    assert [kind for kind, _ in records] == [
        RecordType.TASK_ENDED, RecordType.SLOT_RELEASED, RecordType.PROGRESS_REMOVED,
    ]  # fmt: skip


def test_a_retry_keeps_the_slot_and_forgets_the_progress() -> None:
    broker, task = running(c.TaskSpec("mail", slot="s"))
    records = failed(broker.machine, task, broker.now_ms, Outcome.FAILED, "x")
    assert [kind for kind, _ in records] == [RecordType.TASK_REQUEUED, RecordType.PROGRESS_REMOVED]


@pytest.mark.parametrize(
    ("spec", "status", "outcome"),
    [
        (c.TaskSpec("mail", at_most_once=True), TaskStatus.ERROR, Outcome.OUTCOME_UNKNOWN),
        (c.TaskSpec("mail"), TaskStatus.WAITING, Outcome.WORKER_DIED),
        (c.TaskSpec("mail", max_attempts=1), TaskStatus.ERROR, Outcome.WORKER_DIED),
        (c.TaskSpec("mail", retry='{"backoff_ms": 5}'), TaskStatus.WAITING, Outcome.WORKER_DIED),
        (c.TaskSpec("mail", retry='{"rules": [{"error": "[worker_died]", "backoff_ms": 5}]}'), TaskStatus.DELAYED,
         Outcome.WORKER_DIED),
        (c.TaskSpec("mail", retry='{"rules": [{"error": "[worker_died]", "retry": false}]}'), TaskStatus.ERROR,
         Outcome.WORKER_DIED),
    ],
)  # fmt: skip
def test_a_lost_run_ends_as_its_semantics_say(spec: c.TaskSpec, status: TaskStatus, outcome: str) -> None:
    broker, task = running(spec)
    (kind, fields), *_ = lost(broker.machine, task, broker.now_ms, Outcome.WORKER_DIED, "it died")
    broker.log_record(kind, fields)
    shown = broker.get(task.task_id)
    assert (shown.status, shown.outcome, shown.error, shown.attempts) == (status, outcome, "it died", 1)


def test_an_assignment_that_never_arrived_counts_as_no_attempt() -> None:
    broker, task = running(c.TaskSpec("mail", at_most_once=True))
    (kind, fields), *_ = undelivered(broker.machine, task, broker.now_ms)
    broker.log_record(kind, fields)
    assert (broker.status(task.task_id), broker.get(task.task_id).attempts) == (TaskStatus.WAITING, 0)
