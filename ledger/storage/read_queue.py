"""Reads of entries that are not in memory: from segments, or from a journal file whose chunk was evicted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from ledger.errors import CorruptStorageError
from ledger.storage.damage import Damages
from ledger.storage.disk import Buffer, Disk, DiskExecutor
from ledger.storage.index import BlockRow, CorruptIndexError, Index
from ledger.storage.segment_format import Block
from ledger.storage.segments import Segments
from ledger.storage.tail import JournalPlace
from ledger.storage.unreadable import is_unreadable

Found = list[bytes | Exception | None]
"""Per look-up: the entry, None (not held), or why it cannot be told."""

_RECENT_MAX = 8
_ATTEMPTS_MAX = 8
_GROUP_BYTES = 512 << 10
_GAP_BYTES = 16 << 10


class Lookup(msgspec.Struct, frozen=True, gc=False):
    """One entry to be read from disk; `place` if it still lies in a journal file."""

    ledger_id: int
    entry_id: int
    place: JournalPlace | None = None


class EntryRun(msgspec.Struct):
    """Entries of one ledger, consecutive ones or such as are equally far apart.

    Attributes:
        entry_count: How many; 0 with no `error` says that the first is not held.
        pieces: Buffers that make (length (4, big-endian), entry)* when joined: the body of a batch read's answer.
        byte_count: Of all pieces.
        error: Why the first cannot be told; then there are no entries.

    """

    entry_count: int = 0
    pieces: list[Buffer] = []
    byte_count: int = 0
    error: Exception | None = None

    def add(self, entry_count: int, piece: Buffer) -> None:
        """Append entries that follow."""
        self.entry_count += entry_count
        self.pieces.append(piece)
        self.byte_count += len(piece)


class ReadQueue:
    """Reads for the event loop, one trip to the readers for all that a wake-up asks for.

    Args:
        disk: The disk.
        executor: The readers.
        segments: Where entries are.
        index: Where in the segments.
        live_generations: Returns the journal files that are no segments yet.
        damages: Hears of blocks that cannot be read.
        on_error: Hears of an index that cannot be believed.

    """

    def __init__(
        self,
        disk: Disk,
        executor: DiskExecutor,
        segments: Segments,
        index: Index,
        live_generations: Callable[[], list[int]],
        damages: Damages,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._segments = segments
        self._index = index
        self._live_generations = live_generations
        self._damages = damages
        self._on_error = on_error
        # ledger id -> the block that last served it: a sequential reader asks the index once a block.
        self._recent: dict[int, Block] = {}

    def read(self, lookups: list[Lookup]) -> asyncio.Future[Found]:
        """Read entries; the order of the answer is that of the look-ups."""
        done: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        future = self._executor.submit(partial(self._read_all, lookups))
        future.add_done_callback(partial(self._finish, lookups, done))
        return done

    def _finish(self, lookups: list[Lookup], done: asyncio.Future[Found], results: asyncio.Future[Found]) -> None:
        error = results.exception()
        if error is not None:
            _fail(done, error)
            return
        found = results.result()
        for result in found:
            if isinstance(result, CorruptIndexError):
                self._on_error(result)
        live = self._live_generations()
        stale = [i for i, x in enumerate(lookups) if x.place is not None and x.place.sequence not in live]
        if not stale:
            if not done.done():
                done.set_result(found)
            return
        # The journal file became a segment, and perhaps another journal file, while it was read.
        again = self.read([Lookup(lookups[i].ledger_id, lookups[i].entry_id) for i in stale])
        again.add_done_callback(partial(_fill, done, found, stale))

    # -- on a reader ---------------------------------------------------------------------------------------

    def _read_all(self, lookups: list[Lookup]) -> Found:
        found: Found = [None] * len(lookups)
        places = [(lookup.place, i) for i, lookup in enumerate(lookups) if lookup.place is not None]
        if places:
            self._read_places(places, found)
        if len(places) < len(lookups):
            for i, lookup in enumerate(lookups):
                if lookup.place is None:
                    found[i] = self._read_one(lookup.ledger_id, lookup.entry_id)
        return found

    def _read_places(self, places: list[tuple[JournalPlace, int]], found: Found) -> None:
        """Read entries from journal files; those that lie close together with one call."""
        places.sort(key=lambda item: (item[0].handle, item[0].byte_offset))
        start = 0
        while start < len(places):
            first = places[start][0]
            end, stop = start + 1, first.byte_offset + first.byte_count
            while end < len(places):
                place = places[end][0]
                is_near = place.handle == first.handle and place.byte_offset - stop <= _GAP_BYTES
                if not is_near or place.byte_offset + place.byte_count - first.byte_offset > _GROUP_BYTES:
                    break
                stop = max(stop, place.byte_offset + place.byte_count)
                end += 1
            try:
                data = self._disk.pread(first.handle, stop - first.byte_offset, first.byte_offset)
            except OSError as error:
                for _, i in places[start:end]:
                    found[i] = error
            else:
                for place, i in places[start:end]:
                    at = place.byte_offset - first.byte_offset
                    found[i] = data[at : at + place.byte_count]
            start = end

    def _read_one(self, ledger_id: int, entry_id: int) -> bytes | Exception | None:
        block = self._recent.get(ledger_id)
        entry = None if block is None else block.get(entry_id)
        if entry is not None:
            return entry
        found = self._search(ledger_id, entry_id)
        return found.get(entry_id) if isinstance(found, Block) else found

    def _search(self, ledger_id: int, entry_id: int) -> Block | Exception | None:
        """Return the block that holds an entry, or why it cannot be told, or None: it is not held."""
        missing: BlockRow | None = None
        try:
            for _ in range(_ATTEMPTS_MAX):
                found = self._look(self._index.candidates(ledger_id, entry_id), entry_id)
                if not isinstance(found, BlockRow):
                    return found
                if found == missing:
                    break
                missing = found  # Its segment went after the index was asked: now it points elsewhere.
        except (OSError, CorruptStorageError) as error:
            return error
        assert missing is not None
        lost = self._is_gone(missing)
        self._damages.report(missing, lost)
        return lost

    def _look(self, rows: list[BlockRow], entry_id: int) -> Block | Exception | BlockRow | None:
        error: Exception | None = None
        for row in rows:
            try:
                block = self._segments.read_block(row)
            except FileNotFoundError:
                return row
            except (OSError, CorruptStorageError) as caught:
                self._damages.report(row, caught)
                error = caught
                continue
            if block.get(entry_id) is not None:
                recent = self._recent
                recent.pop(row.ledger_id, None)
                recent[row.ledger_id] = block
                while len(recent) > _RECENT_MAX:
                    recent.pop(next(iter(recent), NO_LEDGER), None)
                return block
        return error

    def entry_ids(self, ledger_id: int) -> list[int]:
        """Return the entries of a ledger in segments (on a reader); what cannot be read is reported, and left out."""
        for _ in range(_ATTEMPTS_MAX):
            found, gone = self._entry_ids(self._index.blocks(ledger_id))
            if not gone:
                return found
        for row in gone:
            self._damages.report(row, self._is_gone(row))
        return found

    def _entry_ids(self, rows: list[BlockRow]) -> tuple[list[int], list[BlockRow]]:
        """Return what the heads of blocks name, and the blocks whose segment went after the index was asked."""
        found: list[int] = []
        gone: list[BlockRow] = []
        for row in rows:
            try:
                found += self._segments.entry_ids(row)
            except FileNotFoundError:
                gone.append(row)
            except (OSError, CorruptStorageError) as error:
                if isinstance(error, OSError) and not is_unreadable(error):
                    raise
                self._damages.report(row, error)
        return found, gone

    def _is_gone(self, row: BlockRow) -> CorruptStorageError:
        return CorruptStorageError(f"{self._segments.path(row.segment_id)}: the index names it, but it is gone")

    # -- runs ----------------------------------------------------------------------------------------------

    def read_run(
        self, ledger_id: int, first_entry_id: int, count_max: int, byte_count_max: int, stride: int
    ) -> asyncio.Future[EntryRun]:
        """Read entries, `stride` apart, from segments: at least the first if it is held, however large it is."""
        read = partial(self._read_run, ledger_id, first_entry_id, count_max, byte_count_max, stride)
        future = self._executor.submit(read)
        future.add_done_callback(self._note_error)
        return future

    def _note_error(self, future: asyncio.Future[EntryRun]) -> None:
        if not future.cancelled() and future.exception() is None:
            error = future.result().error
            if isinstance(error, CorruptIndexError):
                self._on_error(error)

    def _read_run(
        self, ledger_id: int, first_entry_id: int, count_max: int, byte_count_max: int, stride: int
    ) -> EntryRun:
        run = EntryRun(pieces=[])
        entry_id = first_entry_id
        while run.entry_count < count_max:
            block: Block | Exception | None = self._recent.get(ledger_id)
            if not isinstance(block, Block) or block.get(entry_id) is None:
                block = self._search(ledger_id, entry_id)
            if not isinstance(block, Block):
                if not run.entry_count:
                    run.error = block
                break
            count, piece = block.run(entry_id, count_max - run.entry_count, byte_count_max - run.byte_count, stride)
            if not count and not run.entry_count:
                count, piece = block.run(entry_id, 1, 1 << 62, stride)
            if not count:
                break
            run.add(count, piece)
            entry_id += count * stride
        return run


NO_LEDGER = -1


def _fail(done: asyncio.Future[Found], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


def _fill(done: asyncio.Future[Found], found: Found, stale: list[int], again: asyncio.Future[Found]) -> None:
    error = again.exception()
    if error is not None:
        _fail(done, error)
        return
    for position, entry in zip(stale, again.result(), strict=True):
        found[position] = entry
    if not done.done():
        done.set_result(found)
