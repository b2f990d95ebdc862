"""Runs of entries, neighbours or equally far apart, out of the tail: in memory, or in journal files out of memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ledger.storage.disk import Buffer
from ledger.storage.read_queue import EntryRun, Found, Lookup
from ledger.storage.tail import JournalPlace

_LENGTH_BYTES = 4

Find = Callable[[int, int], Buffer | JournalPlace | None]
Read = Callable[[list[Lookup]], asyncio.Future[Found]]


class TailRun:
    """The entries of one ledger that the tail holds from some entry on, up to a limit.

    Args:
        find: Looks in the tail.
        ledger_id: The ledger.
        first_entry_id: The first entry.
        count_max: Entries at most.
        byte_count_max: Bytes at most, lengths included; the first entry comes however large it is.
        stride: How far apart they are.

    """

    def __init__(
        self, find: Find, ledger_id: int, first_entry_id: int, count_max: int, byte_count_max: int, stride: int
    ) -> None:
        self._find = find
        self._ledger_id = ledger_id
        self._next = first_entry_id
        self._count_max = count_max
        self._byte_count_max = byte_count_max
        self._stride = stride
        self._byte_count = 0
        self._found: list[Buffer | JournalPlace] = []
        self._first = first_entry_id
        self._gather()

    @property
    def entry_count(self) -> int:
        """Entries found in the tail."""
        return len(self._found)

    def _gather(self) -> None:
        while len(self._found) < self._count_max:
            found = self._find(self._ledger_id, self._next)
            if found is None:
                return
            length = found.byte_count if isinstance(found, JournalPlace) else len(found)
            if self._found and self._byte_count + _LENGTH_BYTES + length > self._byte_count_max:
                return
            self._byte_count += _LENGTH_BYTES + length
            self._found.append(found)
            self._next += self._stride

    def finish(self, read: Read) -> asyncio.Future[EntryRun]:
        """Return the run, after a trip to the disk for what is not in memory."""
        done: asyncio.Future[EntryRun] = asyncio.get_running_loop().create_future()
        lookups = [
            Lookup(self._ledger_id, self._first + n * self._stride, found)
            for n, found in enumerate(self._found)
            if isinstance(found, JournalPlace)
        ]
        if not lookups:
            done.set_result(self._assembled(list(self._found)))
            return done

        def fill(results: asyncio.Future[Found]) -> None:
            if done.done():
                return
            error = results.exception()
            if error is not None:
                done.set_exception(error)
                return
            read_back = iter(results.result())
            done.set_result(
                self._assembled([next(read_back) if isinstance(x, JournalPlace) else x for x in self._found])
            )

        read(lookups).add_done_callback(fill)
        return done

    def _assembled(self, bodies: list[Buffer | JournalPlace | Exception | None]) -> EntryRun:
        run = EntryRun(pieces=[])
        for body in bodies:
            if body is None or isinstance(body, (Exception, JournalPlace)):
                if not run.entry_count and isinstance(body, Exception):
                    run.error = body
                break
            run.pieces += (len(body).to_bytes(_LENGTH_BYTES, "big"), body)
            run.byte_count += _LENGTH_BYTES + len(body)
            run.entry_count += 1
        return run

    def follow(self, stored: asyncio.Future[EntryRun]) -> asyncio.Future[EntryRun]:
        """Return a run out of segments, and what the memory has behind it."""
        done: asyncio.Future[EntryRun] = asyncio.get_running_loop().create_future()

        def extend(results: asyncio.Future[EntryRun]) -> None:
            if done.done():
                return
            error = results.exception()
            if error is not None:
                done.set_exception(error)
                return
            run = results.result()
            if run.entry_count:
                self._extend(run)
            done.set_result(run)

        stored.add_done_callback(extend)
        return done

    def _extend(self, run: EntryRun) -> None:
        entry_id = self._first + run.entry_count * self._stride
        while run.entry_count < self._count_max:
            found = self._find(self._ledger_id, entry_id)
            if found is None or isinstance(found, JournalPlace):
                return
            if run.byte_count + _LENGTH_BYTES + len(found) > self._byte_count_max:
                return
            run.pieces += (len(found).to_bytes(_LENGTH_BYTES, "big"), found)
            run.byte_count += _LENGTH_BYTES + len(found)
            run.entry_count += 1
            entry_id += self._stride
