"""One bookie with a million ledgers: its adds against those of one with a single ledger, and its memory.

    python -P -m tests.bench.bench_many_ledgers [ledgers]

A bookie process of its own, fsync on, 2,000 adds of 1 KiB in flight over v2. First to one ledger of an empty bookie,
then a small entry to each of `ledgers` (default 1,000,000); then in turn to one ledger beside them, and one entry to
each of ledgers picked at random from all of them, which the bookie must fetch from its index. Three minutes at most:
what the fill has not reached by then is left out, and the figures' names say how many ledgers there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from pathlib import Path
from typing import Final

from crc32c import crc32c

from tests.bench.figure import ROUND_COUNT, print_figure, say

ALONE: Final = Path(__file__).with_name("bookie_alone.py")
_IN_FLIGHT: Final = 2000
_SLICE: Final = 500
_PAYLOAD_BYTES: Final = 1024
_SMALL_BYTES: Final = 40
_RUN_COUNT: Final = 60_000
_FILL_S_MAX: Final = 110.0
KEY: Final = b"k" * 20
_ADD: Final = 2 << 24 | 1 << 16
_STORED: Final = struct.pack(">III", 24, _ADD, 0)
_ANSWER_BYTES: Final = 28
_FIRST_ALONE: Final = 1 << 40  # ids of ledgers written alone


def frames(ids: Iterable[tuple[int, int]], payload: bytes) -> Iterator[bytes]:
    """Yield the frames of adds of this payload to (ledger, entry)."""
    prefix = struct.pack(">II", 4 + len(KEY) + 36 + len(payload), _ADD) + KEY
    pack = struct.Struct(">qqqq").pack
    for ledger_id, entry_id in ids:
        header = pack(ledger_id, entry_id, entry_id - 1, len(payload))
        yield b"".join((prefix, header, crc32c(payload, crc32c(header)).to_bytes(4, "big"), payload))


class Adder:
    """Sends frames with a bounded number in flight; every answer must say "stored"."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def add(self, source: Iterator[bytes], stop_at_s: float = float("inf")) -> tuple[int, float]:
        """Send all, or until it is that late; return how many, and adds per second."""
        started, sent, acked, rest = time.perf_counter(), 0, 0, b""
        is_over = False
        while not is_over or acked < sent:
            while not is_over and sent - acked <= _IN_FLIGHT - _SLICE:
                part = list(islice(source, _SLICE))
                is_over = len(part) < _SLICE or time.perf_counter() > stop_at_s
                self._writer.write(b"".join(part))
                sent += len(part)
            if acked == sent:
                break
            data = rest + await self._reader.read(1 << 20)
            whole = len(data) // _ANSWER_BYTES * _ANSWER_BYTES
            heads = {data[at : at + len(_STORED)] for at in range(0, whole, _ANSWER_BYTES)}
            assert heads <= {_STORED}, f"an add was refused: {heads}"
            acked, rest = acked + whole // _ANSWER_BYTES, data[whole:]
        return sent, sent / (time.perf_counter() - started)


def memory_mib(pid: int) -> tuple[float, float]:
    """Return what a process has in memory: all of it, and what is not pages of files (the index maps its file)."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = [re.search(rf"{name}:\s+(\d+) kB", status) for name in ("VmRSS", "RssAnon")]
    rss, anonymous = (0 if match is None else int(match[1]) / 1024 for match in found)
    return round(rss, 1), round(anonymous, 1)


async def measure(host: str, port: int, pid: int, ledger_count: int) -> None:
    """Run all parts against one bookie and print the figures."""
    began = time.perf_counter()
    adder = Adder(*await asyncio.open_connection(host, port, limit=4 << 20))
    payload, small = os.urandom(_PAYLOAD_BYTES), os.urandom(_SMALL_BYTES)
    alone = iter(range(_FIRST_ALONE, _FIRST_ALONE + 1000))

    async def one_ledger() -> float:
        return (await adder.add(frames(zip(repeat(next(alone)), range(_RUN_COUNT), strict=False), payload)))[1]

    await one_ledger()  # warms up
    empty = [await one_ledger() for _ in range(ROUND_COUNT)]
    empty_mib = memory_mib(pid)
    say(f"one ledger alone: {max(empty):.0f} adds/s; filling")
    filled, fill_rate = await adder.add(
        frames(zip(range(ledger_count), repeat(0), strict=False), small), began + _FILL_S_MAX
    )
    say(f"{filled} ledgers, {fill_rate:.0f}/s; {memory_mib(pid)} MiB")
    rng = random.Random(1)
    next_entry = 1
    beside, spread = [], []
    for _ in range(ROUND_COUNT):
        beside.append(await one_ledger())
        picked = rng.sample(range(filled), min(_RUN_COUNT, filled))
        spread.append((await adder.add(frames(zip(picked, repeat(next_entry), strict=False), payload)))[1])
        next_entry += 1
    await asyncio.sleep(2)  # Conversions end.
    rss, anonymous = memory_mib(pid)
    name = f"{filled}_ledgers"
    print_figure(f"adds_first_of_each_of_{name}", [fill_rate], "adds/s")
    print_figure(f"adds_one_ledger_beside_{name}_to_alone", beside, "adds/s", empty)
    print_figure(f"adds_spread_over_{name}_to_alone", spread, "adds/s", empty)
    print_figure(f"rss_of_bookie_with_{name}_to_empty", [rss], "MiB", [empty_mib[0]])
    print_figure(f"rss_without_mapped_files_with_{name}_to_empty", [anonymous], "MiB", [empty_mib[1]])


def main() -> None:
    """Start a bookie, measure it, end it."""
    ledger_count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="many-ledgers-") as folder:
        command = [sys.executable, "-P", str(ALONE), folder]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as bookie:
            assert bookie.stdout is not None
            try:
                notice = json.loads(bookie.stdout.readline())
                host, _, port = notice["address"].rpartition(":")
                asyncio.run(measure(host, int(port), bookie.pid, ledger_count))
            finally:
                bookie.terminate()


if __name__ == "__main__":
    main()
