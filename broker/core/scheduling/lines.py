"""Lines: the waiting tasks of one tenant and class, in order of priority and id."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

import msgspec

from broker.core.scheduling.gates import Gate

if TYPE_CHECKING:
    from broker.core.scheduling.accounts import Account
    from broker.core.scheduling.classes import TaskClass
    from broker.core.scheduling.tenants import Tenant

__all__ = ["ID_MASK", "Line", "Waiting", "order_of"]

_ID_BITS = 63
ID_MASK = (1 << _ID_BITS) - 1
"""What is left of an order is the id of its task."""
_SLACK = 64


def order_of(task_id: int, priority: int) -> int:
    """Return a number by which tasks are served, lowest first: higher priority, then lower id."""
    return task_id - (priority << _ID_BITS) if priority else task_id


class Waiting(msgspec.Struct, gc=False):
    """A waiting task. The collector does not follow it: nothing that a line reaches may lead back to here."""

    line: Line
    order: int
    since_ms: int
    key: str


class Line:
    """See the module.

    Tasks leave by being forgotten in `waiting`, the board's dictionary by id; what they leave behind in the queues is
    dropped when it comes to the front, or when there is too much of it.

    Attributes:
        gates: (gate, amount) that every task of it has to pass, beside those of its class.
        uses: (gate, amount) of these that a running task of it uses.
        count: Tasks that wait in it.
        entry: Its entry in the heap of its class, or None. Invariant: None while it is parked.
        parked_on: The gate on whose opening it waits, or None.

    """

    __slots__ = (
        "account", "aside", "checked_round", "checked_version", "count", "entry", "fifo", "first", "gates", "heads",
        "held", "keyed", "keyed_size", "late", "limits", "parked_on", "serial", "task_class", "tenant", "uses",
        "version",
    )  # fmt: skip

    def __init__(self, tenant: Tenant, task_class: TaskClass, account: Account, serial: int) -> None:
        self.tenant = tenant
        self.task_class = task_class
        self.account = account
        self.serial = serial
        self.gates: list[tuple[Gate, int]] = []
        self.uses: list[tuple[Gate, int]] = []
        # Those of `gates` that have a limit, as of the tenant's `version`.
        self.limits: list[tuple[Gate, int]] = []
        self.version = -1
        self.count = 0
        self.entry: tuple[float, int, str, int, Line] | None = None
        self.parked_on: Gate | None = None
        # The order of its first task, as found in this round of the dispatcher with this `version` of the account.
        self.first = 0
        self.checked_round = 0
        self.checked_version = 0
        # Orders of tasks without a key: `fifo` is sorted by being appended to, what would break that is in `late`.
        self.fifo: deque[int] = deque()
        self.late: list[int] = []
        # Orders of tasks with a key: a heap per key, and in `heads` (lowest order, key) of the keys that are not held.
        # Held keys whose tasks came to the front are in `aside` instead: they cost nothing until they are let go.
        self.keyed: dict[str, list[int]] = {}
        self.keyed_size = 0
        self.heads: list[tuple[int, str]] = []
        self.held: set[str] = set()
        self.aside: dict[str, None] = {}

    def closed_gate(self) -> Gate | None:
        """Return a gate that lets none of its tasks pass now."""
        tenant = self.tenant
        if self.version != tenant.version:
            self.version = tenant.version
            self.limits = [(gate, amount) for gate, amount in self.gates if gate.limit is not None]
        for gate, amount in self.limits:
            if not gate.admits(amount):
                return gate
        return None

    # ---- tasks

    def add(self, order: int, key: str) -> None:
        """Have a task wait in it."""
        self.count += 1
        if key:
            queue = self.keyed.setdefault(key, [])
            heappush(queue, order)
            self.keyed_size += 1
            if queue[0] == order and key not in self.aside:
                heappush(self.heads, (order, key))
            return
        fifo = self.fifo
        if not fifo or order > fifo[-1]:
            fifo.append(order)
        else:
            heappush(self.late, order)

    def forget(self, order: int, waiting: dict[int, Waiting]) -> None:
        """Note that a task waits in it no more; `waiting` has forgotten it already."""
        self.count -= 1
        fifo = self.fifo
        if fifo and fifo[0] == order:
            fifo.popleft()
        elif not self.count or self.size > 2 * self.count + _SLACK:
            self.compact(waiting)

    def head(self, waiting: dict[int, Waiting]) -> int | None:
        """Return the order of the task to be served first; None if all that wait in it are held by their keys."""
        fifo, late = self.fifo, self.late
        best: int | None = None
        while fifo:
            best = fifo[0]
            task = waiting.get(best & ID_MASK)
            if task is not None and task.order == best and task.line is self:
                break
            fifo.popleft()
            best = None
        if late:
            while late and not self._waits(late[0], waiting):
                heappop(late)
            if late and (best is None or late[0] < best):
                best = late[0]
        if self.heads:
            keyed = self._keyed_head(waiting)
            if keyed is not None and (best is None or keyed < best):
                best = keyed
        return best

    def _waits(self, order: int, waiting: dict[int, Waiting]) -> bool:
        task = waiting.get(order & ID_MASK)
        return task is not None and task.order == order and task.line is self

    def _keyed_head(self, waiting: dict[int, Waiting]) -> int | None:
        heads = self.heads
        while heads:
            order, key = heads[0]
            queue = self.keyed.get(key, [])
            while queue and not self._waits(queue[0], waiting):
                heappop(queue)
                self.keyed_size -= 1
            if not queue:
                self.keyed.pop(key, None)
                heappop(heads)
            elif key in self.held:
                heappop(heads)
                self.aside[key] = None
            elif queue[0] != order:
                heapreplace(heads, (queue[0], key))
            else:
                return order
        return None

    def hold(self, key: str, is_held: bool) -> bool:
        """Set the tasks of a key aside, or let them go.

        Returns:
            Whether tasks may have come back.

        """
        if is_held:
            self.held.add(key)
            return False
        self.held.discard(key)
        if key not in self.aside:
            return False
        del self.aside[key]
        queue = self.keyed.get(key)
        if queue:
            heappush(self.heads, (queue[0], key))
        return bool(queue)

    @property
    def size(self) -> int:
        """Orders in its queues, of tasks that wait and that are gone."""
        return len(self.fifo) + len(self.late) + self.keyed_size

    def compact(self, waiting: dict[int, Waiting]) -> None:
        """Drop what is left behind of tasks that are gone."""
        self.fifo = deque(order for order in self.fifo if self._waits(order, waiting))
        # A task that came back may be there twice.
        seen = set(self.fifo)
        self.late = [order for order in set(self.late) - seen if self._waits(order, waiting)]
        heapify(self.late)
        keyed = {key: sorted({o for o in queue if self._waits(o, waiting)}) for key, queue in self.keyed.items()}
        self.keyed = {key: queue for key, queue in keyed.items() if queue}
        self.keyed_size = sum(map(len, self.keyed.values()))
        self.aside = {key: None for key in self.aside if key in self.keyed}
        self.heads = [(queue[0], key) for key, queue in self.keyed.items() if key not in self.aside]
        heapify(self.heads)

    def orders(self) -> Iterator[int]:
        """Iterate over what waits in it, in no particular order; some of it may be gone."""
        yield from self.fifo
        yield from self.late
        for queue in self.keyed.values():
            yield from queue
