"""A bookie that listens at a real port of this machine, and clients that may send anything."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

from ledger.testing import SimDisk
from ledger.wire import packets as p
from ledger.wire import v2, v3
from tests.unit.ledger.bookie.bookie_bench import OK, Bench, add, read


class Talk:
    """One real connection of a client that sends bytes of its own."""

    def __init__(self, reader, writer, codec=v3) -> None:
        self.reader, self.writer, self.codec = reader, writer, codec

    async def receive(self) -> Any:
        """Return the next answer, or None if the bookie has closed the connection."""
        async with asyncio.timeout(60):
            try:
                length = int.from_bytes(await self.reader.readexactly(4), "big")
                return self.codec.decode_response(await self.reader.readexactly(length))
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def ask(self, request: p.Request) -> Any:
        self.writer.write(self.codec.encode_request(request))
        return await self.receive()

    async def say(self, data: bytes) -> Any:
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()
        return await self.receive()


class Port:
    """A bookie that listens at a real port."""

    def __init__(self, bench: Bench, port: int) -> None:
        self.bench, self.port = bench, port
        self._ledger_id = 1_000_000

    async def talk(self, codec=v3) -> Talk:
        return Talk(*await asyncio.open_connection("127.0.0.1", self.port), codec)

    async def check(self) -> None:
        """Add and read on new connections of both protocols."""
        for codec in (v3, v2):
            self._ledger_id += 1
            talk = await self.talk(codec)
            assert (await talk.ask(add(self._ledger_id, 0))).status == OK
            assert bytes((await talk.ask(read(self._ledger_id, 0))).body) == add(self._ledger_id, 0).body
            talk.writer.close()


@contextlib.asynccontextmanager
async def serving(*, file_bytes: int = 1 << 18) -> AsyncIterator[Port]:
    bench = Bench(SimDisk(random.Random(1)), journal={"file_bytes": file_bytes})
    await bench.start()
    port = Port(bench, await bench.server.listen("127.0.0.1", 0))
    yield port
    assert bench.server.frames.held_bytes <= sum(x._inbox.kept_bytes for x in bench.server._connections)
    await bench.server.close()
