"""Calls of simulated clients by way of a replica that does not lead: the real relay between two simulated streams."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from rsm_spark.core.commands import Answer, Request
from rsm_spark.errors import ConnectionLostError, OverloadedError
from rsm_spark.runtime.relaying import Relay, RelayEnd
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.cluster import ReplicaCluster, UnreachableError
from rsm_spark.testing.received_requests import as_received

_LOST_RATE = 0.03
_LATE_RATE = 0.1
_LATE_S_MAX = 3.0
"""A message on its way to the leader arrives though its relay is over by then."""


class _SimClientEnd:
    """A client with one message, as the relay sees it."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests: Sequence[Request] | None = requests
        self.answers: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()

    async def read(self) -> Any:
        if self._requests is None:
            await asyncio.wait([self.answers])
            return None
        requests, self._requests = self._requests, None
        return requests

    async def write(self, text: Any) -> None:
        if not self.answers.done():
            self.answers.set_result(text)

    async def end(self) -> None:
        """Do nothing."""

    def cut(self) -> None:
        """Do nothing."""


class _SimLeaderEnd:
    """A stream to another replica, over a network that delays and loses."""

    def __init__(self, cluster: ReplicaCluster, name: str, rng: Any) -> None:
        self._cluster = cluster
        self._name = name
        self._rng = rng
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    async def read(self) -> Any:
        answer = await self._answers.get()
        if isinstance(answer, ConnectionLostError):
            raise answer
        return answer

    async def write(self, text: Any) -> None:
        rng = self._rng
        late_s = rng.uniform(0.0, _LATE_S_MAX) if rng.random() < _LATE_RATE else rng.uniform(0.0002, 0.002)
        self._cluster.simulation.after(late_s, self._arrive, text)

    def _arrive(self, requests: Sequence[Request]) -> None:
        cluster = self._cluster
        host, replica = cluster.simulation.hosts[self._name], cluster.replicas.get(self._name)
        if replica is None or not host.is_up or self._rng.random() < _LOST_RATE:
            self._answers.put_nowait(ConnectionLostError(self._name))
            return

        async def serve() -> None:
            answers = list(await replica.submit(as_received(requests)))
            is_lost = self._rng.random() < _LOST_RATE
            told = ConnectionLostError(self._name) if is_lost else answers
            cluster.simulation.after(self._rng.uniform(0.0002, 0.002), self._answers.put_nowait, told)

        host.spawn(serve())

    async def end(self) -> None:
        self._answers.put_nowait(None)

    def cut(self) -> None:
        self._answers.put_nowait(ConnectionLostError(self._name))


async def call_by(
    cluster: ReplicaCluster, name: str, requests: Sequence[Request], timeout_s: float, rng: Any
) -> Sequence[Answer]:
    """Send one message to a replica, which passes it on to the one that leads, as far as it knows.

    Args:
        cluster: The replicas.
        name: Host of the replica that passes on; one that leads answers itself.
        requests: Of the message.
        timeout_s: For the answer.
        rng: Decides what is late and what is lost.

    Raises:
        UnreachableError: No answer in time: nothing is known of the outcome.

    """
    replica = cluster.replicas.get(name)
    if replica is not None and replica.role is ReplicaRole.LEADER:
        return await cluster.call(name, requests, timeout_s)
    await asyncio.sleep(rng.uniform(0.0002, 0.002))
    host = cluster.simulation.hosts[name]
    place = None if replica is None or not host.is_up else replica.leader_place
    if replica is None or place is None:
        raise UnreachableError(name)
    client, room = _SimClientEnd(requests), replica.relays
    leader = _SimLeaderEnd(cluster, place.address.partition(":")[0], rng)

    async def run() -> None:
        try:
            with room.relay_of("client"):
                await Relay(cast("RelayEnd", client), cast("RelayEnd", leader), room, "client").run()
        except (ConnectionLostError, OverloadedError):
            client.answers.cancel()

    host.spawn(run())
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.wait([client.answers])
    except TimeoutError:
        client.answers.cancel()
    if client.answers.cancelled() or rng.random() < _LOST_RATE:
        raise UnreachableError(name)
    return client.answers.result()
