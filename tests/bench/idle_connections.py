"""What idle connections cost a running bookie: bytes of its memory per connection.

    python -P tests/bench/idle_connections.py 127.0.0.1:3181 PID [connections]

Each connection adds one entry of 100 bytes, and stays. Prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from ledger.core.metadata import DigestType
from ledger.open_files import allow_files
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest
from ledger.wire.v2 import encode_request


def memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def main() -> None:
    address, pid = sys.argv[1], int(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000
    count = allow_files(count)
    host, _, port = address.rpartition(":")
    ledger_id = int(time.time()) * 20_000 & 0x7FFFFFFF
    digest, key = Digest(DigestType.CRC32C, b""), master_key(b"")
    frames = [
        encode_request(AddRequest(0, ledger_id, n, key, seal(ledger_id, n, n - 1, 0, bytes(100), digest)))
        for n in range(count)
    ]
    before_kib, started = memory_kib(pid), time.perf_counter()
    open_ones = []
    for n in range(count):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(frames[n])
        await reader.readexactly(28)
        open_ones.append((reader, writer))
    await asyncio.sleep(1.0)
    used_kib = memory_kib(pid) - before_kib
    figures = {"connections": count, "mib": round(used_kib / 1024, 1), "kib_each": round(used_kib / count, 2)}
    print(json.dumps({"bench": "idle_connections", **figures, "s": round(time.perf_counter() - started, 1),
                      "load": os.getloadavg()[0]}))  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
