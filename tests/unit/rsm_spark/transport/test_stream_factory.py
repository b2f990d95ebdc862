"""The way to a replica: its framed port where it answers, gRPC where it does not, and what is told either way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from ledger.errors import UsageError
from rsm_spark.errors import AccessDeniedError, ConnectionLostError
from rsm_spark.map.client.client import MapClient
from rsm_spark.transport import framed_call, stream_factory
from rsm_spark.transport.call_frames import (
    BEAT,
    VERSION,
    CallEnd,
    CallWelcome,
    FrameKind,
    encode_end,
    encode_frame,
    encode_welcome,
)
from rsm_spark.transport.codec import EXCHANGE_METHOD
from rsm_spark.transport.framed_call import FramedCall
from rsm_spark.transport.security import MESSAGE_BYTES_MAX, Security
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.stream_factory import StreamFactory, transport_of
from tests.unit.ledger.bookie.test_tls import Authority
from tests.unit.rsm_spark.client.replica_double import Finder, Group, ReplicaDouble, serve

pytestmark = pytest.mark.asyncio
WELCOME = encode_welcome(CallWelcome(VERSION, MESSAGE_BYTES_MAX))
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def _nothing_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_factory, "_left_alone", {})


@asynccontextmanager
async def port(talk: Talk) -> AsyncIterator[str]:
    """Something that listens where a framed port was said to be."""
    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


@asynccontextmanager
async def client_of(framed: str, **options: Any) -> AsyncIterator[tuple[MapClient, ReplicaServer]]:
    """A client of a replica of which the metadata say that its framed port is there."""
    server = await serve(ReplicaDouble(Group()))
    finder = Finder(server.address)
    finder.framed[server.address] = framed or server.framed_address
    try:
        async with MapClient(finder, "orders", timeout_s=60, **options) as client:
            yield client, server
    finally:
        await server.stop(0)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1 << 16):
        pass
    writer.close()


def saying(text: bytes) -> Talk:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)  # A socket that is closed with something to read resets the connection.
        writer.write(text)
        await writer.drain()
        writer.close()

    return say


async def test_a_client_uses_the_framed_port_by_itself_and_grpc_when_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for told, is_framed in ((None, True), ("grpc", False), ("framed", True)):
        if told is not None:
            monkeypatch.setenv("RSM_STORE__TRANSPORT", told)
        async with client_of("") as (client, server):
            await client.put(b"a", b"1")
            assert client._link.is_framed is is_framed
            assert server.framed_calls == int(is_framed)
            assert client.address == server.address, "a replica has one name, whatever way is taken to it"
    with pytest.raises(UsageError, match="framed or grpc"):
        transport_of("quic")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "talk",
    [
        saying(b""),
        saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        saying(b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0d"),  # a gRPC server's greeting
        saying(b"\0\0\0\x02\x02\xc1"),
        saying(encode_end(CallEnd(grpc.StatusCode.UNIMPLEMENTED.value[0], "not here"))),
    ],
)
async def test_what_does_not_speak_the_protocol_leads_to_grpc(talk: Talk) -> None:
    async with port(talk) as there, client_of(there) as (client, _):
        await client.put(b"a", b"1")
        assert (client._link.is_framed, client._link.address) == (False, client.address)


async def test_a_port_where_nobody_listens_leads_to_grpc() -> None:
    async with port(silent) as gone:
        pass
    async with client_of(gone) as (client, _):
        await client.put(b"a", b"1")
        assert not client._link.is_framed


async def test_a_port_that_swallows_everything_is_left_alone_once_grpc_has_reached_the_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_factory, "_GREETING_S_MAX", 0.2)
    connected = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        await silent(reader, writer)

    async with port(swallow) as there:
        for _ in range(3):
            async with client_of(there) as (client, _server):
                await client.put(b"a", b"1")
                assert not client._link.is_framed
        assert connected == 1
        opener = StreamFactory("127.0.0.1:1", there, Security())
        monkeypatch.setattr(stream_factory, "_left_alone", {})
        await opener.open(EXCHANGE_METHOD)
        await opener.close()
        assert stream_factory._left_alone == {}, "as long as gRPC did not reach it, it may be down"


async def test_a_refusal_is_told_as_grpc_tells_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-the-tests-0123456789")
    group = Group()
    server = ReplicaServer("orders", security=Security(token_file=str(token)))
    await server.start(ReplicaDouble(group), lambda: b"{}")
    said: list[str] = []
    for finder in (Finder(server.address, server), Finder(server.address)):
        async with MapClient(finder, "orders", timeout_s=60, security=Security()) as client:
            with pytest.raises(AccessDeniedError, match="needs the cluster's token") as denied:
                await client.put(b"k", b"v")
            said.append(str(denied.value))
    assert said[0] == said[1]
    assert group.executed == []
    async with MapClient(Finder(server.address, server), "other", timeout_s=0.5, security=Security()) as client:
        with pytest.raises(AccessDeniedError):
            await client.get(b"k")
    mine = Security(token_file=str(token))
    async with MapClient(Finder(server.address, server), "orders", timeout_s=60, security=mine) as client:
        await client.put(b"k", b"v")
        assert client._link.is_framed
    await server.stop(0)


async def test_a_token_never_travels_in_plain_text_beyond_loopback(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-the-tests-0123456789")
    with pytest.raises(UsageError, match="plain text"):
        StreamFactory("127.0.0.1:1", "192.0.2.1:5000", Security(token_file=str(token)))


@pytest.mark.parametrize("fault", ["", "authority", "host", "plain caller", "plain replica"])
async def test_a_framed_port_is_used_when_its_certificate_is_right_and_never_otherwise(
    tmp_path: Path, fault: str
) -> None:
    authority, stranger = Authority(tmp_path, "ca"), Authority(tmp_path, "stranger")
    right, foreign = authority.sign("replica"), stranger.sign("foreign")
    elsewhere = authority.sign("elsewhere", host="DNS:elsewhere.example")
    pair = {"authority": foreign, "host": elsewhere}.get(fault, right)
    served = Security() if fault == "plain replica" else Security(tls_cert=pair["cert"], tls_key=pair["key"])
    caller = Security() if fault == "plain caller" else Security(tls_ca=authority.ca)
    server = ReplicaServer("orders", security=served)
    await server.start(ReplicaDouble(Group()), lambda: b"{}")
    opener = StreamFactory(server.address, server.framed_address, caller)
    try:
        stream = await opener.open(EXCHANGE_METHOD)
        assert isinstance(stream, FramedCall) is (not fault)
        if not fault:
            with pytest.raises(asyncio.TimeoutError):
                async with asyncio.timeout(0.2):
                    await stream.read()
        stream.cancel()
    finally:
        await opener.close()
        await server.stop(0)


# ---- the caller's end of a call


async def call_of(talk: Talk) -> tuple[FramedCall, StreamFactory]:
    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    opener = StreamFactory("127.0.0.1:1", f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", Security())
    call = await opener.open(EXCHANGE_METHOD)
    assert isinstance(call, FramedCall)
    listening.close()
    return call, opener


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (encode_end(CallEnd(5, "no such thing", (("first", "7"),))), grpc.StatusCode.NOT_FOUND, "no such thing"),
        (encode_end(CallEnd(999, "?")), grpc.StatusCode.UNKNOWN, r"\?"),
        (b"", grpc.StatusCode.UNAVAILABLE, "connection was closed"),
        (b"\0\0\0\x01\x09", grpc.StatusCode.UNAVAILABLE, "kind 9"),
        (WELCOME, grpc.StatusCode.UNAVAILABLE, "may not come now"),
        (b"\xff\xff\xff\xff\x03", grpc.StatusCode.UNAVAILABLE, "allowed for MESSAGE"),
        (encode_frame(FrameKind.END, b"\xc1"), grpc.StatusCode.UNAVAILABLE, "no end"),
    ],
)
async def test_every_end_has_a_status_and_words_and_what_came_before_is_read(
    more: bytes, code: grpc.StatusCode, words: str
) -> None:
    messages = b"".join(encode_frame(FrameKind.MESSAGE, b"%d" % n) for n in range(3))
    call, _ = await call_of(saying(WELCOME + messages + BEAT + more))
    assert [await call.read() for _ in range(3)] == [b"0", b"1", b"2"]
    with pytest.raises(grpc.aio.AioRpcError, match=words) as raised:
        await call.read()
    assert raised.value.code() is code is await call.code()
    if code is grpc.StatusCode.NOT_FOUND:
        assert dict(raised.value.trailing_metadata()) == {"first": "7"}
    with pytest.raises(grpc.aio.AioRpcError, match=words):
        await call.write(b"x")


async def test_a_good_end_is_the_end_and_a_message_too_long_is_refused_here() -> None:
    call, _ = await call_of(saying(WELCOME + encode_frame(FrameKind.MESSAGE, b"x") + encode_end(CallEnd())))
    assert [await call.read(), await call.read()] == [b"x", grpc.aio.EOF]
    other, _ = await call_of(_welcome)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await other.write(bytes(MESSAGE_BYTES_MAX + 1))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def _welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(WELCOME)
    await silent(reader, writer)


async def test_a_replica_that_gives_no_sign_of_life_is_given_up_and_the_caller_gives_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framed_call, "BEAT_S", 0.2)
    monkeypatch.setattr("rsm_spark.transport.call_connection.BEAT_S", 0.2)
    monkeypatch.setattr(framed_call, "SILENCE_S", 1.0)
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WELCOME)
        while data := await reader.read(1 << 16):
            heard.extend(data)
        writer.close()

    call, _ = await call_of(listen)
    async with asyncio.timeout(60):
        with pytest.raises(grpc.aio.AioRpcError, match="said nothing for"):
            await call.read()
    assert heard.endswith(BEAT)


async def test_a_call_that_is_broken_off_leaves_nothing_running() -> None:
    double = ReplicaDouble(Group())
    double.gate = asyncio.Event()
    server = await serve(double)
    before = len(asyncio.all_tasks())
    opener = StreamFactory(server.address, server.framed_address, Security())
    call = await opener.open(EXCHANGE_METHOD)
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED
    await opener.close()
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > before or server.framed_calls:
            await asyncio.sleep(0.01)
    await server.stop(0)


async def test_a_replica_that_stands_still_is_lost_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts, by its kernel, and greets nobody; gRPC gets no further."""
    monkeypatch.setattr(stream_factory, "_GREETING_S_MAX", 0.2)
    monkeypatch.setattr("rsm_spark.transport.replica_stream.CONNECT_TIMEOUT_S", 1.0)
    async with port(silent) as framed, port(silent) as address:
        finder = Finder(address)
        finder.framed[address] = framed
        async with MapClient(finder, "orders", timeout_s=60) as client:
            asking = asyncio.get_running_loop().create_task(client.get(b"a"))
            async with asyncio.timeout(60):
                while "no connection within 1 s" not in client._link._trouble:
                    await asyncio.sleep(0.05)
            asking.cancel()
            await asyncio.wait([asking])
    assert issubclass(AccessDeniedError, ConnectionLostError)
