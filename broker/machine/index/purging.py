"""Removal of ended tasks and of replies to request keys, after they were kept for a while. Oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from broker.machine.index.admin import PolicyIndex
from broker.machine.index.tasks import TaskIndex, TaskState
from broker.machine.index.timers import PlanKind, Timers
from broker.machine.statuses import TaskStatus


class EndedTasks:
    """Ended tasks by tenant, in order of their ends.

    Args:
        tasks: All tasks.
        retention_ms: How long a tenant's are kept, of dead letters if the second argument is true.
        count_max: So many are kept, whatever the time.

    """

    def __init__(self, tasks: TaskIndex, retention_ms: Callable[[str, bool], int], count_max: int) -> None:
        self._count_max = count_max
        self._tasks = tasks
        self._retention_ms = retention_ms
        self._queues: dict[tuple[str, bool], deque[tuple[int, int]]] = {}
        self._timers = Timers()

    def add(self, task: TaskState) -> None:
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
        task = self._tasks.by_id.get(task_id)
        return (
            task is not None
            and task.has_ended
            and task.at_ms == ended_ms
            and (task.status == TaskStatus.ERROR) == is_dead
        )

    def oldest(self, tenant: str) -> TaskState | None:
        """Return the task of a tenant that has ended first, dead letters last of all; None = there is none."""
        for is_dead in (False, True):
            if (tenant, is_dead) in self._queues:
                self._plan((tenant, is_dead))
                queue = self._queues.get((tenant, is_dead))
                if queue:
                    return self._tasks.by_id[queue[0][1]]
        return None

    def next_ms(self) -> int | None:
        """Return when a task is to be removed next, or None."""
        first = self._timers.first()
        if first is None:
            return None
        return first.at_ms if self._tasks.ended <= self._count_max else 0

    def due(self, now_ms: int) -> Iterator[TaskState]:
        """Yield tasks to be removed, one by one; each must be gone before the next is asked for."""
        while (first := self._timers.first()) is not None:
            is_over = self._tasks.ended > self._count_max
            if first.at_ms > now_ms and not is_over:
                return
            key = first.key
            ended_ms, task_id = self._queues[key][0]
            if self._is_right(ended_ms, task_id, is_dead=key[1]) and (
                is_over or ended_ms + self._retention_ms(*key) <= now_ms
            ):
                yield self._tasks.by_id[task_id]
            self._plan(key)

    def validate(self) -> None:
        """Check that every ended task will be removed."""
        queued = {
            task_id
            for (_, is_dead), queue in self._queues.items()
            for ended_ms, task_id in queue
            if self._is_right(ended_ms, task_id, is_dead=is_dead)
        }
        assert queued == {task_id for task_id, task in self._tasks.by_id.items() if task.has_ended}
        assert all(self._timers.planned_ms(PlanKind.TASK, key) is not None for key in self._queues)


class ByteBounds:
    """Bounds on the bytes of tasks. Ends are always taken: where they are too many, ended tasks go before their time.

    Which tenants have been noted is no state: a replica that begins to lead looks at those that are beyond.

    Args:
        tasks: All tasks.
        ended: Those of them that may go.
        policies: Bounds of tenants.
        bytes_max: Bound of all tenants together; 0 = none.

    """

    def __init__(self, tasks: TaskIndex, ended: EndedTasks, policies: PolicyIndex, bytes_max: int) -> None:
        self._tasks = tasks
        self._ended = ended
        self._policies = policies
        self._bytes_max = bytes_max
        self._noted: dict[str, None] = {}

    def __len__(self) -> int:
        """Return at how many tenants is to be looked."""
        return len(self._noted)

    def note(self, tenant: str) -> None:
        """Have a tenant looked at."""
        self._noted[tenant] = None

    def note_all(self) -> None:
        """Have all those looked at that are beyond their bounds."""
        is_over = 0 < self._bytes_max < self._tasks.bytes
        for name, tenant in self._tasks.tenants.items():
            if is_over or 0 < self._policies.bytes_max(name) < tenant.bytes:
                self._noted[name] = None

    def beyond(self) -> Iterator[TaskState]:
        """Yield tasks to be removed, one by one; each must be gone before the next is asked for."""
        tasks, tenants, oldest = self._tasks, self._tasks.tenants, self._ended.oldest
        while self._noted:
            name = next(iter(self._noted))
            bound = self._policies.bytes_max(name)
            while bound and name in tenants and tenants[name].bytes > bound and (task := oldest(name)) is not None:
                yield task
            if self._bytes_max and tasks.bytes > self._bytes_max:
                for largest in sorted(tenants.values(), key=lambda one: (-one.bytes, one.name)):
                    while tasks.bytes > self._bytes_max and (task := oldest(largest.name)) is not None:
                        yield task
            del self._noted[name]


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
