"""Adds to one running bookie over one connection: adds/s and CPU of the bookie's process per entry.

    python -P tests/bench/bookie_adds.py 127.0.0.1:3181 PID [entries [in_flight [ledgers [payload_bytes [v2|v3]]]]]

Prints one JSON line. Frames are encoded beforehand, so that the client is not what is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from ledger.core.metadata import DigestType
from ledger.wire import v2, v3
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client(asyncio.Protocol):
    def __init__(self, frames: list[bytes], in_flight: int, stored: bytes) -> None:
        self.frames, self.in_flight, self.stored = frames, in_flight, stored
        self.sent = self.received_bytes = self.acked = 0
        self.rest = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(64 << 20)
        self.pump()

    def pump(self) -> None:
        end = min(len(self.frames), self.acked + self.in_flight)
        if end > self.sent:
            self.transport.write(b"".join(self.frames[self.sent : end]))
            self.sent = end

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        position = 0
        while len(data) - position >= 4:
            length = int.from_bytes(data[position : position + 4], "big")
            if position + 4 + length > len(data):
                break
            assert self.stored in data[position : position + 4 + length]
            position += 4 + length
            self.acked += 1
        self.rest = data[position:]
        if self.acked == len(self.frames):
            self.done.set_result(None)
        else:
            self.pump()


async def main() -> None:
    address, pid = sys.argv[1], int(sys.argv[2])
    count, in_flight, ledgers, size = (
        int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((3, 200_000), (4, 2000), (5, 1), (6, 1024))
    )
    protocol = sys.argv[7] if len(sys.argv) > 7 else "v3"
    encode_request, stored = (
        (v2.encode_request, b"\x02\x01\0\0\0\0\0\0") if protocol == "v2" else (v3.encode_request, b"\x10\x00\xaa\x06")
    )
    host, _, port = address.rpartition(":")
    digest, key, payload = Digest(DigestType.CRC32C, b""), master_key(b""), os.urandom(size)
    base = int(time.time()) * 20_000 & 0x7FFFFFFF  # no ledger of a run before
    frames = [
        encode_request(
            AddRequest(n, base + n % ledgers, n // ledgers, key,
                       seal(base + n % ledgers, n // ledgers, n // ledgers - 1, size, payload, digest))
        )
        for n in range(count)
    ]  # fmt: skip
    loop = asyncio.get_running_loop()
    before, started = cpu_s(pid), time.perf_counter()
    _, client = await loop.create_connection(lambda: Client(frames, in_flight, stored), host, int(port))
    await client.done
    elapsed = time.perf_counter() - started
    await asyncio.sleep(1.0)  # Conversions that still run belong to the entries.
    used = cpu_s(pid) - before
    figures: dict[str, float] = {"in_flight": in_flight, "ledgers": ledgers, "payload_bytes": size, "entries": count}
    figures |= {"adds_per_s": round(count / elapsed), "bookie_cpu_us_per_entry": round(used / count * 1e6, 2)}
    print(json.dumps({"bench": f"bookie_adds_{protocol}", **figures, "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
