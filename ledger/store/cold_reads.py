"""Reads of entries that are not in memory: from segments, or from a journal file whose chunk was evicted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from ledger.errors import CorruptStorageError
from ledger.store.disk import Disk, Executor
from ledger.store.index import CorruptIndexError, Index
from ledger.store.segments import SegmentFolder
from ledger.store.tail import JournalPlace

__all__ = ["ColdReads", "Found", "Lookup"]

_log = logging.getLogger(__name__)
Found = list[bytes | Exception | None]
"""Per look-up: the entry, None (not held), or why it cannot be told."""


class Lookup(msgspec.Struct, frozen=True, gc=False):
    """One entry to be read from disk; `place` if it still lies in a journal file."""

    ledger_id: int
    entry_id: int
    place: JournalPlace | None = None


class ColdReads:
    """Reads for the event loop, one trip to the readers for all that a wake-up asks for.

    Args:
        disk: The disk.
        executor: The readers.
        segments: Where entries are.
        index: Where in the segments.
        live_generations: Returns the journal files that are no segments yet.
        on_error: Hears of an index that cannot be believed.

    """

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        segments: SegmentFolder,
        index: Index,
        live_generations: Callable[[], list[int]],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._segments = segments
        self._index = index
        self._live_generations = live_generations
        self._on_error = on_error

    def read(self, lookups: list[Lookup]) -> asyncio.Future[Found]:
        """Read entries; the order of the answer is that of the look-ups."""
        done: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        future = self._executor.submit(lambda: [self._read_one(lookup) for lookup in lookups])
        future.add_done_callback(partial(self._finish, lookups, done))
        return done

    def _finish(self, lookups: list[Lookup], done: asyncio.Future[Found], results: asyncio.Future[Found]) -> None:
        error = results.exception()
        if error is not None:
            done.set_exception(error)
            return
        found = results.result()
        for result in found:
            if isinstance(result, CorruptIndexError):
                self._on_error(result)
        live = self._live_generations()
        stale = [i for i, x in enumerate(lookups) if x.place is not None and x.place.sequence not in live]
        if not stale:
            done.set_result(found)
            return
        # The journal file became a segment, and perhaps another journal file, while it was read.
        again = self.read([Lookup(lookups[i].ledger_id, lookups[i].entry_id) for i in stale])
        again.add_done_callback(partial(_fill, done, found, stale))

    def _read_one(self, lookup: Lookup) -> bytes | Exception | None:
        try:
            if lookup.place is not None:
                place = lookup.place
                return self._disk.pread(place.handle, place.byte_count, place.byte_offset)
            for row in self._index.candidates(lookup.ledger_id, lookup.entry_id):
                entry = self._segments.read_block(row).get(lookup.entry_id)
                if entry is not None:
                    return entry
        except (OSError, CorruptStorageError) as error:
            _log.exception(
                "an entry cannot be read: answering EIO; other bookies hold it",
                extra={"ledger_id": lookup.ledger_id, "entry_id": lookup.entry_id},
            )
            return error
        return None


def _fill(done: asyncio.Future[Found], found: Found, stale: list[int], again: asyncio.Future[Found]) -> None:
    error = again.exception()
    if error is not None:
        done.set_exception(error)
        return
    for position, entry in zip(stale, again.result(), strict=True):
        found[position] = entry
    done.set_result(found)
