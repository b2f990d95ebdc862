"""Ids, layouts and damage in the metadata of ledgers, on the simulated metadata store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import CorruptMetadataError, NodeExistsError
from ledger.testing import Simulation
from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore

_ROOT = "/ledgers"
_METADATA = LedgerMetadata(
    QuorumConfig(1, 1, 1), LedgerState.OPEN, (Segment(0, ("b0:3181",)),), DigestType.CRC32C, b"secret", token=7
)
_INT_MAX = 2**31 - 1
_LONG_LAYOUT = b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"


def _with_store(work: Callable[[LedgerStore, Simulation], Awaitable[None]]) -> None:
    simulation = Simulation(1)

    async def connect_and_work() -> None:
        store = await simulation.metadata.connect(session_timeout_ms=4_000)
        ledgers = LedgerStore(store, _ROOT)
        await ledgers.ensure_layout("one")
        await work(ledgers, simulation)

    async def main() -> None:
        await simulation.host("client").spawn(connect_and_work())

    simulation.run(main(), limit_s=60)


def test_ids_become_long_when_the_short_ones_are_used_up() -> None:
    async def work(ledgers: LedgerStore, simulation: Simulation) -> None:
        simulation.metadata.leader._created_count[f"{_ROOT}/idgen"] = _INT_MAX - 1
        assert [await ledgers.new_ledger_id() for _ in range(3)] == [_INT_MAX - 1, 1 << 32, (1 << 32) + 1]
        assert await ledgers.store.children(f"{_ROOT}/idgen-long") == ["HOB-0000000001"]
        assert await LedgerStore(ledgers.store, _ROOT).new_ledger_id() == (1 << 32) + 2

    _with_store(work)


def test_a_used_up_generator_of_long_ids_gives_way_to_the_next_and_the_oldest_go() -> None:
    async def work(ledgers: LedgerStore, simulation: Simulation) -> None:
        counts = simulation.metadata.leader._created_count
        await ledgers.store.create(f"{_ROOT}/idgen-long/HOB-0000000001", parents=True)
        for high in range(1, 7):
            assert await ledgers.new_ledger_id() == high << 32
            counts[f"{_ROOT}/idgen-long/HOB-{high:010d}"] = _INT_MAX
        assert await ledgers.new_ledger_id() == 7 << 32
        kept = await ledgers.store.children(f"{_ROOT}/idgen-long")
        assert kept == ["HOB-0000000004", "HOB-0000000005", "HOB-0000000006", "HOB-0000000007"]

    _with_store(work)


def test_ids_never_come_twice_when_all_have_been_given_out() -> None:
    async def work(ledgers: LedgerStore, simulation: Simulation) -> None:
        generator = f"{_ROOT}/idgen-long/HOB-{_INT_MAX:010d}"
        await ledgers.store.create(generator, parents=True)
        simulation.metadata.leader._created_count[generator] = _INT_MAX
        with pytest.raises(CorruptMetadataError, match="all ledger ids"):
            await ledgers.new_ledger_id()

    _with_store(work)


def test_in_the_long_layout_every_ledger_has_the_long_path() -> None:
    async def work(ledgers: LedgerStore, _simulation: Simulation) -> None:
        await ledgers.store.set(f"{_ROOT}/LAYOUT", _LONG_LAYOUT, 0)
        long = LedgerStore(ledgers.store, _ROOT)
        await long.ensure_layout("two")
        await long.create(5, _METADATA)
        assert await ledgers.store.exists(f"{_ROOT}/000/0000/0000/0000/L0005") == 0
        assert await long.list() == [5]
        assert await LedgerStore(ledgers.store, _ROOT).read(5) == (_METADATA, 0)

    _with_store(work)


def test_a_client_refuses_a_layout_that_it_does_not_know_and_names_it() -> None:
    async def work(ledgers: LedgerStore, _simulation: Simulation) -> None:
        foreign = b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1"
        await ledgers.store.set(f"{_ROOT}/LAYOUT", foreign, 0)
        client = LedgerStore(ledgers.store, _ROOT)
        for refused in (
            client.read(1),
            client.create(1, _METADATA),
            client.write(1, _METADATA, 0),
            client.delete(1, 0),
        ):
            with pytest.raises(CorruptMetadataError, match="FlatLedgerManagerFactory"):
                await refused
        assert await ledgers.store.children(_ROOT) == ["INSTANCEID", "LAYOUT", "available", "cookies", "idgen"] + [
            "underreplication"
        ]

    _with_store(work)


@pytest.mark.parametrize("ledger_id", [0, _INT_MAX, _INT_MAX + 1, 2**63 - 1])
def test_a_deleted_ledger_leaves_no_empty_branch_and_takes_no_other_with_it(ledger_id: int) -> None:
    async def work(ledgers: LedgerStore, _simulation: Simulation) -> None:
        before = await ledgers.store.children(_ROOT)
        neighbour = ledger_id - 1 if ledger_id else 1
        for each in (ledger_id, neighbour):
            await ledgers.create(each, _METADATA)
        with pytest.raises(NodeExistsError):
            await ledgers.create(ledger_id, _METADATA)
        await ledgers.delete(ledger_id, 0)
        assert await ledgers.list() == [neighbour]
        await ledgers.delete(neighbour, 0)
        assert await ledgers.store.children(_ROOT) == before
        await ledgers.create(ledger_id, _METADATA)
        assert await ledgers.list() == [ledger_id]

    _with_store(work)


def test_damaged_metadata_are_named_and_never_written_over() -> None:
    async def work(ledgers: LedgerStore, _simulation: Simulation) -> None:
        path = paths.ledger_path(_ROOT, 9)
        await ledgers.store.create(path, b"rubbish", parents=True)
        with pytest.raises(CorruptMetadataError, match="ledger 9 begins with b'rubbish'"):
            await ledgers.read(9, sync=True)
        assert await ledgers.list() == [9]
        assert await ledgers.store.get(path) == (b"rubbish", 0)

    _with_store(work)


def test_a_ledger_keeps_the_format_of_its_metadata() -> None:
    async def work(ledgers: LedgerStore, _simulation: Simulation) -> None:
        path = paths.ledger_path(_ROOT, 3)
        value = b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\tb0:3181\n"
        await ledgers.store.create(path, value, parents=True)
        metadata, version = await ledgers.read(3)
        await ledgers.write(3, metadata, version)
        assert await ledgers.store.get(path) == (value, 1)

    _with_store(work)
