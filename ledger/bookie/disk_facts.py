"""Facts about a bookie's disks for those who watch it: seldom looked up, and never waited for long."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from ledger.storage.disk import DiskExecutor, RealDisk
from ledger.storage.entry_store import EntryStore

_LOGGER = logging.getLogger(__name__)
_AGE_S_MAX: Final = 5.0
_LEDGERS_AGE_S_MAX: Final = 60.0
_WAIT_S_MAX: Final = 1.0
_PAGE: Final = 10_000


class FolderFacts(msgspec.Struct, frozen=True):
    """Room of the disk of one folder, in bytes."""

    folder: str
    total_bytes: int
    free_bytes: int


class DiskFacts(msgspec.Struct, frozen=True):
    """Facts about the disks of one bookie.

    Attributes:
        journal: Of the journal's folder.
        ledgers: Of the folders of segments; the first holds the index too.
        segment_count: Segments.
        segment_bytes: Their bytes.
        live_bytes: Of these, the bytes that are still needed.
        ledger_count: Ledgers of which something lies here.

    """

    journal: FolderFacts
    ledgers: tuple[FolderFacts, ...]
    segment_count: int
    segment_bytes: int
    live_bytes: int
    ledger_count: int


class DiskFactsKeeper:
    """Keeps what was found last; a disk that stands still leaves it as it was.

    Args:
        store: The storage.
        readers: Waits for disks.
        journal_folder: Where the journal lies.
        ledger_folders: Where segments lie.

    """

    def __init__(
        self, store: EntryStore, readers: DiskExecutor, journal_folder: str, ledger_folders: tuple[str, ...]
    ) -> None:
        self._store = store
        self._readers = readers
        self._journal_folder = journal_folder
        self._ledger_folders = ledger_folders
        self._disk = RealDisk()
        self._last: DiskFacts | None = None
        self._looked_s = float("-inf")
        self._ledgers_s = float("-inf")
        self._ledger_count = 0
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> DiskFacts | None:
        """Return facts that are some seconds old, or older if a disk does not answer; None = it never did."""
        now_s = asyncio.get_running_loop().time()
        if self._looking is None and now_s - self._looked_s >= _AGE_S_MAX:
            self._looking = asyncio.create_task(self._look(now_s))
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=_WAIT_S_MAX)
        return self._last

    async def _look(self, now_s: float) -> None:
        try:
            if now_s - self._ledgers_s >= _LEDGERS_AGE_S_MAX:
                self._ledger_count = await self._count_ledgers()
                self._ledgers_s = now_s
            count = self._ledger_count
            self._last = await self._readers.submit(lambda: self._read(count))
        except Exception as error:  # noqa: BLE001 - whoever reads or adds hears of it too, and the store acts on it
            _LOGGER.warning("the facts about the disks cannot be told: %s", error)
        finally:
            self._looked_s = asyncio.get_running_loop().time()
            self._looking = None

    async def _count_ledgers(self) -> int:
        index = self._store.index
        count = first = 0
        while page := await self._readers.submit(lambda first=first: index.ledger_ids(first, _PAGE)):  # type: ignore[misc]
            count += len(page)
            first = page[-1] + 1
        # The index has no row yet of those that lie in the journal alone.
        fresh = {ledger_id for generation in self._store.journal.generations for ledger_id in generation.ledgers}
        return count + await self._readers.submit(lambda: sum(index.ledger(one) is None for one in fresh))

    def _read(self, ledger_count: int) -> DiskFacts:
        rows = [row for row in self._store.index.segments() if not row.is_retired]
        return DiskFacts(
            self._folder(self._journal_folder),
            tuple(map(self._folder, self._ledger_folders)),
            len(rows),
            sum(row.byte_count for row in rows),
            sum(row.live_byte_count for row in rows),
            ledger_count,
        )

    def _folder(self, folder: str) -> FolderFacts:
        return FolderFacts(folder, self._disk.total_bytes(folder), self._disk.free_bytes(folder))
