"""Logged time, and who may begin it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rsm_spark.runtime.logged_clock import LoggedClock, clock_skew_ms
from rsm_spark.runtime.status import ReplicaRole
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run


def test_logged_time_goes_on_from_the_log_when_the_wall_clock_is_behind() -> None:
    clock = LoggedClock(logged_ms=5_000, wall_ms=1_000, monotonic_s=10.0)
    assert clock.read(5_000, 10.0) == 5_000
    assert clock.read(5_000, 12.5) == 7_500


def test_logged_time_never_falls() -> None:
    clock = LoggedClock(logged_ms=5_000, wall_ms=6_000, monotonic_s=10.0)
    assert clock.read(9_000, 11.0) == 9_000


@pytest.mark.parametrize(("written", "before", "after", "skew"), [
    (100, 90, 110, 0),
    (100, 100, 100, 0),
    (100, 150, 160, 50),
    (100, 20, 60, -40),
])  # fmt: skip
def test_skew_is_what_the_way_there_and_back_cannot_explain(written: int, before: int, after: int, skew: int) -> None:
    assert clock_skew_ms(written, before, after) == skew


def _set_clocks(*offsets_ms: int) -> Callable[[LogWorld], None]:
    def prepare(world: LogWorld) -> None:
        for host, offset_ms in zip(world.cluster.hosts, offsets_ms, strict=True):
            host.clock_offset_ms = offset_ms

    return prepare


def test_a_replica_whose_clock_is_an_hour_ahead_leaves_the_log_to_one_whose_clock_is_right() -> None:
    async def scenario(world: LogWorld) -> None:
        for host in world.cluster.hosts:
            host.clock_offset_ms = 0 if host.name == world.cluster.leader else 3_600_000
        good, fast = world.leader_host, [host for host in world.cluster.hosts if host.name != world.cluster.leader]
        fast[0].clock_offset_ms = 0
        good.kill()
        await world.until(lambda: world.cluster.leader == fast[0].name)
        await world.until(lambda: len(world.cluster.replicas) == 3)
        assert world.leader._context.tip.logged_ms < 1_700_000_000_000 + 200_000

    for seed in range(3):  # Whoever is next in line.
        run(scenario, seed=seed)


def test_if_all_clocks_are_off_somebody_leads_all_the_same_and_says_so() -> None:
    async def scenario(world: LogWorld) -> None:
        world.leader_host.kill()
        await world.until_led()
        (alarm,) = world.leader.status().alarms
        assert alarm.startswith(
            f"the clock of replica {world.cluster.leader} is 3600.0 s ahead of that of the metadata"
        )

    run(scenario, prepare=_set_clocks(3_600_000, 3_600_000, 3_600_000))


def test_a_clock_that_is_some_seconds_off_is_reported_and_leads() -> None:
    async def scenario(world: LogWorld) -> None:
        assert "10.0 s behind that of the metadata store" in world.leader.status().alarms[0]
        assert sum(replica.leader_epoch > 1 for replica in world.cluster.replicas.values()) == 0

    run(scenario, prepare=_set_clocks(-10_000, -10_000, -10_000))


def test_a_replica_that_is_alone_leads_whatever_its_clock_says() -> None:
    async def scenario(world: LogWorld) -> None:
        assert world.leader.role is ReplicaRole.LEADER
        await asyncio.sleep(1)

    run(scenario, replica_count=1, prepare=_set_clocks(3_600_000))


def test_the_alarm_of_a_clock_goes_when_it_is_set_right() -> None:
    """Of a leader, and of a follower that has left the log to others and never claims it again."""

    async def scenario(world: LogWorld) -> None:
        for host in world.cluster.hosts:
            host.clock_offset_ms = 0 if host.name == world.cluster.leader else 3_600_000
        good = world.leader_host
        good.kill()
        await world.until(lambda: world.cluster.leader is not None and len(world.cluster.replicas) == 3)
        wrong = [host for host in world.cluster.hosts if _alarms(world, host.name)]
        assert wrong
        leader, epoch = world.cluster.leader, world.leader.leader_epoch
        for host in wrong:
            host.clock_offset_ms = 0
        await world.until(lambda: not any(_alarms(world, host.name) for host in world.cluster.hosts))
        assert (world.cluster.leader, world.leader.leader_epoch) == (leader, epoch)

    for seed in range(3):
        run(scenario, seed=seed)


def test_the_alarm_of_a_clock_that_stays_wrong_stays() -> None:
    async def scenario(world: LogWorld) -> None:
        await asyncio.sleep(60)
        assert "10.0 s behind that of the metadata store" in world.leader.status().alarms[0]

    run(scenario, prepare=_set_clocks(-10_000, -10_000, -10_000))


def _alarms(world: LogWorld, name: str) -> tuple[str, ...]:
    return world.cluster.replicas[name].status().alarms
