"""Settings of a bookie's storage, its executors, and its callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from ledger.storage.compaction import CompactionSettings
from ledger.storage.disk import DiskExecutor
from ledger.storage.journal import JournalSettings


class StorageSettings(msgspec.Struct, frozen=True):
    """Shape of the storage.

    Attributes:
        journal: Of the journal.
        ledger_dir: Folder of segments and limbo state.
        more_ledger_dirs: Further folders of segments, best on devices of their own; a new segment goes where most
            room is.
        pending_bytes_max: Bytes taken and not yet synced; above it nothing ordinary is taken.
        resident_ledgers_max: Ledgers kept in memory; those with entries in a journal file stay beyond it.
        free_bytes_min: With less free space than this the bookie takes no ordinary adds.
        retry_s: Pause before a conversion that found the disk full is tried again.
        read_cache_bytes_max: Blocks of segments kept in memory after they were read.
        compaction: When segments are written again.

    """

    journal: JournalSettings
    ledger_dir: str
    more_ledger_dirs: tuple[str, ...] = ()
    pending_bytes_max: int = 32 << 20
    resident_ledgers_max: int = 20_000
    free_bytes_min: int = 512 << 20
    retry_s: float = 2.0
    read_cache_bytes_max: int = 8 << 20
    compaction: CompactionSettings = CompactionSettings()

    @property
    def ledger_dirs(self) -> tuple[str, ...]:
        """All folders of segments."""
        return (self.ledger_dir, *self.more_ledger_dirs)


class Executors(msgspec.Struct, frozen=True):
    """Executors of blocking work; journal and converter have one worker each."""

    journal: DiskExecutor
    converter: DiskExecutor
    readers: DiskExecutor

    def close(self) -> list[asyncio.Future[None]]:
        """End all workers; the futures are done when they have ended."""
        return [executor.close() for executor in (self.journal, self.converter, self.readers)]


class StoreHooks(msgspec.Struct):
    """Callbacks of the store, run on the event loop.

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
