"""The index of tasks: what each is doing, kept beside the tables and rebuilt from them.

1. Every row of `tasks` has one `TaskState` here, and is in exactly one set: that of its tenant and status.
2. Counts by tenant, type and status are never negative and agree with the sets.
3. What runs is also in the set of its worker, what is prepared in that of its transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from broker.machine.statuses import ENDED, TaskStatus

STATUS_COUNT = max(TaskStatus) + 1
_COMPACT_SLACK = 1_024


class TaskFlag:
    """Flags of a task that are known without its rows; bits of `TaskState.flags`.

    AT_MOST_ONCE: see `TaskSpec`. SLOT: a row of `slots` is its own. CANCEL: its worker was asked to end its run.
    PROGRESS: it has a row in `task_progress`. CODE: it needs a code pool. WATCHED: it has a timeout or a heartbeat.
    GROUP, PRIORITY: its tenant's policy says which. STATE: it has a row in `task_states`.
    """

    AT_MOST_ONCE = 1
    SLOT = 2
    CANCEL = 4
    PROGRESS = 8
    CODE = 16
    WATCHED = 32
    GROUP = 64
    PRIORITY = 128
    STATE = 256


class SortedIds:
    """Task ids, ascending. They come in order; those that go are passed over until there are many of them."""

    __slots__ = ("_gone", "_ids")

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._gone: set[int] = set()

    def add(self, task_id: int) -> None:
        """Add an id above all others."""
        self._ids.append(task_id)

    def remove(self, task_id: int) -> None:
        self._gone.add(task_id)
        if len(self._gone) > len(self._ids) // 2 + _COMPACT_SLACK:
            gone = self._gone
            # In place: to the garbage collector a new list is young again, and young ones it walks through often.
            self._ids[:] = [one for one in self._ids if one not in gone]
            gone.clear()

    def after(self, task_id: int) -> Iterator[int]:
        """Iterate over the ids above this one, ascending; 0 = all."""
        ids, gone = self._ids, self._gone
        return (ids[at] for at in range(bisect_right(ids, task_id), len(ids)) if ids[at] not in gone)

    def before(self, task_id: int) -> Iterator[int]:
        """Iterate over the ids below this one, descending; 0 = all."""
        ids, gone = self._ids, self._gone
        last = len(ids) if not task_id else bisect_right(ids, task_id - 1)
        return (ids[at] for at in range(last - 1, -1, -1) if ids[at] not in gone)


class TenantTasks:
    """The tasks of one tenant.

    Attributes:
        name: The tenant.
        sets: Ids by status; in each in the order in which they came into it.
        by_type: Counts by status, by type.
        ids: All.
        unfinished: Those that have not ended.
        bytes: Of their rows, payloads, results and errors above all; those of ended tasks too.

    """

    __slots__ = ("by_type", "bytes", "ids", "name", "sets", "unfinished")

    def __init__(self, name: str) -> None:
        self.name = name
        self.sets: tuple[dict[int, None], ...] = tuple({} for _ in range(STATUS_COUNT))
        self.by_type: dict[str, list[int]] = {}
        self.ids = SortedIds()
        self.unfinished = 0
        self.bytes = 0


class TaskState(msgspec.Struct, gc=False, eq=False):
    """One task.

    Attributes:
        task_id: Its id.
        tenant: The tasks of its tenant.
        type: Its type.
        status: See `TaskStatus`.
        flags: See `TaskFlag`.
        attempts: Runs so far, the present one included.
        worker_id: Where it runs; "" = it does not.
        assignment_id: Of the present run, or of the last one of a task that has ended; 0 = none.
        at_ms: Since when it could run (WAITING), runs (RUNNING), has ended; when it is due (DELAYED); when it was
            submitted (PREPARED).
        deadline_ms: 0 = none.
        transaction: In which it was submitted, 0 = none.

    """

    # Not for the collector of cycles: with hundreds of thousands of tasks, its walks would be pauses of the leader.
    task_id: int
    tenant: TenantTasks
    type: str
    status: int
    flags: int
    attempts: int = 0
    worker_id: str = ""
    assignment_id: int = 0
    at_ms: int = 0
    deadline_ms: int = 0
    transaction: int = 0

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


class TaskIndex:
    """All tasks.

    Attributes:
        by_id: In order of their ids.
        ids: Their ids, to begin anywhere.
        tenants: By name; those that have had tasks.
        by_type: Counts by status, by type, of all tenants.
        by_worker: What runs, by worker.
        by_transaction: What is prepared, by transaction that is open or on its way out.
        unfinished: How many have not ended.
        bytes: Of all rows of tasks that there are.
        residue: Ids of tasks of which a row is left over that goes with the next entry: see
            `broker.machine.completion`.

    """

    def __init__(self) -> None:
        self.by_id: dict[int, TaskState] = {}
        self.ids = SortedIds()
        self.tenants: dict[str, TenantTasks] = {}
        self.by_type: dict[str, list[int]] = {}
        self.by_worker: dict[str, dict[int, TaskState]] = {}
        self.by_transaction: dict[int, dict[int, TaskState]] = {}
        self.unfinished = 0
        self.bytes = 0
        self.residue: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def ended(self) -> int:
        """Number of tasks that have ended."""
        return len(self.by_id) - self.unfinished

    def tenant(self, name: str) -> TenantTasks:
        """Return the tasks of a tenant, which then has an entry."""
        found = self.tenants.get(name)
        if found is None:
            found = self.tenants[name] = TenantTasks(name)
        return found

    def add(self, task: TaskState) -> None:
        """Add a task, whose id is above all others."""
        task_id, status, tenant = task.task_id, task.status, task.tenant
        self.by_id[task_id] = task
        self.ids.add(task_id)
        tenant.ids.add(task_id)
        tenant.sets[status][task_id] = None
        counts = tenant.by_type.get(task.type)
        if counts is None:
            counts = tenant.by_type[task.type] = [0] * STATUS_COUNT
        counts[status] += 1
        counts = self.by_type.get(task.type)
        if counts is None:
            counts = self.by_type[task.type] = [0] * STATUS_COUNT
        counts[status] += 1
        if status not in ENDED:
            tenant.unfinished += 1
            self.unfinished += 1
        if status == TaskStatus.PREPARED:
            self.by_transaction[task.transaction][task_id] = task

    def weigh(self, task: TaskState, old: bytes | None, new: bytes | None) -> None:
        """Note that a row of a task has become another one; None = there was none, or is none any more."""
        change = (0 if new is None else len(new)) - (0 if old is None else len(old))
        task.tenant.bytes += change
        self.bytes += change

    def move(self, task: TaskState, status: int) -> None:
        """Give a task another status."""
        old, tenant, task_id = task.status, task.tenant, task.task_id
        del tenant.sets[old][task_id]
        tenant.sets[status][task_id] = None
        counts = tenant.by_type[task.type]
        counts[old] -= 1
        counts[status] += 1
        counts = self.by_type[task.type]
        counts[old] -= 1
        counts[status] += 1
        if (old in ENDED) != (status in ENDED):
            change = 1 if old in ENDED else -1
            tenant.unfinished += change
            self.unfinished += change
        task.status = status

    def remove(self, task: TaskState) -> None:
        task_id, status, tenant = task.task_id, task.status, task.tenant
        if status == TaskStatus.PREPARED:
            del self.by_transaction[task.transaction][task_id]
        del self.by_id[task_id]
        self.ids.remove(task_id)
        tenant.ids.remove(task_id)
        del tenant.sets[status][task_id]
        for by_type in (tenant.by_type, self.by_type):
            counts = by_type[task.type]
            counts[status] -= 1
            if not any(counts):
                del by_type[task.type]
        if status not in ENDED:
            tenant.unfinished -= 1
            self.unfinished -= 1
        if not tenant.by_type:
            del self.tenants[tenant.name]

    def run(self, task: TaskState, worker_id: str) -> None:
        """Note that a task runs on a worker."""
        task.worker_id = worker_id
        runs = self.by_worker.get(worker_id)
        if runs is None:
            runs = self.by_worker[worker_id] = {}
        runs[task.task_id] = task

    def stop(self, task: TaskState) -> None:
        """Note that a task runs no more."""
        runs = self.by_worker[task.worker_id]
        del runs[task.task_id]
        if not runs:
            del self.by_worker[task.worker_id]
        task.worker_id = ""

    def begin(self, transaction: int) -> None:
        """Let tasks be prepared."""
        self.by_transaction[transaction] = {}

    def commit(self, transaction: int) -> list[TaskState]:
        """End a transaction; return what was prepared, in order: each is to be moved to another status."""
        return list(self.by_transaction.pop(transaction).values())

    def roll_back(self, transaction: int) -> None:
        """End a transaction of which nothing is left."""
        assert not self.by_transaction.pop(transaction), f"transaction {transaction} has tasks"

    def mark_residue(self, task_id: int, *, is_left: bool) -> None:
        """Note whether rows of a task are left over."""
        if is_left:
            self.residue[task_id] = None
        else:
            self.residue.pop(task_id, None)

    def runs_of(self, worker_id: str) -> list[TaskState]:
        """Return what runs on a worker, by assignment."""
        return sorted(self.by_worker.get(worker_id, {}).values(), key=lambda task: task.assignment_id)

    def of(self, tenant: str, task_id: int) -> TaskState | None:
        """Return a task, if it is this tenant's ("" = any tenant's)."""
        task = self.by_id.get(task_id)
        return None if task is None or (tenant and task.tenant.name != tenant) else task

    def validate(self) -> None:
        counts: dict[tuple[str, str], list[int]] = {}
        running: dict[str, list[int]] = {}
        prepared: dict[int, list[int]] = {transaction: [] for transaction in self.by_transaction}
        for task_id, task in self.by_id.items():
            assert task.task_id == task_id
            assert task_id in task.tenant.sets[task.status]
            counts.setdefault((task.tenant.name, task.type), [0] * STATUS_COUNT)[task.status] += 1
            assert (task.status == TaskStatus.RUNNING) == bool(task.worker_id), f"task {task_id} and its worker"
            if task.worker_id:
                running.setdefault(task.worker_id, []).append(task_id)
            if task.status == TaskStatus.PREPARED:
                prepared[task.transaction].append(task_id)
        assert list(self.ids.after(0)) == list(self.by_id) == sorted(self.by_id)
        assert {worker: sorted(runs) for worker, runs in self.by_worker.items()} == {
            worker: sorted(runs) for worker, runs in running.items()
        }
        assert {transaction: list(tasks) for transaction, tasks in self.by_transaction.items()} == prepared
        found = {
            (tenant.name, kind): counts for tenant in self.tenants.values() for kind, counts in tenant.by_type.items()
        }
        assert found == counts
        for tenant in self.tenants.values():
            ended = sum(len(tenant.sets[status]) for status in ENDED)
            assert tenant.unfinished == sum(map(len, tenant.sets)) - ended
            assert list(tenant.ids.after(0)) == sorted(task_id for ids in tenant.sets for task_id in ids)
        assert self.unfinished == sum(tenant.unfinished for tenant in self.tenants.values())
        assert self.bytes == sum(tenant.bytes for tenant in self.tenants.values())
        totals: dict[str, list[int]] = {}
        for (_, kind), one in counts.items():
            total = totals.setdefault(kind, [0] * STATUS_COUNT)
            totals[kind] = [a + b for a, b in zip(total, one, strict=True)]
        assert totals == self.by_type
