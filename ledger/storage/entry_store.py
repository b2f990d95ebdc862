"""The storage of a bookie as its server sees it: ledgers in memory, journal, segments, index.

Everything here runs on the event loop and never waits for a disk: blocking work goes to three executors
(journal, converter, readers).
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Sequence

from ledger.storage.bookie_ledger import BookieLedger
from ledger.storage.compaction import NO_SPACE_ERRORS
from ledger.storage.compactor import Compactor
from ledger.storage.damage import Damage, Damages
from ledger.storage.deletions import Deletions
from ledger.storage.disk import Buffer, Disk, RealDisk, write_atomically
from ledger.storage.flusher import Flusher
from ledger.storage.index import CorruptIndexError, Index
from ledger.storage.journal import Journal, JournalItem
from ledger.storage.limbo import Limbo, save_limbo
from ledger.storage.memory import give_back
from ledger.storage.read_queue import EntryRun, ReadQueue
from ledger.storage.records import key_record
from ledger.storage.recovery import DOUBT_FILE_NAME, IndexFactory, Recovered, recover
from ledger.storage.resident_ledgers import ResidentLedgers
from ledger.storage.runs import TailRun
from ledger.storage.segments import Segments
from ledger.storage.settings import Executors, StorageSettings, StoreHooks
from ledger.storage.tail import Generation, JournalPlace

_LOGGER = logging.getLogger(__name__)
_WORKERS_S_MAX = 5.0
_NO_TAIL: dict[int, int] = {}


class EntryStore:
    """See the module. Build with `open`.

    Attributes:
        ledgers: Ledgers in memory, by id; all of which anything lies in the journal.
        resident: Loads ledgers into it and lets them go.
        journal: Takes what is added.
        flusher: Makes a segment of each journal file.
        read_queue: Reads entries that are not in memory.
        compactor: Makes few segments of many.
        deletions: Deletes ledgers, and forgets them in time.
        damages: Blocks that were found damaged since the start: for each, EIO is answered for its entries.
        landmarks: What the disks must show at the next start.
        is_read_only: The disk is too full for ordinary adds, or somebody wants none.

    """

    def __init__(
        self,
        disk: Disk,
        executors: Executors,
        settings: StorageSettings,
        segments: Segments,
        recovered: Recovered,
        hooks: StoreHooks,
        nonce: Callable[[], int],
    ) -> None:
        self._disk = disk
        self._executors = executors
        self._settings = settings
        self._hooks = hooks
        self.segments = segments
        self.index: Index = recovered.index
        self.limbo = recovered.limbo
        self.landmarks = recovered.landmarks
        self.replayed_entry_count = recovered.replayed_entry_count
        self.is_read_only = False
        self._is_held_read_only = False
        self.damages = Damages()
        self.resident = ResidentLedgers(
            self.index, executors.readers, settings.resident_ledgers_max, self._is_fenced_by_limbo, self._on_index_error
        )
        self.ledgers = self.resident.ledgers
        self.journal = Journal(
            disk,
            executors.journal,
            settings.journal,
            on_sealed=self._on_sealed,
            on_batch_done=hooks.on_batch_done,
            on_failure=self._on_journal_failure,
            next_sequence=recovered.next_sequence,
            nonce=nonce,
            landmarks=recovered.landmarks,
        )
        self.flusher = Flusher(
            disk,
            executors.converter,
            self.segments,
            self.index,
            self.landmarks,
            settings.journal.folder,
            settings.retry_s,
            on_converted=self._on_converted,
            on_no_space=self._on_no_space,
            on_failure=self._on_conversion_failure,
            # A simulation's process holds many bookies.
            after_conversion=give_back if isinstance(disk, RealDisk) else _nothing,
        )
        self.read_queue = ReadQueue(
            disk,
            executors.readers,
            self.segments,
            self.index,
            self.live_generations,
            self.damages,
            self._on_index_error,
        )
        self.compactor = Compactor(
            self.segments, self.index, executors.converter, settings.compaction, nonce, self._on_background_failure
        )
        self.deletions = Deletions(self, executors.readers, settings.compaction, settings.journal.file_bytes)
        for handle, path in recovered.free_files:
            self.journal.add_free_file(handle, path)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        executors: Executors,
        settings: StorageSettings,
        open_index: IndexFactory,
        hooks: StoreHooks,
        *,
        nonce: Callable[[], int],
    ) -> EntryStore:
        """Replay what the last process left, and return a store that can serve.

        Raises:
            OSError: The disk refuses.

        """
        segments = Segments(disk, settings.ledger_dirs, cache_bytes_max=settings.read_cache_bytes_max)

        def work() -> Recovered:
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
        """Compare free space with the limit; become read-only or writable again.

        What counts is the roomiest folder of segments, and the folder of limbo state and index, which are small.
        """
        folders = (self._settings.ledger_dir, self._settings.journal.folder)

        def work() -> int:
            small = min(map(self._disk.free_bytes, folders))
            # A sixteenth of the limit is enough where only small files are written.
            return min(self.segments.free_bytes(), 16 * small if self._settings.more_ledger_dirs else small)

        free = await self._executors.readers.submit(work)
        if self._is_held_read_only:
            return
        limit = self._settings.free_bytes_min
        if not self.is_read_only and free < limit:
            self._set_read_only(is_read_only=True, free=free)
        elif self.is_read_only and free >= limit + limit // 4:
            self._set_read_only(is_read_only=False, free=free)

    async def hold_read_only(self, *, is_held: bool) -> None:
        """Take no ordinary adds until told otherwise; or take them again, if there is room."""
        self._is_held_read_only = is_held
        if is_held:
            self._set_read_only(is_read_only=True)
        else:
            await self.check_space()

    def _set_read_only(self, *, is_read_only: bool, free: int | None = None) -> None:
        if is_read_only == self.is_read_only:
            return
        self.is_read_only = is_read_only
        limit = self._settings.free_bytes_min
        if is_read_only and self._is_held_read_only:
            _LOGGER.warning("no more adds, as an operator wishes")
        elif is_read_only:
            _LOGGER.error(
                "disk is full: no more adds until there is room; delete ledgers or make room",
                extra={"folder": self._settings.ledger_dir, "free_bytes": free, "free_bytes_min": limit},
            )
        else:
            _LOGGER.warning("disk has room again: taking adds", extra={"free_bytes": free})
        self._hooks.on_read_only(is_read_only)
        self._hooks.on_room()

    # -- ledgers -------------------------------------------------------------------------------------------

    def forget_resident(self, ledger_ids: Sequence[int]) -> None:
        """Let ledgers go that the index has forgotten, unless something of them lies in the journal again."""
        self.resident.forget(ledger_ids, self._oldest_generation())

    def create(self, ledger_id: int, master_key: bytes) -> tuple[BookieLedger, bytes]:
        """Bring a ledger into being; its record must go to the journal before, or with, what brought it."""
        return self.resident.create(ledger_id, master_key), key_record(ledger_id, master_key)

    def tail_of(self, ledger: BookieLedger, generation: Generation) -> dict[int, int]:
        """Return the dictionary of places that entries of `ledger` go to now."""
        if ledger.generation != generation.sequence:
            ledger.generation = generation.sequence
            ledger.floor_entry_id = ledger.last_entry_id
            ledger.tail = generation.places_of(ledger.ledger_id)
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

    async def change_index(self, change: Callable[[], None]) -> None:
        """Change the index on the converter's worker.

        Raises:
            OSError: There is no room: nothing was changed, try again later. Any other error stops the bookie.

        """
        try:
            await self._executors.converter.submit(change)
        except (OSError, CorruptIndexError) as error:
            self._on_background_failure(error)
            raise

    # -- reads ---------------------------------------------------------------------------------------------

    def find(self, ledger_id: int, entry_id: int) -> Buffer | JournalPlace | None:
        """Look for an entry in the tail: its bytes, its place in a journal file, or None (ask the segments)."""
        for generation in reversed(self.journal.generations):
            found = generation.find(ledger_id, entry_id)
            if found is not None:
                return found
        return None

    def live_generations(self) -> list[int]:
        """Return the sequence numbers of journal files that are no segments yet."""
        return [generation.sequence for generation in self.journal.generations]

    def read_run(
        self, ledger_id: int, first_entry_id: int, *, count_max: int, byte_count_max: int, stride: int = 1
    ) -> asyncio.Future[EntryRun]:
        """Read entries, from memory, journal and segments: what a batch read answers.

        Args:
            ledger_id: The ledger.
            first_entry_id: The first entry.
            count_max: Entries at most, >= 1.
            byte_count_max: Bytes at most, four more counted for each entry; the first comes however large it is.
            stride: How far apart the entries are; 1 = they are consecutive.

        Returns:
            A future of a run, which may be shorter than what is held. Its pieces, joined, are
            (length (4, big-endian), entry)*. The future is done at once if all lies in memory.

        """
        tail = TailRun(self.find, ledger_id, first_entry_id, count_max, byte_count_max, stride)
        if tail.entry_count:
            return tail.finish(self.read_queue.read)
        run = self.read_queue.read_run(ledger_id, first_entry_id, count_max, byte_count_max, stride)
        return tail.follow(run)

    def list_entries(self, ledger_id: int) -> asyncio.Future[list[int]]:
        """Return the ids of all entries held of a ledger, ascending; what cannot be read is damage, and left out."""
        tail = {i for g in self.journal.generations for i in g.ledgers.get(ledger_id, ())}
        return self._executors.readers.submit(lambda: sorted(tail.union(self.read_queue.entry_ids(ledger_id))))

    # -- journal files become segments ---------------------------------------------------------------------

    def _on_journal_failure(self, error: BaseException) -> None:
        self._fail("the journal cannot be written: stopping; the next start replays what was synced", error)

    def _on_sealed(self, generation: Generation) -> None:
        for ledger_id in generation.ledgers:
            ledger = self.ledgers.get(ledger_id)
            if ledger is not None and ledger.generation == generation.sequence:
                ledger.tail = _NO_TAIL  # `tail_of` gives it another before anything is put in.
        self.flusher.convert(generation)

    def _on_converted(self, generation: Generation, path: str) -> None:
        self.journal.drop(generation)
        self.journal.add_free_file(generation.handle, path)
        self.resident.evict(self._oldest_generation())
        self._hooks.on_room()

    def _on_no_space(self) -> None:
        self._set_read_only(is_read_only=True)

    def _on_conversion_failure(self, error: BaseException) -> None:
        self._fail("a journal file cannot be made a segment: stopping; its entries stay in the journal", error)

    def _oldest_generation(self) -> int:
        return self.journal.generations[0].sequence if self.journal.generations else 1 << 62

    # -- damage and end ------------------------------------------------------------------------------------

    async def forget_damage(self, damage: Damage) -> None:
        """Forget a damaged block: all that it held was added again, from other bookies, and acknowledged.

        Raises:
            OSError: The index has no room for it; try again later.

        """
        await self.change_index(lambda: self.index.drop_block(damage.row))
        self.damages.forget(damage)

    def bound_limbo(self, ledger_id_max: int) -> asyncio.Future[None]:
        """Limit limbo to the ledgers that existed when the loss was found; durable when the future is done."""
        self.limbo = limbo = self.limbo.bounded(ledger_id_max)
        return self._save_limbo(limbo)

    async def leave_limbo(self, ledger_ids: Sequence[int]) -> None:
        """Answer for certain again: all that was lost is here again, and acknowledged. Durable before it is done.

        Args:
            ledger_ids: The ledgers that exist, ascending; those that the limbo concerned stay fenced here.

        """
        limbo = self.limbo.repaired(ledger_ids)
        await self._save_limbo(limbo)
        self.limbo = limbo

    def _is_fenced_by_limbo(self, ledger_id: int) -> bool:
        return self.limbo.is_fencing(ledger_id)

    def _save_limbo(self, limbo: Limbo) -> asyncio.Future[None]:
        return self._executors.converter.submit(lambda: save_limbo(self._disk, self._settings.ledger_dir, limbo))

    def _on_index_error(self, error: BaseException) -> None:
        if isinstance(error, CorruptIndexError):
            self._executors.converter.submit(self._doubt_index)
            self._fail("the index is damaged: stopping; the next start rebuilds it from the segments", error)

    def _on_background_failure(self, error: BaseException) -> None:
        """Stop, unless it is only that there is no room: what was to be changed is tried again."""
        if isinstance(error, CorruptIndexError):
            self._on_index_error(error)
        elif not (isinstance(error, OSError) and error.errno in NO_SPACE_ERRORS):
            self._fail("segments or index cannot be written: stopping; nothing that was acknowledged is lost", error)

    def fail(self, error: BaseException) -> None:
        """Stop: these disks must not be served any more."""
        self._fail("the disks cannot be served any more: stopping", error)

    def _doubt_index(self) -> None:
        write_atomically(self._disk, self._settings.ledger_dir, DOUBT_FILE_NAME, b"")

    def _fail(self, message: str, error: BaseException) -> None:
        if self.journal.failure is None:
            self.journal.failure = error
        _LOGGER.critical(message, exc_info=error)
        self._hooks.on_failure(error)

    async def close(self) -> None:
        """Sync what is pending, wait for a running conversion, release everything."""
        await self.journal.drain()
        await self.flusher.close()
        # A step of a compaction, or a look into the index, may be under way: an index that is closed looks damaged.
        _, late = await asyncio.wait(self._executors.close(), timeout=_WORKERS_S_MAX)
        if late:
            _LOGGER.warning("a disk has not answered for %g s: the index is left to the process's end", _WORKERS_S_MAX)
            return
        self.index.close()
        self.landmarks.close()


def _nothing() -> None:
    pass
