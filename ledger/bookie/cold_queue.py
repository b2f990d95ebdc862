"""The reads of one connection that wait for a disk: one trip after the other, each of some MiB at most."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ledger.storage.entry_store import EntryStore
from ledger.storage.read_queue import Lookup

_TRIP_BYTES: Final = 4 << 20
_TRIP_COUNT_FIRST: Final = 16
_TRIP_COUNT_MAX: Final = 1024

Answer = Callable[[Any], None]
"""Gets the entry, None (not held), or why it cannot be told."""

Job = Callable[[Callable[[], None]], None]
"""Reads a run of entries; calls its argument when that is answered."""


class ColdQueue:
    """See the module. How many entries a trip brings is learned from how long those of the last one were.

    Args:
        store: Where they are.
        on_answered: Called when the answers of a trip were given; begins the next one by `start` if they can be sent.

    """

    def __init__(self, store: EntryStore, on_answered: Callable[[], None]) -> None:
        self._store = store
        self._on_answered = on_answered
        self._waiting: deque[tuple[Lookup, Answer] | Job] = deque()
        self._trip_count = _TRIP_COUNT_FIRST
        self._is_under_way = False
        self.count = 0

    def add(self, lookup: Lookup, answer: Answer) -> None:
        """Queue a read; `start` begins it."""
        self.count += 1
        self._waiting.append((lookup, answer))

    def add_job(self, job: Job) -> None:
        """Queue a job that is a trip of its own; `start` begins it."""
        self.count += 1
        self._waiting.append(job)

    def start(self) -> None:
        """Begin the next trip unless one is under way."""
        if not self._waiting or self._is_under_way:
            return
        self._is_under_way = True
        trip: list[tuple[Lookup, Answer]] = []
        while self._waiting and len(trip) < self._trip_count:
            head = self._waiting[0]
            if not isinstance(head, tuple):
                break
            trip.append(head)
            self._waiting.popleft()
        if trip:
            future = self._store.read_queue.read([lookup for lookup, _ in trip])
            future.add_done_callback(lambda results: self._finish(trip, results))
        else:
            job = self._waiting.popleft()
            assert not isinstance(job, tuple)
            job(self._finish_job)

    def _finish_job(self) -> None:
        self._is_under_way = False
        self.count -= 1
        self._on_answered()

    def _finish(
        self, trip: list[tuple[Lookup, Answer]], results: asyncio.Future[list[bytes | Exception | None]]
    ) -> None:
        self._is_under_way = False
        self.count -= len(trip)
        error = results.exception()
        found = [error] * len(trip) if isinstance(error, Exception) else results.result()
        byte_count = sum(len(entry) for entry in found if isinstance(entry, bytes))
        if byte_count > _TRIP_BYTES:
            self._trip_count = max(1, len(trip) * _TRIP_BYTES // byte_count)
        elif 2 * byte_count < _TRIP_BYTES and len(trip) == self._trip_count:
            self._trip_count = min(_TRIP_COUNT_MAX, 2 * self._trip_count)
        for (_, answer), entry in zip(trip, found, strict=True):
            answer(entry)
        self._on_answered()

    def clear(self) -> None:
        """Tell all that wait that nobody listens any more."""
        waiting, self._waiting = self._waiting, deque()
        self.count -= len(waiting)
        for item in waiting:
            if isinstance(item, tuple):
                item[1](ConnectionResetError("nobody listens any more"))

    def close(self) -> None:
        """Do as `clear` does, and call nobody from now on: no cycle is left for the garbage collector."""
        self.clear()
        self._on_answered = _nobody


def _nobody() -> None:
    """Do nothing: the connection is over."""
