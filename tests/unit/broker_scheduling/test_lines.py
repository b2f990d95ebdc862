"""Lines: order, keys that are held, and what is left behind."""

from __future__ import annotations

import random

import pytest

from broker.core.scheduling.accounts import Account, Arena
from broker.core.scheduling.classes import TaskClass, TaskType
from broker.core.scheduling.lines import ID_MASK, Line, Waiting, order_of
from broker.core.scheduling.tenants import Tenant


class Queue:
    """A line and what waits in it."""

    def __init__(self) -> None:
        arena = Arena()
        account = Account("a", 1.0, arena)
        self.line = Line(Tenant("a", account), TaskClass(1, TaskType("t"), (), arena), account, 1)
        self.waiting: dict[int, Waiting] = {}

    def add(self, task_id: int, priority: int = 0, key: str = "") -> None:
        order = order_of(task_id, priority)
        self.waiting[task_id] = Waiting(self.line, order, 0, key)
        self.line.add(order, key)

    def remove(self, task_id: int) -> None:
        self.line.forget(self.waiting.pop(task_id).order, self.waiting)

    def head(self) -> int | None:
        order = self.line.head(self.waiting)
        return None if order is None else order & ID_MASK

    def drain(self) -> list[int]:
        ids = []
        while (task_id := self.head()) is not None:
            ids.append(task_id)
            self.remove(task_id)
        return ids


@pytest.fixture
def queue():
    return Queue()


@pytest.mark.parametrize("priority", [-1_000_000, -1, 0, 1, 1_000_000])
def test_an_order_names_its_task(priority):
    for task_id in (1, 2**31, 2**62):
        assert order_of(task_id, priority) & ID_MASK == task_id
        assert order_of(task_id, priority) < order_of(1, priority - 1)


@pytest.mark.parametrize("seed", range(20))
def test_tasks_leave_by_priority_and_id_however_they_came(seed):
    rng = random.Random(seed)
    queue = Queue()
    priorities = {task_id: rng.choice([-1, 0, 0, 0, 2]) for task_id in rng.sample(range(1, 500), 200)}
    for task_id, priority in priorities.items():
        queue.add(task_id, priority, rng.choice(["", "", "k", "l"]))
    for task_id in rng.sample(list(priorities), 60):
        queue.remove(task_id)
        if rng.random() < 0.5:
            priorities[task_id] = rng.choice([0, 1])
            queue.add(task_id, priorities[task_id])
        else:
            del priorities[task_id]
    assert queue.drain() == sorted(priorities, key=lambda task_id: (-priorities[task_id], task_id))
    assert queue.line.size == 0


def test_held_keys_are_passed_over_and_come_back_to_their_place(queue):
    for task_id, key in enumerate(["k", "", "k", "l"], start=1):
        queue.add(task_id, key=key)
    queue.line.hold("k", is_held=True)
    assert queue.head() == 2
    assert queue.line.hold("k", is_held=False)
    assert queue.drain() == [1, 2, 3, 4]


def test_a_line_of_held_keys_alone_has_nothing_to_give(queue):
    queue.add(1, key="k")
    queue.line.hold("k", is_held=True)
    assert queue.head() is None
    queue.add(2, key="k")
    assert queue.head() is None
    assert queue.line.hold("k", is_held=False)
    assert queue.drain() == [1, 2]


def test_letting_go_of_a_key_without_tasks_brings_nothing_back(queue):
    queue.line.hold("k", is_held=True)
    assert not queue.line.hold("k", is_held=False)


def test_what_is_gone_is_dropped_when_there_is_too_much_of_it(queue):
    for task_id in range(1, 1_001):
        queue.add(task_id, key="k" if task_id % 2 else "")
    for task_id in range(1_000, 1, -1):
        queue.remove(task_id)
    assert queue.line.size < 200
    assert queue.drain() == [1]
