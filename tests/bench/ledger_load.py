"""Loads of the ledger through our client: what is timed, and nothing else."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ledger import ClientSettings, LedgerClient, WriteHandle
from tests.bench.cpu import cpu_s
from tests.bench.figure import percentile

__all__ = [
    "Adds",
    "forget_pages",
    "measure_adds",
    "measure_reads",
    "measure_recovery",
    "measure_tail_lag",
    "peak_mib",
    "resident_mib",
    "settle",
    "write_ledger",
]

THREE: dict[str, Any] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
_READ_RUN = 1_000
_TAIL_TICK_S = 0.001
_SETTLE_S = 0.5


class Adds(NamedTuple):
    """Rate and latency of one run of adds."""

    per_s: float
    p50_ms: float
    p99_ms: float


def payload_of(size: int) -> bytes:
    """Return bytes that do not compress, the same each time."""
    return random.Random(1).randbytes(size)


async def measure_adds(client: LedgerClient, level: int, *, warm: int, count: int, size: int) -> Adds:
    """Keep `level` adds in flight; the ledger is deleted afterwards."""
    handle = await client.create(**THREE)
    payload = payload_of(size)
    await _run_adds(handle, level, warm, payload)  # connections, caches
    began = time.perf_counter()
    latencies_s = await _run_adds(handle, level, count, payload)
    seconds = time.perf_counter() - began
    ledger_id = handle.ledger_id
    await handle.close()
    await client.delete(ledger_id)
    return Adds(count / seconds, percentile(latencies_s, 0.5) * 1000, percentile(latencies_s, 0.99) * 1000)


async def _run_adds(handle: WriteHandle, level: int, count: int, payload: bytes) -> list[float]:
    """Append until `count` are acknowledged: a wave of a tenth of the level whenever a tenth came back."""
    wave = max(1, level // 10)
    latencies_s: list[float] = []
    room = asyncio.Semaphore(level // wave)
    waves = []
    for _ in range(max(1, count // wave)):
        await room.acquire()
        began = time.perf_counter()
        acked = handle.append_many([payload] * wave)

        def on_acked(_: asyncio.Future[int], began: float = began) -> None:
            latencies_s.append(time.perf_counter() - began)
            room.release()

        acked.add_done_callback(on_acked)
        waves.append(acked)
    await asyncio.gather(*waves)
    return latencies_s


async def write_ledger(client: LedgerClient, count: int, size: int) -> int:
    """Write and close a ledger; return its id."""
    handle = await client.create(**THREE)
    await _run_adds(handle, 2_000, count, payload_of(size))
    await handle.close()
    return handle.ledger_id


async def measure_reads(client: LedgerClient, ledger_id: int) -> float:
    """Return entries/s of one sequential reader from the first entry of a closed ledger to its last."""
    reader = await client.open_no_recovery(ledger_id)
    last = reader.last_add_confirmed
    began, count = time.perf_counter(), 0
    for first in range(0, last + 1, _READ_RUN):
        count += len(await reader.read(first, min(last, first + _READ_RUN - 1)))
    assert count == last + 1
    return count / (time.perf_counter() - began)


async def measure_tail_lag(client: LedgerClient, *, per_s: int, count: int, size: int) -> list[float]:
    """Return, in ms, the times from an acknowledgement until a tailing reader of the open ledger has the entry."""
    writer = await client.create(**THREE)
    reader = await client.open_no_recovery(writer.ledger_id)
    payload = payload_of(size)
    acked_at: list[float] = []
    lags_ms: list[float] = []

    async def tail() -> None:
        async for entries in reader.tail(0):
            now = time.perf_counter()
            # An entry may be seen before its writer hears of it: no lag then.
            lags_ms.extend(max(0.0, now - acked_at[e.entry_id]) * 1000 if e.entry_id < len(acked_at) else 0.0
                           for e in entries)  # fmt: skip
            if len(lags_ms) >= count:
                return

    tailing = asyncio.get_running_loop().create_task(tail())
    began, sent = time.perf_counter(), 0
    while len(lags_ms) < count and not tailing.done():
        due = int((time.perf_counter() - began) * per_s) - sent
        if due > 0:
            wave = writer.append_many([payload] * due)
            wave.add_done_callback(lambda _, due=due: acked_at.extend([time.perf_counter()] * due))
            sent += due
        await asyncio.sleep(_TAIL_TICK_S)
    await tailing
    await writer.close()
    await client.delete(writer.ledger_id)
    return lags_ms[:count]


async def measure_recovery(metadata_uri: str, settings: ClientSettings, *, in_flight: int, size: int) -> float:
    """Return ms that it takes to open a ledger whose writer was cut off with so many entries in flight."""
    writing = await LedgerClient.connect(metadata_uri, settings=settings)
    handle = await writing.create(**THREE)
    await handle.append_many([payload_of(size)] * 10)
    lost = handle.append_many([payload_of(size)] * in_flight)
    await asyncio.sleep(0)  # they are sent
    await asyncio.sleep(0)
    await writing.close()
    lost.exception() if lost.done() else lost.cancel()
    async with await LedgerClient.connect(metadata_uri, settings=settings) as client:
        began = time.perf_counter()
        reader = await client.open(handle.ledger_id)
        elapsed = time.perf_counter() - began
        assert reader.last_add_confirmed >= 9
        await client.delete(handle.ledger_id)
    return elapsed * 1000


def settle(pids: Sequence[int], *, limit_s: float = 10.0) -> None:
    """Wait until these processes have nothing left to do of an earlier load: flushes, conversions, compaction."""
    deadline = time.monotonic() + limit_s
    used_s = sum(map(cpu_s, pids))
    while time.monotonic() < deadline:
        time.sleep(_SETTLE_S)
        used_s, before_s = sum(map(cpu_s, pids)), used_s
        if used_s - before_s <= _SETTLE_S / 10:
            return


def forget_pages(folder: Path, is_wanted: Callable[[Path], bool] = lambda _: True) -> None:
    """Ask the kernel to drop what it caches of the files below a folder; they must be synced."""
    for path in folder.rglob("*"):
        if path.is_file() and is_wanted(path):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def peak_mib(pid: int) -> float:
    """Return the highest resident memory of a process, in MiB."""
    return _status_kib(pid, "VmHWM") / 1024


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    return _status_kib(pid, "VmRSS") / 1024


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise AssertionError(f"no {name} of process {pid}")
