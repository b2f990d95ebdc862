"""A leader while the world around it changes: rolls, deadlines, a metadata store that is away, a fence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ledger.ports import SessionState
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.counter_map import CounterMap
from rsm_spark.testing.ledger_twin import recover
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run


def test_ledgers_roll_by_records_and_each_begins_with_the_machines_description() -> None:
    async def scenario(world: LogWorld) -> None:
        for _ in range(3):
            await world.roll()
        await world.add()
        for ledger in (await world.chain()).ledgers:
            first = world.ledgers.ledgers[ledger.ledger_id].entries[0].payload
            assert decode_records(first[HEADER_BYTES:])[0].type == KernelRecord.MACHINE_DESCRIBED

    run(scenario, roll_records=10)


class _Alarm(CounterMap):
    """Wants an entry at given times; gives a record for those in `real`."""

    wanted: list[int]
    real: set[int]
    asked: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.wanted, self.real, self.asked = [], set(), []

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
        del promoted_ms, limit
        self.asked.append(now_ms)
        records = []
        for time_ms in [one for one in self.wanted if one <= now_ms and one in self.real]:
            self.wanted.remove(time_ms)
            records.append((16, (b"due", 1)))
        return records

    def next_due_ms(self, promoted_ms: int) -> int | None:
        del promoted_ms
        return min(self.wanted, default=None)


def test_an_entry_is_composed_when_something_falls_due_not_at_the_next_idle_one() -> None:
    async def scenario(world: LogWorld) -> None:
        machine = world.leader._context.machine
        assert isinstance(machine, _Alarm)
        driver = world.leader._driver
        assert driver is not None
        due_ms = driver._logged_now() + 3_210
        machine.real = {due_ms}
        machine.wanted = [due_ms]
        driver.wake()
        await world.until(lambda: not machine.wanted and world.leader._context.state_is_confirmed)
        assert due_ms <= world.leader._context.tip.logged_ms < due_ms + 100

    run(scenario, machine=_Alarm, idle_entry_s=30.0, poll_s=30.0)


def test_a_machine_that_has_nothing_due_after_all_does_not_keep_the_leader_busy() -> None:
    async def scenario(world: LogWorld) -> None:
        machine = world.leader._context.machine
        assert isinstance(machine, _Alarm)
        assert world.leader._driver is not None
        machine.wanted = [world.leader._driver._logged_now() + 100]
        world.leader._driver.wake()
        machine.asked.clear()
        await asyncio.sleep(10)
        assert len(machine.asked) <= 12  # One for the deadline, the others with idle entries.

    run(scenario, machine=_Alarm, idle_entry_s=1.0)


def test_while_the_metadata_store_is_away_adds_go_on_and_nothing_rolls_or_is_trimmed() -> None:
    async def scenario(world: LogWorld) -> None:
        replica = world.leader
        chain = await world.chain()
        world.simulation.metadata.set_available(False)
        store = world.cluster.clients[world.cluster.leader or ""].store
        await world.until(lambda: store.session_state is SessionState.SUSPENDED)
        for _ in range(40):
            await world.add()
            await asyncio.sleep(0.2)
        assert replica.role is ReplicaRole.LEADER
        assert replica._driver is not None
        assert replica._driver.protocol.chain == chain
        world.simulation.metadata.set_available(True)
        while len((await world.chain()).ledgers) == len(chain.ledgers):  # The roll that was due.
            await world.add()
        assert replica.role is ReplicaRole.LEADER

    # Twin ledgers ask the metadata store for what is not an append, so the followers wait, too.
    run(scenario, roll_records=20, trim_s=1.0, retention_ms=1_000)


def test_an_idle_deposed_leader_notices_its_fence_by_its_idle_entry() -> None:
    async def scenario(world: LogWorld) -> None:
        replica, chain = world.leader, await world.chain()
        twin = world.ledgers.ledgers[chain.ledgers[-1].ledger_id]
        twin.is_fenced = True
        epoch = chain.leader_epoch
        await asyncio.sleep(3)  # Nobody asks for anything.
        # Fenced by somebody who did not claim the log: it closes the ledger and goes on in a new one.
        assert replica.role is ReplicaRole.LEADER
        assert (await world.chain()).leader_epoch == epoch
        assert (await world.chain()).ledgers[-1].ledger_id != twin.ledger_id

    run(scenario, idle_entry_s=0.5)


def test_a_leader_that_alone_is_cut_off_from_the_bookies_makes_room_for_another() -> None:
    async def scenario(world: LogWorld) -> None:
        replica = world.leader
        epoch = (await world.chain()).leader_epoch
        replica._context.client.is_cut_off = True  # type: ignore[attr-defined]
        await world.until(
            lambda: any(r.role is ReplicaRole.LEADER for r in world.cluster.replicas.values() if r is not replica), 30.0
        )
        assert replica.role is ReplicaRole.FOLLOWER
        replica._context.client.is_cut_off = False  # type: ignore[attr-defined]
        await world.until(lambda: replica.leader_epoch > epoch, 30.0)

    run(scenario, idle_entry_s=0.5, give_up_s=3.0)


def test_leaders_take_turns_while_no_bookie_answers_and_one_leads_again_when_they_do() -> None:
    async def scenario(world: LogWorld) -> None:
        clients = [replica._context.client for replica in world.cluster.replicas.values()]
        for client in clients:
            client.is_cut_off = True  # type: ignore[attr-defined]
        await asyncio.sleep(60)
        for client in clients:
            client.is_cut_off = False  # type: ignore[attr-defined]
        await world.until(lambda: any(r.role is ReplicaRole.LEADER for r in world.cluster.replicas.values()), 30.0)
        await world.until(lambda: len({r.leader_epoch for r in world.cluster.replicas.values()}) == 1, 30.0)
        assert (await world.chain()).leader_epoch < 30

    run(scenario, idle_entry_s=0.5, give_up_s=3.0)


def test_a_leader_that_was_paused_steps_down_by_itself_when_another_one_leads() -> None:
    async def scenario(world: LogWorld) -> None:
        host, paused = world.leader_host, world.leader
        host.pause()
        await world.until(
            lambda: any(r.role is ReplicaRole.LEADER for r in world.cluster.replicas.values() if r is not paused)
        )
        host.resume()
        await world.until(lambda: paused.role is ReplicaRole.FOLLOWER, 5.0)
        assert len({r.leader_epoch for r in world.cluster.replicas.values()}) <= 2

    run(scenario, idle_entry_s=0.5)


def test_a_recovered_ledger_of_an_idle_leader_is_adopted_as_it_was_closed() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        chain = await world.chain()
        twin = world.ledgers.ledgers[chain.ledgers[-1].ledger_id]
        client = world.cluster.clients[world.cluster.leader or ""]
        await recover(client, twin)
        await asyncio.sleep(3)
        closed = (await world.chain()).ledgers[-2].closed
        assert closed is not None
        assert closed.last_entry_id == twin.metadata.last_entry_id
        await world.add()

    run(scenario, idle_entry_s=0.5)


def test_a_leader_that_resigns_tells_first_how_far_the_log_is_confirmed() -> None:
    async def scenario(world: LogWorld) -> None:
        driver = world.leader._driver
        assert driver is not None
        await world.add()
        twin = world.ledgers.ledgers[(await world.chain()).ledgers[-1].ledger_id]
        last = len(twin.entries) - 1
        assert max(twin.header_lac, twin.explicit_lac) < last
        driver.resign("the test wants it")
        await world.until(lambda: twin.explicit_lac == last)

    run(scenario, replica_count=1, explicit_lac_s=30.0)


def test_bookies_that_do_not_answer_do_not_hold_up_a_leader_that_resigns() -> None:
    async def scenario(world: LogWorld) -> None:
        leader, driver = world.leader, world.leader._driver
        assert driver is not None
        await world.add()
        handle = driver._ledger._handle
        assert handle is not None
        asked, never = [], asyncio.get_running_loop().create_future()

        async def _never_answered() -> None:
            asked.append(True)
            await never

        handle.write_lac = _never_answered  # type: ignore[method-assign]
        driver.resign("the test wants it")
        await world.until(lambda: leader._driver not in (None, driver), limit_s=5.0)
        assert asked

    run(scenario, replica_count=1, explicit_lac_s=30.0)
