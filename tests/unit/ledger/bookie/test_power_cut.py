"""Power cuts at every kind of moment: what was acknowledged is there afterwards, and nothing is called lost."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from ledger.testing import SimDisk
from ledger.wire.codes import Status
from ledger.wire.packets import AddRequest, ReadRequest
from tests.sets import examples
from tests.unit.ledger.bookie.bookie_bench import OK, Bench, add, fence, read

SEEDS = examples(50)


class UnsyncedDisk(SimDisk):
    """Planted: says that it synced."""

    def fdatasync(self, handle: int) -> None:
        self._operate()


class Life:
    """What clients were told by one bookie through all its processes."""

    def __init__(self, disk: SimDisk, rng: random.Random) -> None:
        self.rng = rng
        self.bench = Bench(disk, journal={"file_bytes": 4096, "file_count": 3})
        self.acked: dict[tuple[int, int], bytes] = {}
        self.fenced: dict[int, None] = {}
        self.next_entry = dict.fromkeys(range(4), 0)

    async def work_until_power_cut(self, client) -> None:
        sent: dict[int, object] = {}
        txn = 0
        handled = len(client.wire.responses)
        request: Any
        for _ in range(60):
            requests = []
            for _ in range(self.rng.randrange(1, 8)):
                txn += 1
                ledger_id = self.rng.randrange(4)
                if self.rng.random() < 0.03:
                    request = fence(ledger_id, txn=txn)
                else:
                    entry_id = self.next_entry[ledger_id]
                    self.next_entry[ledger_id] += 1
                    request = add(ledger_id, entry_id, txn=txn, size=self.rng.randrange(300),
                                  is_recovery=self.rng.random() < 0.1)  # fmt: skip
                sent[txn] = request
                requests.append(request)
            client.send(*requests)
            for _ in range(self.rng.randrange(6)):
                await asyncio.sleep(0)
            while handled < len(client.wire.responses):
                self.heard(sent, client.wire.responses[handled])
                handled += 1
            if self.bench.is_cut:
                return
        self.bench.is_cut = True  # Cut while all is quiet.

    def heard(self, sent, response) -> None:
        request = sent[response.txn_id]
        if isinstance(request, AddRequest) and response.status == OK:
            self.acked[request.ledger_id, request.entry_id] = bytes(request.body)
        if isinstance(request, ReadRequest) and response.status in (OK, Status.ENOENTRY):
            self.fenced[request.ledger_id] = None

    async def check(self, client) -> None:
        reads = [read(*place, txn=n) for n, place in enumerate(self.acked)]
        for request, response in zip(reads, await client.ask(*reads) if reads else [], strict=True):
            place = request.ledger_id, request.entry_id
            assert response.status == OK, f"entry {place} was acknowledged, now {response.status.name}"
            assert bytes(response.body) == self.acked[place], f"entry {place} changed"
        for ledger_id in self.fenced:
            response = await client.ask_one(add(ledger_id, 10_000))
            assert response.status == Status.EFENCED, f"ledger {ledger_id} was fenced, now {response.status.name}"
        assert self.bench.server.store.limbo.reasons == (), "a torn tail was taken for a loss"


async def live(seed: int, disk_class: type[SimDisk]) -> int:
    rng = random.Random(seed)
    disk = disk_class(random.Random(seed + 1))
    life = Life(disk, rng)
    for _ in range(3):
        client = await life.bench.start()
        assert client is not None
        await life.check(client)
        disk.operations_left = rng.randrange(400)
        await life.work_until_power_cut(client)
        disk.lose_power()
        while True:  # The power may be cut again while the next process replays.
            disk.operations_left = rng.randrange(120) if rng.random() < 0.5 else None
            client = await life.bench.start()
            if client is not None:
                break
            disk.lose_power()
        disk.operations_left = None
        await life.check(client)
        disk.lose_power()
    return len(life.acked)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_everything_acknowledged_survives_power_cuts(first: int) -> None:
    """50 seeds each: 6 power cuts a seed, at any operation of the disk, replay included."""
    acked = 0
    for seed in range(first, first + 50):
        try:
            acked += asyncio.run(live(seed, SimDisk))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert acked > 50 * 20, "too little was acknowledged for the test to mean anything"


def test_a_bookie_that_acknowledges_before_the_sync_is_caught() -> None:
    caught = 0
    for seed in range(10):
        try:
            asyncio.run(live(seed, UnsyncedDisk))
        except AssertionError:
            caught += 1
    assert caught >= 8
