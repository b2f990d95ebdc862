"""Linearizable reads of a leader: without an entry where bookies can tell, beside writes, deadlines and rolls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledger.errors import UsageError
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query, QueryColumn
from rsm_spark.runtime.read_checks import ReadChecks
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.counter_map import CounterMap, command, unpack
from rsm_spark.testing.ledger_twin import TwinWriter
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run

GET = Query(command("k"))
QUIET: dict[str, Any] = {"idle_entry_s": 60.0, "explicit_lac_s": 1e6, "trim_s": 1e6, "give_up_s": 1e6}


def entry_count(world: LogWorld) -> int:
    return sum(len(twin.entries) for twin in world.ledgers.ledgers.values())


def told(world: LogWorld) -> tuple[int, int]:
    status = world.leader.status()
    return status.reads_by_check, status.reads_by_entry


async def read(world: LogWorld, owner: str = "") -> Answer:
    (answer,) = await world.leader.submit(QueryColumn([GET.payload]), owner=owner)
    return answer


def test_reads_alone_write_no_entry_and_are_counted() -> None:
    async def scenario(world: LogWorld) -> None:
        revision = await world.add()
        entries = entry_count(world)
        answers = [*await asyncio.gather(*(read(world) for _ in range(20))), await read(world)]
        assert [(unpack(answer.payload), answer.revision) for answer in answers] == [(1, revision)] * 21
        assert entry_count(world) == entries
        assert told(world) == (21, 0)

    run(scenario, **QUIET)


def test_switched_off_each_batch_of_reads_is_an_entry() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        entries = entry_count(world)
        assert unpack((await read(world)).payload) == 1
        assert entry_count(world) == entries + 1
        assert told(world) == (0, 1)

    run(scenario, check_reads=False, **QUIET)


def test_bookies_that_cannot_tell_cost_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(self: TwinWriter, lease_ms: int = 0) -> asyncio.Future[bool]:  # noqa: ARG001  # as the real one
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        future.set_result(False)
        return future

    monkeypatch.setattr(TwinWriter, "check_fence", cannot)

    async def scenario(world: LogWorld) -> None:
        await world.add()
        for _ in range(3):
            assert unpack((await read(world)).payload) == 1
        assert told(world) == (0, 3)

    run(scenario, **QUIET)


def test_while_a_lease_holds_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    check_fence = TwinWriter.check_fence

    def counted(self: TwinWriter, lease_ms: int = 0) -> asyncio.Future[bool]:
        asked.append(lease_ms)
        return check_fence(self, lease_ms)

    monkeypatch.setattr(TwinWriter, "check_fence", counted)

    async def scenario(world: LogWorld) -> None:
        await world.add()
        for _ in range(3):
            assert unpack((await read(world)).payload) == 1
        status = world.leader.status()
        assert asked == [100]
        assert (status.reads_by_check, status.reads_by_lease, status.reads_by_entry) == (1, 2, 0)
        await asyncio.sleep(0.1)
        await read(world)
        assert asked == [100, 100]

    run(scenario, read_leases_ms=100, **QUIET)


@pytest.mark.parametrize("settings", [{"read_leases_ms": 251}, {"read_leases_ms": 100, "check_reads": False}])
def test_leases_that_no_bookie_gives_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="read_leases_ms"):
        ReplicaSettings(**settings)


def test_reads_that_come_during_a_check_wait_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    begin = ReadChecks.begin

    def counted(self: ReadChecks) -> bool:
        mark = self._mark
        outcome = begin(self)
        begun.extend([self._mark] if self._mark != mark else [])
        return outcome

    monkeypatch.setattr(ReadChecks, "begin", counted)

    async def scenario(world: LogWorld) -> None:
        await world.add()
        world.ledgers.faults.answer_s = (0.01, 0.01)
        first = [world.leader.submit([GET]) for _ in range(5)]
        await asyncio.sleep(0.005)
        second = [world.leader.submit([GET]) for _ in range(5)]
        await asyncio.wait(first)
        assert not any(future.done() for future in second)
        await asyncio.wait(second)
        assert len(begun) == 2

    run(scenario, **QUIET)


def test_a_write_does_not_wait_for_a_check_and_takes_the_reads_along() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        loop = asyncio.get_running_loop()
        world.ledgers.faults.answer_s = (0.0, 0.0)
        world.ledgers.faults.slow, world.ledgers.faults.slow_s = 1.0, 50.0
        reading = world.leader.submit([GET])
        await asyncio.sleep(0.01)
        world.ledgers.faults.slow = 0.0
        began = loop.time()
        await world.add()
        assert loop.time() - began < 0.1
        assert unpack((await reading)[0].payload) in (1, 2)
        assert told(world) == (0, 1)

    run(scenario, **QUIET)


def test_a_read_behind_the_own_write_sees_it_and_a_stream_of_reads_holds_up_no_write() -> None:
    async def scenario(world: LogWorld) -> None:
        leader, session = world.leader, b"c" * 16
        await leader.submit([OpenSession(session)], owner="writer")
        is_over = False

        async def reader() -> int:
            count = 0
            while not is_over:
                await leader.submit([GET] * 50, owner="reader")
                count += 50
            return count

        readers = [asyncio.get_running_loop().create_task(reader()) for _ in range(4)]
        for number in range(1, 60):
            write = leader.submit([Command(session, number, number - 1, command("add", "k", 1))], owner="writer")
            behind = leader.submit([GET], owner="writer")
            assert unpack((await write)[0].payload) == unpack((await behind)[0].payload) == number
        is_over = True
        counts = [await task for task in readers]
        assert min(counts) > 60
        by_check, by_entry = told(world)
        assert by_check + by_entry == sum(counts) + 59

    run(scenario, entry_commands_max=70, **QUIET)


def test_many_reads_are_answered_in_turns_of_an_entrys_size() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        sizes: list[int] = []
        flood = [world.leader.submit([GET] * 10, owner="flood") for _ in range(40)]
        victim = world.leader.submit([GET], owner="victim")
        victim.add_done_callback(lambda _: sizes.append(sum(one.done() for one in flood)))
        await asyncio.wait(flood)
        assert sizes[0] <= 8  # One turn each.
        assert told(world) == (401, 0)

    run(scenario, entry_commands_max=20, **QUIET)


def test_a_roll_begins_with_an_entry_and_checks_go_on_in_the_new_ledger() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.roll()
        await world.add()
        assert (await read(world)).status is AnswerStatus.OK
        assert told(world) == (1, 0)

    run(scenario, roll_records=10, **QUIET)


def test_a_fenced_ledger_is_noticed_by_a_read_and_the_leader_goes_on_in_another() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        leader = world.leader
        ledger_id = leader._driver._ledger.ledger_id  # type: ignore[union-attr]
        world.ledgers.ledgers[ledger_id].is_fenced = True
        assert unpack((await read(world)).payload) == 1
        assert told(world) == (0, 1)
        assert leader._driver._ledger.ledger_id > ledger_id  # type: ignore[union-attr]
        assert unpack((await read(world)).payload) == 1
        assert told(world) == (1, 1)

    run(scenario, **QUIET)


class _Alarm(CounterMap):
    """Has an increment due at a time."""

    due_ms: int | None = None

    def next_due_ms(self, promoted_ms: int) -> int | None:
        del promoted_ms
        return self.due_ms

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> list[tuple[int, tuple[Any, ...]]]:
        del promoted_ms, limit
        if self.due_ms is None or self.due_ms > now_ms:
            return []
        self.due_ms = None
        return [(16, ("k", 7))]


def test_what_falls_due_while_a_check_is_under_way_is_logged_before_the_read_is_answered() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        machine, driver = world.leader._context.machine, world.leader._driver
        assert isinstance(machine, _Alarm)
        assert driver is not None
        world.ledgers.faults.answer_s = (0.05, 0.05)
        waiting = world.leader.submit([GET])
        await asyncio.sleep(0.01)
        machine.due_ms = driver._logged_now()
        assert unpack((await waiting)[0].payload) == 7

    run(scenario, machine=_Alarm, **QUIET)


def test_reads_that_wait_for_a_check_are_denied_when_the_leader_stops() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        world.ledgers.faults.answer_s = (5.0, 5.0)
        leader = world.leader
        waiting = leader.submit([GET])
        await asyncio.sleep(0.01)
        assert leader._driver is not None
        leader._driver.resign("test")
        ((answer,),) = await asyncio.gather(waiting)
        assert answer.status is AnswerStatus.NOT_LEADER
        assert leader.role is ReplicaRole.FOLLOWER

    run(scenario, **QUIET)
