"""What the scheduler is still to be told of waiting tasks."""

from __future__ import annotations

import pytest

from broker.machine.index import demands
from broker.machine.index.demands import DemandBacklog
from broker.machine.index.tasks import TaskIndex, TaskState
from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.scheduler import Scheduler
from broker.machine.statuses import TaskStatus


class Waiting:
    """Tasks that wait in group 1, and ask for group 2 from now on."""

    def __init__(self, count: int) -> None:
        self.tasks = TaskIndex()
        self.scheduler = Scheduler()
        self.backlog = DemandBacklog(self.tasks, self.scheduler, lambda task: self.demand(task, 2))
        for task_id in range(1, count + 1):
            task = TaskState(task_id, self.tasks.tenant("acme"), "mail", TaskStatus.WAITING, 0)
            self.tasks.add(task)
            self.scheduler.enqueue(self.demand(task, 1))

    def demand(self, task: TaskState, group: int) -> Demand:
        return Demand(task.task_id, "acme", "mail", group, 0, (), "", 0)

    def groups(self) -> list[object]:
        waiting = self.scheduler.known()[0]
        return [waiting[task_id][2] for task_id in sorted(waiting)]


def test_so_many_are_told_at_once_and_the_others_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demands, "_AT_ONCE_MAX", 2)
    waiting = Waiting(6)
    waiting.backlog.add(range(1, 7))
    assert waiting.groups() == [2, 2, 1, 1, 1, 1]
    assert waiting.backlog.tell_first(5)
    assert not waiting.backlog.tell_first(5)
    assert not waiting.backlog.tell_first(1)
    assert waiting.groups() == [2, 2, 1, 1, 2, 1]
    waiting.backlog.validate()
    waiting.backlog.tell_some(2)
    assert len(waiting.backlog) == 2
    waiting.backlog.tell_some(100)
    assert waiting.groups() == [2] * 6
    assert not waiting.backlog


def test_what_waits_no_more_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demands, "_AT_ONCE_MAX", 0)
    waiting = Waiting(3)
    waiting.backlog.add([1, 2, 3])
    waiting.scheduler.withdraw(1)
    waiting.tasks.move(waiting.tasks.by_id[1], TaskStatus.FINISHED)
    waiting.scheduler.withdraw(2)
    waiting.tasks.remove(waiting.tasks.by_id[2])
    waiting.backlog.tell_some(3)
    assert waiting.groups() == [2]
    waiting.backlog.validate()
