"""Makes segments of sealed journal files, one at a time, in the background.

The order is what a power cut tests: segment synced, folder synced, index committed; only then is the journal
file free. A full disk is waited out (the journal file keeps the entries); any other error stops the bookie.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from ledger.errors import CorruptStorageError
from ledger.storage.compaction import NO_SPACE_ERRORS
from ledger.storage.disk import Disk, DiskExecutor
from ledger.storage.flush import JournalFile
from ledger.storage.index import Index
from ledger.storage.landmarks import Landmarks
from ledger.storage.recovery import free_file_name
from ledger.storage.segments import Segments
from ledger.storage.tail import Generation


class Flusher:
    """A queue of sealed journal files. Invariant: while one is converted it is the head of the queue.

    Args:
        disk: The disk.
        executor: The converter's.
        segments: Where segments go.
        index: Where their rows go.
        landmarks: Name the journal files in use.
        journal_folder: Where the journal files are.
        retry_s: Pause before a conversion that found the disk full is tried again.
        on_converted: A journal file's entries are in a segment and its file, now at the path, is free.
        on_no_space: The disk is full; the conversion is tried again by itself.
        on_failure: A conversion failed for good.
        after_conversion: Called on the worker when a conversion is done.

    """

    def __init__(
        self,
        disk: Disk,
        executor: DiskExecutor,
        segments: Segments,
        index: Index,
        landmarks: Landmarks,
        journal_folder: str,
        retry_s: float,
        *,
        on_converted: Callable[[Generation, str], None],
        on_no_space: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        after_conversion: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._segments = segments
        self._index = index
        self._landmarks = landmarks
        self._journal_folder = journal_folder
        self._on_converted = on_converted
        self._on_no_space = on_no_space
        self._on_failure = on_failure
        self._retry_s = retry_s
        self._after_conversion = after_conversion
        self._queue: deque[Generation] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None
        self._is_running = False
        self._is_closed = False

    def convert(self, generation: Generation) -> None:
        """Take a sealed journal file."""
        self._queue.append(generation)
        self._next()

    def _next(self) -> None:
        if self._is_running or self._is_closed or not self._queue:
            return
        self._is_running = True
        self._retry = None
        generation = self._queue[0]
        future = self._executor.submit(partial(self._work, generation))
        future.add_done_callback(partial(self._on_done, generation))

    def _work(self, generation: Generation) -> str:
        """Convert one file (on the worker); return the path of the file that is free then."""
        generation.seal()
        journal_id = generation.journal_id
        journal = JournalFile(self._disk, generation.path, journal_id, has_successor=True)
        try:
            if journal.scan.lost or journal.unreadable:
                lost = journal.scan.lost + journal.unreadable
                raise CorruptStorageError(
                    f"{generation.path}: bytes {lost} were synced and are damaged; restart the bookie: it "
                    "will serve what is left and answer 'unknown' for the rest"
                )
            converted = journal.write_segment(self._segments)
        finally:
            journal.close()
        if converted is not None:
            self._index.commit_segment(journal_id, converted.blocks, converted.ledgers)
        self._landmarks.free_journal(journal_id, self._segments.segment_ids(), self._segments.coming_ids)
        path = f"{self._journal_folder}/{free_file_name(journal_id)}"
        self._disk.rename(generation.path, path)
        self._disk.fsync_dir(self._journal_folder)
        self._after_conversion()
        return path

    def _on_done(self, generation: Generation, future: asyncio.Future[str]) -> None:
        self._is_running = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        error = future.exception()
        if isinstance(error, OSError) and error.errno in NO_SPACE_ERRORS:
            self._on_no_space()
            self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._next)
        elif error is not None:
            self._is_closed = True
            self._on_failure(error)
        else:
            self._queue.popleft()
            self._on_converted(generation, future.result())
            self._next()

    async def close(self) -> None:
        """Let a running conversion end and start no other: the next start does the rest."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._is_running:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
