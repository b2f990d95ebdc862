"""Dispatching: which task goes to which worker next.

On a worker: the best group by its order of preference, then the tenant with the least virtual time, then priority, then
id. Among workers: the least loaded, of these the one that has had nothing for longest; but while more of a class waits
than `CHUNK_TASKS`, a worker once chosen is filled before the next one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, heapreplace
from math import inf

from broker.machine.scheduling.model import ID_MASK, Fit, TaskClass, TaskQueue, WorkerState
from broker.machine.scheduling.scheduler_state import SchedulerState

CHUNK_TASKS = 32
"""Waiting tasks of a class from which on workers are filled one after the other: a message to a worker costs as much
as several tasks."""

_STALE_TENANTS = 32
"""Tenants with running tasks whose virtual time is computed anew per ms at most; see `Dispatcher._advance`."""

_NO_RANK = 1 << 62


class Dispatcher:
    """Finds feasible pairs until there are none."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        # Rises with every call; within one, a queue whose share has not changed need not be looked at twice.
        self._round = 0

    def next_assignments(self, now_ms: int) -> Iterator[tuple[int, str]]:
        """Yield (task, worker); the caller has started it when it asks for the next."""
        state = self._state
        dirty, waiting = state.dirty, state.waiting
        self._advance(now_ms)
        while True:
            if state.freed:
                state.admit_freed()
            task_class = next(iter(dirty), None)
            if task_class is None:
                return
            found = self._pair(task_class)
            if found is None:
                dirty.pop(task_class, None)
                continue
            queue, worker = found
            is_filled = task_class.waiting > CHUNK_TASKS
            while True:
                task_id = queue.first & ID_MASK
                yield task_id, worker.worker_id
                assert task_id not in waiting, f"task {task_id} was yielded and not started"
                if not is_filled:
                    break
                best = self._best(worker)
                if best is None:
                    break
                queue = best

    def _advance(self, now_ms: int) -> None:
        """Let virtual times go on.

        Those of tenants with running tasks rise all the time, and an entry that is too low has to be put right when it
        comes to the top. So that thousands of them do not come there at every ms, time goes on in steps, the longer
        the more of them there are; what has ended is counted to the ms.
        """
        state = self._state
        self._round += 1
        state.now_ms = max(state.now_ms, now_ms)
        entries = sum(len(task_class.heap) for task_class in state.active)
        step = entries // _STALE_TENANTS + 1
        state.clock_ms = max(state.clock_ms, now_ms - now_ms % step)

    # ---- queues

    def _top(self, task_class: TaskClass, time_max: float = inf) -> TaskQueue | None:
        """Return the queue of a class that is served next, as far as no worker decides.

        Returns:
            None if there is none, or none whose virtual time is this at most.

        """
        state = self._state
        heap = task_class.heap
        limit = task_class.closed_limit(state.version)
        if limit is not None:
            task_class.blocked_on = limit
            limit.blocked[task_class] = None
            return None
        clock_ms = state.clock_ms
        while heap:
            entry = heap[0]
            noted_time, noted_running, _, _, queue = entry
            if noted_time > time_max:
                return None  # Entries are lower bounds.
            if queue.entry is not entry:
                heappop(heap)
                continue
            share = queue.share
            if queue.checked_version == share.version and queue.checked_round == self._round:
                return queue
            virtual_time = share.virtual_time(clock_ms)
            if virtual_time != noted_time or share.running != noted_running:
                queue.entry = (virtual_time, share.running, share.tenant, queue.serial, queue)
                heapreplace(heap, queue.entry)
                continue
            if self._is_ready(queue):
                return queue
        return None

    def _is_ready(self, queue: TaskQueue) -> bool:
        """Tell whether a ready queue has a task that may start; one that has none is ready no more."""
        state = self._state
        first = queue.head(state.waiting)
        limit = queue.closed_limit()
        if first is not None and limit is None:
            queue.first = first
            queue.checked_round, queue.checked_version = self._round, queue.share.version
            return True
        state.queue_leaves(queue)
        if first is not None and limit is not None:
            queue.blocked_on = limit
            limit.blocked[queue] = None
        return False

    def _top_on(self, task_class: TaskClass, worker: WorkerState, fit: Fit, time_max: float) -> TaskQueue | None:
        """Return the queue of a class that is served next on a worker that has room for the class; see `_top`."""
        queue = self._top(task_class, time_max)
        tenants = worker.profile.tenants if worker.profile is not None else None
        if tenants is not None:
            return None if queue is None else self._top_of(tenants, task_class, worker, fit)
        if not fit.tenant_threads:
            return queue
        task_type = task_class.type.name
        passed_over = []
        while queue is not None and not worker.has_share(fit, queue.share.tenant, task_type):
            passed_over.append(heappop(task_class.heap))
            queue = self._top(task_class, time_max)
        for entry in passed_over:
            heappush(task_class.heap, entry)
        return queue

    def _top_of(self, tenants: Iterable[str], task_class: TaskClass, worker: WorkerState, fit: Fit) -> TaskQueue | None:
        """Return the queue of a class that is served next among those of some tenants, each of which is looked at."""
        state = self._state
        task_type = task_class.type.name
        best: TaskQueue | None = None
        best_place = (inf, 0, "", 0)
        for name in tenants:
            tenant = state.tenants.get(name)
            queue = tenant.queues.get(task_class.kind) if tenant is not None else None
            if queue is None or queue.entry is None or not worker.has_share(fit, name, task_type):
                continue
            if not self._is_ready(queue):
                continue
            share = queue.share
            place = (share.virtual_time(state.clock_ms), share.running, share.tenant, queue.serial)
            if place != queue.entry[:4]:
                queue.entry = (*place, queue)
                heappush(task_class.heap, queue.entry)
                task_class.compact()
            if place < best_place:
                best, best_place = queue, place
        return best

    def _best(self, worker: WorkerState) -> TaskQueue | None:
        """Return the queue that is served next on a worker; None = it has no room for any."""
        state = self._state
        profile = worker.profile
        if profile is None or worker.running >= profile.threads:
            return None
        best: TaskQueue | None = None
        best_rank = _NO_RANK
        best_place = (inf, 0, "", 0)
        idle = []
        for task_class in state.active:
            # Kept by profile: workers of equal offers share the answer. The call is spared, for this is the inner loop.
            fit = profile.fits[task_class] if task_class in profile.fits else profile.fit(task_class)
            if fit is None:
                continue
            rank = fit.rank
            heap = task_class.heap
            if rank > best_rank or (rank == best_rank and heap and heap[0][0] > best_place[0]):
                continue  # Entries are lower bounds.
            if not worker.has_room(fit, task_class.type.name):
                continue
            queue = self._top_on(task_class, worker, fit, best_place[0] if rank == best_rank else inf)
            if queue is None:
                if task_class.blocked_on is not None or not task_class.heap:
                    idle.append(task_class)
                continue
            assert queue.entry is not None
            virtual_time, running, tenant, _, _ = queue.entry
            place = (virtual_time, running, tenant, queue.first)
            if rank < best_rank or place < best_place:
                best, best_rank, best_place = queue, rank, place
        for task_class in idle:
            state.active.pop(task_class, None)
            state.dirty.pop(task_class, None)
        return best

    # ---- workers

    def _pair(self, task_class: TaskClass) -> tuple[TaskQueue, WorkerState] | None:
        """Return a worker that has room for a class, and what is served next on it: of that class or a better one."""
        if self._top(task_class) is None:
            self._state.active.pop(task_class, None)
            return None
        passed_over = []
        found = None
        while found is None:
            worker = self._roomy(task_class)
            if worker is None:
                break
            queue = self._best(worker)
            if queue is not None:
                found = queue, worker
                continue
            # It has room, but for none of the tenants that wait: they have their share of it, or it may not run theirs.
            entry = heappop(task_class.room)
            worker.missed[task_class] = None
            if worker.profile is not None and worker.profile.tenants is not None:
                task_class.bench(worker, worker.profile.tenants)
            else:
                passed_over.append(entry)
        for entry in passed_over:
            heappush(task_class.room, entry)
        return found

    def _roomy(self, task_class: TaskClass) -> WorkerState | None:
        """Return the worker with room for a class that gets the next one: the top of the class's `room`."""
        room, entries = task_class.room, task_class.room_entries
        task_type = task_class.type.name
        while room:
            entry = room[0]
            noted_load, noted_use, worker = entry
            if entries.get(worker) is not entry:
                heappop(room)
                continue
            fit = worker.fit(task_class)
            if fit is None or not worker.has_room(fit, task_type):
                heappop(room)
                del entries[worker]
                if fit is not None:
                    worker.missed[task_class] = None
                continue
            load = worker.load
            if noted_load != load or noted_use != worker.last_use:
                entries[worker] = entry = (load, worker.last_use, worker)
                heapreplace(room, entry)
                continue
            return worker
        return None
