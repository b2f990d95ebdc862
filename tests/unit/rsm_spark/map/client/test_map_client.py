"""The map's clients against real servers, whose replicas keep their log in memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rsm_spark.client.leader_finder import FixedReplica
from rsm_spark.core.commands import AnswerStatus, Command
from rsm_spark.core.operation import StreamLimits
from rsm_spark.errors import InvalidCommandError, NoLeaderError, NotLeaderError, OutcomeUnknownError
from rsm_spark.map import messages as m
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.client.results import CompareResult, MapValue
from rsm_spark.transport.server import ReplicaServer
from tests.unit.rsm_spark.client.replica_double import Finder, Group, ReplicaDouble, serve

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("transport")]


class SpreadFinder(Finder):
    """Knows of no follower yet."""

    async def find_followers(self, on_change: Callable[[], None]) -> list[str]:  # noqa: ARG002 - as `FollowerFinder` has it
        return []


class Pair:
    """Two replicas of one log, the first leads, and a client."""

    def __init__(self, group: Group, doubles: list[ReplicaDouble], servers: list[ReplicaServer]) -> None:
        self.group = group
        self.doubles = doubles
        self.servers = servers
        self.finder = Finder(servers[0].address, *servers)
        self.client = MapClient(self.finder, "orders", timeout_s=60)

    def fail_over(self) -> None:
        self.doubles[0].leads, self.doubles[1].leads = False, True


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    group = Group()
    doubles = [ReplicaDouble(group), ReplicaDouble(group, leads=False)]
    servers = [await serve(double) for double in doubles]
    both = Pair(group, doubles, servers)
    try:
        yield both
    finally:
        await both.client.close()
        for server in servers:
            await server.stop(0)


async def test_what_is_put_is_found_until_it_is_deleted() -> None:
    async with pair() as p:
        revision = await p.client.put(b"a", b"1")
        assert await p.client.get(b"a") == MapValue(b"1", revision, revision, 1)
        assert await p.client.delete(b"a") == revision + 1
        assert await p.client.delete(b"a") is None
        assert await p.client.get(b"a") is None
        assert p.client.address == p.servers[0].address


async def test_compare_and_set_tells_the_revision_either_way() -> None:
    async with pair() as p:
        first = await p.client.compare_and_set(b"a", expected=None, value=b"1")
        assert first.succeeded
        assert await p.client.compare_and_set(b"a", expected=None, value=b"2") == CompareResult(False, first.revision)
        second = await p.client.compare_and_set(b"a", expected=first.revision, value=b"2")
        assert second.succeeded
        gone = await p.client.compare_and_set(b"a", expected=b"2", value=None)
        assert gone.succeeded
        assert await p.client.get(b"a") is None


async def test_a_scan_goes_over_its_pages_in_order() -> None:
    async with pair() as p:
        await p.client.put_many((b"k/%02d" % n, b"v") for n in range(25))
        await p.client.put(b"l", b"other")
        page = await p.client.scan_page(b"k/", limit=10)
        assert (len(page.rows), page.next_start, page.revision) == (10, b"k/10", p.group.revision)
        assert [row.key async for row in p.client.scan(prefix=b"k/")] == [b"k/%02d" % n for n in range(25)]
        assert [row.key async for row in p.client.scan(start=b"k/20", end=b"k/22")] == [b"k/20", b"k/21"]
        assert [row.key async for row in p.client.scan(limit=3)] == [b"k/00", b"k/01", b"k/02"]
        keys = [row async for row in p.client.scan(prefix=b"k/1", keys_only=True)]
        assert [(row.key, row.value) for row in keys] == [(b"k/%02d" % n, b"") for n in range(10, 20)]
        assert {row.value for row in (await p.client.scan_page(keys_only=True)).rows} == {b""}
        assert (await p.client.count(), await p.client.count(prefix=b"k/1")) == (26, 10)
        assert await p.client.count(start=b"k/20", end=b"k/22") == 2


async def test_calls_made_together_travel_in_one_message() -> None:
    async with pair() as p:
        await asyncio.gather(*(p.client.put(b"%d" % n, b"v") for n in range(50)))
        assert max(len(requests) for requests in p.doubles[0].submissions) >= 50


async def test_a_client_of_one_replica_that_leads_and_one_whose_reads_followers_answer_write_too() -> None:
    async with pair() as p:
        async with MapClient(FixedReplica(p.servers[0].address), "orders", is_stale=True, timeout_s=60) as one:
            assert await one.put(b"a", b"1") == p.group.revision
            assert await one.put_many([(b"b", b"2"), (b"c", b"3")]) == [p.group.revision - 1, p.group.revision]
        finder = SpreadFinder(p.servers[0].address, *p.servers)
        async with MapClient(finder, "orders", followers=finder, is_indexed=True, timeout_s=60) as spread:
            assert await spread.put(b"d", b"4") == p.group.revision


async def test_what_is_answered_is_freed_without_the_garbage_collector() -> None:
    async with pair() as p:
        one = await p.client._link.submit(m.encode(m.Get(b"a")), 30.0, is_query=True)
        many = await p.client._link.submit_many([m.encode(m.Get(b"a"))] * 3, 30.0, is_query=True)
        assert one.ticket is None, "the future refers to the operation"
        await asyncio.sleep(0)  # The event loop lets go of the future.
        references = sys.getrefcount(many)
        assert references == 2, "more than the name here, and the call, refers to the column"


async def test_put_many_answers_each_revision_in_order() -> None:
    async with pair() as p:
        revisions = await p.client.put_many((b"%d" % n, b"v") for n in range(5_000))
        assert revisions == sorted(set(revisions))
        assert len(revisions) == 5_000
        assert await p.client.put_many([]) == []
        assert [v is not None for v in await p.client.get_many([b"1", b"x"])] == [True, False]


@pytest.mark.parametrize("key", [b"", b"k" * 4097])
async def test_a_key_that_is_none_is_refused_before_it_is_sent(key: bytes) -> None:
    async with pair() as p:
        with pytest.raises(InvalidCommandError, match="1 to 4096 bytes"):
            await p.client.put(key, b"")
        assert p.doubles[0].submissions == []


async def test_text_is_refused_with_a_word_on_what_to_do() -> None:
    async with pair() as p:
        with pytest.raises(InvalidCommandError, match="encode it"):
            await p.client.put("a", b"")  # type: ignore[arg-type]
        with pytest.raises(InvalidCommandError, match="encode it"):
            await p.client.put(b"a", "b")  # type: ignore[arg-type]
        with pytest.raises(InvalidCommandError, match="not both"):
            [row async for row in p.client.scan(prefix=b"a", start=b"b")]


async def test_large_values_come_back_in_pieces() -> None:
    async with pair() as p:
        large = b"v" * 1_000_000
        await p.client.put_many((b"%d" % n, large) for n in range(12))
        found = await p.client.get_many(b"%d" % n for n in range(12))
        assert [value.value == large for value in found if value] == [True] * 12


async def test_a_client_follows_the_leader_that_a_replica_names() -> None:
    async with pair() as p:
        await p.client.put(b"a", b"1")
        p.fail_over()
        p.doubles[0].leader_address = p.servers[1].address
        await p.client.put(b"b", b"1")
        assert p.client.address == p.servers[1].address
        assert [payload for _, _, payload in p.group.executed] == [payload for _, _, payload in p.group.executed[:2]]


async def test_a_client_follows_the_leader_that_the_metadata_store_names_though_the_old_one_is_silent() -> None:
    async with pair() as p:
        await p.client.put(b"a", b"1")
        p.doubles[0].gate = asyncio.Event()
        pending = asyncio.create_task(p.client.put(b"b", b"2"))
        while len(p.doubles[0].submissions) < 3:
            await asyncio.sleep(0.001)
        p.fail_over()
        p.finder.move(p.servers[1].address)
        await pending
        assert len(p.group.executed) == 2, "the command was executed on both"
        assert p.client.address == p.servers[1].address


async def test_a_client_does_not_go_back_to_a_dead_leader_that_its_successor_still_names() -> None:
    async with pair() as p:
        await p.client.put(b"a", b"1")
        dead = p.servers[0].address
        await p.servers[0].stop(0)
        waiting = asyncio.create_task(p.client.put(b"a", b"2"))
        while p.client.address:
            await asyncio.sleep(0.01)
        refused = 0

        def _refuse(_: object) -> AnswerStatus | None:
            nonlocal refused
            refused += 1
            return AnswerStatus.NOT_LEADER if refused < 8 else None

        p.doubles[1].leads, p.doubles[1].leader_address, p.doubles[1].refuse = True, dead, _refuse
        p.finder.move(p.servers[1].address)
        while refused < 1:
            await asyncio.sleep(0.01)
        stranger = ReplicaDouble(p.group, leads=False)
        server = await serve(stranger, port=int(dead.rpartition(":")[2]))
        await waiting
        await server.stop(0)
        assert stranger.submissions == []


async def test_a_command_whose_answer_was_lost_is_answered_from_the_log_not_applied_twice() -> None:
    async with pair() as p:
        counter = await p.client.compare_and_set(b"n", expected=None, value=b"0")
        gate = p.doubles[0].gate = asyncio.Event()
        pending = asyncio.create_task(p.client.compare_and_set(b"n", expected=counter.revision, value=b"1"))
        while len(p.group.executed) < 2:
            await asyncio.sleep(0.001)
        await p.servers[0].stop(0)  # The leader dies after it has committed, before it has answered.
        p.fail_over()
        p.finder.move(p.servers[1].address)
        assert (await pending).succeeded
        assert len(p.group.executed) == 2
        gate.set()


async def test_eight_writers_lose_nothing_and_double_nothing_while_the_leader_moves() -> None:
    async with pair() as p:
        p.doubles[0].leader_address = p.servers[1].address
        p.doubles[1].leader_address = p.servers[0].address

        async def count(key: bytes) -> int:
            value = 0
            result = await p.client.compare_and_set(key, expected=None, value=b"0")
            for value in range(1, 40):
                result = await p.client.compare_and_set(key, expected=result.revision, value=b"%d" % value)
                assert result.succeeded
            return value

        async def disturb() -> None:
            for n in range(12):
                await asyncio.sleep(0.01)
                p.doubles[n % 2].leads, p.doubles[(n + 1) % 2].leads = False, True
                p.finder.move(p.servers[(n + 1) % 2].address)

        results, _ = await asyncio.gather(asyncio.gather(*(count(b"c%d" % n) for n in range(8))), disturb())
        assert results == [39] * 8
        assert len(p.group.executed) == 8 * 40


async def test_an_overloaded_leader_gets_the_same_commands_again_later() -> None:
    async with pair() as p:
        refusals = iter([AnswerStatus.OVERLOADED] * 3)
        p.doubles[0].refuse = lambda request: next(refusals, None) if isinstance(request, Command) else None
        assert len(await p.client.put_many((b"%d" % n, b"") for n in range(10))) == 10
        assert [sequence for _, sequence, _ in p.group.executed] == list(range(1, 11))


async def test_an_expired_session_is_replaced_unseen() -> None:
    async with pair() as p:
        await p.client.put(b"a", b"1")
        p.group.sessions.expire(p.group.executed[0][0], p.group.revision)
        await asyncio.gather(*(p.client.put(b"%d" % n, b"2") for n in range(20)))
        assert len(p.group.executed) == 21
        assert len({session for session, _, _ in p.group.executed}) == 2


async def test_no_leader_in_time_is_said_with_the_reason_and_nothing_was_applied() -> None:
    finder = Finder(None)
    finder.trouble = "no replica has claimed the log yet"
    async with MapClient(finder, "orders", timeout_s=0.2) as client:
        with pytest.raises(NoLeaderError, match="not applied.*no replica has claimed"):
            await client.put(b"a", b"1")
        with pytest.raises(NoLeaderError):
            await client.get(b"a")


async def test_a_command_without_an_answer_in_time_is_unknown_and_later_ones_go_on() -> None:
    async with pair() as p:
        await p.client.put(b"a", b"1")
        gate = p.doubles[0].gate = asyncio.Event()
        with pytest.raises(OutcomeUnknownError, match="may have been applied"):
            await p.client.put(b"b", b"1", timeout_s=0.2)
        p.doubles[0].gate = None
        gate.set()
        await p.client.put(b"c", b"1")
        last = p.doubles[0].submissions[-1][-1]
        assert isinstance(last, Command)
        assert last.answered_up_to == 2


async def test_a_replica_that_does_not_lead_answers_reads_and_refuses_writes_when_asked_for() -> None:
    async with pair() as p:
        await p.client.put(b"a", b"1")
        async with MapClient(FixedReplica(p.servers[1].address), "orders", is_stale=True) as reader:
            assert (await reader.get(b"a")) is not None
            with pytest.raises(NotLeaderError, match="does not lead"):
                await reader.put(b"a", b"2")


async def test_a_replica_of_another_log_is_not_written_to() -> None:
    async with pair() as p, MapClient(Finder(p.servers[0].address), "other", timeout_s=0.3) as client:
        with pytest.raises((NoLeaderError, OutcomeUnknownError), match="serves the log 'orders'"):
            await client.put(b"a", b"1")
        assert p.doubles[0].submissions == []


async def test_closing_ends_what_still_waits() -> None:
    client = MapClient(Finder(None), "orders")
    waiting = asyncio.create_task(client.put(b"a", b"1"))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(NoLeaderError):
        await waiting
    with pytest.raises(NoLeaderError, match="closed"):
        await client.put(b"a", b"1")


async def test_a_message_larger_than_its_limit_is_split() -> None:
    async with pair() as p:
        client = MapClient(p.finder, "orders", limits=StreamLimits(message_bytes_max=1000))
        async with client:
            await client.put_many((b"%d" % n, b"v" * 400) for n in range(9))
        assert max(len(requests) for requests in p.doubles[0].submissions) <= 3
        assert len(p.group.executed) == 9
