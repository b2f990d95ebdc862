"""The index of tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.machine.index.tasks import SortedIds, TaskIndex, TaskState
from broker.machine.statuses import TaskStatus


@given(count=st.integers(0, 40), gone=st.sets(st.integers(1, 40)), at=st.integers(0, 45))
def test_ids_are_iterated_from_any_place_in_both_directions(count: int, gone: set[int], at: int) -> None:
    ids = SortedIds()
    for one in range(1, count + 1):
        ids.add(one)
    gone = {one for one in gone if one <= count}
    for one in sorted(gone):
        ids.remove(one)
    left = [one for one in range(1, count + 1) if one not in gone]
    assert list(ids.after(at)) == [one for one in left if one > at]
    assert list(ids.before(at)) == [one for one in reversed(left) if not at or one < at]


def test_ids_that_go_leave_nothing_behind() -> None:
    ids = SortedIds()
    for one in range(1, 10_001):
        ids.add(one)
    for one in range(1, 10_000):
        ids.remove(one)
    assert list(ids.after(0)) == [10_000]
    assert len(ids._ids) < 4_000


def index_of(*statuses: TaskStatus) -> TaskIndex:
    index = TaskIndex()
    for place, status in enumerate(statuses):
        index.add(TaskState(place + 1, index.tenant("acme" if place % 2 else "other"), "mail", status, 0))
    return index


def test_counts_follow_tasks_through_their_states() -> None:
    index = index_of(TaskStatus.WAITING, TaskStatus.WAITING, TaskStatus.DELAYED)
    task = index.by_id[1]
    index.move(task, TaskStatus.RUNNING)
    index.run(task, "w")
    index.validate()
    assert index.runs_of("w") == [task]
    index.stop(task)
    index.move(task, TaskStatus.FINISHED)
    index.validate()
    assert (index.unfinished, index.ended, index.by_type["mail"][TaskStatus.FINISHED]) == (2, 1, 1)
    index.remove(task)
    index.validate()
    assert len(index) == 2
    assert index.runs_of("w") == []


def test_a_tenant_without_tasks_leaves_nothing_behind() -> None:
    index = index_of(TaskStatus.WAITING)
    index.remove(index.by_id[1])
    assert (index.tenants, index.by_type) == ({}, {})


def test_a_task_is_found_by_its_tenant_and_the_administrator_only() -> None:
    index = index_of(TaskStatus.WAITING)
    assert index.of("other", 1) is index.of("", 1) is index.by_id[1]
    assert index.of("acme", 1) is index.of("other", 2) is None


def test_a_count_that_is_wrong_is_found() -> None:
    index = index_of(TaskStatus.WAITING)
    index.by_type["mail"][TaskStatus.WAITING] = 2
    with pytest.raises(AssertionError):
        index.validate()


def test_what_is_prepared_is_in_its_transaction_until_that_ends() -> None:
    index = TaskIndex()
    index.begin(7)
    for task_id in (8, 9):
        task = TaskState(task_id, index.tenant("acme"), "mail", TaskStatus.PREPARED, 0)
        task.transaction = 7
        index.add(task)
    index.validate()
    index.remove(index.by_id[8])
    index.validate()
    assert list(index.by_transaction[7]) == [9]
    with pytest.raises(AssertionError, match="transaction 7 has tasks"):
        index.roll_back(7)
    index.begin(7)
    index.by_transaction[7][9] = index.by_id[9]
    for task in index.commit(7):
        index.move(task, TaskStatus.WAITING)
    index.validate()
    assert not index.by_transaction
