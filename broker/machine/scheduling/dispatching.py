"""Dispatching: which task goes to which worker next.

On a worker: the best group by its order of preference, then the tenant with the least virtual time, then priority, then
id. Among workers: the least loaded, of these the one that has had nothing for longest; but while more of a class waits
than `CHUNK_TASKS`, a worker once chosen is filled before the next one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, heapreplace
from math import inf

from broker.machine.scheduling.model import ID_MASK, Fit, Line, TaskClass, WorkerState
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
        # Rises with every call; within one, a line whose account has not changed need not be looked at twice.
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
            line, worker = found
            is_filled = task_class.waiting > CHUNK_TASKS
            while True:
                task_id = line.first & ID_MASK
                yield task_id, worker.worker_id
                assert task_id not in waiting, f"task {task_id} was yielded and not started"
                if not is_filled:
                    break
                best = self._best(worker)
                if best is None:
                    break
                line = best

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

    # ---- lines

    def _top(self, task_class: TaskClass, time_max: float = inf) -> Line | None:
        """Return the line of a class that is served next, as far as no worker decides.

        Returns:
            None if there is none, or none whose virtual time is this at most.

        """
        state = self._state
        heap = task_class.heap
        gate = task_class.closed_gate(state.version)
        if gate is not None:
            task_class.parked_on = gate
            gate.parked[task_class] = None
            return None
        clock_ms = state.clock_ms
        while heap:
            entry = heap[0]
            noted_time, noted_running, _, _, line = entry
            if noted_time > time_max:
                return None  # Entries are lower bounds.
            if line.entry is not entry:
                heappop(heap)
                continue
            account = line.account
            if line.checked_version == account.version and line.checked_round == self._round:
                return line
            virtual_time = account.virtual_time(clock_ms)
            if virtual_time != noted_time or account.running != noted_running:
                line.entry = (virtual_time, account.running, account.tenant, line.serial, line)
                heapreplace(heap, line.entry)
                continue
            if self._is_ready(line):
                return line
        return None

    def _is_ready(self, line: Line) -> bool:
        """Tell whether a queued line has a task that may start; one that has none is queued no more."""
        state = self._state
        first = line.head(state.waiting)
        gate = line.closed_gate()
        if first is not None and gate is None:
            line.first = first
            line.checked_round, line.checked_version = self._round, line.account.version
            return True
        state.line_leaves(line)
        if first is not None and gate is not None:
            line.parked_on = gate
            gate.parked[line] = None
        return False

    def _top_on(self, task_class: TaskClass, worker: WorkerState, seat: Fit, time_max: float) -> Line | None:
        """Return the line of a class that is served next on a worker that has room for the class; see `_top`."""
        line = self._top(task_class, time_max)
        tenants = worker.profile.tenants if worker.profile is not None else None
        if tenants is not None:
            return None if line is None else self._top_of(tenants, task_class, worker, seat)
        if not seat.tenant_threads:
            return line
        task_type = task_class.type.name
        aside = []
        while line is not None and not worker.has_share(seat, line.account.tenant, task_type):
            aside.append(heappop(task_class.heap))
            line = self._top(task_class, time_max)
        for entry in aside:
            heappush(task_class.heap, entry)
        return line

    def _top_of(self, tenants: Iterable[str], task_class: TaskClass, worker: WorkerState, seat: Fit) -> Line | None:
        """Return the line of a class that is served next among those of some tenants, each of which is looked at."""
        state = self._state
        task_type = task_class.type.name
        best: Line | None = None
        best_place = (inf, 0, "", 0)
        for name in tenants:
            tenant = state.tenants.get(name)
            line = tenant.lines.get(task_class.kind) if tenant is not None else None
            if line is None or line.entry is None or not worker.has_share(seat, name, task_type):
                continue
            if not self._is_ready(line):
                continue
            account = line.account
            place = (account.virtual_time(state.clock_ms), account.running, account.tenant, line.serial)
            if place != line.entry[:4]:
                line.entry = (*place, line)
                heappush(task_class.heap, line.entry)
                task_class.compact()
            if place < best_place:
                best, best_place = line, place
        return best

    def _best(self, worker: WorkerState) -> Line | None:
        """Return the line that is served next on a worker; None = it has no room for any."""
        state = self._state
        profile = worker.profile
        if profile is None or worker.running >= profile.threads:
            return None
        best: Line | None = None
        best_rank = _NO_RANK
        best_place = (inf, 0, "", 0)
        idle = []
        for task_class in state.active:
            # Kept by profile: workers of equal offers share the answer. The call is spared, for this is the inner loop.
            seat = profile.seats[task_class] if task_class in profile.seats else profile.seat(task_class)
            if seat is None:
                continue
            rank = seat.rank
            heap = task_class.heap
            if rank > best_rank or (rank == best_rank and heap and heap[0][0] > best_place[0]):
                continue  # Entries are lower bounds.
            if not worker.has_room(seat, task_class.type.name):
                continue
            line = self._top_on(task_class, worker, seat, best_place[0] if rank == best_rank else inf)
            if line is None:
                if task_class.parked_on is not None or not task_class.heap:
                    idle.append(task_class)
                continue
            assert line.entry is not None
            virtual_time, running, tenant, _, _ = line.entry
            place = (virtual_time, running, tenant, line.first)
            if rank < best_rank or place < best_place:
                best, best_rank, best_place = line, rank, place
        for task_class in idle:
            state.active.pop(task_class, None)
            state.dirty.pop(task_class, None)
        return best

    # ---- workers

    def _pair(self, task_class: TaskClass) -> tuple[Line, WorkerState] | None:
        """Return a worker that has room for a class, and what is served next on it: of that class or a better one."""
        if self._top(task_class) is None:
            self._state.active.pop(task_class, None)
            return None
        aside = []
        found = None
        while found is None:
            worker = self._roomy(task_class)
            if worker is None:
                break
            line = self._best(worker)
            if line is not None:
                found = line, worker
                continue
            # It has room, but for none of the tenants that wait: they have their share of it, or it may not run theirs.
            entry = heappop(task_class.room)
            worker.missed[task_class] = None
            if worker.profile is not None and worker.profile.tenants is not None:
                task_class.bench(worker, worker.profile.tenants)
            else:
                aside.append(entry)
        for entry in aside:
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
            seat = worker.seat(task_class)
            if seat is None or not worker.has_room(seat, task_type):
                heappop(room)
                del entries[worker]
                if seat is not None:
                    worker.missed[task_class] = None
                continue
            load = worker.load
            if noted_load != load or noted_use != worker.last_use:
                entries[worker] = entry = (load, worker.last_use, worker)
                heapreplace(room, entry)
                continue
            return worker
        return None
