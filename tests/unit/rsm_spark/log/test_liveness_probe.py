"""What proves that a process is gone, on real connections; and what the election makes of it."""

from __future__ import annotations

import asyncio

import pytest

from ledger.testing.simulation import Simulation
from rsm_spark.core.leadership_ends import ElectionFinding, LeaderEnd
from rsm_spark.log.election import Election, election_path
from rsm_spark.log.liveness_probe import LivenessProbe
from rsm_spark.log.member import Member


class Served:
    """A process that serves at an address and drops connections on demand."""

    def __init__(self) -> None:
        self.address = ""
        self.connections: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.connected = asyncio.Event()

    async def start(self) -> None:
        port = int(self.address.rpartition(":")[2] or 0)
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", port)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _on_connection(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        self.connected.set()

    def drop(self) -> None:
        dropped, self.connections = self.connections, []
        self.connected.clear()
        for writer in dropped:
            writer.close()

    def die(self) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()


class Members:
    """A discovery that knows what the test says, and counts how often it is asked."""

    def __init__(self, *members: Member) -> None:
        self.known = list(members)
        self.asked = 0

    async def members(self) -> list[Member]:
        self.asked += 1
        return self.known


def watched(served: Served) -> tuple[Members, asyncio.Task[None]]:
    members = Members(Member("a", "one", served.address))
    lifeline = LivenessProbe(members, retry_s=0.01)  # type: ignore[arg-type]
    return members, asyncio.create_task(lifeline.until_dead("one"))


@pytest.mark.asyncio
async def test_a_process_is_gone_when_its_connection_ends_and_its_host_refuses_another() -> None:
    served = Served()
    await served.start()
    _, death = watched(served)
    await served.connected.wait()
    served.die()
    await death


@pytest.mark.asyncio
async def test_a_process_that_drops_its_connections_and_takes_new_ones_lives() -> None:
    served = Served()
    await served.start()
    _, death = watched(served)
    for _ in range(3):
        await served.connected.wait()
        served.drop()
    await served.connected.wait()
    assert not death.done()
    served.die()
    await death


@pytest.mark.asyncio
async def test_an_address_that_was_never_reached_proves_nothing() -> None:
    served = Served()
    await served.start()
    served.die()
    _, death = watched(served)
    await asyncio.sleep(0.3)  # Long enough for three refusals.
    assert not death.done()
    await served.start()
    await served.connected.wait()
    served.die()
    await death


@pytest.mark.asyncio
async def test_a_process_that_nobody_advertises_is_looked_for_again() -> None:
    served = Served()
    await served.start()
    members, death = watched(served)
    members.known = [Member("a", "another", served.address), Member("b", "one", "")]
    while members.asked < 3:
        await asyncio.sleep(0.01)
    assert not served.connected.is_set()
    assert not death.done()
    death.cancel()
    served.die()


# ---- the election, simulated


def test_the_next_in_line_wins_when_the_one_before_is_gone_and_its_session_still_lives() -> None:
    simulation = Simulation(1)

    async def program() -> None:
        first, second = [await simulation.metadata.connect() for _ in range(2)]
        assert await Election(first, "orders", "one").win() == ElectionFinding(LeaderEnd.NOT_IN_LINE)
        gone, asked = asyncio.Event(), []

        async def until_dead(incarnation: str) -> LeaderEnd:
            asked.append(incarnation)
            await gone.wait()
            return LeaderEnd.SILENT

        candidate = Election(second, "orders", "two", until_dead=until_dead)
        winning = asyncio.create_task(candidate.win())
        await asyncio.sleep(5)
        assert not winning.done()
        gone.set()
        async with asyncio.timeout(0.5):
            assert await winning == ElectionFinding(LeaderEnd.SILENT, "one")
        assert asked == ["one"]
        assert [name.partition("-")[0] for name in await second.children(election_path("orders"))] == ["two"]

    simulation.run(program(), limit_s=60)


def test_a_third_in_line_watches_the_second_and_leaves_the_first_alone() -> None:
    simulation = Simulation(2)

    async def program() -> None:
        sessions = [await simulation.metadata.connect() for _ in range(3)]
        deaths = {name: asyncio.Event() for name in ("one", "two", "three")}

        async def dead(incarnation: str) -> LeaderEnd:
            await deaths[incarnation].wait()
            return LeaderEnd.PROCESS_GONE

        elections = [
            Election(session, "orders", name, until_dead=dead) for session, name in zip(sessions, deaths, strict=True)
        ]
        await elections[0].win()
        waiting = [asyncio.create_task(elections[1].win())]
        await asyncio.sleep(1)
        waiting.append(asyncio.create_task(elections[2].win()))
        await asyncio.sleep(1)
        waiting[0].cancel()
        deaths["two"].set()  # Its node goes, and the third is behind the first now.
        await asyncio.sleep(3)
        assert not waiting[1].done()
        deaths["one"].set()
        assert await waiting[1] == ElectionFinding(LeaderEnd.PROCESS_GONE, "one")

    simulation.run(program(), limit_s=60)
