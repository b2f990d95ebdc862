"""Callers who wait for the end of tasks: woken by the record that ends it, on leader and follower alike."""

from __future__ import annotations

import asyncio

from broker.machine.tables import RecordType
from rsm_spark.core.envelope import body_of
from rsm_spark.core.records import decode_records

_ENDS = frozenset({RecordType.TASK_ENDED, RecordType.TASK_REMOVED})


class TaskWaits:
    """Waits for tasks' ends. Entries are looked into only while somebody waits.

    Attributes:
        is_closed: Nobody is kept waiting any more.

    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self.is_closed = False

    def __len__(self) -> int:
        """Return for how many tasks somebody waits."""
        return len(self._waiting)

    def begin(self, task_id: int) -> asyncio.Future[None]:
        """Return what is done once a task has ended after this call; give it back to `leave`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            future.set_result(None)
        else:
            self._waiting.setdefault(task_id, []).append(future)
        return future

    def leave(self, task_id: int, future: asyncio.Future[None]) -> None:
        """Wait no more."""
        waiting = self._waiting.get(task_id)
        if waiting is not None and future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._waiting[task_id]

    def on_entry(self, payload: bytes) -> None:
        """Look into a confirmed entry."""
        if not self._waiting:
            return
        for record in decode_records(body_of(payload)):
            if record.type in _ENDS:
                task_id, *_ = record.fields
                self._wake(task_id)

    def close(self) -> None:
        """Send everybody away."""
        self.is_closed = True
        for task_id in list(self._waiting):
            self._wake(task_id)

    def _wake(self, task_id: int) -> None:
        for future in self._waiting.pop(task_id, ()):
            if not future.done():
                future.set_result(None)
