"""gRPC's own client against a port whose HTTP/2 is ours: all kinds of calls, limits of time, leaving, draining."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from ledger.rights.table import Right
from rsm_spark.transport.http2_port import Http2Port
from rsm_spark.transport.security import Security

pytestmark = pytest.mark.asyncio

MESSAGE_BYTES = 3_000_000
LARGE_BYTES = 32_000_000
_WIDE = [("grpc.max_receive_message_length", -1), ("grpc.http2.lookahead_bytes", 2**30), ("grpc.http2.bdp_probe", 0)]


class Echo:
    """Says again what it is told."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.is_waiting = asyncio.Event()

    async def unary(self, text: bytes, context: Any) -> bytes:
        if text == b"abort":
            await context.abort(grpc.StatusCode.NOT_FOUND, "nothing at all: ä", (("more", "words"),))
        if text == b"fail":
            raise ValueError("a mistake of this test")
        if text == b"wait":
            self.is_waiting.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return text

    async def large(self, _text: bytes, _context: Any) -> bytes:
        return b"x" * LARGE_BYTES

    async def many(self, text: bytes, context: Any) -> None:
        for _ in range(20):
            await context.write(text)

    async def both(self, _requests: Any, context: Any) -> None:
        while (text := await context.read()) is not grpc.aio.EOF:
            await context.write(text)


@asynccontextmanager
async def served(echo: Echo, security: Security | None = None) -> AsyncIterator[tuple[Http2Port, Any]]:
    port = Http2Port(
        "echoes", option="--port", bind="127.0.0.1", port=0, security=security or Security(), connections_max=100,
        received_bytes_max=4 * 1024 * 1024, token_key="token",  # noqa: S106 - the name of the metadata
    )  # fmt: skip
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Unary": grpc.unary_unary_rpc_method_handler(echo.unary),
        "Large": grpc.unary_unary_rpc_method_handler(echo.large),
        "Many": grpc.unary_stream_rpc_method_handler(echo.many),
        "Both": grpc.stream_stream_rpc_method_handler(echo.both),
    }
    port.add_service("s.Echo", handlers, dict.fromkeys(handlers, Right.STATUS))
    await port.start()
    try:
        async with grpc.aio.insecure_channel(
            port.address, options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        ) as channel:
            yield port, channel
    finally:
        await port.stop(1.0)


async def test_all_kinds_of_calls_are_served() -> None:
    async with served(Echo()) as (port, channel):
        unary = channel.unary_unary("/s.Echo/Unary")
        assert await asyncio.gather(*(unary(b"%d" % n) for n in range(300))) == [b"%d" % n for n in range(300)]
        assert await unary(b"") == b""
        large = b"x" * MESSAGE_BYTES
        assert await unary(large) == large
        assert [text async for text in channel.unary_stream("/s.Echo/Many")(b"y" * 200_000)] == [b"y" * 200_000] * 20
        wide: Any = grpc.aio.insecure_channel(port.address, options=_WIDE)
        assert len(await wide.unary_unary("/s.Echo/Large")(b"")) == LARGE_BYTES
        await wide.close()
        both = channel.stream_stream("/s.Echo/Both")()
        for text in (b"a", large, b"b"):
            await both.write(text)
            assert await both.read() == text
        await both.done_writing()
        assert await both.read() is grpc.aio.EOF
        assert await both.code() is grpc.StatusCode.OK
        assert all(connection.calls == {} for connection in port.connections)


async def test_calls_end_as_their_handlers_say() -> None:
    async with served(Echo()) as (_, channel):
        unary = channel.unary_unary("/s.Echo/Unary")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(b"abort")
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.NOT_FOUND, "nothing at all: ä")
        assert ("more", "words") in tuple(caught.value.trailing_metadata())
        for sent, code in ((b"fail", grpc.StatusCode.UNKNOWN), (b"z" * 5_000_000, grpc.StatusCode.RESOURCE_EXHAUSTED)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await unary(sent)
            assert caught.value.code() is code
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/s.Echo/Nothing")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await unary(b"still") == b"still"


async def test_who_leaves_or_is_late_ends_the_work() -> None:
    echo = Echo()
    async with served(echo) as (port, channel):
        unary = channel.unary_unary("/s.Echo/Unary")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(b"wait", timeout=0.2)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        echo.is_waiting.clear()
        call = unary(b"wait")
        await echo.is_waiting.wait()
        call.cancel()
        while echo.cancelled < 2:
            await asyncio.sleep(0.01)
        assert all(connection.calls == {} for connection in port.connections)


async def test_health_and_reflection_are_there() -> None:
    async with served(Echo()) as (_, channel):
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )  # fmt: skip
        assert (await check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
        names = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")()
        await names.write(b"\x3a\x00")
        assert b"s.Echo" in await names.read()
        names.cancel()


async def test_what_runs_when_it_stops_has_its_time_and_no_more() -> None:
    echo = Echo()
    async with served(echo) as (port, channel):
        call = channel.unary_unary("/s.Echo/Unary")(b"wait")
        await echo.is_waiting.wait()
        await port.stop(0.1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert echo.cancelled == 1


async def test_only_who_is_known_is_heard(tmp_path: Any) -> None:
    (tmp_path / "token").write_text("a-token-of-many-letters\n")
    async with served(Echo(), Security(token_file=str(tmp_path / "token"))) as (port, channel):
        unary = channel.unary_unary("/s.Echo/Unary")
        for metadata in ((), (("token", "something-else-altogether"),)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await unary(b"x" * 100_000, metadata=metadata)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert port.guard.refused_calls == 2
        for name, value in (("token", "a-token-of-many-letters"), ("authorization", "Bearer a-token-of-many-letters")):
            assert await unary(b"x", metadata=((name, value),)) == b"x"
