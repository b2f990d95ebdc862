"""Registered positions of readers, on the simulated metadata store, with real replicas where the leader counts."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rsm_spark.errors import LogError
from rsm_spark.log import consumers as module
from rsm_spark.log.consumers import (
    ConsumerError,
    ConsumerTakenError,
    LogConsumers,
    TrimNotice,
    consumers_path,
    trimmed_revision,
)
from rsm_spark.testing.cluster import LOG
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run

SHORT: dict[str, Any] = {"roll_records": 10, "retention_ms": 1_000, "trim_s": 2.0}


async def _consumers(world: LogWorld) -> LogConsumers:
    return LogConsumers(world.store, (await world.chain()).log_id, wall_ms=lambda: 7)


async def _trimmable(world: LogWorld) -> int:
    """Have the leader find that the first ledger may go, but for consumers; return its last revision."""
    await world.roll()
    await world.verify("replica-0", "replica-1")
    end = (await world.chain()).ledgers[0].closed
    return end.last_revision if end is not None else 0


def _reasons(world: LogWorld) -> str:
    plan = world.leader.status().trim
    return "; ".join(row.text for row in plan.blocked) if plan is not None else ""


def test_what_a_consumer_has_not_read_stays_until_it_has() -> None:
    async def scenario(world: LogWorld) -> None:
        consumers = await _consumers(world)
        assert await consumers.register(LOG, "report", 0, what="a query", holder="h") == 0
        last = await _trimmable(world)
        await world.until(lambda: "consumer report (a query)" in _reasons(world))
        assert trimmed_revision(await world.chain()) == 0
        assert await consumers.advance("report", last, holder="h")
        while trimmed_revision(await world.chain()) < last:
            await asyncio.sleep(0.05)
        assert await consumers.register(LOG, "late", 0, what="a query") == trimmed_revision(await world.chain())

    run(scenario, **SHORT)


def test_a_consumer_that_an_operator_removes_holds_nothing() -> None:
    async def scenario(world: LogWorld) -> None:
        consumers = await _consumers(world)
        await consumers.register(LOG, "report", 0, what="a query", holder="h")
        last = await _trimmable(world)
        await consumers.remove("report")
        while trimmed_revision(await world.chain()) < last:
            await asyncio.sleep(0.05)
        with pytest.raises(ConsumerError, match="not registered any more"):
            await consumers.advance("report", 9, holder="h")
        with pytest.raises(ConsumerError, match=r"no consumer report \(known: none\)"):
            await consumers.remove("report")

    run(scenario, **SHORT)


def test_the_limit_of_the_leader_ends_what_a_dead_consumer_holds() -> None:
    async def scenario(world: LogWorld) -> None:
        consumers = await _consumers(world)
        await consumers.register(LOG, "dead", 0, what="a query", hold_ms=2**62, hold_bytes=2**62)
        last = await _trimmable(world)
        while trimmed_revision(await world.chain()) < last:
            await asyncio.sleep(0.05)

    run(scenario, consumer_hold_ms=3_000, **SHORT)


def test_a_position_moves_forward_only_and_only_for_who_holds_it() -> None:
    async def scenario(world: LogWorld) -> None:
        consumers = await _consumers(world)
        await consumers.register(LOG, "report", 5, what="the first", holder="a")
        assert await consumers.advance("report", 9, holder="a")
        assert not await consumers.advance("report", 8, holder="a")
        await consumers.register(LOG, "report", 3, what="the second", holder="b")
        with pytest.raises(ConsumerTakenError, match=r"another reader \(the second\)"):
            await consumers.advance("report", 10, holder="a")
        (one,) = await consumers.present()
        assert (one.state.revision, one.state.what, one.state.moved_ms) == (3, "the second", 7)

    run(scenario)


def test_a_note_that_nobody_can_read_holds_as_much_as_the_leader_allows() -> None:
    async def scenario(world: LogWorld) -> None:
        consumers = await _consumers(world)
        await world.store.create(f"{consumers.path}/newer", b'{"revision": "all"}', parents=True)
        await world.store.create(f"{consumers.path}/large", b'{"revision": 1, "what": "' + b"x" * 5_000 + b'"}')
        await _trimmable(world)
        await world.until(lambda: "consumer large (what it has read is not known" in _reasons(world))
        assert trimmed_revision(await world.chain()) == 0
        assert [one.problem[:31] for one in await consumers.present()] == ["what it has read is not known: "] * 2
        # A version to come may add fields.
        await world.store.set(f"{consumers.path}/newer", b'{"revision": 4, "what": "q", "colour": "red"}', -1)
        assert (await consumers.present())[1].hold.revision == 4

    run(scenario, **SHORT)


def test_names_limits_and_numbers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: LogWorld) -> None:
        consumers = await _consumers(world)
        for name in ("", "a/b", ".", "..", "x" * 121, "a\nb"):
            with pytest.raises(ConsumerError, match="no name of a consumer"):
                await consumers.register(LOG, name, 0, what="")
        with pytest.raises(ConsumerError, match="negative"):
            await consumers.register(LOG, "report", -1, what="")
        monkeypatch.setattr(module, "CONSUMERS_MAX", 3)
        for number in range(3):
            await consumers.register(LOG, f"c{number}", 0, what="x" * 10_000)
        with pytest.raises(ConsumerError, match="3 consumers already"):
            await consumers.register(LOG, "c3", 0, what="")
        await consumers.register(LOG, "c2", 1, what="")
        # Whoever writes nodes without asking takes nothing from those that are counted.
        await world.store.create(f"{consumers.path}/a", b"{}")
        found = await consumers.present()
        assert [one.name for one in found] == ["a", "c0", "c1", "c2"]
        assert found[-1].problem == "4 consumers are registered, 3 are counted"
        assert found[-1].hold.revision == 0

    run(scenario)


def test_a_leader_that_only_tells_is_named_and_another_log_of_the_name_is_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_NOTICE_LOOKS", 3)

    async def scenario(world: LogWorld) -> None:
        consumers = await _consumers(world)
        await world.store.create(consumers.path, msgspec.json.encode(TrimNotice(1_000, 50)), parents=True)
        with pytest.raises(ConsumerError, match="takes the log away up to revision 50, 49 was asked for"):
            await consumers.register(LOG, "report", 49, what="")
        assert await consumers.register(LOG, "report", 50, what="") == 50
        with pytest.raises(ConsumerError, match="made anew"):
            await LogConsumers(world.store, "ab" * 16).register(LOG, "report", 0, what="")
        with pytest.raises(LogError, match="nobody"):
            await consumers.register("nobody", "report", 0, what="")
        assert consumers.path == consumers_path((await world.chain()).log_id, "/rsm")

    run(scenario, trim_s=1_000.0)
