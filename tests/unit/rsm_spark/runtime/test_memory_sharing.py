"""A follower with less memory than its leader: the leader heeds it while it lives, on simulated replicas."""

from __future__ import annotations

from rsm_spark.runtime.replica import Replica
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run


def _follower(world: LogWorld) -> Replica:
    return next(one for name, one in sorted(world.cluster.replicas.items()) if name != world.cluster.leader)


def _fill(replica: Replica) -> None:
    """Have a replica find its memory used up, whatever this process uses."""
    gauge = replica.memory.gauge
    gauge._looked_s = float("inf")  # It does not look again.
    gauge.is_full = True


def test_a_leader_refuses_growth_while_a_live_follower_has_no_room() -> None:
    async def scenario(world: LogWorld) -> None:
        leader, follower = world.leader, _follower(world)
        name = follower._context.me.replica_id
        assert not leader.memory.is_full
        _fill(follower)
        await world.until(lambda: leader.memory.is_full, limit_s=5)
        (alarm,) = [one for one in leader.status().alarms if "memory of" in one]
        assert alarm.startswith(f"memory of {name} is nearly used up")
        assert not leader.memory.gauge.is_full, "its own has room"
        others = [one for one in world.cluster.replicas.values() if one is not leader and one is not follower]
        assert not any(one.memory.is_full for one in others), "it is the leader's to refuse"
        await world.add()
        assert leader.memory.is_full
        follower.memory.gauge.is_full = False
        await world.until(lambda: not leader.memory.is_full, limit_s=5)
        assert not [one for one in leader.status().alarms if "memory of" in one]

    run(scenario)


def test_a_follower_that_is_gone_holds_nobody_up() -> None:
    async def scenario(world: LogWorld) -> None:
        leader, follower = world.leader, _follower(world)
        _fill(follower)
        await world.until(lambda: leader.memory.is_full, limit_s=5)
        host = next(host for host in world.cluster.hosts if host.name == follower._context.me.replica_id)
        host.pause()
        await world.until(lambda: not leader.memory.is_full, limit_s=60)

    run(scenario)
