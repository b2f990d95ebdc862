"""A stranger fences ledgers ahead of a writer, and the metadata that bookies ask lag behind the writer's."""

from __future__ import annotations

import asyncio

import pytest

from ledger.bookie import births
from ledger.bookie.births import Births
from ledger.client.answers import AnswerQueue
from ledger.errors import LedgerError, NoSuchLedgerError
from ledger.testing import SimHost, Simulation
from ledger.testing.cluster import SimCluster
from ledger.testing.metadata import MetadataRates
from ledger.wire.digests import master_key
from ledger.wire.packets import ReadRequest

_FOREIGN = master_key(b"foreign")
_LEDGER_COUNT = 12


async def _fence_ahead(cluster: SimCluster, host: SimHost) -> None:
    """Ask every bookie, again and again, to fence each ledger that may come."""
    pool = (await cluster.connect(host))._pool
    answers = AnswerQueue()
    while True:
        for bookie in cluster.bookies:
            for ledger_id in range(_LEDGER_COUNT + 2):
                request = ReadRequest(pool.take_txns(1), ledger_id, -1, _FOREIGN, is_fencing=True)
                pool.ask(f"{bookie.name}:3181", request, (answers, None))
        await asyncio.sleep(0.3)


def _what_broke(seed: int) -> str | None:
    """Return what the writer was refused, if anything."""
    simulation = Simulation(seed)
    simulation.metadata.rates = MetadataRates(lag_rate=0.0)  # Nobody starts a bookie again here.
    cluster = SimCluster(simulation)
    writing, foreign = simulation.host("writer"), simulation.host("stranger")

    async def write() -> str | None:
        client = await cluster.connect(writing)
        await cluster.wait_until_writable(client)
        simulation.metadata.rates = MetadataRates(lag_rate=0.7, lag_s_max=0.5)
        foreign.spawn(_fence_ahead(cluster, foreign))
        for _ in range(_LEDGER_COUNT):
            try:
                writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"mine")
                await asyncio.gather(*(writer.append(b"%d" % n) for n in range(5)))
                await writer.close()
            except LedgerError as error:
                return str(error)
        return None

    async def main() -> str | None:
        cluster.start()
        broke: str | None = await writing.spawn(write())
        return broke

    return simulation.run(main(), limit_s=100)


def test_a_writer_begins_each_of_its_ledgers() -> None:
    assert [x for x in map(_what_broke, range(15)) if x] == []


def test_it_does_not_where_the_servers_word_is_believed_before_it_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find_without_sync(ledgers):
        async def find(ledger_id: int) -> bytes | None:
            try:
                metadata, _ = await ledgers.read(ledger_id)
            except NoSuchLedgerError:
                return None
            return master_key(metadata.password)

        return find

    monkeypatch.setattr("ledger.testing.cluster.key_finder", find_without_sync)
    assert any(map(_what_broke, range(15)))


def test_it_does_not_where_strangers_are_believed_while_the_metadata_say_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_up = Births._look_up

    async def believe(self: Births, ledger_id: int) -> None:
        find = self._find_key

        async def find_or_believe(number: int) -> bytes | None:
            return await find(number) or births.ANY_KEY

        self._find_key = find_or_believe
        try:
            await look_up(self, ledger_id)
        finally:
            self._find_key = find

    monkeypatch.setattr(Births, "_look_up", believe)
    assert any(map(_what_broke, range(5)))
