"""Registration of bookies and the metadata of ledgers, on the simulated metadata store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import (
    BadVersionError,
    CookieMismatchError,
    CorruptMetadataError,
    LedgerError,
    NoSuchClusterError,
    NoSuchLedgerError,
)
from ledger.testing import METADATA_HOST, MetadataRates, SimHost, Simulation
from ledger.wire.metadata_format import Cookie
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import BookieRegistration, create_cookie, read_cookie

_ROOT = "/ledgers"
_ID = "b0:3181"
_METADATA = LedgerMetadata(
    QuorumConfig(1, 1, 1), LedgerState.OPEN, (Segment(0, (_ID,)),), DigestType.CRC32C, b"secret", token=7
)


async def _register(simulation: Simulation, **options: Any) -> BookieRegistration:
    store = await simulation.metadata.connect(session_timeout_ms=4_000)
    await LedgerStore(store, _ROOT).ensure_layout("instance")
    registration = BookieRegistration(store, _ROOT, _ID, host="b0", port=3181, **options)
    await registration.register()
    return registration


async def _serve(host: SimHost, simulation: Simulation) -> None:
    await _register(simulation)
    await asyncio.get_running_loop().create_future()


def _names(simulation: Simulation) -> list[str]:
    return [name for name in simulation.metadata.leader.names(f"{_ROOT}/available") if name != "readonly"]


def _read_only_names(simulation: Simulation) -> list[str]:
    return list(simulation.metadata.leader.names(f"{_ROOT}/available/readonly"))


def test_a_bookie_that_starts_again_waits_for_its_former_node_to_vanish() -> None:
    simulation = Simulation(1)

    async def main() -> None:
        host = simulation.host("b0", lambda host: _serve(host, simulation))
        host.start()
        await asyncio.sleep(1)
        host.kill()
        host.start()
        await asyncio.sleep(2)
        assert _names(simulation) == [_ID]  # the former process's, whose session has not expired
        await asyncio.sleep(8)
        assert _names(simulation) == [_ID]
        host.kill()
        await asyncio.sleep(6)
        assert _names(simulation) == []

    simulation.run(main(), limit_s=60)


def test_a_second_bookie_of_the_same_id_is_refused_in_time() -> None:
    simulation = Simulation(2)

    async def main() -> None:
        simulation.host("b0", lambda host: _serve(host, simulation)).start()
        await asyncio.sleep(1)
        second = simulation.host("other").spawn(_register(simulation, foreign_node_s_max=5.0))
        with pytest.raises(CookieMismatchError, match="another process serves under this id"):
            await second

    simulation.run(main(), limit_s=60)


def test_a_bookie_registers_again_after_its_session_expired() -> None:
    simulation = Simulation(3)

    async def main() -> None:
        host = simulation.host("b0", lambda host: _serve(host, simulation))
        host.start()
        await asyncio.sleep(1)
        simulation.network.partition("b0", METADATA_HOST)
        await asyncio.sleep(10)
        assert _names(simulation) == []
        simulation.network.heal()
        await asyncio.sleep(10)
        assert _names(simulation) == [_ID]

    simulation.run(main(), limit_s=60)


def test_a_node_that_somebody_deletes_is_made_again() -> None:
    simulation = Simulation(4)

    async def main() -> None:
        simulation.host("b0", lambda host: _serve(host, simulation)).start()
        await asyncio.sleep(1)
        operator = simulation.host("operator")

        async def delete() -> None:
            store = await simulation.metadata.connect()
            await store.delete(f"{_ROOT}/available/{_ID}")

        await operator.spawn(delete())
        await asyncio.sleep(5)
        assert _names(simulation) == [_ID]

    simulation.run(main(), limit_s=60)


@pytest.mark.parametrize("seed", range(10))
def test_the_wish_to_be_read_only_survives_lost_replies_and_sessions(seed: int) -> None:
    simulation = Simulation(seed, metadata_rates=MetadataRates(lost_reply_rate=0.2, lost_request_rate=0.1))

    async def serve(host: SimHost) -> None:
        while True:
            try:
                registration = await _register(simulation)
                break
            except LedgerError:
                await asyncio.sleep(0.1)
        await asyncio.sleep(3)
        for is_read_only in (True, False, True):
            await registration.set_read_only(is_read_only)
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        simulation.host("b0", serve).start()
        for _ in range(10):
            await asyncio.sleep(2)
            for session_id in simulation.metadata.session_ids():
                simulation.metadata.expire(session_id)
        simulation.metadata.rates = MetadataRates()
        await asyncio.sleep(20)
        assert (_names(simulation), _read_only_names(simulation)) == ([], [_ID])

    simulation.run(main(), limit_s=200)


def _with_store(work: Any) -> None:
    simulation = Simulation(9)

    async def main() -> None:
        async def connect_and_work() -> None:
            await work(LedgerStore(await simulation.metadata.connect(), _ROOT))

        await simulation.host("client").spawn(connect_and_work())

    simulation.run(main(), limit_s=60)


def test_an_id_keeps_the_cookie_of_its_first_disks() -> None:
    async def work(ledgers: LedgerStore) -> None:
        first, second = (Cookie(_ID, "/j", (folder,), "i") for folder in ("/a", "/b"))
        assert await read_cookie(ledgers.store, _ROOT, _ID) is None
        await create_cookie(ledgers.store, _ROOT, _ID, first)
        await create_cookie(ledgers.store, _ROOT, _ID, first)
        with pytest.raises(CookieMismatchError, match="other disks"):
            await create_cookie(ledgers.store, _ROOT, _ID, second)
        assert await read_cookie(ledgers.store, _ROOT, _ID) == first

    _with_store(work)


def test_a_layout_is_made_once_and_another_one_is_left_alone() -> None:
    async def work(ledgers: LedgerStore) -> None:
        assert await ledgers.ensure_layout("one") == "one"
        assert await ledgers.ensure_layout("two") == "one"
        assert await ledgers.store.children(f"{_ROOT}/underreplication") == ["LAYOUT", "ledgers", "locks"]
        await ledgers.store.set(f"{_ROOT}/LAYOUT", b"1\nflat:1", 0)
        with pytest.raises(CorruptMetadataError, match="layout"):
            await ledgers.ensure_layout("three")

    _with_store(work)


def test_ledgers_are_created_listed_changed_and_deleted_by_version() -> None:
    async def work(ledgers: LedgerStore) -> None:
        await ledgers.ensure_layout("one")
        ids = [await ledgers.new_ledger_id() for _ in range(3)]
        assert ids == [0, 1, 2]
        for ledger_id in (*ids, (1 << 31) + 5):
            assert await ledgers.create(ledger_id, _METADATA) == 0
        assert await ledgers.list() == [*ids, (1 << 31) + 5]
        assert await ledgers.write(1, _METADATA, 0) == 1
        with pytest.raises(BadVersionError):
            await ledgers.write(1, _METADATA, 0)
        with pytest.raises(BadVersionError):
            await ledgers.delete(1, 0)
        await ledgers.delete(1, 1)
        for gone in (ledgers.read(1), ledgers.write(1, _METADATA, 1), ledgers.delete(1, 1)):
            with pytest.raises(NoSuchLedgerError):
                await gone
        assert await ledgers.read(0, sync=True) == (_METADATA, 0)
        assert await ledgers.list() == [0, 2, (1 << 31) + 5]

    _with_store(work)


def test_a_root_without_a_cluster_is_named() -> None:
    async def work(ledgers: LedgerStore) -> None:
        with pytest.raises(NoSuchClusterError, match="no BookKeeper cluster under /ledgers"):
            await ledgers.writable_bookies()

    _with_store(work)
