"""Consumers of a client's watches: registered, moved once a second at most, taken over by name."""

from __future__ import annotations

import pytest

from rsm_spark.client.consumers import ClientConsumers
from rsm_spark.log.consumers import ConsumerError, ConsumerTakenError, LogConsumers
from rsm_spark.testing.cluster import LOG
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run


async def _position(world: LogWorld, name: str = "billing") -> int:
    consumers = LogConsumers(world.store, (await world.chain()).log_id)
    return {one.name: one.state.revision for one in await consumers.present()}[name]


def test_a_consumer_goes_on_where_its_registration_stands() -> None:
    async def scenario(world: LogWorld) -> None:
        now_s = 0.0
        first = ClientConsumers(world.store, LOG, "/rsm", clock=lambda: now_s)
        assert await first.begin("billing", None) is None
        assert await first.begin("billing", 4) == 4
        assert await _position(world) == 4
        await first.processed("billing", 6)
        assert await _position(world) == 6
        now_s = 0.5
        await first.processed("billing", 9)
        await first.processed("billing", 8)
        assert await _position(world) == 6
        now_s = 1.0
        await first.processed("billing", 7)
        assert await _position(world) == 9
        now_s = 1.1
        await first.processed("billing", 11)
        await first.flush()
        assert await _position(world) == 11
        second = ClientConsumers(world.store, LOG, "/rsm")
        assert await second.begin("billing", None) == 11
        now_s = 3.0
        with pytest.raises(ConsumerTakenError):
            await first.processed("billing", 12)

    run(scenario)


def test_what_no_watch_of_the_client_has_is_refused_and_what_was_removed_is_told() -> None:
    async def scenario(world: LogWorld) -> None:
        one = ClientConsumers(world.store, LOG, "/rsm")
        with pytest.raises(ConsumerError, match="no watch of this client has that name"):
            await one.processed("billing", 5)
        await one.begin("billing", 0)
        consumers = LogConsumers(world.store, (await world.chain()).log_id)
        await consumers.remove("billing")
        with pytest.raises(ConsumerError, match="not registered any more"):
            await one.processed("billing", 5)
        await world.store.create(f"{consumers.path}/strange", b"?")
        with pytest.raises(ConsumerError, match="what it has read is not known: .*; say where to begin"):
            await one.begin("strange", None)
        assert await one.begin("strange", 3) == 3

    run(scenario)
