"""The simulation itself: time, kills, streams, partitions."""

# ruff: noqa: B023, PT012  # each closure is run in the turn of the loop that makes it
from __future__ import annotations

import asyncio

import pytest

from ledger.errors import MetadataSessionLostError, MetadataUnavailableError
from ledger.ports import SessionState
from ledger.testing import METADATA_HOST, MetadataRates, NetworkRates, SimHost, SimMetadata, Simulation
from ledger.testing.loop import SimulationDeadlockError, SimulationTimeoutError


class _Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class _Client(asyncio.BufferedProtocol):
    def __init__(self):
        self.received = bytearray()
        self.buffer = bytearray(1000)
        self.lost: list[Exception | None] = []
        self.wake = asyncio.Event()

    def get_buffer(self, sizehint):
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes):
        self.received += self.buffer[:nbytes]
        self.wake.set()

    def connection_lost(self, exc):
        self.lost.append(exc)
        self.wake.set()

    async def until(self, condition):
        while not condition():
            self.wake.clear()
            await self.wake.wait()


def _simulate(seed: int = 1, **rates: float) -> Simulation:
    simulation = Simulation(seed)
    simulation.network.rates = NetworkRates(**rates)
    return simulation


def _with_metadata(seed: int = 1, **rates: float) -> tuple[Simulation, SimMetadata]:
    simulation = Simulation(seed)
    return simulation, SimMetadata(simulation.loop, simulation.network, MetadataRates(**rates))


def _served(simulation: Simulation) -> SimHost:
    host = simulation.host("server", _serve)
    host.start()
    return host


async def _serve(host: SimHost) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(_Echo, "0.0.0.0", 1)
    await loop.create_future()


async def _dial(to: str = "server") -> tuple[asyncio.Transport, _Client]:
    return await asyncio.get_running_loop().create_connection(_Client, to, 1)


def test_a_hundred_seconds_pass_at_once() -> None:
    simulation = Simulation(1)

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(40):
                await asyncio.sleep(100)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(60, n)) for n in range(3)]
        assert [task.result() for task in tasks] == [0, 1, 2]
        return asyncio.get_running_loop().time()

    assert simulation.run(main()) == 100


def test_a_run_that_waits_for_nothing_is_told_apart_from_one_that_takes_too_long() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimulationDeadlockError):
        Simulation(1).run(wait())
    with pytest.raises(SimulationTimeoutError):
        Simulation(1).run(asyncio.sleep(11), limit_s=10)


def test_a_killed_program_runs_no_finally() -> None:
    simulation = Simulation(1)
    ran: list[str] = []

    async def program(host: SimHost) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ran.append("finally")

    async def main() -> None:
        host = simulation.host("a", program)
        host.start()
        await asyncio.sleep(1)
        host.kill()
        await asyncio.sleep(100)
        assert ran == []
        host.start()
        await asyncio.sleep(20)
        assert ran == ["finally"]
        assert (host.is_up, host.exits) == (False, ["killed", "done"])

    simulation.run(main())


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_whatever_the_fragments(seed: int) -> None:
    simulation = _simulate(seed, fragment_rate=0.5, slow_rate=0.1)

    async def main() -> None:
        _served(simulation)
        await asyncio.sleep(0)
        transport, client = await _dial()
        sent = b""
        for n in range(200):
            sent += n.to_bytes(4) * 100
            transport.writelines([n.to_bytes(4) * 60, n.to_bytes(4) * 40])
        await client.until(lambda: len(client.received) == len(sent))
        assert client.received == sent
        transport.close()
        await client.until(lambda: client.lost)
        assert client.lost == [None]

    simulation.run(main())


def test_writers_are_paused_when_the_reader_does_not_read() -> None:
    simulation = Simulation(1)
    calls: list[str] = []

    class Writer(_Client):
        def pause_writing(self):
            calls.append("pause")

        def resume_writing(self):
            calls.append("resume")
            self.wake.set()

    class Deaf(asyncio.Protocol):
        def connection_made(self, transport):
            transport.pause_reading()
            asyncio.get_running_loop().call_later(10, transport.resume_reading)

    async def serve(host: SimHost) -> None:
        await asyncio.get_running_loop().create_server(Deaf, port=1)
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        simulation.host("server", serve).start()
        await asyncio.sleep(0)
        transport, client = await asyncio.get_running_loop().create_connection(Writer, "server", 1)
        transport.set_write_buffer_limits(1000)
        transport.write(bytes(1_000_000))
        assert calls == ["pause"]
        await asyncio.sleep(5)
        assert calls == ["pause"]
        await client.until(lambda: "resume" in calls)

    simulation.run(main())


def test_a_cut_direction_stalls_and_goes_on_when_it_heals() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        _served(simulation)
        await asyncio.sleep(0)
        transport, client = await _dial()
        simulation.network.block("server", "outside")
        transport.write(b"abc")
        await asyncio.sleep(20)
        assert client.received == b""
        simulation.network.heal()
        await client.until(lambda: client.received == b"abc")

    simulation.run(main())


def test_peers_hear_of_a_killed_program_but_not_of_a_dark_machine() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        server = simulation.host("server", _serve)
        server.start()
        await asyncio.sleep(0)
        _, client = await _dial()
        server.kill()
        await client.until(lambda: client.lost)
        with pytest.raises(ConnectionRefusedError):
            await _dial()
        server.start()
        await asyncio.sleep(0)
        transport, client = await _dial()
        server.kill(power=True)
        await asyncio.sleep(100)
        assert client.lost == []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await _dial()
        server.start()
        transport.write(b"still there?")
        await client.until(lambda: client.lost)
        assert isinstance(client.lost[0], ConnectionResetError)

    simulation.run(main())


def test_a_paused_program_answers_when_it_goes_on() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        _served(simulation)
        await asyncio.sleep(0)
        transport, client = await _dial()
        simulation.hosts["server"].pause()
        transport.write(b"abc")
        await asyncio.sleep(30)
        assert (client.received, client.lost) == (b"", [])
        simulation.hosts["server"].resume()
        await client.until(lambda: client.received == b"abc")

    simulation.run(main())


def test_equal_seeds_give_equal_signatures_and_others_do_not() -> None:
    def signature(seed: int) -> str:
        simulation = _simulate(seed, fragment_rate=0.5)

        async def main() -> None:
            _served(simulation)
            await asyncio.sleep(0)
            transport, client = await _dial()
            transport.write(bytes(5000))
            await client.until(lambda: len(client.received) == 5000)

        simulation.run(main())
        return simulation.loop.signature

    assert signature(1) == signature(1)
    assert signature(1) != signature(2)


def test_a_session_whose_host_is_cut_off_expires_with_its_ephemeral_nodes() -> None:
    simulation, metadata = _with_metadata()
    states: list[SessionState] = []

    async def program(host: SimHost) -> None:
        store = await metadata.connect(session_timeout_ms=10_000)
        store.on_session_state(states.append)
        first = store.session_id
        await store.create("/e", ephemeral=True)
        with pytest.raises((MetadataUnavailableError, MetadataSessionLostError)):
            while True:
                await asyncio.sleep(1)
                await store.get("/e")
        while store.session_state is not SessionState.CONNECTED or store.session_id == first:
            await asyncio.sleep(1)
        assert await store.exists("/e") is None

    async def main() -> None:
        host = simulation.host("a")
        done = host.spawn(program(host))
        await asyncio.sleep(3)
        assert metadata.leader.exists("/e") == 0
        simulation.network.partition("a", METADATA_HOST)
        await asyncio.sleep(16)
        assert metadata.leader.exists("/e") is None
        simulation.network.heal()
        await done
        assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]

    simulation.run(main())


def test_a_killed_hosts_session_expires_after_its_time_out_not_before() -> None:
    simulation, metadata = _with_metadata()

    async def program(host: SimHost) -> None:
        store = await metadata.connect(session_timeout_ms=10_000)
        await store.create("/e", ephemeral=True)
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        host = simulation.host("a", program)
        host.start()
        await asyncio.sleep(1)
        host.kill()
        await asyncio.sleep(5)
        assert metadata.leader.exists("/e") == 0
        await asyncio.sleep(10)
        assert metadata.leader.exists("/e") is None

    simulation.run(main())


def test_a_lost_reply_may_hide_an_applied_write() -> None:
    outcomes = set()
    for seed in range(40):
        simulation, metadata = _with_metadata(seed, lost_reply_rate=0.2, lost_request_rate=0.2)

        async def main() -> str:
            store = await metadata.connect()
            try:
                await store.create("/x")
            except MetadataUnavailableError:
                at_once = metadata.leader.exists("/x")
                await asyncio.sleep(1)
                later = metadata.leader.exists("/x")
                return f"{at_once} {later}"
            return "known"

        outcomes.add(simulation.run(main()))
    assert outcomes == {"known", "0 0", "None None", "None 0"}


def test_a_follower_lags_until_sync() -> None:
    stale = 0
    for seed in range(20):
        simulation, metadata = _with_metadata(seed, lag_rate=1.0, lag_s_max=5.0)

        async def main() -> int:
            one, two = await metadata.connect(), await metadata.connect()
            await one.create("/x")
            seen = await two.exists("/x")
            await two.sync("/x")
            assert await two.exists("/x") == 0
            return seen is None

        stale += simulation.run(main())
    assert stale > 5
