"""Tests of confirmed entries over the framed port and gRPC: told as they are, in turn, and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rsm_spark.core.confirmed_tail import ConfirmedEntry, TailStatus, ToldEntries
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import ConnectionLostError
from rsm_spark.transport import tail_service
from rsm_spark.transport.security import Security
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.tail_client import ReplicaTails
from rsm_spark.transport.tail_service import TailService

_LOG = "orders"
_AT = LogPosition(7, 3)


class _Leader:
    """Tells two entries after each that it is asked about; with `answers` cleared it waits."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked: list[LogPosition] = []
        self.service = TailService(_LOG, self._tell)
        self.server = ReplicaServer(_LOG)
        self.service.add_to(self.server)

    async def _tell(self, position: LogPosition) -> ToldEntries:
        self.asked.append(position)
        await self.answers.wait()
        places = [LogPosition(position.ledger_id, position.entry_id + number) for number in (1, 2)]
        return ToldEntries(TailStatus.TOLD, 5, tuple(ConfirmedEntry(place, b"x" * 1000) for place in places))


@asynccontextmanager
async def _leading() -> AsyncIterator[_Leader]:
    leader = _Leader()
    await leader.server.start(None, lambda: b"{}")  # type: ignore[arg-type]
    try:
        yield leader
    finally:
        await leader.server.stop(0)


@pytest.mark.asyncio
@pytest.mark.parametrize("is_framed", [True, False])
async def test_entries_are_told_in_turn_over_one_stream(is_framed: bool) -> None:
    async with _leading() as leader:
        tails, server = ReplicaTails(_LOG, Security()), leader.server
        for number in range(5):
            at = LogPosition(7, 2 * number)
            told = await tails.entries_after(server.address, server.framed_address if is_framed else "", at)
            assert (told.status, told.leader_epoch) == (TailStatus.TOLD, 5)
            assert [(entry.position.entry_id, len(entry.payload)) for entry in told.entries] == [
                (2 * number + 1, 1000),
                (2 * number + 2, 1000),
            ]
            assert leader.service.follower_count == 1
            assert server.framed_calls == int(is_framed)
        await tails.close()


@pytest.mark.asyncio
async def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next_one() -> None:
    async with _leading() as leader:
        tails, server = ReplicaTails(_LOG, Security()), leader.server
        leader.answers.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await tails.entries_after(server.address, server.framed_address, _AT)
        leader.answers.set()
        told = await tails.entries_after(server.address, server.framed_address, LogPosition(7, 20))
        assert [entry.position.entry_id for entry in told.entries] == [21, 22]
        await tails.close()


@pytest.mark.asyncio
async def test_another_log_is_refused_and_nobody_answers_for_one_that_is_gone() -> None:
    async with _leading() as leader:
        server = leader.server
        with pytest.raises(ConnectionLostError, match="serves the log 'orders'"):
            await ReplicaTails("other", Security()).entries_after(server.address, server.framed_address, _AT)
    with pytest.raises(ConnectionLostError):
        await ReplicaTails(_LOG, Security()).entries_after(server.address, server.framed_address, _AT)


@pytest.mark.asyncio
async def test_so_many_may_follow_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_service, "FOLLOWERS_MAX", 2)
    async with _leading() as leader:
        server = leader.server
        first, second, third = (ReplicaTails(_LOG, Security()) for _ in range(3))
        for tails in (first, second):
            await tails.entries_after(server.address, server.framed_address, _AT)
        with pytest.raises(ConnectionLostError, match="2 follow here already"):
            await third.entries_after(server.address, server.framed_address, _AT)
        await first.close()
        async with asyncio.timeout(30):
            while leader.service.follower_count > 1:
                await asyncio.sleep(0.01)
        assert (await third.entries_after(server.address, server.framed_address, _AT)).entries
        await second.close()
        await third.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("is_framed", [True, False])
async def test_a_server_stops_at_once_though_a_follower_keeps_its_stream_open(is_framed: bool) -> None:
    async with _leading() as leader:
        tails, server = ReplicaTails(_LOG, Security()), leader.server
        await tails.entries_after(server.address, server.framed_address if is_framed else "", _AT)
        assert leader.service.follower_count == 1
        leader.service.close()
        async with asyncio.timeout(30):
            await server.stop(3600)
        assert leader.service.follower_count == 0
        await tails.close()
