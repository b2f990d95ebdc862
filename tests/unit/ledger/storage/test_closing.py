"""A store that is closed while its index is being asked, with threads and the index in LMDB."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from ledger.storage import entry_store
from ledger.storage.disk import RealDisk, ThreadedDiskExecutor
from ledger.storage.entry_store import EntryStore
from ledger.storage.index_lmdb import LmdbIndex
from ledger.storage.journal import JournalSettings
from ledger.storage.recovery import DOUBT_FILE_NAME
from ledger.storage.settings import Executors, StorageSettings, StoreHooks


class _Store:
    """A store whose first look at a ledger in the index takes until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failures: list[BaseException] = []
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()

    async def open(self) -> EntryStore:
        executors = Executors(
            ThreadedDiskExecutor("j"), ThreadedDiskExecutor("c"), ThreadedDiskExecutor("r", worker_count=2)
        )
        journal = JournalSettings(f"{self.folder}/j", file_bytes=1 << 16)
        settings = StorageSettings(journal, f"{self.folder}/l", free_bytes_min=0)
        (self.folder / "index").mkdir()
        hooks = StoreHooks(lambda: None, lambda: None, self.failures.append, lambda **_: None)
        disk = RealDisk(fsync=False)
        store = await EntryStore.open(disk, executors, settings, self._open_index, hooks, nonce=lambda: 1)
        ledger = store.index.ledger

        def slowly(ledger_id: int):
            self.is_asked.set()
            assert self.may_go_on.wait(60)
            return ledger(ledger_id)

        store.index.ledger = slowly
        return store

    def _open_index(self, *, reset: bool) -> LmdbIndex:
        del reset
        return LmdbIndex(f"{self.folder}/index", fsync=False)

    @property
    def is_index_doubted(self) -> bool:
        return (self.folder / "l" / DOUBT_FILE_NAME).exists()


def test_looks_that_are_under_way_end_before_the_index_is_closed(tmp_path: Path) -> None:
    async def run() -> None:
        bench = _Store(tmp_path)
        store = await bench.open()
        loads = [store.resident.load([ledger_id]) for ledger_id in range(100)]
        closing = asyncio.get_running_loop().create_task(store.close())
        await asyncio.sleep(0.05)  # The close has come as far as it can.
        assert bench.is_asked.is_set()
        assert not closing.done()
        bench.may_go_on.set()
        await closing
        assert [load.exception() for load in loads] == [None] * 100
        assert not store.resident.load([1]).done()  # Nothing is asked any more.
        await asyncio.sleep(0.05)
        assert not bench.failures
        assert not bench.is_index_doubted

    asyncio.run(run())


def test_a_disk_that_hangs_does_not_keep_a_bookie_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(entry_store, "_WORKERS_S_MAX", 0.1)

    async def run() -> None:
        bench = _Store(tmp_path)
        store = await bench.open()
        load = store.resident.load([1])
        await store.close()
        assert "the index is left to the process's end" in caplog.text
        bench.may_go_on.set()
        await load  # It finds an index that is open still.
        assert not bench.failures
        assert not bench.is_index_doubted
        store.index.close()

    asyncio.run(run())
