"""The storage of a bookie as its server sees it: ledgers in memory, journal, segments, index.

Everything here runs on the event loop and never waits for a disk: blocking work goes to three executors
(journal, converter, readers).
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Sequence

import msgspec

from ledger.core.bookie_ledger import BookieLedger, is_in_limbo
from ledger.store.cold_reads import ColdReads, Lookup
from ledger.store.converter import Converter
from ledger.store.disk import Buffer, Disk, Executor, write_atomically
from ledger.store.index import CorruptIndexError, Index, LedgerRow
from ledger.store.journal import Journal, JournalItem, JournalSettings
from ledger.store.limbo import Limbo, save_limbo
from ledger.store.records import key_record
from ledger.store.recovery import DOUBT_FILE_NAME, IndexFactory, Recovered, recover
from ledger.store.segments import SegmentFolder
from ledger.store.tail import Generation, JournalPlace

__all__ = ["EntryStore", "Executors", "StoreHooks", "StoreSettings"]

_log = logging.getLogger(__name__)
_ABSENT_MAX = 20_000


class StoreSettings(msgspec.Struct, frozen=True):
    """Shape of the storage.

    Attributes:
        journal: Of the journal.
        ledger_dir: Folder of segments and limbo state.
        pending_bytes_max: Bytes taken and not yet synced; above it nothing ordinary is taken.
        resident_ledgers_max: Ledgers kept in memory; those with entries in a journal file stay beyond it.
        free_bytes_min: With less free space than this the bookie takes no ordinary adds.
        retry_s: Pause before a conversion that found the disk full is tried again.

    """

    journal: JournalSettings
    ledger_dir: str
    pending_bytes_max: int = 32 << 20
    resident_ledgers_max: int = 20_000
    free_bytes_min: int = 512 << 20
    retry_s: float = 2.0


class Executors(msgspec.Struct, frozen=True):
    """Where blocking work runs; journal and converter have one worker each."""

    journal: Executor
    converter: Executor
    readers: Executor

    def close(self) -> None:
        """End all workers."""
        for executor in (self.journal, self.converter, self.readers):
            executor.close()


class StoreHooks(msgspec.Struct):
    """Whom the store calls, on the event loop.

    Attributes:
        on_batch_done: A batch was told: flush the answers.
        on_room: There may be room again for what was held back.
        on_failure: Nothing will be acknowledged any more: stop the process.
        on_read_only: The disk became too full (True), or has room again (False).

    """

    on_batch_done: Callable[[], None]
    on_room: Callable[[], None]
    on_failure: Callable[[BaseException], None]
    on_read_only: Callable[[bool], None]


class EntryStore:
    """See the module. Build with `open`.

    Invariants: a ledger with entries in a live generation is in `ledgers`; an id is never both in `ledgers` and
    in `_absent`.
    """

    def __init__(
        self,
        disk: Disk,
        executors: Executors,
        settings: StoreSettings,
        segments: SegmentFolder,
        recovered: Recovered,
        hooks: StoreHooks,
        nonce: Callable[[], int],
    ) -> None:
        self._disk = disk
        self._executors = executors
        self._settings = settings
        self._hooks = hooks
        self._absent: dict[int, None] = {}
        self._eviction_count = 0
        self.segments = segments
        self.index: Index = recovered.index
        self.limbo = recovered.limbo
        self.replayed_entry_count = recovered.replayed_entry_count
        self.is_read_only = False
        self.ledgers: dict[int, BookieLedger] = {}
        self.journal = Journal(
            disk, executors.journal, settings.journal, self, next_sequence=recovered.next_sequence, nonce=nonce
        )
        self._converter = Converter(
            disk, executors.converter, self.segments, self.index, settings.journal.folder, self, settings.retry_s
        )
        self._cold_reads = ColdReads(
            disk, executors.readers, self.segments, self.index, self.live_generations, self._on_index_error
        )
        for handle, path in recovered.free_files:
            self.journal.add_free_file(handle, path)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        executors: Executors,
        settings: StoreSettings,
        open_index: IndexFactory,
        hooks: StoreHooks,
        *,
        nonce: Callable[[], int],
    ) -> EntryStore:
        """Replay what the last process left, and return a store that can serve.

        Raises:
            OSError: The disk refuses.

        """
        segments = SegmentFolder(disk, settings.ledger_dir)

        def work() -> Recovered:
            disk.make_dirs(settings.ledger_dir)
            return recover(disk, settings.journal, segments, settings.ledger_dir, open_index)

        recovered = await executors.converter.submit(work)
        store = cls(disk, executors, settings, segments, recovered, hooks, nonce)
        await store.check_space()
        return store

    # -- room ----------------------------------------------------------------------------------------------

    def claim(self, byte_count: int, *, is_privileged: bool = False) -> Generation | None:
        """Return the generation that takes up to `byte_count` bytes now, or None: hold back and wait."""
        if self.journal.pending_bytes > self._settings.pending_bytes_max and not is_privileged:
            return None
        return self.journal.claim(byte_count, is_privileged=is_privileged)

    async def check_space(self) -> None:
        """Compare free space with the limit; become read-only or writable again."""
        folders = dict.fromkeys((self._settings.ledger_dir, self._settings.journal.folder))
        free = await self._executors.readers.submit(lambda: min(map(self._disk.free_bytes, folders)))
        limit = self._settings.free_bytes_min
        if not self.is_read_only and free < limit:
            self._set_read_only(is_read_only=True, free=free)
        elif self.is_read_only and free >= limit + limit // 4:
            self._set_read_only(is_read_only=False, free=free)

    def _set_read_only(self, *, is_read_only: bool, free: int | None = None) -> None:
        if is_read_only == self.is_read_only:
            return
        self.is_read_only = is_read_only
        limit = self._settings.free_bytes_min
        if is_read_only:
            _log.error(
                "disk is full: no more adds until there is room; delete ledgers or make room",
                extra={"folder": self._settings.ledger_dir, "free_bytes": free, "free_bytes_min": limit},
            )
        else:
            _log.warning("disk has room again: taking adds", extra={"free_bytes": free})
        self._hooks.on_read_only(is_read_only)
        self._hooks.on_room()

    # -- ledgers -------------------------------------------------------------------------------------------

    def is_known_absent(self, ledger_id: int) -> bool:
        """Whether the index was asked and holds nothing of the ledger."""
        return ledger_id in self._absent

    def load(self, ledger_ids: Sequence[int]) -> asyncio.Future[None]:
        """Bring ledgers from the index into memory, or note that they are absent; one trip for all."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._load(list(ledger_ids), done)
        return done

    def _load(self, ledger_ids: list[int], done: asyncio.Future[None]) -> None:
        evictions = self._eviction_count
        index = self.index
        future = self._executors.readers.submit(lambda: [index.ledger(i) for i in ledger_ids])

        def finish(rows: asyncio.Future[list[LedgerRow | None]]) -> None:
            error = rows.exception()
            if error is not None:
                self._on_index_error(error)
                if not done.done():
                    done.set_exception(error)
            elif evictions != self._eviction_count:
                self._load(ledger_ids, done)  # A ledger may have moved to the index after it was read.
            else:
                self._install(ledger_ids, rows.result())
                if not done.done():
                    done.set_result(None)

        future.add_done_callback(finish)

    def _install(self, ledger_ids: list[int], rows: list[LedgerRow | None]) -> None:
        for ledger_id, row in zip(ledger_ids, rows, strict=True):
            if ledger_id in self.ledgers:
                continue
            if row is None:
                if len(self._absent) >= _ABSENT_MAX:
                    self._absent.clear()
                self._absent[ledger_id] = None
            else:
                self.ledgers[ledger_id] = BookieLedger(
                    ledger_id,
                    row.master_key,
                    is_fenced=row.is_fenced or is_in_limbo(ledger_id, self.limbo.ledger_id_max),
                    is_deleted=row.deleted_at_ms > 0,
                    last_entry_id=row.last_entry_id,
                    last_add_confirmed=row.last_add_confirmed,
                    explicit_lac=row.explicit_lac,
                )

    def create(self, ledger_id: int, master_key: bytes) -> tuple[BookieLedger, bytes]:
        """Bring a ledger into being; its record must go to the journal before, or with, what brought it."""
        self._absent.pop(ledger_id, None)
        ledger = self.ledgers[ledger_id] = BookieLedger(ledger_id, master_key)
        return ledger, key_record(ledger_id, master_key)

    def tail_of(self, ledger: BookieLedger, generation: Generation) -> dict[int, int]:
        """Return the dictionary of places that entries of `ledger` go to now."""
        if ledger.generation != generation.sequence:
            ledger.generation = generation.sequence
            ledger.tail = generation.ledgers.setdefault(ledger.ledger_id, {})
        return ledger.tail

    def append_record(
        self,
        ledger: BookieLedger,
        generation: Generation,
        records: list[bytes],
        on_durable: Callable[[JournalItem], None],
    ) -> None:
        """Journal records about a ledger; the caller claimed the room."""
        self.tail_of(ledger, generation)
        toc = array("I", [n for record in records for n in (0, len(record))])
        self.journal.append(generation, JournalItem(list(records), toc, len(records), on_durable))

    # -- reads ---------------------------------------------------------------------------------------------

    def find(self, ledger_id: int, entry_id: int) -> Buffer | JournalPlace | None:
        """Look for an entry in the tail: its bytes, its place in a journal file, or None (ask the segments)."""
        for generation in reversed(self.journal.generations):
            found = generation.find(ledger_id, entry_id)
            if found is not None:
                return found
        return None

    def read(self, lookups: list[Lookup]) -> asyncio.Future[list[bytes | Exception | None]]:
        """Read entries from disk, one trip for all: bytes, None (not held), or why it cannot be told."""
        return self._cold_reads.read(lookups)

    def live_generations(self) -> list[int]:
        """Return the sequence numbers of journal files that are no segments yet."""
        return [generation.sequence for generation in self.journal.generations]

    def list_entries(self, ledger_id: int) -> asyncio.Future[list[int]]:
        """Return the ids of all entries held of a ledger, ascending."""
        tail = {i for g in self.journal.generations for i in g.ledgers.get(ledger_id, {})}

        def work() -> list[int]:
            stored = [i for row in self.index.blocks(ledger_id) for i in self.segments.entry_ids(row)]
            return sorted(tail.union(stored))

        return self._executors.readers.submit(work)

    # -- journal files become segments ---------------------------------------------------------------------

    def on_batch_done(self) -> None:
        """See `JournalListener`."""
        self._hooks.on_batch_done()

    def on_journal_failure(self, error: BaseException) -> None:
        """See `JournalListener`."""
        self._fail("the journal cannot be written: stopping; the next start replays what was synced", error)

    def on_sealed(self, generation: Generation) -> None:
        """See `JournalListener`."""
        self._converter.convert(generation)

    def on_converted(self, generation: Generation, path: str) -> None:
        """See `ConverterListener`."""
        self.journal.drop(generation)
        self.journal.add_free_file(generation.handle, path)
        self._evict_ledgers()
        self._hooks.on_room()

    def on_no_space(self) -> None:
        """See `ConverterListener`."""
        self._set_read_only(is_read_only=True)

    def on_conversion_failure(self, error: BaseException) -> None:
        """See `ConverterListener`."""
        self._fail("a journal file cannot be made a segment: stopping; its entries stay in the journal", error)

    def _evict_ledgers(self) -> None:
        """Let ledgers go whose whole state is in the index; the oldest first."""
        limit = self._settings.resident_ledgers_max
        excess = len(self.ledgers) - limit
        if excess <= 0:
            return
        oldest = self.journal.generations[0].sequence if self.journal.generations else 1 << 62
        idle = [i for i, x in self.ledgers.items() if x.generation < oldest and not x.waiters]
        for ledger_id in idle[: excess + limit // 10]:
            del self.ledgers[ledger_id]
        self._eviction_count += 1

    # -- damage and end ------------------------------------------------------------------------------------

    def bound_limbo(self, ledger_id_max: int) -> asyncio.Future[None]:
        """Limit limbo to the ledgers that existed when the loss was found; durable when the future is done."""
        self.limbo = Limbo(ledger_id_max, self.limbo.reasons)
        limbo = self.limbo
        return self._executors.converter.submit(lambda: save_limbo(self._disk, self._settings.ledger_dir, limbo))

    def _on_index_error(self, error: BaseException) -> None:
        if isinstance(error, CorruptIndexError):
            self._executors.converter.submit(self._doubt_index)
            self._fail("the index is damaged: stopping; the next start rebuilds it from the segments", error)

    def _doubt_index(self) -> None:
        write_atomically(self._disk, self._settings.ledger_dir, DOUBT_FILE_NAME, b"")

    def _fail(self, message: str, error: BaseException) -> None:
        if self.journal.failure is None:
            self.journal.failure = error
        _log.critical(message, exc_info=error)
        self._hooks.on_failure(error)

    async def close(self) -> None:
        """Sync what is pending, wait for a running conversion, release everything."""
        await self.journal.drain()
        await self._converter.close()
        self.index.close()
        self._executors.close()
