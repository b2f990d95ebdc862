"""Ledgers that the metadata do not know any more: dropped, remembered for a while, forgotten."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ledger.storage.compaction import CompactionSettings
from ledger.storage.disk import DiskExecutor
from ledger.storage.journal import JournalItem
from ledger.storage.records import deleted_record

if TYPE_CHECKING:
    # The store hands deletions on to here; they change its ledgers, journal and index: one store, in one folder.
    from ledger.storage.entry_store import EntryStore


_PAGE = 1000
_LOOK_PAGE = 10_000
_DELETION_BYTES = 128
"""Bytes that one deletion takes of the journal at most, its part of the table of contents included."""


class Deletions:
    """See the module.

    Args:
        store: The store.
        readers: Waits for the index.
        settings: How long what is deleted is remembered.
        file_bytes: Of a journal file, which bounds what one record may take.

    """

    def __init__(self, store: EntryStore, readers: DiskExecutor, settings: CompactionSettings, file_bytes: int) -> None:
        self._store = store
        self._readers = readers
        self._settings = settings
        self._page = max(1, min(_PAGE, file_bytes // (4 * _DELETION_BYTES)))

    async def delete(self, ledger_ids: Sequence[int], deleted_at_ms: int) -> list[int]:
        """Drop ledgers; they are remembered, and refuse adds.

        The deletion is journalled like anything else about a ledger, so that it outlives the index. A ledger of which
        something lies in the journal stays in memory until that is in a segment: no load that is under way can bring
        back what is deleted.

        Args:
            ledger_ids: The ledgers.
            deleted_at_ms: Wall clock.

        Returns:
            Those that were dropped; for others there was no room in the journal.

        Raises:
            OSError: The index has no room for it; it catches up by itself.

        """
        dropped: list[int] = []
        for start in range(0, len(ledger_ids), self._page):
            page = ledger_ids[start : start + self._page]
            await self._store.resident.load([i for i in page if i not in self._store.ledgers])
            ids = await self._journal(page, deleted_at_ms)
            if ids:
                await self._store.change_index(partial(self._store.index.drop_ledgers, ids, deleted_at_ms))
            dropped += ids
        return dropped

    async def _journal(self, page: Sequence[int], deleted_at_ms: int) -> list[int]:
        """Mark ledgers and journal it; return which. Privileged: on a full disk this is what makes room."""
        store = self._store
        found = [store.ledgers[i] for i in page if i in store.ledgers]
        generation = store.journal.claim(_DELETION_BYTES * len(found), is_privileged=True)
        if not found or generation is None:
            return []
        records = []
        for ledger in found:
            ledger.is_deleted = True
            store.tail_of(ledger, generation)
            records.append(deleted_record(ledger.ledger_id, deleted_at_ms))
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_durable(_item: JournalItem) -> None:
            if not durable.done():
                durable.set_result(None)

        toc = array("I", [n for record in records for n in (0, len(record))])
        store.journal.append(generation, JournalItem([b"".join(records)], toc, len(records), on_durable))
        await durable
        return [ledger.ledger_id for ledger in found]

    async def forget(self, now_ms: int) -> int:
        """Forget ledgers that were deleted long ago, or are too many, oldest first; return how many.

        Raises:
            OSError: The index has no room for it; try again later.

        """
        settings, index = self._settings, self._store.index
        before_ms = now_ms - int(settings.deleted_kept_s * 1000)
        deleted: list[tuple[int, int]] = []
        first = 0
        while page := await self._readers.submit(partial(index.deleted_ledgers, first, _LOOK_PAGE)):
            deleted += page
            first = page[-1][0] + 1
        deleted.sort(key=lambda found: found[1])
        excess = max(0, len(deleted) - settings.deleted_count_max)
        ids = [i for n, (i, at_ms) in enumerate(deleted) if at_ms < before_ms or n < excess]
        for start in range(0, len(ids), _PAGE):
            part = ids[start : start + _PAGE]
            await self._store.change_index(partial(index.forget_ledgers, part))
            self._store.forget_resident(part)
        return len(ids)
