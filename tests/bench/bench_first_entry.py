"""What a ledger's first entry costs a bookie that asks the metadata for it, beside one that takes any ledger.

    python -P -m tests.bench.bench_first_entry [ledgers]

Two parts, nine minutes at most. With a real ZooKeeper: two bookie processes, fsync on, one with `--any-ledger`; the
same new ledgers on both in turn, one first entry at a time (latency) and 64 in flight from 8 connections (rate, and
processor time of the bookie). Without one: a bookie whose metadata answer at once, a first entry to each of `ledgers`
(default 1,000,000), 2,000 in flight: what asking itself costs, in time and memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from ledger import LedgerClient
from ledger.core.metadata import DigestType
from ledger.dev import DevCluster
from ledger.wire import v2
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest
from tests.bench.bench_many_ledgers import ALONE, KEY, Adder, frames, memory_mib
from tests.bench.cpu import cpu_s
from tests.bench.figure import print_figure, say
from tests.integration.bookie_process import Bookie

_KEY: Final = master_key(b"")
_DIGEST: Final = Digest(DigestType.CRC32C, b"")
_ROUND_COUNT: Final = 3
_ONE_BY_ONE: Final = 200
_MANY: Final = 1_600
_CONNECTION_COUNT: Final = 8
_FILL_S_MAX: Final = 240.0


def _frame(ledger_id: int) -> bytes:
    body = seal(ledger_id, 0, -1, 40, bytes(40), _DIGEST)
    return v2.encode_request(AddRequest(0, ledger_id, 0, _KEY, body))


async def _first_entries(port: int, ledger_ids: list[int], in_flight: int) -> list[float]:
    """Add the first entries over one connection; return how long each took, in seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent_s: dict[int, float] = {}
    took_s: list[float] = []
    left = iter(ledger_ids)
    for _ in range(len(ledger_ids)):
        while len(sent_s) < in_flight and (ledger_id := next(left, None)) is not None:
            sent_s[ledger_id] = time.perf_counter()
            writer.write(_frame(ledger_id))
        answer = await reader.readexactly(28)
        assert answer[8:12] == bytes(4), f"a first add was refused: {answer.hex()}"
        took_s.append(time.perf_counter() - sent_s.pop(int.from_bytes(answer[12:20], "big")))
    writer.close()
    return took_s


async def _beside(bookies: dict[str, Bookie], client: LedgerClient) -> None:
    found: dict[str, dict[str, list[float]]] = {name: {"p50": [], "p99": [], "rate": [], "cpu": []} for name in bookies}
    for _ in range(_ROUND_COUNT):
        quorum: dict[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        ids: list[int] = []
        while len(ids) < _ONE_BY_ONE + _MANY:
            ids += [x.ledger_id for x in await asyncio.gather(*(client.create(**quorum) for _ in range(100)))]
        for name, bookie in bookies.items():
            took_s = sorted(await _first_entries(bookie.port, ids[:_ONE_BY_ONE], 1))
            found[name]["p50"].append(took_s[len(took_s) // 2] * 1e3)
            found[name]["p99"].append(took_s[int(0.99 * len(took_s))] * 1e3)
            many, pid = ids[_ONE_BY_ONE:], bookie.process.pid
            parts = [many[n::_CONNECTION_COUNT] for n in range(_CONNECTION_COUNT)]
            before, began = cpu_s(pid), time.perf_counter()
            await asyncio.gather(*(_first_entries(bookie.port, part, 64 // _CONNECTION_COUNT) for part in parts))
            found[name]["rate"].append(len(many) / (time.perf_counter() - began))
            found[name]["cpu"].append((cpu_s(pid) - before) / len(many) * 1e6)
    for key, unit in (("p50", "ms"), ("p99", "ms"), ("rate", "ledgers/s"), ("cpu", "us of processor")):
        print_figure(f"first_entry_{key}_asked", found["asked"][key], unit, found["any"][key])


async def _with_zookeeper(folder: Path) -> None:
    cluster = DevCluster(folder / "zookeeper", bookie_count=0)
    cluster.start()
    bookies = {
        "any": Bookie(cluster.zookeeper, folder / "any", root="/ledgers"),
        "asked": Bookie(cluster.zookeeper, folder / "asked", root="/ledgers", options=()),
    }
    try:
        for bookie in bookies.values():
            bookie.start()
        async with await LedgerClient.connect(bookies["any"].uri) as client:
            await _beside(bookies, client)
    finally:
        for bookie in bookies.values():
            bookie.kill()
        cluster.stop()


async def _many(ledger_count: int) -> None:
    """Fill a bookie of each kind with first entries, one after the other."""
    for name, more in (("any", []), ("asked", [KEY.hex()])):
        with tempfile.TemporaryDirectory(prefix="first-entry-") as folder:
            command = [sys.executable, "-P", str(ALONE), folder, "lmdb", *more]
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            try:
                assert process.stdout is not None
                ready = json.loads(process.stdout.readline())
                host, port = ready["address"].split(":")
                adder = Adder(*await asyncio.open_connection(host, int(port), limit=4 << 20))
                ids = zip(range(ledger_count), repeat(0), strict=False)
                stop_at_s, before = time.perf_counter() + _FILL_S_MAX, cpu_s(ready["pid"])
                filled, rate = await adder.add(frames(ids, os.urandom(40)), stop_at_s)
                cpu_us = (cpu_s(ready["pid"]) - before) / filled * 1e6
                print_figure(f"first_entry_of_each_of_{filled}_ledgers_{name}", [rate], "adds/s")
                print_figure(f"first_entry_of_each_of_{filled}_ledgers_{name}_cpu", [cpu_us], "us of processor")
                say(f"{name}: {memory_mib(ready['pid'])} MiB (all, and without the index's pages)")
            finally:
                process.terminate()
                process.wait(60)


def main() -> None:
    """Run both parts."""
    ledger_count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="first-entry-") as folder:
        asyncio.run(_with_zookeeper(Path(folder)))
    asyncio.run(_many(ledger_count))


if __name__ == "__main__":
    main()
