"""Streams of the small HTTP server: real sockets, pieces made for the case."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ledger.http import probe_streams
from ledger.http.probe_server import ProbeServer
from ledger.http.probe_streams import OWN_STREAMS_MAX
from ledger.http.routes import ProbePage, ProbeRequest, ProbeRoute, ProbeStream
from ledger.rights.callers import Callers
from ledger.rights.table import Right

pytestmark = pytest.mark.asyncio
HOST = b"Host: localhost\r\n"


class Source:
    """Streams of as many pieces as are asked for; how many were made, and how many streams were closed."""

    def __init__(self, piece: bytes = b"x" * 65_536) -> None:
        self.piece = piece
        self.made = 0
        self.closed = asyncio.Semaphore(0)

    async def pieces(self, count: int) -> AsyncGenerator[bytes, None]:
        try:
            for _ in range(count):
                self.made += 1
                yield self.piece
                await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            self.closed.release()

    async def answer(self, asked: ProbeRequest) -> ProbeStream:
        return ProbeStream(self.pieces(int(asked.query["count"])), "text/plain")

    def server(self, callers: Callers | None = None) -> ProbeServer:
        routes = {
            "GET /stream": ProbeRoute(self.answer, Right.STATE_READ, is_stream=True),
            "GET /page": ProbeRoute(lambda _: ProbePage(200, b"here\n"), Right.STATUS),
        }
        return ProbeServer(routes, callers=callers)


async def ask(server: ProbeServer, path: bytes, more: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = server.address.rpartition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)  # noqa: FBT003
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4_096)
    writer.write(b"GET " + path + b" HTTP/1.1\r\n" + HOST + more + b"\r\n")
    return reader, writer


async def closed(source: Source) -> None:
    async with asyncio.timeout(60):
        await source.closed.acquire()


async def test_pieces_come_in_order_and_the_stream_ends_when_its_reader_leaves() -> None:
    source = Source(b"piece\n")
    server = source.server()
    await server.start()
    try:
        reader, writer = await ask(server, b"/stream?count=3")
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Transfer-Encoding: chunked" in head
            assert await reader.readexactly(3 * 11) == b"6\r\npiece\n\r\n" * 3
        writer.close()
        await closed(source)
        async with asyncio.timeout(60):
            while server.streams.open_count:
                await asyncio.sleep(0)
    finally:
        await server.stop()


async def test_a_reader_that_takes_nothing_has_few_pieces_made_for_it_and_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe_streams, "_WRITE_S_MAX", 0.3)
    source = Source()
    server = source.server()
    await server.start()
    try:
        _reader, writer = await ask(server, b"/stream?count=100000")
        await closed(source)
        assert source.made < 64
        assert server.streams.cut_count == 1
        writer.close()
    finally:
        await server.stop()


async def test_who_holds_most_is_cut_where_all_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_streams, "HELD_BYTES_MAX", 12_000_000)
    source = Source(b"x" * 5_000_000)
    server = source.server()
    await server.start()
    try:
        held = [await ask(server, b"/stream?count=1") for _ in range(2)]
        async with asyncio.timeout(60):
            for reader, _ in held:
                await reader.readuntil(b"\r\n\r\n")
        source.piece = b"x" * 8_000_000
        large, writer = await ask(server, b"/stream?count=1")
        await closed(source)  # Its own: the others hold less.
        assert server.streams.cut_count == 1
        async with asyncio.timeout(60):
            for reader, _ in held:
                assert len(await reader.readexactly(5_000_000)) == 5_000_000
        assert large is not held[0][0]
        for one in (*[writer for _, writer in held], writer):
            one.close()
    finally:
        await server.stop()


async def test_one_caller_has_some_streams_and_pages_are_answered_beside() -> None:
    source = Source(b"x")
    server = source.server()
    await server.start()
    try:
        held = [await ask(server, b"/stream?count=1") for _ in range(OWN_STREAMS_MAX)]
        async with asyncio.timeout(60):
            for reader, _ in held:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            reader, writer = await ask(server, b"/stream?count=1")
            assert (await reader.read()).startswith(b"HTTP/1.1 429")
            held.append((reader, writer))
            strangers = [await ask(server, b"/page", b"X: ") for _ in range(100)]
            reader, writer = await ask(server, b"/page")
            assert (await reader.read()).endswith(b"here\n")
            held += [*strangers, (reader, writer)]
        # Strangers are cut, never a stream.
        assert server.streams.open_count == OWN_STREAMS_MAX
        for _, one in held:
            one.close()
        for _ in range(OWN_STREAMS_MAX):
            await closed(source)
    finally:
        await server.stop()


async def test_a_stream_ends_with_its_callers_right_and_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "principals.toml"

    def write(access: str) -> None:
        digest = hashlib.sha256(b"token-of-somebody").hexdigest()
        path.write_text(
            f'[[principal]]\nname = "ann"\nrole = "client"\naccess = "{access}"\nledgers = "read"\n'
            f'tokens = ["{digest}"]\n'
        )
        path.chmod(0o600)

    write("read")
    source = Source(b"x")
    server = source.server(Callers(str(path)))
    await server.start()
    try:
        token = b"Authorization: Bearer token-of-somebody\r\n"
        reader, writer = await ask(server, b"/stream?count=1", token)
        async with asyncio.timeout(60):
            await reader.readuntil(b"\r\n\r\n")
            write("none")
            assert (await reader.read()).endswith(b"0\r\n\r\n")
            writer.close()
            reader, writer = await ask(server, b"/stream?count=1", token)
            assert (await reader.read()).startswith(b"HTTP/1.1 403")
            writer.close()
            write("write")
            reader, writer = await ask(server, b"/stream?count=1", token)
            while not (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200"):
                writer.close()
                await asyncio.sleep(0.1)  # The file is read again once a second.
                reader, writer = await ask(server, b"/stream?count=1", token)
            await server.stop()
            assert (await reader.read()).endswith(b"0\r\n\r\n")
            writer.close()
    finally:
        await server.stop()
    await closed(source)


async def test_a_page_of_another_origin_and_a_head_request_get_no_stream() -> None:
    source = Source(b"x")
    server = source.server()
    await server.start()
    try:
        reader, writer = await ask(server, b"/stream?count=1", b"Origin: http://elsewhere.example\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 403")
        writer.close()
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HEAD /stream?count=1 HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 405")
        writer.close()
        assert source.made == 0
    finally:
        await server.stop()
