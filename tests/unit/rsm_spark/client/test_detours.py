"""Tests of clients that do not reach the leader: a follower passes on what they send, each command is applied once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rsm_spark.client import detours, replica_connection
from rsm_spark.client.replica_connection import ReplicaConnection
from rsm_spark.core.operation import Operation
from rsm_spark.errors import NoLeaderError, OutcomeUnknownError
from rsm_spark.map import messages as m
from rsm_spark.runtime.relaying import LeaderPlace
from rsm_spark.transport.relay_service import RelayService
from rsm_spark.transport.security import Security
from rsm_spark.transport.server import ReplicaServer
from tests.unit.rsm_spark.client.replica_double import Group, ReplicaDouble
from tests.unit.rsm_spark.client.test_follower_reads import Followers

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("transport", "quick")]

GET = m.encode(m.Get(b"k"))


class PortGate:
    """A port in front of a server, which passes bytes on while it is open, and takes no connection while it is shut."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self.is_open = True
        self.is_silent = False
        self.connections = 0
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        port = int(self.address.rpartition(":")[2]) if self.address else 0
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.is_open = True

    def shut(self) -> None:
        """Take no connection any more, and break off those that there are."""
        assert self._server is not None
        self._server.close()
        self.is_open = False
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        host, _, port = self._target.rpartition(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        tasks = [
            asyncio.create_task(self._pump(reader, there_writer)),
            asyncio.create_task(self._pump(there_reader, writer)),
        ]
        self._tasks.update(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for one in (writer, there_writer):
            one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            while self.is_silent:
                await asyncio.sleep(0.01)
            writer.write(data)


class CutOffSite:
    """A leader behind two gates, for gRPC and for frames, two followers, and a link whose client knows the gates."""

    def __init__(self, doubles: list[ReplicaDouble], servers: list[ReplicaServer], relays: list[RelayService]) -> None:
        self.doubles = doubles
        self.servers = servers
        self.relays = relays
        self.gates = [PortGate(servers[0].address), PortGate(servers[0].framed_address)]
        self.link: ReplicaConnection

    async def start(self) -> None:
        for gate in self.gates:
            await gate.open()
        finder = Followers(self.gates[0].address, [server.address for server in self.servers[1:]], *self.servers)
        finder.framed[self.gates[0].address] = self.gates[1].address
        self.link = ReplicaConnection(finder, "orders")

    def shut(self) -> None:
        for gate in self.gates:
            gate.shut()

    async def put(self, value: bytes = b"v", timeout_s: float = 60) -> Operation:
        operation = await self.link.submit(m.encode(m.Put(b"k", value)), timeout_s, is_query=False)
        self.link.check(operation)
        return operation

    async def get(self) -> bytes:
        operation = await self.link.submit(GET, 60, is_query=True)
        self.link.check(operation)
        found = m.decode_result(operation.payload)
        assert isinstance(found, m.Found)
        return found.value

    @property
    def passed_on(self) -> list[int]:
        return [relay.room.relay_count for relay in self.relays]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detours, "_FAILED_S", 0.1)
    monkeypatch.setattr(detours, "_TRY_FIRST_S", 0.1)
    monkeypatch.setattr(replica_connection, "_SILENT_S", 0.3)


@asynccontextmanager
async def site() -> AsyncIterator[CutOffSite]:
    group = Group()
    doubles = [ReplicaDouble(group), ReplicaDouble(group, leads=False), ReplicaDouble(group, leads=False)]
    servers = [ReplicaServer("orders") for _ in doubles]
    place = LeaderPlace(servers[0].address, servers[0].framed_address)
    relays: list[RelayService] = []
    for double, server in zip(doubles, servers, strict=True):
        where = None if double.leads else place
        relay = RelayService(
            "orders", server, lambda where=where: where, lambda double=double: double.leads, Security()
        )  # fmt: skip
        relay.add()
        relays.append(relay)
        await server.start(double, lambda: b"{}")
    made = CutOffSite(doubles, servers, relays)
    await made.start()
    try:
        yield made
    finally:
        await made.link.close()
        for gate in made.gates:
            if gate.is_open:
                gate.shut()
        for server in servers:
            await server.stop(0)


async def test_nobody_is_asked_to_pass_on_while_the_leader_is_reached() -> None:
    async with site() as made:
        for _ in range(20):
            await made.put()
        assert made.passed_on == [0, 0, 0]
        assert (made.link.detour, made.link.detour_count) == ("", 0)


async def test_commands_and_reads_go_by_a_follower_where_the_leader_is_not_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site() as made:
        await made.put(b"1")
        made.shut()
        with caplog.at_level(logging.WARNING):
            for number in range(2, 30):
                await made.put(b"%d" % number)
                assert await made.get() == b"%d" % number
        assert made.link.detour == made.servers[1].address
        assert made.link.detour_count == 1
        assert sum(made.passed_on) == 1
        told = [record.getMessage() for record in caplog.records if "passes commands on" in record.getMessage()]
        assert len(told) == 1
        assert made.servers[1].address in told[0]
        executed = [(session, sequence) for session, sequence, _ in made.doubles[0].group.executed]
        assert len(executed) == len(set(executed)) == 29, "each once, and in one session"


async def test_the_client_goes_back_to_the_leader_when_it_is_reached_again() -> None:
    async with site() as made:
        await made.put()
        made.shut()
        await made.put()
        assert made.link.detour
        for gate in made.gates:
            await gate.open()
        async with asyncio.timeout(60):
            while made.link.detour or not made.link.address:
                await made.put()
                await asyncio.sleep(0.01)
        assert made.link.address == made.gates[0].address
        executed = [(session, sequence) for session, sequence, _ in made.doubles[0].group.executed]
        assert len(executed) == len(set(executed))


async def test_a_leader_that_falls_silent_is_left_though_its_connection_stands() -> None:
    async with site() as made:
        await made.put()
        for gate in made.gates:
            gate.is_silent = True
        # gRPC's own connection attempt has three seconds to fail.
        await made.put(b"after")
        assert made.link.detour
        assert await made.get() == b"after"


async def test_a_slow_leader_is_not_left() -> None:
    async with site() as made:
        await made.put()
        leader = made.doubles[0]
        leader.gate = asyncio.Event()
        waiting = asyncio.get_running_loop().create_task(made.put())
        await asyncio.sleep(1.0)  # Three times as long as it may be silent.
        leader.gate.set()
        await waiting
        assert made.passed_on == [0, 0, 0]


async def test_another_follower_is_taken_where_one_passes_nothing_on() -> None:
    async with site() as made:
        await made.put()
        made.relays[1].close()
        made.shut()
        await made.put()
        assert made.link.detour == made.servers[2].address


async def test_a_command_that_was_on_its_way_when_the_relay_broke_is_applied_once() -> None:
    async with site() as made:
        await made.put()
        made.shut()
        await made.put()
        leader = made.doubles[0]
        leader.gate = asyncio.Event()
        waiting = asyncio.get_running_loop().create_task(made.put(b"broken"))
        async with asyncio.timeout(30):
            while not any(b"broken" in command for _, _, command in leader.group.executed):
                await asyncio.sleep(0.01)
        await made.servers[1].stop(0)
        leader.gate.set()
        await waiting
        assert made.link.detour == made.servers[2].address
        assert sum(b"broken" in command for _, _, command in leader.group.executed) == 1


async def test_nothing_goes_in_a_circle_where_replicas_take_each_other_for_the_leader() -> None:
    async with site() as made:
        await made.put()
        made.doubles[0].leads = False  # The followers still take it for the leader.
        made.shut()
        with pytest.raises((NoLeaderError, OutcomeUnknownError)):
            await made.put(timeout_s=2.0)
        assert made.relays[0].room.relay_count == 0
