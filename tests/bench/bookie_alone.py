"""One bookie's server in a process of its own, without metadata: storage and protocol alone, to be measured.

    python -P tests/bench/bookie_alone.py DIRECTORY [lmdb|sqlite]

Prints one JSON line with its address and process id, and how long the start took, when it serves; ends with SIGTERM.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import secrets
import shutil
import signal
import sys
import time

from ledger.bookie.server import BookieServer
from ledger.store.disk import RealDisk, ThreadExecutor
from ledger.store.entry_store import Executors, StoreSettings
from ledger.store.index import Index
from ledger.store.journal import JournalSettings


async def main() -> None:
    folder, kind = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "lmdb"
    made = getattr(importlib.import_module(f"ledger.store.index_{kind}"), f"{kind.capitalize()}Index")

    def open_index(*, reset: bool) -> Index:
        if reset:
            shutil.rmtree(f"{folder}/index", ignore_errors=True)
        index: Index = made(f"{folder}/index")
        return index

    started = time.perf_counter()
    server = await BookieServer.open(
        RealDisk(),
        Executors(ThreadExecutor("journal"), ThreadExecutor("converter"), ThreadExecutor("reader", worker_count=2)),
        StoreSettings(JournalSettings(f"{folder}/journal"), f"{folder}/ledgers", free_bytes_min=1 << 30),
        open_index,
        nonce=lambda: secrets.randbits(32),
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
