"""An `EntryStore` on a simulated disk, process after process, without any server."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Callable
from typing import Any

from ledger.storage.entry_store import EntryStore
from ledger.storage.index_memory import MemoryIndex
from ledger.storage.journal import JournalItem, JournalSettings
from ledger.storage.read_queue import Lookup
from ledger.storage.settings import Executors, StorageSettings, StoreHooks
from ledger.storage.tail import LENGTH_BITS, JournalPlace
from ledger.testing import SimDisk
from ledger.testing.disk import SimPowerCut

KEY = b"k" * 20


class LoopExecutor:
    """Runs work on the event loop, a turn later; a power cut in it ends the process for good."""

    def __init__(self, bench: StoreBench) -> None:
        self._bench = bench
        self._process_number = bench.process_number

    def submit(self, fn: Callable[[], object]) -> asyncio.Future:
        loop = asyncio.get_running_loop()
        future: asyncio.Future = loop.create_future()
        loop.call_soon(self._run, fn, future)
        return future

    def _run(self, fn: Callable[[], object], future: asyncio.Future) -> None:
        bench = self._bench
        if bench.is_cut or bench.process_number != self._process_number:
            return
        try:
            result = fn()
        except SimPowerCut:
            bench.is_cut = True
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    def close(self) -> asyncio.Future[None]:
        return self.submit(lambda: None)


def entry(ledger_id: int, entry_id: int, size: int = 40) -> bytes:
    head = b"".join(n.to_bytes(8, "big", signed=True) for n in (ledger_id, entry_id, entry_id - 1, 0))
    return head + bytes([(ledger_id * 31 + entry_id) % 251]) * size


class StoreBench:
    """One process after the other on one disk.

    Args:
        disk: The disk.
        keep_index: The index outlives a process, as one on disk does: each change of it is durable at once.

    """

    store: EntryStore

    def __init__(self, disk: SimDisk | None = None, *, keep_index: bool = True, **settings) -> None:
        self.disk = disk or SimDisk(random.Random(1))
        self.is_cut = False
        self.process_number = 0
        self.failures: list[BaseException] = []
        self.read_only: list[bool] = []
        shape = {"file_bytes": 1 << 16, "idle_mark_s": 0.001} | settings.pop("journal", {})
        journal = JournalSettings("/b/journal", **shape)
        self.settings = StorageSettings(journal, "/b/ledgers", **{"free_bytes_min": 0, "retry_s": 0.001} | settings)
        self._index: MemoryIndex | None = None
        self._keep_index = keep_index
        self._nonces = random.Random(7)

    def _open_index(self, *, reset: bool) -> MemoryIndex:
        if self._index is None or reset or not self._keep_index:
            self._index = MemoryIndex()
        return self._index

    async def open(self) -> EntryStore | None:
        """Start a process; None if the power was cut while it replayed."""
        self.is_cut = False
        self.process_number += 1
        executor = LoopExecutor(self)
        hooks = StoreHooks(lambda: None, lambda: None, self.failures.append, self.read_only.append)
        opened = await self.run(
            EntryStore.open(
                self.disk,
                Executors(executor, executor, executor),
                self.settings,
                self._open_index,
                hooks,
                nonce=lambda: self._nonces.getrandbits(32),
            )
        )
        if opened is not None:
            self.store = opened
        return opened

    async def run(self, work):
        """Run a coroutine; None if the power is cut meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        for _ in range(50_000):
            if task.done():
                return task.result()
            if self.is_cut:
                task.cancel()
                return None
            await asyncio.sleep(0)
        raise AssertionError("nothing comes any more")

    async def add(self, *places: tuple[int, int], size: int = 40) -> None:
        """Add entries; return when all are durable."""
        durable: list[asyncio.Future] = []
        for ledger_id, entry_id in places:
            await self._load(ledger_id)
            body = entry(ledger_id, entry_id, size)
            generation = self.store.claim(len(body) + 256)
            assert generation is not None
            chunks = [body]
            ledger = self.store.ledgers.get(ledger_id)
            if ledger is None:
                ledger, record = self.store.create(ledger_id, KEY)
                chunks.append(record)
            self.store.tail_of(ledger, generation)[entry_id] = generation.virtual_bytes << LENGTH_BITS | len(body)
            done = asyncio.get_running_loop().create_future()
            durable.append(done)
            toc = array("I", [n for chunk in chunks for n in (0, len(chunk))])
            item = JournalItem(
                list(chunks), toc, len(chunks), lambda _, done=done: done.done() or done.set_result(None)
            )
            self.store.journal.append(generation, item)
            ledger.take_add(entry_id, entry_id - 1)
        for done in durable:
            await done

    async def _load(self, ledger_id: int) -> None:
        if ledger_id not in self.store.ledgers and not self.store.resident.is_known_absent(ledger_id):
            await self.store.resident.load([ledger_id])

    async def read(self, ledger_id: int, entry_id: int) -> bytes | Exception | None:
        found: Any = self.store.find(ledger_id, entry_id)
        if found is None or isinstance(found, JournalPlace):
            (found,) = await self.store.read_queue.read([Lookup(ledger_id, entry_id, found)])
        return found if found is None or isinstance(found, Exception) else bytes(found)

    def segment_files(self) -> list[str]:
        return [name for name in self.disk.files() if name.endswith(".seg")]
