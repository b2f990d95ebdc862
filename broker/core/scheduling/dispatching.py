"""Dispatching: which task goes to which worker next.

On a worker: the best group by its order of preference, then the tenant with the least virtual time, then priority, then
id. Among workers: the least loaded, of these the one that has had nothing for longest; but while more of a class waits
than `CHUNK_TASKS`, a worker once chosen is filled before the next one is.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from math import inf

from broker.core.scheduling.board import Board
from broker.core.scheduling.classes import TaskClass
from broker.core.scheduling.lines import ID_MASK, Line
from broker.core.scheduling.workers import Seat, Worker

__all__ = ["CHUNK_TASKS", "Dispatcher"]

CHUNK_TASKS = 32
"""Waiting tasks of a class from which on workers are filled one after the other: a message to a worker costs as much
as several tasks."""

_STALE_TENANTS = 32
"""Tenants with running tasks whose virtual time is computed anew per ms at most; see `Dispatcher._advance`."""

_NO_RANK = 1 << 62


class Dispatcher:
    """Finds feasible pairs on a board until there are none."""

    def __init__(self, board: Board) -> None:
        self._board = board
        # Rises with every call; within one, a line whose account has not changed need not be looked at twice.
        self._round = 0

    def next_assignments(self, now_ms: int) -> Iterator[tuple[int, str]]:
        """Yield (task, worker); the caller has started it when it asks for the next."""
        board = self._board
        dirty, waiting = board.dirty, board.waiting
        self._advance(now_ms)
        while True:
            if board.freed:
                board.admit_freed()
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
        board = self._board
        self._round += 1
        board.now_ms = max(board.now_ms, now_ms)
        entries = sum(len(task_class.heap) for task_class in board.active)
        step = entries // _STALE_TENANTS + 1
        board.clock_ms = max(board.clock_ms, now_ms - now_ms % step)

    # ---- lines

    def _top(self, task_class: TaskClass, time_max: float = inf) -> Line | None:
        """Return the line of a class that is served next, as far as no worker decides.

        Returns:
            None if there is none, or none whose virtual time is this at most.

        """
        board = self._board
        heap = task_class.heap
        gate = task_class.closed_gate(board.version)
        if gate is not None:
            task_class.parked_on = gate
            gate.parked[task_class] = None
            return None
        clock_ms = board.clock_ms
        while heap:
            entry = heap[0]
            if entry[0] > time_max:
                return None  # Entries are lower bounds.
            line = entry[4]
            if line.entry is not entry:
                heappop(heap)
                continue
            account = line.account
            if line.checked_version == account.version and line.checked_round == self._round:
                return line
            virtual_time = account.virtual_time(clock_ms)
            if virtual_time != entry[0] or account.running != entry[1]:
                line.entry = (virtual_time, account.running, account.tenant, line.serial, line)
                heapreplace(heap, line.entry)
                continue
            first = line.head(board.waiting)
            gate = line.closed_gate()
            if first is not None and gate is None:
                line.first = first
                line.checked_round, line.checked_version = self._round, account.version
                return line
            heappop(heap)
            board.line_leaves(line)
            if first is not None and gate is not None:
                line.parked_on = gate
                gate.parked[line] = None
        return None

    def _top_on(self, task_class: TaskClass, worker: Worker, seat: Seat, time_max: float) -> Line | None:
        """Return the line of a class that is served next on a worker that has room for the class; see `_top`."""
        line = self._top(task_class, time_max)
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

    def _best(self, worker: Worker) -> Line | None:
        """Return the line that is served next on a worker; None = it has no room for any."""
        board = self._board
        profile = worker.profile
        if profile is None or worker.running >= profile.threads:
            return None
        best: Line | None = None
        best_rank = _NO_RANK
        best_place = (inf, 0, "", 0)
        idle = []
        for task_class in board.active:
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
            entry = line.entry
            assert entry is not None
            place = (entry[0], entry[1], entry[2], line.first)
            if rank < best_rank or place < best_place:
                best, best_rank, best_place = line, rank, place
        for task_class in idle:
            board.active.pop(task_class, None)
            board.dirty.pop(task_class, None)
        return best

    # ---- workers

    def _pair(self, task_class: TaskClass) -> tuple[Line, Worker] | None:
        """Return a worker that has room for a class, and what is served next on it: of that class or a better one."""
        if self._top(task_class) is None:
            self._board.active.pop(task_class, None)
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
            else:  # It has room, but for none of the tenants that wait: they have their share of it.
                aside.append(heappop(task_class.room))
                worker.missed[task_class] = None
        for entry in aside:
            heappush(task_class.room, entry)
        return found

    def _roomy(self, task_class: TaskClass) -> Worker | None:
        """Return the worker with room for a class that gets the next one: the top of the class's `room`."""
        room, entries = task_class.room, task_class.room_entries
        task_type = task_class.type.name
        while room:
            entry = room[0]
            worker = entry[2]
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
            if entry[0] != load or entry[1] != worker.last_use:
                entries[worker] = entry = (load, worker.last_use, worker)
                heapreplace(room, entry)
                continue
            return worker
        return None
