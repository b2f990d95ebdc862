"""What is kept for a while and then removed: ended tasks, and replies to request keys. Oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from broker.core.statuses import TaskStatus
from broker.core.tasks import Task, TaskIndex
from broker.core.timers import PlanKind, Timers

__all__ = ["EndedTasks", "KeptRequests"]


class EndedTasks:
    """Ended tasks by tenant, in order of their ends.

    Args:
        index: Of all tasks.
        retention_ms: How long a tenant's are kept, of dead letters if the second argument is true.
        count_max: So many are kept, whatever the time.

    """

    def __init__(self, index: TaskIndex, retention_ms: Callable[[str, bool], int], count_max: int) -> None:
        self._count_max = count_max
        self._index = index
        self._retention_ms = retention_ms
        self._queues: dict[tuple[str, bool], deque[tuple[int, int]]] = {}
        self._timers = Timers()

    def add(self, task: Task) -> None:
        """Note that a task has ended, now."""
        key = (task.tenant.name, task.status == TaskStatus.ERROR)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append((task.at_ms, task.task_id))
        if len(queue) == 1:
            self._plan(key)

    def replan(self, tenant: str) -> None:
        """Take notice of another retention of a tenant."""
        for is_dead in (False, True):
            if (tenant, is_dead) in self._queues:
                self._plan((tenant, is_dead))

    def _plan(self, key: tuple[str, bool]) -> None:
        queue = self._queues[key]
        while queue and not self._is_right(*queue[0], is_dead=key[1]):
            queue.popleft()
        if queue:
            self._timers.plan(PlanKind.TASK, key, queue[0][0] + self._retention_ms(*key))
        else:
            del self._queues[key]
            self._timers.forget(PlanKind.TASK, key)

    def _is_right(self, ended_ms: int, task_id: int, *, is_dead: bool) -> bool:
        """Return whether an entry is still right: the task was not replayed or removed since."""
        task = self._index.tasks.get(task_id)
        return (
            task is not None
            and task.has_ended
            and task.at_ms == ended_ms
            and (task.status == TaskStatus.ERROR) == is_dead
        )

    def next_ms(self) -> int | None:
        """Return when a task is to be removed next, or None."""
        first = self._timers.first()
        if first is None:
            return None
        return first.at_ms if self._index.ended <= self._count_max else 0

    def due(self, now_ms: int) -> Iterator[Task]:
        """Yield tasks to be removed, one by one; each must be gone before the next is asked for."""
        while (first := self._timers.first()) is not None:
            is_over = self._index.ended > self._count_max
            if first.at_ms > now_ms and not is_over:
                return
            key = first.key
            ended_ms, task_id = self._queues[key][0]
            if self._is_right(ended_ms, task_id, is_dead=key[1]) and (
                is_over or ended_ms + self._retention_ms(*key) <= now_ms
            ):
                yield self._index.tasks[task_id]
            self._plan(key)

    def validate(self) -> None:
        """Check that every ended task will be removed."""
        queued = {
            task_id
            for (_, is_dead), queue in self._queues.items()
            for ended_ms, task_id in queue
            if self._is_right(ended_ms, task_id, is_dead=is_dead)
        }
        assert queued == {task_id for task_id, task in self._index.tasks.items() if task.has_ended}
        assert all(self._timers.planned_ms(PlanKind.TASK, key) is not None for key in self._queues)


class KeptRequests:
    """Request keys in order of their age.

    Args:
        retention_ms: How long each is kept.
        count_max: So many are kept, whatever the time.

    """

    def __init__(self, retention_ms: int, count_max: int) -> None:
        self._retention_ms = retention_ms
        self._count_max = count_max
        self._kept: dict[tuple[str, str], int] = {}
        # What was forgotten out of turn is passed over when it comes to the front.
        self._queue: deque[tuple[int, str, str]] = deque()

    def add(self, created_ms: int, tenant: str, request_key: str) -> None:
        """Note that a reply was kept, now."""
        self._kept[tenant, request_key] = created_ms
        self._queue.append((created_ms, tenant, request_key))

    def forget(self, tenant: str, request_key: str) -> None:
        """Note that a reply was forgotten."""
        self._kept.pop((tenant, request_key), None)

    def _first(self) -> tuple[int, str, str] | None:
        queue = self._queue
        while queue:
            created_ms, tenant, request_key = queue[0]
            if self._kept.get((tenant, request_key)) == created_ms:
                return queue[0]
            queue.popleft()
        return None

    def next_ms(self) -> int | None:
        """Return when a reply is to be forgotten next, or None."""
        first = self._first()
        if first is None:
            return None
        return first[0] + self._retention_ms if len(self._kept) <= self._count_max else 0

    def due(self, now_ms: int) -> Iterator[tuple[str, str]]:
        """Yield (tenant, request key), one by one; each must be forgotten before the next is asked for."""
        while (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            yield self._queue[0][1:]

    def validate(self, count: int) -> None:
        """Check that every reply will be forgotten."""
        assert len(self._kept) == count
        assert {(created_ms, *key) for key, created_ms in self._kept.items()} <= set(self._queue)
