"""Reads by leases of bookies: their leader is frozen, replaced, and goes on with more reads in its socket."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.core.commands import AnswerStatus
from rsm_spark.core.operation import Message, Operation
from rsm_spark.errors import ConnectionLostError
from rsm_spark.map import messages as m
from rsm_spark.map.client.client import MapClient
from rsm_spark.testing.history import CallerCall, CallerReply, Kind
from rsm_spark.transport.channel import ReplicaChannel
from tests.integration.recorded_callers import check_calls
from tests.integration.store_processes import StoreProcess, stores

pytestmark = pytest.mark.asyncio

_OPTIONS = ("--session-timeout-ms", "2000", "--read-leases-ms", "100")
_KEY = b"counted"
_ROUNDS = 3
_LEASED, _WRITTEN, _LATE = 50, 10, 20
_LIMIT_S = 60.0
_SESSION = b"r" * 16


class _Witness:
    """One writer at whoever leads, and readers of one replica, whatever it is by now; all that they heard is kept.

    Attributes:
        calls: What was asked and answered.
        written: Puts that are acknowledged.
        is_over: The writer is to end.
        writes: Held while a put is under way.

    """

    def __init__(self) -> None:
        self.calls: list[CallerCall] = []
        self.written = 0
        self.is_over = False
        self.writes = asyncio.Lock()
        self._numbers = itertools.count(1)

    async def write(self, store: MapClient) -> None:
        while not self.is_over:
            asked = CallerCall("writer", _KEY, Kind.PUT, time.monotonic(), argument=b"%d" % (self.written + 1))
            async with self.writes:
                revision = await store.put(_KEY, b"%d" % (self.written + 1))
            self.calls.append(asked._replace(ended_s=time.monotonic(), reply=CallerReply(revision=revision)))
            self.written += 1
            await asyncio.sleep(0.005)

    async def read(self, channel: ReplicaChannel, client: str) -> AnswerStatus:
        """Read at this replica; return what became of it."""
        number = next(self._numbers)
        query = Operation(m.encode(m.Get(_KEY)), 0, None, is_query=True)
        asked = CallerCall(client, _KEY, Kind.GET, time.monotonic())
        told = await channel.call(Message(number, _SESSION, False, 0, [], [query]), _LIMIT_S)
        status = AnswerStatus(told.statuses[0]) if told.statuses else AnswerStatus.OK
        if status is AnswerStatus.OK:
            found = m.decode_result(told.payloads[0])
            assert isinstance(found, m.Found)
            reply = CallerReply(value=found.value, revision=found.revision)
            self.calls.append(asked._replace(ended_s=time.monotonic(), reply=reply))
        return status

    async def keep_reading(self, channel: ReplicaChannel, client: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.read(channel, client)
            await asyncio.sleep(0.001)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def _is_read_by_leases(leader: StoreProcess, count: int) -> None:
    """Wait until a leader has answered so many more reads without a message."""
    wanted = (await leader.status())["reads_by_lease"] + count
    async with asyncio.timeout(_LIMIT_S):
        while (await leader.status())["reads_by_lease"] < wanted:
            await asyncio.sleep(0.01)


async def _follows(replica: StoreProcess) -> None:
    """Wait until a replica that led has heard of its successor."""
    async with asyncio.timeout(_LIMIT_S):
        while True:
            try:
                if (await replica.status())["role"] == "follower":
                    return
            except ConnectionLostError:
                pass  # It has just been woken.
            await asyncio.sleep(0.05)


@pytest.mark.timeout(600)
async def test_a_leader_that_was_frozen_with_a_lease_answers_nothing_old_when_it_goes_on(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, *_OPTIONS)
        await replicas.leader()
        witness = _Witness()
        async with await MapClient.connect(unique_name, cluster.metadata_uri, timeout_s=_LIMIT_S) as store:
            await store.put(_KEY, b"0")
            writing = asyncio.create_task(witness.write(store))
            for number in range(_ROUNDS):
                leader = await replicas.leader()
                async with ReplicaChannel(leader.address, unique_name) as channel:
                    stop = asyncio.Event()
                    readers = [
                        asyncio.create_task(witness.keep_reading(channel, f"{number}/{n}", stop)) for n in range(4)
                    ]
                    await _is_read_by_leases(leader, _LEASED)
                    # With an entry of its own on its way it would ask nobody for a lease when it goes on.
                    async with witness.writes:
                        await _is_read_by_leases(leader, _LEASED)
                        leader.pause()
                    wanted = witness.written + _WRITTEN
                    await _until(lambda wanted=wanted: witness.written >= wanted or writing.done())
                    late = [asyncio.create_task(witness.read(channel, f"{number}/late {n}")) for n in range(_LATE)]
                    await asyncio.sleep(0.1)  # They lie in its socket when it goes on.
                    leader.resume()
                    await asyncio.gather(*late)
                    await _follows(leader)
                    stop.set()
                    await asyncio.gather(*readers)
            witness.is_over = True
            await writing
        # What was read before the first put of the writer.
        first = CallerCall("first", _KEY, Kind.PUT, 0.0, argument=b"0")
        check_calls([first, *witness.calls], tmp_path)
