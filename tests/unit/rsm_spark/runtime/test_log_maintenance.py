"""What a leader does for its log beside entries, on simulated replicas."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledger.core.quorum import QuorumConfig
from ledger.operators import Operator
from rsm_spark.core.envelope import body_of
from rsm_spark.core.orphans import custom_metadata
from rsm_spark.core.records import AUDIT_LEVEL, FORMAT_LEVEL, KernelRecord, decode_records
from rsm_spark.core.trimming import StayReason
from rsm_spark.errors import NoLeaderError
from rsm_spark.log.admin_requests import AdminRequests, RaiseFormatRequest, RollRequest, TrimRequest, orders_path
from rsm_spark.runtime.log_maintenance import LogMaintenance
from rsm_spark.testing.cluster import LOG
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run

SHORT: dict[str, Any] = {"roll_records": 10, "retention_ms": 1_000, "trim_s": 2.0}


def _upkeep(world: LogWorld) -> LogMaintenance:
    upkeep = world.leader.upkeep
    assert upkeep is not None
    return upkeep


def test_what_two_replicas_have_verified_goes_from_the_chain_and_from_the_bookies() -> None:
    async def scenario(world: LogWorld) -> None:
        first = (await world.chain()).ledgers[0].ledger_id
        await world.roll()
        covered = await world.verify("replica-0", "replica-1")
        await world.until(lambda: first not in world.ledgers.ledgers)
        while (await world.chain()).deleting:
            await asyncio.sleep(0.01)
        chain = await world.chain()
        assert chain.first_ledger_id == first
        assert 1 < chain.ledgers[0].first_revision <= covered
        assert _upkeep(world).deleted_ledgers >= 1
        await world.add()

    run(scenario, **SHORT)


def test_without_a_verified_snapshot_nothing_goes_and_the_alarm_says_why() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.roll()
        await world.until(lambda: bool(world.leader.status().alarms))
        (alarm,) = world.leader.status().alarms
        assert alarm.startswith("nothing is trimmed: ledger")
        plan = world.leader.status().trim
        assert plan is not None
        assert plan.blocked[0].reason is StayReason.NOT_COVERED

    run(scenario, **SHORT)


def test_a_replica_that_is_down_does_not_count_until_it_is_back() -> None:
    async def scenario(world: LogWorld) -> None:
        first = (await world.chain()).ledgers[0].ledger_id
        away = next(host for host in world.cluster.hosts if host.name != world.cluster.leader)
        away.pause()
        await asyncio.sleep(6)  # Its session ends.
        await world.roll()
        await world.verify(world.leader._context.me.replica_id, away.name)
        await asyncio.sleep(10)
        assert first in world.ledgers.ledgers
        away.resume()
        await world.until(lambda: first not in world.ledgers.ledgers)

    run(scenario, **SHORT)


def test_ledgers_that_a_killed_leader_left_half_deleted_are_deleted_by_the_next() -> None:
    async def scenario(world: LogWorld) -> None:
        first = (await world.chain()).ledgers[0].ledger_id
        await world.roll()
        world.cluster.clients[world.leader_host.name].delete = _never
        await world.verify("replica-0", "replica-1", "replica-2")
        while first not in (await world.chain()).deleting:
            await asyncio.sleep(0.01)
        assert first in world.ledgers.ledgers
        world.leader_host.kill()
        await world.until(lambda: first not in world.ledgers.ledgers)
        while (await world.chain()).deleting:
            await asyncio.sleep(0.01)

    run(scenario, **SHORT)


async def _never(_ledger_id: int) -> None:
    await asyncio.get_running_loop().create_future()


def test_ledgers_that_were_created_and_never_chained_are_deleted_by_a_later_leader_only() -> None:
    async def scenario(world: LogWorld) -> None:
        chain = await world.chain()
        quorum = QuorumConfig(2, 2, 2)
        own = world.ledgers.create(quorum, b"", custom_metadata(LOG, chain.log_id, chain.leader_epoch, 0))
        foreign = world.ledgers.create(quorum, b"", {"application": b"another"})
        await asyncio.sleep(5)
        assert own.ledger_id in world.ledgers.ledgers
        world.leader_host.kill()
        await world.until(lambda: own.ledger_id not in world.ledgers.ledgers)
        assert foreign.ledger_id in world.ledgers.ledgers
        assert all(ledger.ledger_id in world.ledgers.ledgers for ledger in (await world.chain()).ledgers)

    run(scenario)


def test_an_order_to_trim_is_answered_by_the_leader_with_what_went_and_why_the_rest_stays() -> None:
    async def scenario(world: LogWorld) -> None:
        orders = AdminRequests(world.store, LOG)
        first = (await world.chain()).ledgers[0].ledger_id
        await world.roll()
        await asyncio.sleep(2)
        answer = await orders.place(TrimRequest(), timeout_s=30)
        assert answer.by == world.cluster.leader
        assert answer.outcome["ledger_ids"] == []
        assert answer.outcome["blocked"][0]["reason"] == "not covered"
        await world.leader.snapshot()
        rehearsed = await orders.place(TrimRequest(accept_unverified=True, is_dry_run=True), timeout_s=30)
        assert first in rehearsed.outcome["ledger_ids"]
        assert first in [ledger.ledger_id for ledger in (await world.chain()).ledgers]
        done = await orders.place(TrimRequest(accept_unverified=True), timeout_s=30)
        assert done.outcome["ledger_ids"] == rehearsed.outcome["ledger_ids"]
        assert first not in [ledger.ledger_id for ledger in (await world.chain()).ledgers]
        assert await world.store.children("/rsm/services/counters/orders") == []

    run(scenario, roll_records=10, retention_ms=1_000, trim_s=1_000.0)


def test_an_order_to_roll_closes_the_ledger_that_is_written() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        before = (await world.chain()).ledgers
        answer = await AdminRequests(world.store, LOG).place(RollRequest(), timeout_s=30)
        assert answer.outcome == {"ledger_id": before[-1].ledger_id}
        after = (await world.chain()).ledgers
        assert len(after) == len(before) + 1
        closed = after[-2].closed
        assert closed is not None
        assert closed.last_revision >= 1
        assert await world.add() > closed.last_revision

    run(scenario)


def test_an_order_that_nobody_answers_is_taken_back() -> None:
    async def scenario(world: LogWorld) -> None:
        for host in world.cluster.hosts:
            host.pause()
        with pytest.raises(NoLeaderError, match="no leader answered the order within 3 s"):
            await AdminRequests(world.store, LOG).place(TrimRequest(), timeout_s=3)
        assert await world.store.children("/rsm/services/counters/orders") == []
        for host in world.cluster.hosts:
            host.resume()

    run(scenario)


def test_format_is_raised_only_when_every_live_replica_knows_the_level() -> None:
    async def scenario(world: LogWorld) -> None:
        orders = AdminRequests(world.store, LOG)
        world.leader._driver.protocol.format_level = FORMAT_LEVEL + 1  # type: ignore[union-attr]
        refused = await orders.place(RaiseFormatRequest(), timeout_s=30)
        assert f"not every live replica knows format level {FORMAT_LEVEL + 1}: replica-" in refused.refusal
        assert (await world.chain()).format_level == 1
        beyond = await orders.place(RaiseFormatRequest(FORMAT_LEVEL + 2), timeout_s=30)
        assert f"(level {FORMAT_LEVEL})" in beyond.refusal

    run(scenario)


def test_a_chain_that_grows_too_long_is_rolled_no_more_but_a_failed_add_still_gets_its_ledger() -> None:
    async def scenario(world: LogWorld) -> None:
        upkeep = _upkeep(world)
        while not upkeep.is_chain_full:
            await world.roll()
        count = len((await world.chain()).ledgers)
        for _ in range(50):
            await world.add()
        assert len((await world.chain()).ledgers) == count
        await world.until(lambda: "ledgers are not rolled any more" in "".join(world.leader.status().alarms))
        world.ledgers.ledgers[(await world.chain()).ledgers[-1].ledger_id].is_fenced = True
        await world.add()
        assert len((await world.chain()).ledgers) == count + 1

    run(scenario, roll_records=10, trim_s=1.0, chain_bytes_max=4_000)


def test_a_finding_that_comes_after_its_snapshot_went_does_not_count() -> None:
    async def scenario(world: LogWorld) -> None:
        first = (await world.chain()).ledgers[0].ledger_id
        await world.roll()
        store = world.cluster.snapshots[_follower(world)]
        store.write = lambda manifest, rows: manifest  # type: ignore[method-assign]  # noqa: ARG005  # It keeps nothing.
        await world.verify(world.leader_host.name, _follower(world))
        await asyncio.sleep(10)
        assert first in world.ledgers.ledgers
        plan = world.leader.status().trim
        assert plan is not None
        assert f"down or without it: replica:{_follower(world)}" in plan.blocked[0].text

    run(scenario, **SHORT)


def _follower(world: LogWorld) -> str:
    return next(host.name for host in world.cluster.hosts if host.name != world.cluster.leader)


def _audited(entries: list[bytes]) -> list[tuple[str, ...]]:
    return [
        record.fields
        for payload in entries
        for record in decode_records(body_of(payload))
        if record.type == KernelRecord.AUDITED
    ]


def test_an_order_and_what_came_of_it_are_in_the_log_with_who_placed_it_and_a_dry_run_is_not() -> None:
    async def scenario(world: LogWorld) -> None:
        entries: list[bytes] = []
        world.leader.on_entry(entries.append)
        orders = AdminRequests(world.store, LOG)
        ann = Operator("ann@host", "digest:ops", "disk is full")
        assert not (await orders.place(RaiseFormatRequest(AUDIT_LEVEL), timeout_s=30, by=ann)).refusal
        for order in (TrimRequest(is_dry_run=True), TrimRequest(), RaiseFormatRequest(FORMAT_LEVEL + 1)):
            await orders.place(order, timeout_s=30, by=ann)
        await world.add()
        raised, asked, done, asked_more, refused = _audited(entries)
        for principal, role, source, _, target, _ in (raised, asked, done, asked_more, refused):
            said = ("ann@host", "operator", "metadata store as digest:ops", f"log {LOG}: disk is full")
            assert (principal, role, source, target) == said
        assert [one[5] for one in (raised, asked, done, asked_more)] == ["done", "asked", "done", "asked"]
        assert '"type":"trim"' in asked[3] == done[3]
        assert refused[5].startswith("refused: ")

    run(scenario, **SHORT)


def test_an_order_of_a_version_that_names_nobody_is_obeyed_and_audited_without_a_name() -> None:
    async def scenario(world: LogWorld) -> None:
        entries: list[bytes] = []
        world.leader.on_entry(entries.append)
        orders = AdminRequests(world.store, LOG)
        await orders.place(RaiseFormatRequest(AUDIT_LEVEL), timeout_s=30)
        path = await world.store.create(
            f"{orders_path(LOG)}/order-", b'{"order":{"type":"trim"}}', ephemeral=True, sequential=True
        )
        while b'"answer":{' not in (await world.store.get(path)).value:
            await asyncio.sleep(0.05)
        await world.add()
        assert [(one[0], one[5]) for one in _audited(entries)] == [("", "done"), ("", "asked"), ("", "done")]

    run(scenario, **SHORT)
