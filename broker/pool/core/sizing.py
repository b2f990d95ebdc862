"""Size of a pool: more workers while tasks wait and all have enough to do, fewer when some had nothing to do.

1. Tasks that wait though workers are free wait for a limit, a hold or another group: more workers would not help them.
   Three threads of four count as all: between short runs some are free at any moment.
2. A pool at most doubles, and grows again only when all that it wanted work.
3. It shrinks to the most that it needed in `idle_s`: a short lull ends nobody. Nobody is sent away on the way to work.
"""

from __future__ import annotations

import msgspec


class PoolBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on the size of a pool.

    Attributes:
        workers_min: Workers that there always are; 0 or more.
        workers_max: Workers at most; at least one.
        threads: Tasks at once of each worker.
        idle_s: For how long fewer workers have to do before the others end.

    """

    workers_min: int
    workers_max: int
    threads: int
    idle_s: float = 30.0


class PoolLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load of a pool: the tasks to run, and the workers for them.

    Attributes:
        waiting: Tasks that wait and that the pool's workers could run.
        running: Tasks that run on the pool's workers.
        served: Workers that a broker serves and that do not drain.
        starting: Workers that were started and that no broker serves yet.
        is_type_full: Whether tasks of a type wait of which the workers run as many as they may, though they have free
            threads.

    """

    waiting: int
    running: int
    served: int
    starting: int = 0
    is_type_full: bool = False


class PoolSizer:
    """See the module.

    Args:
        bounds: How large it may be.

    Attributes:
        wanted: Workers that there should be.

    """

    def __init__(self, bounds: PoolBounds) -> None:
        self._bounds = bounds
        self.wanted = bounds.workers_min
        # Since when fewer would do, and the most that were needed since; None = all are needed.
        self._spare_since_s: float | None = None
        self._needed_max = 0

    @property
    def next_due_s(self) -> float | None:
        """Time at which `look` may decide otherwise though nothing has changed; None = never."""
        return None if self._spare_since_s is None else self._spare_since_s + self._bounds.idle_s

    def look(self, now_s: float, load: PoolLoad) -> int:
        """Return how many workers are wanted now.

        Args:
            now_s: Monotonic time.
            load: As it is.

        """
        if load.waiting and self._is_full(load):
            self._spare_since_s = None
            if not load.starting and load.served >= self.wanted:
                self.wanted = self._grown(load)
            return self.wanted
        if load.waiting and load.starting:
            self._spare_since_s = None
            return self.wanted
        self._spare(now_s, self._needed(load))
        return self.wanted

    def _is_full(self, load: PoolLoad) -> bool:
        return load.is_type_full or 4 * load.running >= 3 * load.served * self._bounds.threads

    def _grown(self, load: PoolLoad) -> int:
        needed = max(-(-(load.running + load.waiting) // self._bounds.threads), self.wanted + 1)
        return min(needed, max(1, 2 * self.wanted), self._bounds.workers_max)

    def _needed(self, load: PoolLoad) -> int:
        needed = -(-load.running // self._bounds.threads)
        if load.waiting:
            needed = max(needed, 1)  # What is held back may be let go at any time: who had nobody would grow at once.
        return min(max(needed, self._bounds.workers_min), self._bounds.workers_max)

    def _spare(self, now_s: float, needed: int) -> None:
        if needed >= self.wanted:
            self._spare_since_s = None
            return
        if self._spare_since_s is None:
            self._spare_since_s, self._needed_max = now_s, needed
        self._needed_max = max(self._needed_max, needed)
        if now_s - self._spare_since_s >= self._bounds.idle_s:
            self.wanted = self._needed_max
            self._spare_since_s = None
