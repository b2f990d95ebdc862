"""The journal: nothing is acknowledged before one fdatasync covered it.

Items gather while a batch is in flight; then all that wait go as one batch: one vectored write, one fdatasync,
on the journal's own worker. One batch is in flight at a time: that costs nothing at load, and makes "a later
valid batch" a proof that the one before was synced. An error of write or sync stops the journal for good
(safety 29): what the kernel still shows of such a write proves nothing.

    free file -> current (claim rolls into it) -> sealed (first batch of the next file) -> converted -> free
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from ledger.storage.disk import Buffer, Disk, DiskExecutor
from ledger.storage.journal_counts import JournalCounts
from ledger.storage.journal_format import HEADER_BYTES, batch_buffers, mark, sealed_file_name
from ledger.storage.landmarks import Landmarks
from ledger.storage.tail import ChunkCache, Generation

ITEM_OVERHEAD_BYTES = 2 * HEADER_BYTES
"""An item may need a batch header of its own, and an idle mark behind it."""
_LANDMARK_S = 1.0
"""Under load, how often what was synced is noted outside of the journal too."""


class JournalSettings(msgspec.Struct, frozen=True):
    """Shape of the journal.

    Attributes:
        folder: Where its files are.
        file_bytes: Of each file; 64 MiB by default.
        file_count: Files for ordinary use; one more is kept for fences and recovery adds (safety 27).
        cache_bytes_max: Written chunks kept in memory.
        idle_mark_s: Pause after which an idle mark is written.
        entries_max: Entries after which a file is left although there is room: the place of each is in memory.
        ledgers_max: The same for ledgers.

    """

    folder: str
    file_bytes: int = 64 << 20
    file_count: int = 4
    cache_bytes_max: int = 8 << 20
    idle_mark_s: float = 0.1
    entries_max: int = 1 << 18
    ledgers_max: int = 1 << 15


class JournalItem:
    """Item that becomes durable as a whole, and the callback for that moment.

    Attributes:
        chunks: Bytes for the blob, in order; none makes the item a barrier.
        toc: u32 pairs (gap, length) over all chunks.
        entry_count: Bodies in it.
        on_durable: Called on the event loop when a sync covered it, with this item.
        context: For `on_durable`.
        answer: For `on_durable`.

    """

    __slots__ = ("answer", "byte_count", "chunks", "context", "entry_count", "first_chunk", "on_durable", "toc")

    def __init__(
        self,
        chunks: list[Buffer],
        toc: array[int],
        entry_count: int,
        on_durable: Callable[[JournalItem], None],
        context: object = None,
        answer: Buffer = b"",
    ) -> None:
        self.chunks = chunks
        self.toc = toc
        self.entry_count = entry_count
        self.on_durable = on_durable
        self.context = context
        self.answer = answer
        self.byte_count = sum(map(len, chunks))
        self.first_chunk = 0


class Journal:
    """Group commit into recycled files. All callbacks are called on the event loop.

    Args:
        disk: The disk.
        executor: The journal's.
        settings: Sizes and times.
        on_sealed: A file was left for the next one and sealed: make it a segment.
        on_batch_done: All items of a batch were told: flush the answers that they left.
        on_failure: Nothing will ever be acknowledged again: stop the process.
        next_sequence: Number of the next file.
        nonce: Makes the mark of a file.
        landmarks: Name the journal files in use.

    `batch_count` counts what was synced since the start, idle marks included; `counts` has more of it.

    Invariants: every item of `_pending` and of the batch in flight belongs to a generation of `generations`;
    items leave in the order in which they came; `_free` holds preallocated files only.
    """

    def __init__(
        self,
        disk: Disk,
        executor: DiskExecutor,
        settings: JournalSettings,
        *,
        on_sealed: Callable[[Generation], None],
        on_batch_done: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        next_sequence: int,
        nonce: Callable[[], int],
        landmarks: Landmarks,
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._settings = settings
        self._on_sealed = on_sealed
        self._on_batch_done = on_batch_done
        self._on_failure = on_failure
        self._nonce = nonce
        self._landmarks = landmarks
        self._landmark_at_s = 0.0  # when the next is due; touched by the worker, as `write_offset` is
        self._next_file_sequence = next_sequence
        self._next_generation = 0
        self._free: deque[tuple[int, str]] = deque()
        self._pending: deque[tuple[Generation, JournalItem]] = deque()
        self._in_flight: list[JournalItem] = []
        self._cache = ChunkCache(settings.cache_bytes_max)
        self._unsealed: Generation | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._marked: tuple[int, int] = (0, 0)  # journal id and offset behind the last mark
        self._drained: list[asyncio.Future[None]] = []
        self.generations: list[Generation] = []
        self.pending_bytes = 0
        self.batch_count = 0
        self.counts = JournalCounts()
        self._began_s = 0.0  # when the batch in flight was handed over
        self.failure: BaseException | None = None

    @property
    def current(self) -> Generation | None:
        """The generation that takes items, if any."""
        return self.generations[-1] if self.generations else None

    @property
    def waiting_count(self) -> int:
        """Runs of entries, and other items, that wait for the batch on its way."""
        return len(self._pending)

    @property
    def is_writing(self) -> bool:
        """A batch is on its way to the disk."""
        return bool(self._in_flight)

    def add_free_file(self, handle: int, path: str) -> None:
        """Hand over a preallocated file that holds nothing that is still needed."""
        self._free.append((handle, path))

    def claim(self, byte_count: int, *, is_privileged: bool) -> Generation | None:
        """Return the generation that takes an item of up to `byte_count` bytes now, rolling if needed.

        Returns:
            None if there is no room: an ordinary item waits for a conversion (before any fence check), and
            leaves the last file to fences and recovery adds.

        """
        if self.failure is not None:
            return None
        needed = byte_count + ITEM_OVERHEAD_BYTES
        kept = 0 if is_privileged else 1
        current = self.current
        limit = self._settings.file_bytes - HEADER_BYTES  # The seal always fits.
        if current is not None and current.reserved_bytes + needed <= limit:
            is_crowded = (
                current.entry_count >= self._settings.entries_max or len(current.ledgers) >= self._settings.ledgers_max
            )
            if not is_crowded or is_privileged:
                return current if len(self._free) >= kept else None
        if len(self._free) <= kept or needed > limit:
            return None
        return self._roll()

    def _roll(self) -> Generation:
        handle, path = self._free.popleft()
        journal_id = self._next_file_sequence << 32 | self._nonce()
        self._next_file_sequence += 1
        generation = Generation(self._next_generation, journal_id, handle, path)
        self._next_generation += 1
        self.generations.append(generation)
        return generation

    def append(self, generation: Generation, item: JournalItem) -> None:
        """Take an item whose entries were just placed in `generation`, as `claim` returned it."""
        if item.chunks:
            generation.reserved_bytes += item.byte_count + len(item.toc) * 4 + ITEM_OVERHEAD_BYTES
            generation.entry_count += item.entry_count
            self.pending_bytes += item.byte_count
            item.first_chunk = generation.add_chunk(item.chunks[0])
            for chunk in item.chunks[1:]:
                generation.add_chunk(chunk)
        self._pending.append((generation, item))
        self._kick()

    def barrier(self, item: JournalItem) -> None:
        """Tell an item without bytes when all that was taken before it is durable: at once if it is."""
        if self.failure is not None:
            return
        if not self._pending and not self._in_flight:
            item.on_durable(item)
            self._on_batch_done()
            return
        generation = self._pending[-1][0] if self._pending else self.generations[-1]
        self._pending.append((generation, item))

    def _kick(self) -> None:
        if self._in_flight or not self._pending or self.failure is not None:
            return
        generation = self._pending[0][0]
        items: list[JournalItem] = []
        # All that came during the last sync shares the next one: batches grow with the load, and need no timer.
        while self._pending and self._pending[0][0] is generation:
            items.append(self._pending.popleft()[1])
        self._in_flight = items
        sealed, self._unsealed = self._unsealed, generation
        if sealed is generation:
            sealed = None
        now_s = self._began_s = asyncio.get_running_loop().time()
        future = self._executor.submit(partial(self._write, generation, sealed, items, now_s))
        future.add_done_callback(partial(self._on_written, generation, sealed))

    def _write(self, generation: Generation, sealed: Generation | None, items: list[JournalItem], now_s: float) -> int:
        """Write and sync one batch (on the worker); return the byte offset of its blob."""
        disk = self._disk
        if sealed is not None:
            # Durable before the next file has a batch: an older file without its seal has lost its end, it is not torn.
            disk.pwritev(sealed.handle, [mark(sealed.journal_id, sealed.write_offset, seal=True)], sealed.write_offset)
            disk.fdatasync(sealed.handle)
        if not generation.is_opened:
            path = f"{self._settings.folder}/{sealed_file_name(generation.journal_id)}"
            disk.rename(generation.path, path)
            disk.fsync_dir(self._settings.folder)
            generation.path = path
            generation.is_opened = True
            # Before the first batch: a file that is gone at the next start is then missed.
            self._landmarks.open_journal(generation.journal_id)
            self._landmark_at_s = now_s + _LANDMARK_S
        elif now_s >= self._landmark_at_s:
            self._landmarks.advance(generation.journal_id, generation.write_offset)
            self._landmark_at_s = now_s + _LANDMARK_S
        toc: array[int] = array("I")
        chunks: list[Buffer] = []
        entry_count = 0
        for item in items:
            toc.extend(item.toc)
            chunks += item.chunks
            entry_count += item.entry_count
        if not chunks:
            return generation.write_offset  # Barriers only: what they wait for was synced by the batch before.
        offset = generation.write_offset
        # One vectored write of the received chunks: joining them would copy every payload.
        buffers = batch_buffers(generation.journal_id, offset, toc, chunks, entry_count)
        written = disk.pwritev(generation.handle, buffers, offset)
        disk.fdatasync(generation.handle)
        generation.write_offset = offset + written
        return offset + HEADER_BYTES + 4 * len(toc)

    def _on_written(self, generation: Generation, sealed: Generation | None, future: asyncio.Future[int]) -> None:
        error = future.exception()
        if error is not None:
            self._fail(error)
            return
        offset = future.result()
        items, self._in_flight = self._in_flight, []
        self.batch_count += 1
        entry_count = byte_count = 0
        for item in items:
            entry_count += item.entry_count
            byte_count += item.byte_count
            number = item.first_chunk
            for chunk in item.chunks:
                generation.set_written(number, offset)
                self._cache.add(generation, number, len(chunk))
                offset += len(chunk)
                number += 1
            self.pending_bytes -= item.byte_count
        if byte_count:
            self.counts.note(entry_count, byte_count, asyncio.get_running_loop().time() - self._began_s)
        self._kick()  # The next batch is on its way while this one's answers are sent.
        for item in items:
            item.on_durable(item)
        self._on_batch_done()
        if sealed is not None:
            self._on_sealed(sealed)
        if not self._in_flight:
            self._on_idle()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._in_flight = []
        self._pending.clear()
        self._wake_drained()
        self._on_failure(error)

    def _on_idle(self) -> None:
        self._wake_drained()
        if self._idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(self._settings.idle_mark_s, self._idle)

    def _idle(self) -> None:
        """Write one mark after a pause: rot in the last batch can then be told from a torn tail."""
        self._idle_timer = None
        generation = self.current
        if self.failure is not None or generation is None or not generation.is_opened:
            return
        if self._in_flight or self._pending:
            return  # The end of that batch sets the timer again.
        if (generation.journal_id, generation.write_offset) == self._marked:
            return
        self._write_mark(generation)

    def _write_mark(self, generation: Generation) -> None:
        self._in_flight = [JournalItem([], array("I"), 0, _ignore)]

        def write() -> int:
            offset = generation.write_offset
            self._disk.pwritev(generation.handle, [mark(generation.journal_id, offset, seal=False)], offset)
            self._disk.fdatasync(generation.handle)
            generation.write_offset = offset + HEADER_BYTES
            self._marked = (generation.journal_id, generation.write_offset)
            self._landmarks.advance(*self._marked)
            return generation.write_offset

        future = self._executor.submit(write)
        future.add_done_callback(partial(self._on_written, generation, None))

    def drop(self, generation: Generation) -> None:
        """Forget the oldest generation, which has become a segment; its file is handed back separately."""
        self.generations.remove(generation)
        self._cache.drop(generation)

    def _wake_drained(self) -> None:
        for waiter in self._drained:
            if not waiter.done():
                waiter.set_result(None)
        self._drained = []

    async def drain(self) -> None:
        """Wait until nothing is pending or in flight, or the journal failed; then mark the end."""
        while (self._pending or self._in_flight) and self.failure is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            await waiter
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._idle()
        while self._in_flight and self.failure is None:
            waiter = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            await waiter
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None


def _ignore(_item: JournalItem) -> None:
    """Nobody waits for a mark."""
