"""Outbox for workers: assignments, and requested cancellations, which leave once they are confirmed.

It is filled by `apply` on a leader only, and emptied by whoever sends: see `BrokerMachine.outbox`.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import NamedTuple


class OutboxKind(IntEnum):
    """Kinds of messages to a worker about a run."""

    ASSIGN = 1
    CANCEL = 2


class OutboxItem(NamedTuple):
    """One message to a worker.

    Attributes:
        revision: It may leave when this is confirmed.
        kind: What it says.
        worker_id: To whom.
        task_id: Of which task.
        assignment_id: Of which of its runs.

    """

    revision: int
    kind: OutboxKind
    worker_id: str
    task_id: int
    assignment_id: int


class Outbox:
    """Messages in order of revision; empty while it is closed, as on followers."""

    def __init__(self) -> None:
        self.is_open = False
        self._items: deque[OutboxItem] = deque()

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self._items)

    def open(self) -> None:
        """Begin to collect: this replica leads."""
        self.is_open = True

    def close(self) -> None:
        """Forget everything: this replica leads no more, whoever leads hears from the workers what they have."""
        self.is_open = False
        self._items.clear()

    def add(self, revision: int, kind: OutboxKind, worker_id: str, task_id: int, assignment_id: int) -> None:
        """Collect a message."""
        if self.is_open:
            self._items.append(OutboxItem(revision, kind, worker_id, task_id, assignment_id))

    def drop_worker(self, worker_id: str) -> None:
        """Forget what waits for a worker: it has said what it has, and the rest was decided by that."""
        if self._items:
            self._items = deque(item for item in self._items if item.worker_id != worker_id)

    def take(self, confirmed_revision: int) -> list[OutboxItem]:
        """Take out what may leave, in order."""
        items = self._items
        taken: list[OutboxItem] = []
        while items and items[0].revision <= confirmed_revision:
            taken.append(items.popleft())
        return taken
