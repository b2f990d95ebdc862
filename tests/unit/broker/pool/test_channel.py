from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.pool.channel import ChannelError, ControllerEnd, MemberEnd, accept, connect
from broker.pool.core.messages import FromController, Hello, Left, Order, Report

SECRET = b"s" * 32
HELLO = Hello(1, 2, 3, "me", "here:1")


@asynccontextmanager
async def connected(theirs: bytes = SECRET) -> AsyncIterator[tuple[asyncio.Future[ControllerEnd], MemberEnd]]:
    accepted: asyncio.Future[ControllerEnd] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            accepted.set_result(await accept(reader, writer, SECRET))
        except ChannelError as error:
            accepted.set_exception(error)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    end = await connect("127.0.0.1", server.sockets[0].getsockname()[1], theirs)
    try:
        yield accepted, end
    finally:
        end.close()
        if accepted.done() and accepted.exception() is None:
            accepted.result().close()
        server.close()


@pytest.mark.asyncio
async def test_both_ends_hear_what_the_other_says() -> None:
    async with connected() as (accepted, member):
        keeper = await accepted
        for message in (HELLO, Report(is_served=True, types=["a"]), Left("done")):
            member.say(message)
            assert await keeper.hear() == message
        keeper.say(FromController(Order.DRAIN))
        assert await member.hear() == FromController(Order.DRAIN)
        keeper.close()
        assert await member.hear() is None


@pytest.mark.asyncio
async def test_a_worker_that_does_not_know_the_secret_is_not_heard() -> None:
    async with connected(theirs=b"x" * 32) as (accepted, member):
        with pytest.raises(ChannelError, match="does not know this pool's secret"):
            await accepted
        assert await member.hear() is None


@pytest.mark.asyncio
async def test_a_line_that_was_changed_or_played_again_is_refused() -> None:
    async with connected() as (accepted, member):
        keeper = await accepted
        member.say(HELLO)
        assert await keeper.hear() == HELLO
        member._sent -= 1
        member.say(HELLO)
        with pytest.raises(ChannelError, match="does not know the pool's secret"):
            await keeper.hear()


@pytest.mark.asyncio
async def test_something_else_at_the_address_is_told_in_words() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ChannelError, match="is no pool's driver"):
        await connect("127.0.0.1", port, SECRET)
    server.close()
    await server.wait_closed()
    with pytest.raises(ChannelError, match="does not answer at"):
        await connect("127.0.0.1", port, SECRET)
