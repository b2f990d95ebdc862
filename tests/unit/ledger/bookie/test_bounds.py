"""Nobody makes a bookie hold more than its limits say: slow clients, idle ones, too many, too much at a time."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest

from ledger.bookie.connection_times import TimeLimits
from ledger.bookie.gate import GateLimits
from ledger.bookie.handlers import HandlerLimits
from ledger.bookie.inbox import Inbox, ReceiveRoom
from ledger.bookie.server import ServerSettings
from ledger.bookie.writes import WriteLimits
from ledger.frame_pot import FramePot, FrameShare
from ledger.testing import SimDisk, Simulation
from ledger.wire import packets as p
from ledger.wire import v2
from ledger.wire.codes import Status
from ledger.wire.frames import FRAME_BYTES_MAX
from tests.unit.ledger.bookie.bookie_bench import KEY, OK, Bench, Client, add, fence, read

ROOM_BYTES = 512 << 10


class Sink(asyncio.Protocol):
    """A client in the simulated network."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost_at: float | None = None

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc) -> None:
        self.lost_at = asyncio.get_running_loop().time()


def simulated(scenario, *, server: ServerSettings | None = None, **settings) -> None:
    """Run `scenario(bench, connect)` on a bookie in the simulated network, in virtual time."""

    async def run() -> None:
        bench = Bench(SimDisk(random.Random(1)), journal={"file_bytes": 1 << 22}, server=server, **settings)
        await bench.start()
        bench.server._connections.clear()  # The bench's own, which is no simulated one.
        port = await bench.server.listen("bookie", 0)

        async def connect() -> Sink:
            return (await asyncio.get_running_loop().create_connection(Sink, "bookie", port))[1]

        await scenario(bench, connect)

    Simulation(1).run(run())


def limits(**times) -> ServerSettings:
    return ServerSettings(times=TimeLimits(**times), times_check_s=1.0)


# -- receiving


def whole(inbox: Inbox, data: bytes) -> list[bytes]:
    """Feed an inbox; return the packets that are whole."""
    found = []
    while data:
        buffer = inbox.get_buffer()
        part, data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(part)] = part
        chunk, start, end = inbox.take(len(part), lambda _chunk, _end: 0)
        while start < end:
            length = int.from_bytes(chunk[start : start + 4], "big")
            found.append(chunk[start + 4 : start + 4 + length])
            start += 4 + length
    return found


def frames(*sizes: int) -> tuple[bytes, list[bytes]]:
    packets = [random.Random(size).randbytes(size) for size in sizes]
    return b"".join(struct.pack(">I", len(x)) + x for x in packets), packets


@pytest.mark.parametrize("part", [1, 7, 1000, 300_000])
def test_frames_of_all_sizes_come_out_whole_and_nothing_is_kept(part: int) -> None:
    room, pot = ReceiveRoom(ROOM_BYTES), FramePot(1 << 30, 1 << 30)
    inbox, other = Inbox(room, FrameShare(pot)), Inbox(room, FrameShare(pot))
    sizes = (1, 24, 1000, 5) if part < 1000 else (1, 1000, 140_000, 600_000, 3, FRAME_BYTES_MAX, 24)
    data, packets = frames(*sizes)
    found, noise = [], []
    for start in range(0, len(data), part):
        found += whole(inbox, data[start : start + part])
        noise += whole(other, b"\0\0\0\x02ab\0\0")[:0] + whole(other, b"\0\x02cd")  # Shares the room.
    assert found == packets
    assert (inbox.kept_bytes, other.kept_bytes, pot.held_bytes) == (0, 0, 0)


def test_an_unfinished_frame_costs_what_came_of_it_and_not_what_it_announced() -> None:
    pot = FramePot(1 << 30, 1 << 30)
    inbox = Inbox(ReceiveRoom(ROOM_BYTES), FrameShare(pot))
    whole(inbox, struct.pack(">I", FRAME_BYTES_MAX))
    assert inbox.kept_bytes <= 256 << 10
    sent = 4
    while sent < FRAME_BYTES_MAX - 100_000:
        whole(inbox, bytes(100_000))
        sent += 100_000
        assert inbox.kept_bytes <= max(256 << 10, 2 * sent)
    assert pot.held_bytes == inbox.kept_bytes
    inbox.clear()
    assert pot.held_bytes == 0


# -- slow and idle clients


def test_a_frame_that_comes_a_byte_a_second_is_not_waited_for() -> None:
    async def scenario(bench, connect) -> None:
        client = await connect()
        for byte in v2.encode_request(add(1, 0)):
            if client.lost_at is None:
                client.transport.write(bytes([byte]))
                await asyncio.sleep(1)
        assert 10 <= client.lost_at <= 13
        assert bench.server.frames.held_bytes == 0

    simulated(scenario, server=limits(frame_s=10))


def test_a_client_that_does_not_read_stops_being_served_and_is_closed() -> None:
    async def scenario(bench, connect) -> None:
        client = await connect()
        client.transport.write(v2.encode_request(add(1, 0, size=100_000)))
        await asyncio.sleep(0.1)
        client.transport.pause_reading()
        client.transport.write(v2.encode_request(read(1, 0)) * 2_000)  # 200 MB of answers
        (connection,) = bench.server._connections
        for _ in range(200):
            await asyncio.sleep(0.05)
            assert connection._transport.get_write_buffer_size() + connection._out_bytes < 8 << 20
        assert bench.server._connections
        await asyncio.sleep(15)
        assert not bench.server._connections

    simulated(scenario, server=limits(answers_s=20))


def test_a_client_that_reads_on_in_time_gets_all_answers() -> None:
    async def scenario(bench, connect) -> None:
        client = await connect()
        client.transport.write(v2.encode_request(add(1, 0, size=100_000)))
        await asyncio.sleep(0.1)
        client.received.clear()
        for _ in range(4):
            client.transport.pause_reading()
            client.transport.write(v2.encode_request(read(1, 0)) * 200)
            await asyncio.sleep(5)
            client.transport.resume_reading()
            await asyncio.sleep(10)
        assert len(client.received) == 800 * (28 + 100_036)

    simulated(scenario, server=limits(answers_s=10))


def test_a_client_that_is_not_let_in_does_not_keep_its_connection() -> None:
    async def scenario(bench, connect) -> None:
        silent, turned_away = [await connect() for _ in range(2)]
        turned_away.transport.write(v2.encode_request(add(1, 0)))
        await asyncio.sleep(20)
        assert turned_away.received[8:12] == b"\0\0\0\x66"  # EUA
        assert 10 <= silent.lost_at <= 13
        assert 10 <= turned_away.lost_at <= 13

    times = TimeLimits(admission_s=10)
    simulated(scenario, server=ServerSettings(times=times, times_check_s=1.0, users={"hd": "testpwd"}))


def test_an_idle_connection_is_closed_only_if_that_is_wanted_and_it_waits_for_nothing() -> None:
    async def scenario(bench, connect) -> None:
        idle, busy, waiting = [await connect() for _ in range(3)]
        waiting.transport.write(v3_poll())
        for _ in range(20):
            busy.transport.write(v2.encode_request(add(1, 0)))
            await asyncio.sleep(1)
        assert 10 <= idle.lost_at <= 13
        assert (busy.lost_at, waiting.lost_at) == (None, None)

    simulated(scenario, server=limits(idle_s=10))

    async def scenario_without(bench, connect) -> None:
        idle = await connect()
        await asyncio.sleep(3_000)
        assert idle.lost_at is None

    simulated(scenario_without, server=limits())


def test_a_bookie_that_stood_still_itself_blames_no_client() -> None:
    async def scenario(bench, connect) -> None:
        client = await connect()
        frame = v2.encode_request(add(1, 0))
        client.transport.write(frame[:50])
        await asyncio.sleep(5)
        bench.server._times_checked_s -= 100
        for connection in bench.server._connections:
            connection.times.since_s -= 100
        await asyncio.sleep(5)
        client.transport.write(frame[50:])
        await asyncio.sleep(1)
        assert client.received

    simulated(scenario, server=limits(frame_s=10))


def v3_poll() -> bytes:
    from ledger.wire.v3 import encode_request  # noqa: PLC0415

    request = p.ReadRequest(1, 1, -1, None, is_piggyback=True, previous_lac=5, timeout_ms=60_000)
    return encode_request(add(1, 0)) + encode_request(request)


def test_one_connection_too_many_costs_a_quiet_one_its_place() -> None:
    async def scenario(bench, connect) -> None:
        first = [await connect() for _ in range(10)]
        for client in first[1:]:
            client.transport.write(v2.encode_request(add(1, 0)))
        await asyncio.sleep(1)
        newest = await connect()
        await asyncio.sleep(1)
        assert [x.lost_at is None for x in first] == [False] + [True] * 9
        newest.transport.write(v2.encode_request(add(1, 0)))
        await asyncio.sleep(1)
        assert newest.received[8:12] == bytes(4)

    simulated(scenario, server=ServerSettings(gate=GateLimits(100, 10)))


def test_strangers_have_short_frames_and_a_pot_of_their_own() -> None:
    async def scenario(bench, connect) -> None:
        strangers = [await connect() for _ in range(40)]
        for client in strangers:
            client.transport.write(struct.pack(">I", 60_000) + bytes(50_000))
        long = await connect()
        long.transport.write(struct.pack(">I", 70_000) + bytes(10))
        await asyncio.sleep(1)
        assert bench.server.stranger_frames.held_bytes <= 1 << 19
        assert bench.server.frames.held_bytes == 0
        assert long.lost_at is not None
        assert 25 <= sum(x.lost_at is not None for x in strangers) < 40

    server = ServerSettings(users={"hd": "testpwd"}, stranger_bytes_max=1 << 20)
    simulated(scenario, server=server)


# -- too much at a time


def bounded(scenario, *, handlers: HandlerLimits | None = None, **settings) -> None:
    async def run() -> None:
        bench = Bench(server=ServerSettings(handlers=handlers or HandlerLimits()), **settings)
        await scenario(bench, await bench.start())

    asyncio.run(run())


def test_reads_beyond_those_that_may_wait_for_a_disk_are_refused() -> None:
    async def scenario(bench, client) -> None:
        await client.ask(*[add(1, n) for n in range(20)])
        client = await bench.start()  # Now they are in a segment.
        answers = await client.ask(*[read(1, n, txn=n) for n in range(20)])
        counts = [sum(x.status == status for x in answers) for status in (OK, Status.ETOOMANYREQUESTS)]
        assert counts == [5, 15]
        assert (await client.ask_one(read(1, 19))).status == OK

    bounded(scenario, handlers=HandlerLimits(cold_reads_max=5))


def test_long_polls_beyond_those_that_may_wait_are_refused() -> None:
    async def scenario(bench, client) -> None:
        await client.ask_one(add(1, 0))
        requests = [
            p.ReadRequest(n, 1, -1, None, is_piggyback=True, previous_lac=0, timeout_ms=60_000) for n in range(5)
        ]
        client.send(*requests)
        await bench.settle()
        refused = client.wire.responses[1:]
        assert [(x.txn_id, x.status) for x in refused] == [(n, Status.ETOOMANYREQUESTS) for n in (3, 4)]

    bounded(scenario, handlers=HandlerLimits(polls_max=3))


def test_batch_reads_together_gather_no_more_than_they_may_and_are_all_answered() -> None:
    async def scenario(bench, client) -> None:
        await client.ask(*[add(1, n) for n in range(20)])
        await bench.start()
        batches = bench.server._handlers._batches
        clients = [Client(bench, 2) for _ in range(5)]
        low = batches.room_bytes
        for other in clients:
            other.send(*[p.BatchReadRequest(n, 1, 0, 0, 5 << 20) for n in range(3)])
        while not all(len(other.wire.responses) == 3 for other in clients):
            low = min(low, batches.room_bytes)
            await asyncio.sleep(0)
        assert low == 1 << 20, "never more than two at a time"
        assert {len(x.bodies) for other in clients for x in other.wire.responses} == {20}
        assert batches.room_bytes == 11 << 20

    bounded(scenario, handlers=HandlerLimits(batch_bytes_max=11 << 20))


def test_batch_reads_of_a_lost_connection_give_back_what_they_held() -> None:
    async def scenario(bench, client) -> None:
        await client.ask(*[add(1, n) for n in range(20)])
        await bench.start()
        client = Client(bench, 2)
        client.send(*[p.BatchReadRequest(n, 1, 0, 0, 1_000) for n in range(2)])
        await asyncio.sleep(0)
        client.wire.closed = True
        client.connection.connection_lost(None)
        await bench.settle()
        assert bench.server._handlers._batches.room_bytes == 6 << 20
        assert client.connection.pending_count == 0

    bounded(scenario, handlers=HandlerLimits(batch_bytes_max=6 << 20))


def test_requests_that_wait_for_a_sync_hold_back_more_of_them_and_lose_none() -> None:
    async def scenario(bench, client) -> None:
        requests = [add(1, 0, txn=1_000), *[p.ForceRequest(n, 1) for n in range(50)]]
        answers = await client.ask(*requests)
        assert [x.status for x in answers] == [OK] * 51

    bounded(scenario, handlers=HandlerLimits(writes=WriteLimits(barriers_max=3)))


@pytest.mark.parametrize("version", [2, 3])
def test_an_add_held_back_is_judged_again_when_there_is_room(version: int) -> None:
    """Back-pressure stands before the fence check, never behind it (safety 22)."""

    async def scenario(bench, _client) -> None:
        writer, recoverer = Client(bench, version), Client(bench, version)
        writer.send(add(1, 0, size=500), add(1, 1, size=500))
        await asyncio.sleep(0)
        writer.send(add(1, 2), add(1, 3))
        assert writer.connection._is_blocked, "the first adds are under way"
        recoverer.send(fence(1, entry_id=2))
        await bench.until(lambda: len(writer.wire.responses) == 4 and bool(recoverer.wire.responses))
        assert [x.status for x in writer.wire.responses] == [OK, OK, Status.EFENCED, Status.EFENCED]
        assert recoverer.wire.responses[0].status == Status.ENOENTRY
        assert (await recoverer.ask_one(read(1, 2))).status == Status.ENOENTRY

    bounded(scenario, pending_bytes_max=100)


def test_recovery_adds_wait_too_when_far_too_much_is_pending() -> None:
    async def scenario(bench, client) -> None:
        requests = [add(1, n, size=400, is_recovery=True) for n in range(60)]
        high = 0
        client.send(*requests)
        while len(client.wire.responses) < 60:
            high = max(high, bench.server.store.journal.pending_bytes)
            await asyncio.sleep(0)
        assert {x.status for x in client.wire.responses} == {OK}
        assert high < 2_000

    bounded(scenario, handlers=HandlerLimits(writes=WriteLimits(privileged_bytes_max=1_000)), pending_bytes_max=500)


def test_keys_are_compared_in_the_run_of_every_protocol() -> None:
    async def scenario(bench, _client) -> None:
        for version in (2, 3):
            client = Client(bench, version)
            adds = [add(version, n, key=KEY if n < 3 else b"k" * 20) for n in range(6)]
            answers = await client.ask(*adds)
            found = sorted((x.entry_id, x.status) for x in answers)
            assert found == [(n, OK if n < 3 else Status.EUA) for n in range(6)]

    bounded(scenario)
