"""Tests of relays: what passes, how they end, and what they may hold."""

from __future__ import annotations

import asyncio

import pytest

from rsm_spark.errors import ConnectionLostError, OverloadedError
from rsm_spark.runtime.relaying import Relay, RelayRoom


class _PlayedEnd:
    """One half; the test plays the other end of it."""

    def __init__(self) -> None:
        self.comes: asyncio.Queue[bytes | None | Exception] = asyncio.Queue()
        self.went: list[bytes] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.has_ended = self.is_cut = False

    async def read(self) -> bytes | None:
        came = await self.comes.get()
        if isinstance(came, Exception):
            raise came
        return came

    async def write(self, text: bytes) -> None:
        await self.takes.wait()
        self.went.append(text)

    async def end(self) -> None:
        self.has_ended = True

    def cut(self) -> None:
        self.is_cut = True
        self.comes.put_nowait(ConnectionLostError("cut"))


def _pair(room: RelayRoom | None = None) -> tuple[_PlayedEnd, _PlayedEnd, Relay]:
    client, leader = _PlayedEnd(), _PlayedEnd()
    return client, leader, Relay(client, leader, room or RelayRoom(), "ann")


@pytest.mark.asyncio
async def test_messages_pass_both_ways_in_their_order_and_the_end_of_one_half_is_that_of_the_other() -> None:
    client, leader, relay = _pair()
    for number in range(5):
        client.comes.put_nowait(b"q%d" % number)
        leader.comes.put_nowait(b"a%d" % number)
    client.comes.put_nowait(None)
    running = asyncio.get_running_loop().create_task(relay.run())
    while not leader.has_ended:
        await asyncio.sleep(0)
    assert not running.done(), "what was asked last is still to be answered"
    leader.comes.put_nowait(None)
    await running
    assert leader.went == [b"q0", b"q1", b"q2", b"q3", b"q4"]
    assert client.went == [b"a0", b"a1", b"a2", b"a3", b"a4"]
    assert leader.is_cut


@pytest.mark.asyncio
@pytest.mark.parametrize("who", ["client", "leader"])
async def test_a_half_that_breaks_breaks_the_other(who: str) -> None:
    client, leader, relay = _pair()
    {"client": client, "leader": leader}[who].comes.put_nowait(ConnectionLostError(who))
    with pytest.raises(ConnectionLostError, match=who):
        await relay.run()
    assert leader.is_cut


@pytest.mark.asyncio
async def test_nothing_more_is_read_while_the_leader_takes_nothing() -> None:
    client, leader, relay = _pair()
    leader.takes.clear()
    for _ in range(5):
        client.comes.put_nowait(b"q")
    running = asyncio.get_running_loop().create_task(relay.run())
    for _ in range(50):
        await asyncio.sleep(0)
    assert client.comes.qsize() == 4
    running.cancel()
    await asyncio.wait([running])
    assert leader.is_cut


@pytest.mark.asyncio
async def test_a_relay_that_is_drained_takes_no_more_and_waits_for_the_answers() -> None:
    client, leader, relay = _pair()
    client.comes.put_nowait(b"q")
    running = asyncio.get_running_loop().create_task(relay.run())
    while not leader.went:
        await asyncio.sleep(0)
    relay.drain()
    while not leader.has_ended:
        await asyncio.sleep(0)
    leader.comes.put_nowait(b"a")
    leader.comes.put_nowait(None)
    await running
    assert client.went == [b"a"]


@pytest.mark.asyncio
async def test_a_message_beyond_the_room_ends_its_relay_and_no_other() -> None:
    room = RelayRoom(bytes_max=1000)
    with room.bytes_of("ann", 450):
        client, _leader, relay = _pair(room)
        client.comes.put_nowait(bytes(100))
        with pytest.raises(OverloadedError, match="450 bytes are being passed on"):
            await relay.run()
        with room.bytes_of("bob", 500):  # Others have the other half.
            pass
    with room.bytes_of("ann", 900):  # One message alone may be larger than a half.
        pass


def test_one_owner_has_half_of_the_relays_at_most_and_gives_them_back() -> None:
    room = RelayRoom(relays_max=4)
    with room.relay_of("ann"), room.relay_of("ann"):
        with pytest.raises(OverloadedError, match="4 are allowed"), room.relay_of("ann"):
            pass
        with room.relay_of("bob"), room.relay_of("bob"):
            assert room.open_count == 4
            with pytest.raises(OverloadedError), room.relay_of("eve"):
                pass
    with room.relay_of("ann"):
        assert (room.open_count, room.relay_count) == (1, 5)
