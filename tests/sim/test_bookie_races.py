"""An entry that is added again while its first copy waits for the disk: the answer must wait too (safety.md 23)."""

from __future__ import annotations

import asyncio

import pytest

from ledger.client.answers import AnswerQueue
from ledger.core.metadata import DigestType
from ledger.testing import SimHost, Simulation
from ledger.testing.cluster import BOOKIE_PORT, SimCluster
from ledger.wire.codes import Status
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest, ReadRequest
from tests.sim import bookie_plants

_BOOKIE = f"b0:{BOOKIE_PORT}"
_KEY = master_key(b"")
_BODY = seal(7, 0, -1, 3, b"one", Digest(DigestType.CRC32C, b""))


async def _ask(cluster: SimCluster, host: SimHost, *, is_read: bool) -> Status | None:
    """Add the entry, or read it; return the bookie's answer."""
    pool = (await cluster.connect(host))._pool
    answers = AnswerQueue()
    if is_read:
        pool.ask(_BOOKIE, ReadRequest(pool.take_txns(1), 7, 0, _KEY), (answers, None))
    else:
        pool.ask(_BOOKIE, AddRequest(pool.take_txns(1), 7, 0, _KEY, _BODY, is_recovery=True), (answers, None))
    (answered,) = await answers.next_batch()
    return Status.EOK if answered.is_stored else answered.response and answered.response.status  # type: ignore[return-value]


def _is_lost(seed: int) -> bool:
    """Add twice on a slow disk, cut the power at the second answer, and see whether the entry is gone."""
    simulation = Simulation(seed)
    cluster = SimCluster(simulation, bookie_count=1, takes_any_ledger=True)
    first, second = simulation.host("first"), simulation.host("second")

    async def main() -> bool:
        cluster.start()
        bookie = cluster.bookies[0]
        while bookie.name not in cluster.servers:
            await asyncio.sleep(0.1)
        bookie.disk.slowness = 300.0
        first.spawn(_ask(cluster, first, is_read=False))
        await asyncio.sleep(0.05)
        status = await second.spawn(_ask(cluster, second, is_read=False))
        bookie.kill(power=True)
        bookie.disk.make_healthy()
        bookie.start()
        while bookie.name not in cluster.servers:
            await asyncio.sleep(0.1)
        read = await second.spawn(_ask(cluster, second, is_read=True))
        return status == Status.EOK and read != Status.EOK

    return simulation.run(main(), limit_s=100)


def test_an_entry_added_again_is_acknowledged_only_when_it_is_durable() -> None:
    assert not any(_is_lost(seed) for seed in range(20))


def test_the_race_is_lost_if_what_is_held_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    bookie_plants.acknowledge_what_is_held(monkeypatch)
    assert any(_is_lost(seed) for seed in range(20))
