"""Replicas of different versions and with different ledger passwords on one log, on simulated hosts."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rsm_spark.core import state as state_module
from rsm_spark.core.admission import FormatLevelError, LedgerPasswordError
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.errors import RsmError
from rsm_spark.log.admin_requests import AdminRequests, RaiseFormatRequest
from rsm_spark.runtime import replica as replica_module
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.testing.cluster import LOG
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run


class _Versions:
    """Which format level the processes know that boot from now on, by host; 2 unless said otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.levels: dict[str, int] = {}
        versions = self

        class _Context(ReplicaContext):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                self.format_level = versions.levels.get(self.me.replica_id, 2)

        monkeypatch.setattr(replica_module, "ReplicaContext", _Context)
        monkeypatch.setattr(state_module, "FORMAT_LEVEL", 2)


def _raised_levels(world: LogWorld) -> list[int]:
    """Levels that FORMAT_RAISED records name, wherever they lie."""
    records = [
        record
        for ledger_id in sorted(world.ledgers.ledgers)
        for entry in world.ledgers.ledgers[ledger_id].entries
        for record in decode_records(entry.payload[HEADER_BYTES:])
    ]
    return [record.fields[0] for record in records if record.type == KernelRecord.FORMAT_RAISED]


def test_a_rolling_upgrade_raises_the_level_when_the_last_replica_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = _Versions(monkeypatch)
    versions.levels["replica-0"] = 1

    async def scenario(world: LogWorld) -> None:
        orders = AdminRequests(world.store, LOG)
        refused = await orders.place(RaiseFormatRequest(2), timeout_s=30)
        assert refused.refusal
        await world.add()
        assert (await world.chain()).format_level == 1
        versions.levels["replica-0"] = 2
        world.cluster.hosts[0].kill()
        await world.until_led()
        answer = await orders.place(RaiseFormatRequest(), timeout_s=60)
        while answer.refusal:  # Until the session of the old process has ended.
            await asyncio.sleep(0.5)
            answer = await orders.place(RaiseFormatRequest(), timeout_s=60)
        assert answer.outcome == {"format_level": 2}
        assert (await world.chain()).format_level == 2
        assert _raised_levels(world) == [2]
        again = await orders.place(RaiseFormatRequest(), timeout_s=60)
        assert again.outcome == {"format_level": 2}
        assert _raised_levels(world) == [2]

    run(scenario)


def test_a_version_that_knows_less_than_the_log_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = _Versions(monkeypatch)

    async def scenario(world: LogWorld) -> None:
        await AdminRequests(world.store, LOG).place(RaiseFormatRequest(), timeout_s=60)
        versions.levels["replica-0"] = 1
        world.cluster.hosts[0].kill()
        await world.until(lambda: bool(world.cluster.stopped))
        name, reason = world.cluster.stopped[0]
        assert name == "replica-0"
        assert isinstance(reason, FormatLevelError)

    run(scenario)


def test_a_replica_that_came_while_the_level_was_raised_stops_before_it_reads_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = _Versions(monkeypatch)
    versions.levels["replica-0"] = 1

    async def scenario(world: LogWorld) -> None:
        chains = world.leader._context.chains
        chain, version = await chains.read()
        raised = msgspec.structs.replace(chain, format_level=2)
        await chains.write(msgspec.json.encode(raised), version)
        await world.until(lambda: any(isinstance(reason, FormatLevelError) for _, reason in world.cluster.stopped))
        assert {name for name, reason in world.cluster.stopped if isinstance(reason, FormatLevelError)} == {"replica-0"}

    run(scenario)


def test_a_leader_asked_for_a_level_that_it_does_not_know_itself_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _Versions(monkeypatch)

    async def scenario(world: LogWorld) -> None:
        assert world.leader.upkeep is not None
        with pytest.raises(RsmError, match="level 3"):
            await world.leader.upkeep.raise_format(3)

    run(scenario)


def test_a_replica_with_another_ledger_password_refuses_to_start_not_to_take_over() -> None:
    async def scenario(world: LogWorld) -> None:
        assert (await world.chain()).password_mark.startswith("scrypt:")
        cluster = world.cluster
        cluster.settings = msgspec.structs.replace(cluster.settings, ledger_password=b"mistyped")
        follower = next(host for host in cluster.hosts if host.name != cluster.leader)
        follower.kill()
        await world.until(lambda: bool(cluster.stopped))
        reason = cluster.stopped[0][1]
        assert isinstance(reason, LedgerPasswordError)
        assert "mistyped" not in str(reason)
        assert "secret" not in str(reason)

    run(scenario, ledger_password=b"secret")
