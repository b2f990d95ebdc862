"""What is kept for a while."""

from __future__ import annotations

from broker.machine.index.admin import PolicyIndex
from broker.machine.index.purging import ByteBounds, EndedTasks, KeptRequests
from broker.machine.index.tasks import TaskIndex, TaskState
from broker.machine.policies import TenantPolicy
from broker.machine.rules import BrokerRules
from broker.machine.statuses import TaskStatus


def ended(
    index: TaskIndex, tasks: EndedTasks, task_id: int, at_ms: int, status: TaskStatus, tenant: str = "a"
) -> TaskState:
    task = TaskState(task_id, index.tenant(tenant), "mail", status, 0)
    task.at_ms = at_ms
    index.add(task)
    tasks.add(task)
    return task


def purged(index: TaskIndex, tasks: EndedTasks, now_ms: int) -> list[int]:
    gone = []
    for task in tasks.due(now_ms):
        index.remove(task)
        gone.append(task.task_id)
    return gone


def test_each_tenant_and_kind_has_its_time_and_the_earliest_goes_first() -> None:
    index = TaskIndex()
    tasks = EndedTasks(index, lambda tenant, is_dead: 100 if tenant == "a" else 50 + 500 * is_dead, 10)
    ended(index, tasks, 1, 10, TaskStatus.FINISHED)
    ended(index, tasks, 2, 20, TaskStatus.ERROR, "b")
    ended(index, tasks, 3, 30, TaskStatus.CANCELLED, "b")
    assert tasks.next_ms() == 80
    assert purged(index, tasks, 79) == []
    assert purged(index, tasks, 200) == [3, 1]
    assert purged(index, tasks, 570) == [2]
    assert tasks.next_ms() is None
    tasks.validate()


def test_a_task_that_was_replayed_is_not_purged_by_its_first_end() -> None:
    index = TaskIndex()
    tasks = EndedTasks(index, lambda _tenant, _is_dead: 100, 10)
    task = ended(index, tasks, 1, 10, TaskStatus.ERROR)
    index.move(task, TaskStatus.WAITING)
    assert purged(index, tasks, 500) == []
    index.move(task, TaskStatus.ERROR)
    task.at_ms = 450
    tasks.add(task)
    assert purged(index, tasks, 549) == []
    assert purged(index, tasks, 550) == [1]


def test_of_too_many_those_go_whose_time_is_over_first() -> None:
    index = TaskIndex()
    tasks = EndedTasks(index, lambda tenant, _is_dead: 100 if tenant == "a" else 10, 2)
    ended(index, tasks, 1, 10, TaskStatus.FINISHED)
    ended(index, tasks, 2, 11, TaskStatus.FINISHED, "b")
    assert purged(index, tasks, 12) == []
    ended(index, tasks, 3, 12, TaskStatus.FINISHED)
    assert tasks.next_ms() == 0
    assert purged(index, tasks, 12) == [2]
    tasks.validate()


def test_another_retention_counts_at_once() -> None:
    index, length = TaskIndex(), [1_000]
    tasks = EndedTasks(index, lambda _tenant, _is_dead: length[0], 10)
    ended(index, tasks, 1, 10, TaskStatus.FINISHED)
    length[0] = 20
    tasks.replan("a")
    assert tasks.next_ms() == 30
    assert purged(index, tasks, 30) == [1]


def test_replies_go_oldest_first_by_time_and_by_count() -> None:
    kept = KeptRequests(100, 2)
    assert kept.next_ms() is None
    for at_ms, key in ((1, "a"), (2, "b"), (3, "c")):
        kept.add(at_ms, "t", key)
    gone = []
    for tenant, key in kept.due(4):
        kept.forget(tenant, key)
        gone.append(key)
    assert gone == ["a"]
    assert kept.next_ms() == 102
    kept.forget("t", "c")
    kept.validate(1)


def test_replies_forgotten_out_of_turn_cost_no_more_than_others() -> None:
    """A replica that has booted from a snapshot has those of one moment in another order than the leader."""
    kept = KeptRequests(100, 10**6)
    for number in range(20_000):
        kept.add(5, "t", f"k{number}")
    for number in reversed(range(20_000)):
        kept.forget("t", f"k{number}")
    kept.validate(0)
    assert kept.next_ms() is None
    kept.add(7, "t", "k1")
    assert list(kept._queue) == [(7, "t", "k1")]


def test_beyond_a_bound_the_oldest_ended_tasks_go_first_and_what_runs_stays() -> None:
    index, policies = TaskIndex(), PolicyIndex(BrokerRules())
    tasks = EndedTasks(index, policies.retention_ms, 100)
    bounds = ByteBounds(index, tasks, policies, bytes_max=50)
    policies.set("a", TenantPolicy(bytes_max=25))
    for task_id in range(1, 5):
        index.weigh(ended(index, tasks, task_id, task_id, TaskStatus.FINISHED), None, bytes(10))
    other = TaskState(5, index.tenant("b"), "mail", TaskStatus.WAITING, 0)
    index.add(other)
    index.weigh(other, None, bytes(30))

    def gone() -> list[int]:
        found = []
        for task in bounds.beyond():
            index.weigh(task, bytes(10), None)
            index.remove(task)
            found.append(task.task_id)
        return found

    assert not bounds
    assert gone() == [], "nobody was noted"
    bounds.note("b")
    assert gone() == [1, 2], "70 bytes of 50 in all: the tenant that has most gives first"
    bounds.note_all()
    assert not bounds
    policies.set("a", TenantPolicy(bytes_max=15))
    bounds.note_all()
    assert len(bounds) == 1
    assert gone() == [3]
    assert not bounds
