"""The load: clients side by side, each owning the tail numbers that hash to it, put one flight after the other.

``python -m rsm_demo.loader METADATA_URI LOG CLIENTS [LIMIT]``. Told ``{"up_to": n}`` it puts that many flights, then
waits to be told more; told ``{"killed_at": t}`` (this machine's monotonic clock) it measures the time until the first
put begun after t is acknowledged. Every put writes the whole account of its tail number, so an account lacks a flight
exactly if that acknowledged put is lost.
"""

from __future__ import annotations

import asyncio
import collections
import sys
import time
from collections.abc import Sequence

from ledger.errors import LedgerError
from ledger.zookeeper.session import connect
from ledger.zookeeper.uri import MetadataUri
from rsm_demo.flights import Aircraft, Flight, read_flights, share_of
from rsm_demo.speech import listen, say
from rsm_spark.errors import RsmError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.map.client.client import MapClient

_WAVE = 64
_WAVES_IN_FLIGHT = 4
_SAY_EVERY_S = 0.2
_PUT_S_MAX = 120.0


class _Load:
    """Results of all clients of this process so far."""

    def __init__(self) -> None:
        self.acked_by_tail: collections.Counter[str] = collections.Counter()
        self.acked = 0
        self.revision = 0
        self.failover_s: list[float] = []
        self._killed_at: float | None = None
        self._begun = 0
        self._ceiling = 0.0
        self._raised = asyncio.Event()

    def on_message(self, message: dict[str, float]) -> None:
        """Note a kill, or how far the load may go."""
        if "killed_at" in message:
            self._killed_at = message["killed_at"]
        if "up_to" in message:
            self._ceiling = message["up_to"]
            self._raised.set()

    async def begin(self, count: int) -> None:
        """Wait until the next flights may be put; the last wave may reach beyond the ceiling."""
        while self._begun >= self._ceiling:
            self._raised.clear()
            await self._raised.wait()
        self._begun += count

    def on_acked(self, wave: Sequence[Flight], begun_at: float, revisions: Sequence[int]) -> None:
        """Note a wave of puts that was acknowledged."""
        self.acked += len(wave)
        self.revision = max(self.revision, *revisions)
        self.acked_by_tail.update(flight.tail for flight in wave)
        if self._killed_at is not None and begun_at > self._killed_at:
            self.failover_s.append(round(time.monotonic() - self._killed_at, 3))
            self._killed_at = None

    def say(self, **more: object) -> None:
        """Tell the conductor."""
        say({"acked": self.acked, "revision": self.revision, "failover_s": self.failover_s, **more})


async def main(metadata_uri: str, log_name: str, client_count: str, limit: str | None = None) -> None:
    """Load everything, then say it and wait for the end of standard input."""
    shares: list[list[Flight]] = [[] for _ in range(int(client_count))]
    for flight in read_flights(int(limit) if limit else None):
        shares[share_of(flight.tail, len(shares))].append(flight)
    load = _Load()
    listening = listen(load.on_message)
    say({"ready": True, "total": sum(map(len, shares))})
    loop = asyncio.get_running_loop()
    watching = loop.create_task(_watch_leader(load, metadata_uri, log_name))
    async with asyncio.TaskGroup() as group:
        for share in shares:
            group.create_task(_run_client(load, share, metadata_uri, log_name))
    load.say(done=True, acked_by_tail=dict(load.acked_by_tail))
    await listening
    watching.cancel()


async def _run_client(load: _Load, share: Sequence[Flight], metadata_uri: str, log_name: str) -> None:
    accounts: collections.defaultdict[str, Aircraft] = collections.defaultdict(Aircraft)
    room = asyncio.Semaphore(_WAVES_IN_FLIGHT)
    async with (
        await MapClient.connect(log_name, metadata_uri, timeout_s=_PUT_S_MAX) as client,
        asyncio.TaskGroup() as group,
    ):
        for first in range(0, len(share), _WAVE):
            wave = share[first : first + _WAVE]
            await room.acquire()
            await load.begin(len(wave))
            items = [(flight.tail.encode(), accounts[flight.tail].add(flight)) for flight in wave]
            group.create_task(_put(load, client, wave, items, room))


async def _put(
    load: _Load, client: MapClient, wave: Sequence[Flight], items: list[tuple[bytes, bytes]], room: asyncio.Semaphore
) -> None:
    """Put one wave. Waves of a client are submitted in order, so its session keeps the flights in order."""
    begun_at = time.monotonic()
    revisions = await client.put_many(items)
    load.on_acked(wave, begun_at, revisions)
    room.release()


async def _watch_leader(load: _Load, metadata_uri: str, log_name: str) -> None:
    store = await connect(MetadataUri.parse(metadata_uri).hosts)
    chains = ChainStore(store, log_name)
    while True:
        try:
            chain, _version = await chains.read()
            load.say(leader=chain.leader.replica_id if chain.leader else "", epoch=chain.leader_epoch)
        except (LedgerError, RsmError):
            load.say()
        await asyncio.sleep(_SAY_EVERY_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
