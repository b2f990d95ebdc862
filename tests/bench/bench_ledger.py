"""`make bench-ledger`: adds, tail lag and cached reads on three bookies (3/3/2, 1 KiB, fsync before every answer).

Client, three bookies and ZooKeeper share this machine's cores. With RSM_BOOKKEEPER_PEER naming a script that starts
Apache BookKeeper and runs its Java client (`start 3`, `java Bk bench …`, `stop`), each round measures it as well, in
turn with ours.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from ledger import LedgerClient, WriteHandle
from ledger.dev.cluster import DevCluster
from tests.bench.figure import ROUND_COUNT, percentile, print_figure, say

PAYLOAD = os.urandom(1024)
LEVELS = {1: 1_500, 100: 30_000, 2_000: 100_000}
READ_COUNT = 50_000
TAIL_COUNT = 300


async def main() -> None:
    """Measure everything and print a line per figure."""
    peer = os.environ.get("RSM_BOOKKEEPER_PEER")
    rates: dict[int, list[float]] = {level: [] for level in LEVELS}
    peer_rates: dict[int, list[float]] = {level: [] for level in LEVELS}
    p50_ms, lag_p99_ms, reads = [], [], []
    if peer:
        subprocess.run([peer, "start", "3"], check=True, stdout=subprocess.DEVNULL)
    try:
        with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder)) as cluster:
            client = await LedgerClient.connect(cluster.metadata_uri)
            for number in range(ROUND_COUNT):
                say(f"ledger: round {number + 1} of {ROUND_COUNT}")
                for level, count in LEVELS.items():
                    rate, p50 = await measure_adds(client, level, count)
                    rates[level].append(rate)
                    if level == 1:
                        p50_ms.append(p50)
                lag_p99_ms.append(await measure_tail_lag(client))
                reads.append(await measure_reads(client))
                if peer:
                    for level, rate in java_rates(peer).items():
                        peer_rates[level].append(rate)
            await client.close()
    finally:
        if peer:
            subprocess.run([peer, "stop"], check=False, stdout=subprocess.DEVNULL)
    for level, values in rates.items():
        print_figure(f"adds_v3_{level}", values, "adds/s", peer_rates[level])
    print_figure("add_p50_1", p50_ms, "ms")
    print_figure("tail_lag_p99_ms", lag_p99_ms, "ms")
    print_figure("reads_cached", reads, "entries/s")


async def measure_adds(client: LedgerClient, level: int, count: int) -> tuple[float, float]:
    """Return adds/s with `level` in flight, and the median latency in ms of a wave of them."""
    handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await run_adds(handle, level, min(count, 5 * level))  # connections, caches
    began = time.perf_counter()
    latencies_s = await run_adds(handle, level, count)
    seconds = time.perf_counter() - began
    ledger_id = handle.ledger_id
    await handle.close()
    await client.delete(ledger_id)
    return count / seconds, percentile(latencies_s, 0.5) * 1000


async def run_adds(handle: WriteHandle, level: int, count: int) -> list[float]:
    """Keep `level` adds in flight until `count` are acknowledged: a wave of a tenth whenever a tenth came back."""
    wave = max(1, level // 10)
    loop, latencies_s = asyncio.get_running_loop(), []
    room = asyncio.Semaphore(level // wave)
    waves = []
    for _ in range(max(1, count // wave)):
        await room.acquire()
        began = loop.time()
        acked = handle.append_many([PAYLOAD] * wave)

        def on_acked(_: asyncio.Future[int], began: float = began) -> None:
            latencies_s.append(loop.time() - began)
            room.release()

        acked.add_done_callback(on_acked)
        waves.append(acked)
    await asyncio.gather(*waves)
    return latencies_s


async def measure_tail_lag(client: LedgerClient) -> float:
    """Return the 99th percentile, in ms, of acknowledgement -> a tailing reader of the open ledger has the entry."""
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    reader = await client.open_no_recovery(writer.ledger_id)
    acked_at: dict[int, float] = {}
    lags_ms: list[float] = []

    async def tail() -> None:
        async for entries in reader.tail(0):
            now = time.perf_counter()
            lags_ms.extend((now - acked_at[entry.entry_id]) * 1000 for entry in entries)
            if len(lags_ms) >= TAIL_COUNT:
                return

    tailing = asyncio.get_running_loop().create_task(tail())
    for _ in range(TAIL_COUNT):
        entry_id = await writer.append(PAYLOAD)
        acked_at[entry_id] = time.perf_counter()
        await writer.write_lac()
    await tailing
    await writer.close()
    return percentile(lags_ms, 0.99)


async def measure_reads(client: LedgerClient) -> float:
    """Return entries/s of one sequential reader of entries that the bookies have just written."""
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await run_adds(writer, 2_000, READ_COUNT)
    last = await writer.close()
    reader = await client.open_no_recovery(writer.ledger_id)
    began, count = time.perf_counter(), 0
    for first in range(0, last + 1, 1_000):
        count += len(await reader.read(first, min(last, first + 999)))
    return count / (time.perf_counter() - began)


def java_rates(peer: str) -> dict[int, float]:
    """Run the Java client on the Java bookies once; return adds/s by level."""
    levels = ",".join(str(level) for level in LEVELS)
    command = [peer, "java", "Bk", "bench", f"levels={levels}", "e=3", "wq=3", "aq=2"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rates = [float(rate) for rate in re.findall(r"rate=([0-9.]+)", text)]
    return dict(zip(LEVELS, rates, strict=True))


if __name__ == "__main__":
    asyncio.run(main())
