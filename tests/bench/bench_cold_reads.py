"""Reads from segments, by a store alone: sequential ones by look-up and by run, and random ones.

    python -P tests/bench/bench_cold_reads.py [ledgers [entries]]

Writes `entries` of 1 KiB spread over `ledgers` into a fresh store, restarts it so that all lies in segments, and reads
one ledger after the other. Prints one JSON line. The kernel's cache is warm unless BENCH_DROP_CACHES=1 (needs root).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import sys
import tempfile
import time
from array import array
from pathlib import Path

from ledger.storage.disk import RealDisk, ThreadedDiskExecutor
from ledger.storage.entry_store import EntryStore
from ledger.storage.index_lmdb import LmdbIndex
from ledger.storage.journal import JournalItem, JournalSettings
from ledger.storage.read_queue import Lookup
from ledger.storage.settings import Executors, StorageSettings, StoreHooks
from ledger.storage.tail import LENGTH_BITS

BATCH = 200


async def opened(folder: str) -> EntryStore:
    hooks = StoreHooks(lambda: None, lambda: None, print, lambda _: None)
    executors = Executors(
        ThreadedDiskExecutor("j"), ThreadedDiskExecutor("c"), ThreadedDiskExecutor("r", worker_count=2)
    )
    settings = StorageSettings(JournalSettings(f"{folder}/journal"), f"{folder}/ledgers", free_bytes_min=1 << 30)
    return await EntryStore.open(
        RealDisk(),
        executors,
        settings,
        lambda *, reset: LmdbIndex(f"{folder}/index"),  # noqa: ARG005  a fresh folder
        hooks,
        nonce=lambda: secrets.randbits(32),
    )


async def write(store: EntryStore, ledgers: int, entries: int) -> None:
    payload = os.urandom(1024)
    for start in range(0, entries, BATCH):
        generation = store.claim(BATCH * 1200)
        while generation is None:
            await asyncio.sleep(0.01)
            generation = store.claim(BATCH * 1200)
        chunk, toc, at = bytearray(), array("I"), generation.virtual_bytes
        for n in range(start, min(start + BATCH, entries)):
            ledger_id, entry_id = n % ledgers, n // ledgers
            ledger = store.ledgers.get(ledger_id) or store.create(ledger_id, b"k" * 20)[0]
            body = b"".join(i.to_bytes(8, "big", signed=True) for i in (ledger_id, entry_id, entry_id - 1, 0)) + payload
            store.tail_of(ledger, generation)[entry_id] = (at + len(chunk)) << LENGTH_BITS | len(body)
            chunk += body
            toc.extend((0, len(body)))
        done = asyncio.get_running_loop().create_future()
        item = JournalItem([bytes(chunk)], toc, len(toc) // 2, lambda _, done=done: done.set_result(None))
        store.journal.append(generation, item)
        await done


async def measured(name: str, count: int, work) -> dict[str, float]:
    if os.environ.get("BENCH_DROP_CACHES"):
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    cpu, wall = time.process_time(), time.perf_counter()
    await work
    elapsed = time.perf_counter() - wall
    used = (time.process_time() - cpu) / count * 1e6
    return {f"{name}_per_s": round(count / elapsed), f"{name}_cpu_us": round(used, 2)}


async def main() -> None:
    ledgers, entries = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((1, 100), (2, 200_000)))
    each = entries // ledgers
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        store = await opened(folder)
        await write(store, ledgers, each * ledgers)
        await store.close()
        store = await opened(folder)
        chosen = list(range(ledgers))[: max(1, 50_000 // each)]
        count = len(chosen) * each

        async def by_look_up() -> None:
            for ledger_id in chosen:
                for first in range(0, each, BATCH):
                    ids = range(first, min(each, first + BATCH))
                    for entry in await store.read_queue.read([Lookup(ledger_id, n) for n in ids]):
                        assert isinstance(entry, bytes)

        async def by_run() -> None:
            for ledger_id in chosen:
                first = 0
                while first < each:
                    run = await store.read_run(ledger_id, first, count_max=5000, byte_count_max=1 << 20)
                    assert run.entry_count
                    first += run.entry_count

        async def at_random() -> None:
            rng = random.Random(1)
            for _ in range(2000 // 50):
                asked = [Lookup(rng.randrange(ledgers), rng.randrange(each)) for _ in range(50)]
                assert all(isinstance(entry, bytes) for entry in await store.read_queue.read(asked))

        figures = await measured("look_up", count, by_look_up())
        figures |= await measured("run", count, by_run())
        figures |= await measured("random", 2000, at_random())
        await store.close()
    shape = {"bench": "cold_reads", "ledgers": ledgers, "entries": each * ledgers, "read": count}
    print(json.dumps(shape | figures | {"load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
