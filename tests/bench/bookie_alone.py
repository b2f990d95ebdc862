"""One bookie's server in a process of its own, without metadata: storage and protocol alone, to be measured.

    python -P tests/bench/bookie_alone.py DIRECTORY [KEY]

With KEY (hex), each new ledger is asked for as if metadata held it with that key, and were in this very process.

Prints one JSON line with its address and process id, and how long the start took, when it serves; ends with SIGTERM.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
import shutil
import signal
import sys
import time

from ledger.bookie.server import BookieServer
from ledger.storage.disk import RealDisk, ThreadedDiskExecutor
from ledger.storage.index import Index
from ledger.storage.index_lmdb import LmdbIndex
from ledger.storage.journal import JournalSettings
from ledger.storage.settings import Executors, StorageSettings


async def main() -> None:
    folder = sys.argv[1]

    def open_index(*, reset: bool) -> Index:
        if reset:
            shutil.rmtree(f"{folder}/index", ignore_errors=True)
        return LmdbIndex(f"{folder}/index")

    find_key = None
    if len(sys.argv) > 2:
        key = bytes.fromhex(sys.argv[2])

        async def find_key(_ledger_id: int) -> bytes | None:
            return key

    started = time.perf_counter()
    server = await BookieServer.open(
        RealDisk(),
        Executors(
            ThreadedDiskExecutor("journal"),
            ThreadedDiskExecutor("converter"),
            ThreadedDiskExecutor("reader", worker_count=2),
        ),
        StorageSettings(JournalSettings(f"{folder}/journal"), f"{folder}/ledgers", free_bytes_min=1 << 30),
        open_index,
        nonce=lambda: secrets.randbits(32),
        find_key=find_key,
    )
    port = await server.listen("127.0.0.1", 0)
    gc.collect()
    gc.freeze()
    boot_s = round(time.perf_counter() - started, 3)
    replayed = server.store.replayed_entry_count
    print(json.dumps({"address": f"127.0.0.1:{port}", "pid": os.getpid(), "boot_s": boot_s, "replayed": replayed}))
    sys.stdout.flush()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await server.close()


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
