"""A ZooKeeper whose disk is slow: it answers pings behind writes that wait for it, and each write has its reply."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ledger.ports import SessionState
from ledger.zookeeper.session import connect

pytestmark = pytest.mark.asyncio

_SESSION_MS = 2_000
_FLUSH_S = 1.5
"""More than half of a session, and less than a session."""


class SlowServer:
    """Way to a real server, which holds back all that it says until its disk has written, in turns of some time.

    Attributes:
        address: "host:port".
        flush_s: What a write takes; 0 = the disk is well.

    """

    def __init__(self, server: str) -> None:
        self._host, _, port = server.rpartition(":")
        self._port = int(port)
        self.address = ""
        self.flush_s = 0.0
        self.connection_count = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
        await asyncio.gather(self._pass_on(reader, to_writer), self._hold_back(to_reader, writer))

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while text := await source.read(65_536):
                target.write(text)
        target.close()

    async def _hold_back(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass on in turns all that was said in one."""
        loop, held = asyncio.get_running_loop(), bytearray()

        def tell() -> None:
            target.write(bytes(held))
            held.clear()

        with contextlib.suppress(OSError):
            while text := await source.read(65_536):
                if not held:
                    loop.call_later(self.flush_s, tell)
                held += text
        target.close()


async def test_every_write_has_its_reply_and_the_server_is_not_left(zookeeper: str, unique_name: str) -> None:
    slow = SlowServer(zookeeper)
    async with slow.serving():
        store = await connect([slow.address], session_timeout_ms=_SESSION_MS)
        states: list[SessionState] = []
        store.on_session_state(states.append)
        root = f"/{unique_name}"
        await store.create(root)
        slow.flush_s = _FLUSH_S
        for number in range(4):
            await store.create(f"{root}/{number}")
        slow.flush_s = 0.0
        assert await store.children(root) == [str(number) for number in range(4)]
        assert (states, slow.connection_count) == ([], 1)
        await store.close()


async def test_a_session_has_its_own_time_to_begin_however_many_servers_there_are(
    zookeeper: str, unique_name: str
) -> None:
    slow = SlowServer(zookeeper)
    slow.flush_s = _FLUSH_S
    async with slow.serving():
        store = await connect([slow.address] * 3, session_timeout_ms=_SESSION_MS)
        slow.flush_s = 0.0
        assert slow.connection_count == 1
        await store.create(f"/{unique_name}", ephemeral=True)
        await store.close()


async def test_a_server_that_says_nothing_for_long_is_left(zookeeper: str) -> None:
    slow = SlowServer(zookeeper)
    async with slow.serving():
        store = await connect([slow.address], session_timeout_ms=_SESSION_MS)
        left = asyncio.Event()
        store.on_session_state(lambda _state: left.set())
        slow.flush_s = 3_600.0
        async with asyncio.timeout(60):
            await left.wait()  # It says nothing any more: that is more than a slow disk.
        await store.close()
