"""Requests that are almost requests, by the ten thousand: a bookie answers, or closes the connection, and goes on."""

from __future__ import annotations

import asyncio
import logging
import random
import struct

import pytest

from ledger.testing import SimDisk, Simulation
from ledger.wire import packets as p
from ledger.wire import v2, v3
from ledger.wire.entry import seal_lac
from tests.unit.ledger.bookie.bookie_bench import DIGEST, KEY, Bench, add, fence, read


def mutate(rng: random.Random, frames: list[bytes]) -> bytes:
    """Return bytes that are almost requests."""
    data = bytearray(rng.choice(frames))
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(data))
        match rng.randrange(6):
            case 0:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                data[place] = rng.choice((0, 1, 2, 10, 127, 128, 255))
            case 2:
                del data[place : place + rng.randrange(1, 9)]
            case 3:
                data[place:place] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                size = rng.choice((4, 8))
                data[place : place + size] = rng.choice((0, 1, (1 << 8 * size - 1) - 1, (1 << 8 * size) - 1)).to_bytes(
                    size, "big"
                )
            case _:
                data += rng.choice(frames)[: rng.randrange(64)]
        if not data:
            data += b"\0"
    if len(data) >= 4 and rng.random() < 0.95:  # Mostly a whole frame, so that its inside is looked at.
        data[:4] = (len(data) - 4).to_bytes(4, "big")
    return bytes(data)


class _Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.is_lost = False
        self.received = b""
        self.answer_count = 0

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received = (self.received + data)[-64:]
        self.answer_count += 1

    def connection_lost(self, exc) -> None:
        self.is_lost = True


REQUESTS: list[p.Request] = [
    add(1, 0), add(1, 1, lac=0), add(2, 5, is_recovery=True), add(2, 5, priority=100), read(1, 0), read(1, -1),
    fence(3),
]  # fmt: skip
V3_ONLY: list[p.Request] = [
    p.ReadRequest(1, 1, -1, None, is_piggyback=True, previous_lac=0, timeout_ms=20), p.ReadLacRequest(1, 1),
    p.WriteLacRequest(1, 1, 0, KEY, seal_lac(1, 0, DIGEST)), p.ForceRequest(1, 1), p.ListRequest(1, 1),
    p.FenceCheckRequest(1, 1, KEY), p.InfoRequest(1, 3),
    p.StartTlsRequest(1), p.AuthRequest(1, "x", b"y"), add(1, 2, write_flags=1),
]  # fmt: skip
V2_ONLY: list[p.Request] = [
    p.BatchReadRequest(1, 1, 0, 5, 1000), p.BatchReadRequest(1, 1, 0, 5, 1000, KEY, is_fencing=True),
    p.AuthRequest(0, "x", b"y"),
]  # fmt: skip


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_mutated_frames_never_surprise_a_bookie(seed: int, caplog) -> None:
    """12,500 a seed over the simulated network, some cut into fragments: 50,000 in all."""
    caplog.set_level(logging.CRITICAL, "ledger.bookie.connection")
    caplog.set_level(logging.CRITICAL, "ledger.bookie.writes")
    rng = random.Random(seed)
    frames = {
        2: [v2.encode_request(x) for x in (*REQUESTS, *V2_ONLY)],
        3: [v3.encode_request(x) for x in (*REQUESTS, *V3_ONLY)],
    }

    async def run() -> None:
        bench = Bench(SimDisk(random.Random(seed)), journal={"file_bytes": 1 << 22})
        await bench.start()
        server = bench.server
        port = await server.listen("bookie", 0)
        loop = asyncio.get_running_loop()

        async def connect() -> _Client:
            return (await loop.create_connection(_Client, "bookie", port))[1]

        clients = [await connect() for _ in range(20)]
        versions = [2 + n % 2 for n in range(20)]
        answer_count = 0
        for round_number in range(625):
            for number, client in enumerate(clients):
                data = mutate(rng, frames[versions[number]])
                client.transport.write(data)
                if int.from_bytes(data[:4], "big") != len(data) - 4:
                    client.transport.close()  # The stream is out of step; nothing would be looked at any more.
            await asyncio.sleep(0.02)
            for number, client in enumerate(clients):
                answer_count += client.answer_count
                client.answer_count = 0
                if client.is_lost:
                    clients[number] = await connect()
            if round_number % 125 == 0:
                good = await connect()
                good.transport.write(v2.encode_request(add(10_000 + round_number, 0)))
                async with asyncio.timeout(60):
                    while not good.received:
                        await asyncio.sleep(0.01)
                assert good.received[:12] == struct.pack(">III", 24, 0x02010000, 0)
                good.transport.abort()
        for client in clients:
            client.transport.abort()
        await asyncio.sleep(120)
        assert answer_count > 2_000, "most of them are to be understood"
        assert len(server._connections) == 1, "the bench's own"
        assert (server.frames.held_bytes, server._handlers.polls.count) == (0, 0)
        assert server.store.journal.pending_bytes == 0
        for ledger in server.store.ledgers.values():
            ledger.validate()

    Simulation(seed).run(run())  # It fails for whatever is left to the loop.
    assert not [x for x in caplog.records if x.exc_info]
