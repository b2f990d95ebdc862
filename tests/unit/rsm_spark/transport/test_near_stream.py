"""Clients in the leader's process: by calls, with the same bounds and turns, and elsewhere when it leads no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from rsm_spark.client.replica_connection import ReplicaConnection
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.core.operation import OperationColumn
from rsm_spark.errors import OutcomeUnknownError
from rsm_spark.map import messages as m
from rsm_spark.transport import request_admission as intake
from rsm_spark.transport.near_stream import NearStream
from rsm_spark.transport.server import ReplicaServer
from tests.unit.rsm_spark.client.replica_double import Finder, Group, ReplicaDouble, serve

pytestmark = pytest.mark.asyncio

ANN = "principal ann"


class ForgetfulReplica(ReplicaDouble):
    """Executes what it is given, and gives up some of it without an answer."""

    forgets = False

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness = LINEARIZABLE, owner: str = ""
    ) -> asyncio.Future[Sequence[Answer]]:
        future = super().submit(requests, freshness=freshness, owner=owner)
        if self.forgets:
            future.cancel()
        return future


class NearSite:
    """Two replicas of one log, the first of which is in the process of its clients; no client is named another way."""

    def __init__(self, near: ReplicaDouble, far: ReplicaDouble, servers: list[ReplicaServer]) -> None:
        self.near = near
        self.far = far
        self.server = servers[0]
        self.finder = Finder(servers[0].address, *servers)
        self._far_address = servers[1].address
        self._links: list[ReplicaConnection] = []

    def link(self, owner: str = ANN) -> ReplicaConnection:
        link = ReplicaConnection(self.finder, "orders", near=self.server.near, owner=owner)
        self._links.append(link)
        return link

    def move(self) -> None:
        """The other one leads from now on."""
        self.near.leads, self.far.leads = False, True
        self.near.leader_address = self._far_address
        self.finder.move(self._far_address)

    async def close(self) -> None:
        for link in self._links:
            await link.close()


@asynccontextmanager
async def near_site(near: ReplicaDouble | None = None) -> AsyncIterator[NearSite]:
    near = near or ReplicaDouble(Group())
    far = ReplicaDouble(near.group, leads=False)
    servers = [await serve(near), await serve(far)]
    site = NearSite(near, far, servers)
    try:
        yield site
    finally:
        await site.close()
        for server in servers:
            await server.stop(0)


def put(number: int) -> bytes:
    return m.encode(m.Put(b"k%d" % number, b"v"))


async def answered(link: ReplicaConnection, *numbers: int) -> OperationColumn:
    column = await link.submit_many([put(number) for number in numbers], 60, is_query=False)
    assert len(list(link.answers_of(column))) == len(numbers)
    return column


def commands(double: ReplicaDouble) -> list[list[int]]:
    """Return the sequences of the commands in each message that a replica got."""
    return [[one.sequence for one in sent if isinstance(one, Command)] for sent in double.submissions]


async def test_what_is_sent_before_the_loop_comes_round_is_one_message_and_no_connection_is_made() -> None:
    async with near_site() as site:
        link = site.link()
        await answered(link, 0)
        together = [link.submit(put(number), 60, is_query=False) for number in range(1, 6)]
        read = link.submit(m.encode(m.Get(b"k5")), 60, is_query=True)
        for operation in await asyncio.gather(*together, read):
            link.check(operation)
        assert m.decode_result((await read).payload) == m.Found(b"v", 7, 7, 1)
        assert commands(site.near) == [[], [1], [2, 3, 4, 5, 6]]
        assert site.near.owners == {ANN}
        assert link.address == site.server.address
        assert site.server.seats.taken == 0
        assert site.server.bytes_in_work == 0


async def test_what_comes_meanwhile_waits_for_no_answer_up_to_a_bound() -> None:
    async with near_site() as site:
        link = site.link()
        await answered(link, 0)
        gate = site.near.gate = asyncio.Event()
        begun = len(site.near.submissions)
        waiting = []
        for number in range(2 * NearStream.messages_max):
            waiting.append(link.submit(put(number), 60, is_query=False))
            for _ in range(3):  # The loop comes round.
                await asyncio.sleep(0)
        assert commands(site.near)[begun:] == [[number + 2] for number in range(NearStream.messages_max)]
        gate.set()
        for operation in await asyncio.gather(*waiting):
            link.check(operation)
        assert len(commands(site.near)[begun:]) < 2 * NearStream.messages_max, "the others went together"


async def test_a_replica_that_does_not_lead_is_left_and_what_was_on_its_way_is_done_once() -> None:
    async with near_site() as site:
        link = site.link()
        await answered(link, 0)
        site.near.refuse = lambda request: AnswerStatus.OUTCOME_UNKNOWN if isinstance(request, Command) else None
        waiting = asyncio.create_task(answered(link, 1, 2))
        while len(site.near.submissions) < 3:
            await asyncio.sleep(0.001)
        site.move()
        assert (await waiting).revisions == [3, 4]
        assert link.address == site._far_address
        session = site.near.group.executed[0][0]
        assert site.near.group.executed == [(session, number + 1, put(number)) for number in range(3)]
        assert site.far.owners == {"address 127.0.0.1"}
        # And back again, when it leads.
        site.near.refuse, site.near.leads, site.far.leads = lambda _request: None, True, False
        site.finder.move(site.server.address)
        await answered(link, 3)
        assert commands(site.near)[-1] == [4]


async def test_a_command_that_was_applied_and_not_answered_is_not_applied_again() -> None:
    near = ForgetfulReplica(Group())
    async with near_site(near) as site:
        link = site.link()
        await answered(link, 0)
        near.forgets = True
        waiting = asyncio.create_task(answered(link, 1))
        while len(near.group.executed) < 2:
            await asyncio.sleep(0.001)
        site.move()
        await waiting
        assert len(near.group.executed) == 2


async def test_a_server_that_stops_answers_what_it_took_and_clients_go_on_elsewhere() -> None:
    async with near_site() as site:
        link = site.link()
        await answered(link, 0)
        gate = site.near.gate = asyncio.Event()
        taken = asyncio.create_task(answered(link, 1))
        while len(site.near.submissions) < 3:
            await asyncio.sleep(0.001)
        stopping = asyncio.create_task(site.server.stop(600))
        await asyncio.sleep(0)
        later = asyncio.create_task(answered(link, 2))
        await asyncio.sleep(0)
        assert not site.server.near.is_at(site.server.address)
        gate.set()
        assert (await taken).revisions == [3]
        site.move()
        await later
        await stopping
        assert commands(site.near)[-1] == [2]
        assert commands(site.far)[-1] == [3]


async def test_one_caller_has_half_of_what_may_be_in_work_and_another_one_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "WORK_BYTES_MAX", 200_000)
    async with near_site() as site:
        flood, victim = site.link(), site.link("principal victim")
        await answered(flood, 0)
        await answered(victim, 1)
        gate = site.near.gate = asyncio.Event()
        large = m.encode(m.Put(b"large", b"v" * 60_000))
        flooding = [flood.submit(large, 60, is_query=False)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        flooding.append(flood.submit(large, 60, is_query=False))
        other = asyncio.create_task(answered(victim, 2))
        while len(site.near.submissions) < 6:
            await asyncio.sleep(0.001)
        assert site.server.bytes_in_work < 100_000, "the second large one has no room"
        gate.set()
        await other
        for operation in await asyncio.gather(*flooding):
            flood.check(operation)
        assert site.near.owners == {ANN, "principal victim"}
        assert site.server.bytes_in_work == 0


async def test_sessions_are_opened_as_over_a_connection() -> None:
    async with near_site() as site:
        first, second = site.link(), site.link("principal bob")
        await asyncio.gather(answered(first, 0), answered(second, 1))
        opened = {one.session for sent in site.near.submissions for one in sent if isinstance(one, OpenSession)}
        assert len(opened) == 2
        site.near.refuse = lambda request: AnswerStatus.SESSION_EXPIRED if isinstance(request, Command) else None
        waiting = asyncio.create_task(answered(first, 2))
        while len(site.near.submissions) < 5:
            await asyncio.sleep(0.001)
        site.near.refuse = lambda _request: None
        await waiting
        assert len({session for session, _, _ in site.near.group.executed}) == 3


async def test_a_link_that_is_closed_gives_up_what_waits() -> None:
    async with near_site() as site:
        link = site.link()
        await answered(link, 0)
        gate = site.near.gate = asyncio.Event()
        waiting = link.submit(put(1), 60, is_query=False)
        while len(site.near.submissions) < 3:
            await asyncio.sleep(0.001)
        await link.close()
        gate.set()
        with pytest.raises(OutcomeUnknownError):
            link.check(await waiting)
