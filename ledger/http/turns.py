"""Turns of requests: no tenant's work makes the others wait for more than a part of the time.

    light   a few tasks     taken at once; while very many are under way, tenants take turns
    heavy   a large batch, a slice of a listing that looks at very many tasks: it keeps the event loop busy at one go

What somebody has had of the loop is its debt: the estimated seconds, over its share, by weights, among the tenants that
asked within the last seconds. While another tenant is there, its next heavy request waits until the debt is over, so
that the loop is free for the others for their part; among those that wait, who had least is next. Alone, a tenant has
it all. What keeps the loop busy for long at one go is charged more than the same work in parts: everybody else waits
for all of it, so it has to be rare.

No clock and no IO of its own: `ledger.http.turn_queue` waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

HEAVY_S = 0.003
_ACTIVE_S = 5.0
_LIGHT_MAX = 300
_HEAVY_MAX = 3
"""Under way at once while one tenant is alone; beside others it is one of each."""
_DEBT_S_MAX = 2.0
_LONG_S = 0.15
"""Work of this length is charged twice, one of half of it one and a half times."""
_KEYS_MAX = 10_000
_REQUEST_S = 0.000_2
_TASK_S = 0.000_03
_BYTE_S = 0.000_000_02


def cost_of_body(body: bytes) -> float:
    """Return about how long a body will keep the loop busy: by its tasks, which name their types, and its bytes."""
    size = len(body)
    tasks = body.count(b'"type"') if size > 1_000 else 1
    return _REQUEST_S + tasks * _TASK_S + size * _BYTE_S


def _charge_s(cost_s: float) -> float:
    return cost_s * (1.0 + cost_s / _LONG_S)


class Work:
    """One request that waits, or is under way.

    Attributes:
        key: Whose: a tenant; "" = an operator's, which is never in debt.
        cost_s: Estimated.
        bytes: That it holds while it waits.
        ticket: The shell's own.

    """

    __slots__ = ("bytes", "cost_s", "key", "ticket")

    def __init__(self, key: str, cost_s: float, size: int = 0) -> None:
        self.key = key
        self.cost_s = cost_s
        self.bytes = size
        self.ticket: object = None

    @property
    def is_heavy(self) -> bool:
        """True if it keeps the loop busy for long."""
        return self.cost_s >= HEAVY_S


class _TenantQueue:
    """Requests of one key that wait or are under way, and its debt."""

    __slots__ = ("asked_s", "bytes", "free_at_s", "heavy", "light", "waiting_heavy", "waiting_light", "weight")

    def __init__(self) -> None:
        self.waiting_light: deque[Work] = deque()
        self.waiting_heavy: deque[Work] = deque()
        self.asked_s = 0.0
        self.free_at_s = 0.0
        self.weight = 1.0
        self.light = 0
        self.heavy = 0
        self.bytes = 0

    @property
    def is_idle(self) -> bool:
        return not (self.waiting_light or self.waiting_heavy or self.light or self.heavy)


class FairTurns:
    """See the module.

    Args:
        bytes_max: That all that wait may hold together; one key a quarter of it, and one request always.
        weight_of: Says of a key how much it is worth beside the others.

    Attributes:
        waiting: Requests that wait.

    """

    def __init__(self, bytes_max: int, weight_of: Callable[[str], float] = lambda _: 1.0) -> None:
        self.waiting = 0
        self._weight_of = weight_of
        self._bytes_max = bytes_max
        self._bytes = 0
        self._queues: dict[str, _TenantQueue] = {}
        self._light = 0
        self._heavy = 0

    def has_room(self, key: str, size: int) -> bool:
        """Return whether one more may wait that holds so many bytes."""
        queue = self._queues.get(key)
        held = 0 if queue is None else queue.bytes
        return not held or (held + size <= self._bytes_max // 4 and self._bytes + size <= self._bytes_max)

    def ask(self, work: Work, now_s: float) -> bool:
        """Take a request, or have it wait; return whether it was taken."""
        queue = self._queue(work.key, now_s)
        queue.asked_s = now_s
        queue.weight = self._weight_of(work.key)
        waiting = queue.waiting_heavy if work.is_heavy else queue.waiting_light
        if not waiting and self._may(work.key, queue, now_s, is_heavy=work.is_heavy):
            self._take(work, queue, now_s)
            return True
        waiting.append(work)
        queue.bytes += work.bytes
        self._bytes += work.bytes
        self.waiting += 1
        return False

    def end(self, work: Work, now_s: float, *, cost_s: float | None = None) -> None:
        """Note that a request is over; `cost_s`: what it has cost after all."""
        queue = self._queues[work.key]
        if work.is_heavy:
            queue.heavy -= 1
            self._heavy -= 1
        else:
            queue.light -= 1
            self._light -= 1
        if cost_s is not None and queue.free_at_s:
            more_s = (_charge_s(cost_s) - _charge_s(work.cost_s)) * self._times(queue, now_s)
            owed_s = max(0.0, queue.free_at_s - now_s) + more_s
            queue.free_at_s = now_s + min(_DEBT_S_MAX, max(0.0, owed_s))

    def next(self, now_s: float) -> list[Work]:
        """Return what waited and is taken now: light work first, then of those who had least."""
        if not self.waiting:
            return []
        taken: list[Work] = []
        queues = sorted(self._queues.items(), key=lambda one: one[1].free_at_s)
        is_more = True
        while is_more:
            is_more = False
            for key, queue in queues:
                for waiting, is_heavy in ((queue.waiting_light, False), (queue.waiting_heavy, True)):
                    if waiting and self._may(key, queue, now_s, is_heavy=is_heavy):
                        work = waiting.popleft()
                        self.waiting -= 1
                        queue.bytes -= work.bytes
                        self._bytes -= work.bytes
                        self._take(work, queue, now_s)
                        taken.append(work)
                        is_more = True
        return taken

    def next_s(self, now_s: float) -> float | None:
        """Return when a debt ends for which something waits, perhaps just now; None = nothing waits for that."""
        waiting = [queue for queue in self._queues.values() if queue.waiting_heavy and not queue.heavy]
        return min((max(now_s, queue.free_at_s) for queue in waiting), default=None)

    # ---- by itself

    def _queue(self, key: str, now_s: float) -> _TenantQueue:
        queue = self._queues.get(key)
        if queue is None:
            if len(self._queues) >= _KEYS_MAX:
                for old in [name for name, one in self._queues.items() if one.is_idle and one.free_at_s <= now_s]:
                    del self._queues[old]
            queue = self._queues[key] = _TenantQueue()
        return queue

    def _active(self, now_s: float) -> list[float]:
        """Return the weights of those that are there."""
        return [
            queue.weight for queue in self._queues.values() if now_s - queue.asked_s < _ACTIVE_S or not queue.is_idle
        ]

    def _times(self, queue: _TenantQueue, now_s: float) -> float:
        """Return how many times its seconds somebody owes: 1 over its share."""
        return max(1.0, sum(self._active(now_s)) / queue.weight)

    def _may(self, key: str, queue: _TenantQueue, now_s: float, *, is_heavy: bool) -> bool:
        if not is_heavy:
            return self._light < _LIGHT_MAX
        if len(self._active(now_s)) <= 1:
            return self._heavy < _HEAVY_MAX
        return not queue.heavy and (not key or queue.free_at_s <= now_s)

    def _take(self, work: Work, queue: _TenantQueue, now_s: float) -> None:
        if work.is_heavy:
            queue.heavy += 1
            self._heavy += 1
            owed_s = max(0.0, queue.free_at_s - now_s) + _charge_s(work.cost_s) * self._times(queue, now_s)
            queue.free_at_s = now_s + min(_DEBT_S_MAX, owed_s)
        else:
            queue.light += 1
            self._light += 1
