"""Reads spread over followers, against real servers: who is asked, and who next when that one cannot answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rsm_spark.client.leader_finder import FixedReplica
from rsm_spark.client.replica_connection import ReplicaConnection
from rsm_spark.core.commands import AnswerStatus, Command, Query
from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness, ReadKind, at_least, bounded
from rsm_spark.core.operation import Operation, StreamLimits
from rsm_spark.errors import NotReadyError, OverloadedError, TooStaleError
from rsm_spark.map import messages as m
from rsm_spark.transport.server import ReplicaServer
from tests.unit.rsm_spark.client.replica_double import Finder, Group, ReplicaDouble, serve

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("transport")]

GET = m.encode(m.Get(b"k"))


class Followers(Finder):
    """Names the leader and the followers that the test sets."""

    def __init__(self, leader: str | None, followers: list[str], *servers: ReplicaServer) -> None:
        super().__init__(leader, *servers)
        self.followers = followers

    async def find_followers(self, on_change: Callable[[], None]) -> list[str]:
        self._watchers.append(on_change)
        return self.followers


class Trio:
    """A leader, two followers, a link that reads from any."""

    def __init__(self, doubles: list[ReplicaDouble], servers: list[ReplicaServer], limits: StreamLimits | None) -> None:
        self.doubles = doubles
        self.servers = servers
        self.finder = Followers(servers[0].address, [server.address for server in servers[1:]], *servers)
        self.link = ReplicaConnection(self.finder, "orders", followers=self.finder, limits=limits)

    async def put(self) -> int:
        operation = await self.link.submit(m.encode(m.Put(b"k", b"v")), 10, is_query=False)
        self.link.check(operation)
        return operation.revision

    async def read(self, freshness: Freshness | None, timeout_s: float = 10) -> Operation:
        operation = await self.link.submit(GET, timeout_s, is_query=True, freshness=freshness)
        self.link.check(operation)
        assert m.decode_result(operation.payload) == m.Found(b"v", 2, 2, 1)
        return operation

    def queries(self) -> list[int]:
        """Return how many queries each replica got."""
        return [sum(isinstance(one, Query) for sent in double.submissions for one in sent) for double in self.doubles]


@asynccontextmanager
async def trio(limits: StreamLimits | None = None) -> AsyncIterator[Trio]:
    group = Group()
    doubles = [ReplicaDouble(group), ReplicaDouble(group, leads=False), ReplicaDouble(group, leads=False)]
    servers = [await serve(double) for double in doubles]
    for double in doubles[1:]:
        double.leader_address = servers[0].address
    three = Trio(doubles, servers, limits)
    assert await three.put() == 2
    try:
        yield three
    finally:
        await three.link.close()
        for server in servers:
            await server.stop(0)


async def test_reads_that_need_not_be_linearizable_go_to_the_followers_in_turn() -> None:
    async with trio() as three:
        for freshness in (STALE, at_least(), bounded(max_lag_ms=1_000)) * 4:
            await three.read(freshness)
        assert three.queries() == [0, 6, 6]
        assert three.link.follower_reads == 12
        await three.read(LINEARIZABLE)
        await three.read(None)
        assert three.queries() == [2, 6, 6]
        assert not any(isinstance(one, Command) for sent in three.doubles[1].submissions for one in sent)


async def test_reads_that_are_made_together_travel_together() -> None:
    async with trio() as three:
        column = await three.link.submit_many([GET] * 500, 10, is_query=True, freshness=STALE)
        assert len(list(three.link.answers_of(column))) == 500
        assert sorted(three.queries()) == [0, 0, 500]
        assert len(three.doubles[1].submissions + three.doubles[2].submissions) == 1


async def test_a_session_read_asks_for_the_highest_revision_that_the_client_has_seen() -> None:
    async with trio() as three:
        revision = await three.put()
        await three.link.submit(GET, 10, is_query=True, freshness=at_least())
        asked = [one for double in three.doubles[1:] for one in double.reads if one.kind is ReadKind.SESSION]
        assert asked == [at_least(revision)]
        await three.link.submit(GET, 10, is_query=True, freshness=at_least(1))
        assert at_least(1) in three.doubles[1].reads + three.doubles[2].reads


@pytest.mark.parametrize("status", [AnswerStatus.TOO_STALE, AnswerStatus.NOT_READY, AnswerStatus.OVERLOADED])
async def test_what_a_follower_cannot_answer_another_replica_does(status: AnswerStatus) -> None:
    async with trio() as three:
        for double in three.doubles[1:]:
            double.refuse = lambda _request: status
        for _ in range(4):
            await three.read(STALE)
        assert three.link.follower_reads == 0


async def test_a_follower_that_is_gone_costs_no_read() -> None:
    async with trio() as three:
        await three.servers[1].stop(0)
        for _ in range(6):
            await three.read(STALE)
        assert three.queries()[0] == 0, "the other follower answers"
        await three.servers[2].stop(0)
        for _ in range(4):
            await three.read(STALE)
        assert three.queries()[0] == 4, "the leader answers what no follower can"


async def test_a_follower_that_hangs_is_left_after_a_second() -> None:
    async with trio() as three:
        for double in three.doubles[1:]:
            double.gate = asyncio.Event()
        await three.read(STALE, timeout_s=8)
        assert three.queries()[0] == 1
        for double in three.doubles[1:]:
            double.gate.set()


async def test_followers_answer_while_nobody_leads() -> None:
    async with trio() as three:
        three.finder.move(None)
        await three.servers[0].stop(0)
        for _ in range(4):
            await three.read(STALE)
        assert three.link.follower_reads == 4


async def test_replicas_that_come_and_go_are_noticed() -> None:
    async with trio() as three:
        await three.read(STALE)
        three.finder.followers = [three.servers[2].address]
        three.finder.move(three.finder.address)
        before = three.queries()[1]
        while "rsm-read-lane-" + three.servers[1].address in {task.get_name() for task in asyncio.all_tasks()}:
            await asyncio.sleep(0.001)
        for _ in range(4):
            await three.read(STALE)
        assert three.queries()[1] == before


async def test_the_refusal_of_the_one_replica_that_was_asked_for_is_final_and_says_why() -> None:
    async with trio() as three:
        double = three.doubles[1]
        link = ReplicaConnection(FixedReplica(three.servers[1].address), "orders", is_one_replica=True)
        assert (await link.submit(GET, 10, is_query=True)).revision == 2
        assert double.reads[-1] == STALE
        double.refuse = lambda _request: AnswerStatus.TOO_STALE
        with pytest.raises(TooStaleError, match="not new enough"):
            link.check(await link.submit(GET, 10, is_query=True, freshness=bounded(max_lag_ms=5)))
        double.refuse = lambda _request: AnswerStatus.NOT_READY
        with pytest.raises(NotReadyError, match="installs a snapshot"):
            link.check(await link.submit(GET, 10, is_query=True))
        await link.close()


async def test_calls_beyond_what_may_wait_are_refused_at_once() -> None:
    async with trio(StreamLimits(waiting_operations_max=10)) as three:
        gate = three.doubles[0].gate = asyncio.Event()
        waiting = three.link.submit_many([GET] * 8, 10, is_query=True)
        with pytest.raises(OverloadedError, match="none of them was sent"):
            three.link.submit_many([GET] * 3, 10, is_query=True)
        last = three.link.submit_many([GET] * 2, 10, is_query=True)
        gate.set()
        assert len((await waiting).answers) + len((await last).answers) == 10
        assert len((await three.link.submit_many([GET] * 10, 10, is_query=True)).answers) == 10


async def test_a_leader_that_stays_overloaded_is_told_as_such() -> None:
    async with trio() as three:
        three.doubles[0].refuse = lambda _request: AnswerStatus.OVERLOADED
        operation = await three.link.submit(GET, 0.3, is_query=True)
        with pytest.raises(OverloadedError, match="queues were full"):
            three.link.check(operation)


async def test_a_closed_client_leaves_no_task_and_no_connection_behind() -> None:
    async with trio() as three:
        await three.read(STALE)
        await three.read(LINEARIZABLE)
        await three.link.close()
        left = {task.get_name() for task in asyncio.all_tasks()}
        assert not [name for name in left if name.startswith("rsm-")]
