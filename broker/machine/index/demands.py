"""Demands of waiting tasks that a new policy of their tenant has changed, and of which the scheduler is to hear.

It is told of so many at once; of the others before they start, and some with every entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from broker.machine.index.tasks import TaskIndex, TaskState
from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.scheduler import Scheduler
from broker.machine.statuses import TaskStatus

_AT_ONCE_MAX = 10_000


class DemandBacklog:
    """Queue of tasks whose demand has changed.

    What is in the set is in the queue too; the queue has more: what was told before its turn is passed over there.

    Args:
        tasks: All tasks.
        scheduler: Who is told.
        demand_of: What a task asks for now.

    """

    def __init__(self, tasks: TaskIndex, scheduler: Scheduler, demand_of: Callable[[TaskState], Demand]) -> None:
        self._tasks = tasks
        self._scheduler = scheduler
        self._demand_of = demand_of
        self._queue: deque[int] = deque()
        self._untold: set[int] = set()

    def __len__(self) -> int:
        """Return the length of the queue: 0 if the scheduler knows what every waiting task asks for now."""
        return len(self._queue)

    def add(self, task_ids: Iterable[int]) -> None:
        """Add tasks, and tell of the first ones."""
        ids = list(task_ids)
        self._queue.extend(ids)
        self._untold.update(ids)
        self.tell_some(_AT_ONCE_MAX)

    def tell_first(self, task_id: int) -> bool:
        """Tell of a task that is about to start; return whether that was still to be done."""
        if task_id not in self._untold:
            return False
        self._untold.discard(task_id)
        self._scheduler.change(self._demand_of(self._tasks.by_id[task_id]))
        return True

    def tell_some(self, count: int) -> None:
        """Go on, with the first tasks first."""
        queue, untold, tasks = self._queue, self._untold, self._tasks.by_id
        for _ in range(min(count, len(queue))):
            task_id = queue.popleft()
            if task_id in untold:
                untold.discard(task_id)
                task = tasks.get(task_id)
                if task is not None and task.status == TaskStatus.WAITING:
                    self._scheduler.change(self._demand_of(task))

    def validate(self) -> None:
        """Check the invariant."""
        assert self._untold <= set(self._queue)
