"""Classes: entries that are void do not pile up."""

from __future__ import annotations

import pytest

from broker.core.policies import WorkerOffer
from broker.core.scheduling.classes import TaskType
from tests.unit.broker_scheduling.brute_force import Checked


def test_the_expected_duration_of_a_type_follows_its_tasks():
    task_type = TaskType("t")
    assert task_type.duration < 0
    task_type.learn(800)
    assert task_type.duration == 800
    for _ in range(60):
        task_type.learn(0)
    assert task_type.duration == pytest.approx(0, abs=1)


def test_void_entries_of_lines_and_workers_do_not_pile_up():
    checked = Checked()
    for n in range(3):
        checked.worker(f"w{n}", WorkerOffer(threads_max=4))
    for tenant in "ab":
        checked.submit(tenant, count=600)
    checked.dispatch(check=False)
    for round_ in range(400):
        # Every other task ends earlier than those before it: its tenant is put right in the heap.
        checked.now_ms += 1_000 if round_ % 2 else 1
        checked.end(min(checked.running))
        checked.dispatch(check=False)
    (task_class,) = checked.scheduler._board.classes.values()
    assert len(task_class.heap) < 100
    assert len(task_class.room) < 100
    checked.check_limits()


def test_workers_that_come_and_go_leave_nothing_in_a_class():
    checked = Checked()
    checked.submit()
    checked.hold("", "", "", True)
    for n in range(500):
        checked.worker(f"w{n}", WorkerOffer(threads_max=4))
        checked.worker(f"w{n}", None)
    (task_class,) = checked.scheduler._board.classes.values()
    assert len(task_class.room) < 100
    assert not checked.scheduler._board.workers
