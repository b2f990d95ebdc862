"""Who closes a ledger, when replies of the metadata store are lost and other clients are quicker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from ledger import LedgerClient, LedgerState
from ledger.client.client import UNCLAIMED
from ledger.client.pool import ConnectionPool
from ledger.errors import FencedError, MetadataUnavailableError
from ledger.testing import Simulation
from ledger.testing.cluster import SimCluster
from ledger.zookeeper.ledgers import LedgerStore


class LossyStore(LedgerStore):
    """Loses the reply of the next calls named in `losses`: ("write", True) was applied, ("write", False) was not."""

    def __init__(self, store: Any) -> None:
        super().__init__(store, "/ledgers")
        self.losses: list[tuple[str, bool]] = []

    async def create(self, *arguments: Any) -> int:
        return await self._lose("create", super().create, arguments)

    async def write(self, *arguments: Any) -> int:
        return await self._lose("write", super().write, arguments)

    async def delete(self, *arguments: Any) -> None:
        await self._lose("delete", super().delete, arguments)

    async def _lose(self, name: str, call: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> Any:
        if not self.losses or self.losses[0][0] != name:
            return await call(*arguments)
        _, is_applied = self.losses.pop(0)
        if is_applied:
            await call(*arguments)
        raise MetadataUnavailableError(f"no reply to {name}")


Scenario = Callable[[LedgerClient, LossyStore, LedgerClient], Awaitable[None]]


def run(scenario: Scenario) -> None:
    """Run it with a client whose store may lose replies, and another client."""
    simulation = Simulation(1)
    cluster = SimCluster(simulation)

    async def main() -> None:
        cluster.start()
        host = simulation.host("client")
        await host.spawn(program())

    async def program() -> None:
        host = simulation.host("client")
        other = await cluster.connect(host)
        await cluster.wait_until_writable(other)
        store = LossyStore(await simulation.metadata.connect())
        rng = random.Random(1)
        client = LedgerClient(
            store, ConnectionPool(store.bookie_address, rng, other.settings), rng, wall_ms=host.clock_ms
        )
        await scenario(client, store, other)
        await client.close()
        await other.close()

    simulation.run(main())


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_lost_reply_to_a_creation_makes_one_ledger(is_applied: bool) -> None:
    async def scenario(client: LedgerClient, store: LossyStore, other: LedgerClient) -> None:
        store.losses = [("create", is_applied)]
        writer = await client.create()
        assert await writer.append(b"x") == 0
        assert await writer.close() == 0
        assert await other.list() == [writer.ledger_id]

    run(scenario)


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_lost_reply_to_a_close_closes_once(is_applied: bool) -> None:
    async def scenario(client: LedgerClient, store: LossyStore, other: LedgerClient) -> None:
        writer = await client.create()
        await writer.append_many([b"x"] * 5)
        store.losses = [("write", is_applied)]
        assert await writer.close() == 4
        metadata = await other.metadata(writer.ledger_id, sync=True)
        assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 4, 5)

    run(scenario)


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_lost_reply_to_a_claim_gives_one_writer(is_applied: bool) -> None:
    async def scenario(client: LedgerClient, store: LossyStore, other: LedgerClient) -> None:
        created = await other.create(custom={UNCLAIMED: b""})
        created.abandon()
        store.losses = [("write", is_applied)]
        writer = await client.claim(created.ledger_id)
        assert await writer.append(b"x") == 0
        assert await writer.close() == 0

    run(scenario)


def test_a_lost_reply_to_a_deletion_is_a_deletion() -> None:
    async def scenario(client: LedgerClient, store: LossyStore, other: LedgerClient) -> None:
        writer = await client.create()
        await writer.close()
        store.losses = [("delete", True)]
        await client.delete(writer.ledger_id)
        assert await other.list() == []

    run(scenario)


@pytest.mark.parametrize("losses", [[True], [False], [False, True], [True, True], [False, False, True]])
def test_lost_replies_to_a_recovery_close_at_the_same_end(losses: list[bool]) -> None:
    async def scenario(client: LedgerClient, store: LossyStore, other: LedgerClient) -> None:
        writer = await other.create()
        await writer.append_many([b"x"] * 5)
        store.losses = [("write", is_applied) for is_applied in losses]
        reader = await client.open(writer.ledger_id)
        assert reader.last_add_confirmed == 4
        assert await writer.close() == 4

    run(scenario)


def test_a_writer_adopts_the_end_that_a_recovery_wrote() -> None:
    async def scenario(client: LedgerClient, _: LossyStore, other: LedgerClient) -> None:
        writer = await client.create()
        await writer.append_many([b"x"] * 5)
        reader = await other.open(writer.ledger_id)
        with pytest.raises(FencedError):
            await writer.append(b"late")
        assert await writer.close() == reader.last_add_confirmed == 4
        assert await writer.close() == 4

    run(scenario)


def test_a_writer_recovers_like_anybody_when_a_recovery_has_begun() -> None:
    """Its own LAC is 1, but entries 2 to 4 are on the bookies: closing over the recovery would cut them off."""

    async def scenario(client: LedgerClient, store: LossyStore, other: LedgerClient) -> None:
        writer = await client.create()
        await writer.append_many([b"x"] * 5)
        metadata, version = await store.read(writer.ledger_id)
        recovering = msgspec.structs.replace(metadata, state=LedgerState.IN_RECOVERY)
        await store.write(writer.ledger_id, recovering, version)
        closed = await client._closer.close(writer.ledger_id, metadata, 1, 2, version)
        assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, 4, 5)

    run(scenario)


def test_a_store_that_never_answers_is_an_error_and_close_can_be_called_again() -> None:
    async def scenario(client: LedgerClient, store: LossyStore, _: LedgerClient) -> None:
        writer = await client.create()
        await writer.append(b"x")
        store.losses = [("write", False)] * 5
        with pytest.raises(MetadataUnavailableError, match="try again"):
            await writer.close()
        assert await writer.close() == 0

    run(scenario)


def test_a_close_that_fails_after_its_caller_has_gone_is_no_news() -> None:
    async def scenario(client: LedgerClient, store: LossyStore, other: LedgerClient) -> None:
        writer = await client.create()
        await writer.append(b"x")
        store.losses = [("write", False)] * 100
        closing = asyncio.get_running_loop().create_task(writer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        inner = writer._closing
        assert inner is not None
        await asyncio.wait([inner])
        await asyncio.sleep(0)
        assert not inner._log_traceback  # what asyncio says "never retrieved" of
        assert inner.exception() is not None

    run(scenario)
