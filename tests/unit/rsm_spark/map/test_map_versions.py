"""The map on logs and snapshots of versions 2 to 4: machine alone, and rolled replica by replica."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rsm_spark.core.commands import AnswerStatus, Command
from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.machine import Row
from rsm_spark.core.records import pack
from rsm_spark.errors import CorruptLogError
from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import COUNTS_LEVEL, MAP_DESCRIPTION, MAP_TABLE, PUT
from tests.unit.rsm_spark.map.driven_map import DrivenMap
from tests.unit.rsm_spark.map.map_of_before import FOURTH, SECOND, THIRD, SecondMap
from tests.unit.rsm_spark.runtime.log_world import SESSION, LogWorld, run


def _driven_before() -> DrivenMap:
    """Return a map on a log that is still of version 2."""
    driven = DrivenMap()
    driven.machine.follow(SECOND)
    return driven


def test_each_version_may_follow_those_of_before() -> None:
    check_evolution(SECOND, THIRD)
    check_evolution(SECOND, MAP_DESCRIPTION)
    check_evolution(THIRD, MAP_DESCRIPTION)
    other = msgspec.structs.replace(SECOND, tables=MAP_DESCRIPTION.tables[1:])
    with pytest.raises(CorruptLogError, match="table 'map'"):
        MapMachine().follow(msgspec.structs.replace(MAP_DESCRIPTION, version=6, tables=other.tables))
    check_evolution(FOURTH, MAP_DESCRIPTION)
    later = msgspec.structs.replace(MAP_DESCRIPTION.records[-1], type=99, name="later")
    newer = msgspec.structs.replace(MAP_DESCRIPTION, version=6, records=(*MAP_DESCRIPTION.records, later))
    with pytest.raises(CorruptLogError, match="version 6 of the map, this replica folds it up to version 5"):
        MapMachine().follow(newer)


def test_a_log_of_version_4_keeps_no_alarms_until_it_is_raised() -> None:
    driven = DrivenMap()
    driven.machine.follow(FOURTH)
    driven.run(m.Put(b"a", b"1"))
    refused = driven.run(m.SetAlarm("nospace", 1, is_raised=True))
    assert isinstance(refused, m.MapRefused)
    assert "rsm log raise-version" in refused.reason
    assert driven.ask(m.ListAlarms()) == m.AlarmsShown([])
    driven.machine.follow(MAP_DESCRIPTION)
    assert driven.run(m.SetAlarm("nospace", 1, is_raised=True)) == m.Written(2)
    assert driven.get(b"a") == b"1"


def test_a_log_of_version_3_gets_records_of_version_3_until_it_is_raised() -> None:
    driven = DrivenMap()
    driven.machine.follow(THIRD)
    driven.run(m.Put(b"a", b"1"))
    both = m.MapTransaction([], [m.Put(b"a", b"2"), m.Put(b"b", b"1"), m.Delete(b"a")], [])
    assert driven.run(both) == m.Executed(True, [m.Written(2), m.Written(3), m.Written(4)])
    assert [fields for _, fields in driven.log] == [
        (b"a", b"1", 1, 1), (b"a", b"2", 1, 2), (b"b", b"1", 3, 1), (b"a",),
    ]  # fmt: skip
    rows = list(driven.machine.rows())
    assert rows == [Row(MAP_TABLE, pack((b"b",)), pack((b"1", 3, 1)), 3)]
    refused = driven.run(m.CompactHistory(2))
    assert isinstance(refused, m.MapRefused)
    assert "before 4" in refused.reason
    driven.machine.follow(MAP_DESCRIPTION)
    assert list(driven.machine.rows()) == rows, "a row that is left alone keeps its bytes"
    assert driven.ask(m.Get(b"b")) == m.Found(b"1", 3, 3, 1)
    pair = m.MapTransaction([], [m.Put(b"b", b"2"), m.Put(b"c", b"1")], [])
    assert driven.run(pair) == m.Executed(True, [m.Written(6), m.Written(6)]), "one revision for both"
    assert driven.ask(m.Get(b"b")) == m.Found(b"2", 6, 3, 2)
    with pytest.raises(CorruptLogError, match="revision 7"):
        driven.machine.apply(PUT, (b"a", b"1", 1, 1), 7)


def test_until_the_version_is_raised_records_are_those_of_before() -> None:
    driven = _driven_before()
    for command in (
        m.Put(b"a", b"1"),
        m.PutExpiring(b"b", b"1", 1_000),
        m.CompareAndSet(b"a", b"1", b"2"),
        m.MapTransaction([], [m.Put(b"c", b"1"), m.Increment(b"c")], []),
    ):
        assert not isinstance(driven.run(command), m.MapRefused)
    puts = [fields for record_type, fields in driven.log if record_type == PUT]
    assert puts == [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"c", b"2")]
    assert driven.ask(m.Get(b"a")) == m.Found(b"2", 4, 0, 0), "0: nobody counts yet"
    page = driven.ask(m.Scan(b"a", b"b", 10, counts=True))
    assert page == m.Page([m.KeyValue(b"a", b"2", 4, 0, 0)], None)
    for what in ("create_revision", "version"):
        compare = m.Compare(b"a", what, "=", 1)  # type: ignore[arg-type]
        refused = driven.run(m.MapTransaction([compare], [m.Put(b"a", b"3")], []))
        assert isinstance(refused, m.MapRefused)
        assert "rsm log raise-version" in refused.reason
    with pytest.raises(CorruptLogError, match="revision 9"):
        driven.machine.apply(PUT, (b"a", b"1", 1, 1), 9)


def test_rows_of_before_count_from_their_last_write_on() -> None:
    driven = _driven_before()
    for value in (b"1", b"2"):
        driven.run(m.Put(b"a", value))
    driven.run(m.Put(b"b", b"1"))
    driven.machine.follow(MAP_DESCRIPTION)
    assert driven.ask(m.Get(b"a")) == m.Found(b"2", 2, 2, 1)
    driven.run(m.Put(b"a", b"3"))
    driven.run(m.Increment(b"a"))
    assert driven.ask(m.Get(b"a")) == m.Found(b"4", 5, 2, 3)
    driven.run(m.Delete(b"b"))
    driven.run(m.Put(b"b", b"2"))
    assert driven.ask(m.Get(b"b")) == m.Found(b"2", 7, 7, 1), "a new key"
    exists = m.MapTransaction([m.Compare(b"b", "create_revision", "=", 0)], [m.Put(b"b", b"x")], [])
    assert driven.run(exists) == m.Executed(False, [])
    none = m.MapTransaction([m.Compare(b"c", "version", "=", 0)], [m.Put(b"c", b"x")], [])
    assert driven.run(none) == m.Executed(True, [m.Written(8)])


def test_a_snapshot_of_before_is_restored_with_the_digest_that_it_had() -> None:
    old = SecondMap()
    old.apply(PUT, (b"a", b"1"), 7)
    rows = list(old.rows())
    assert rows == [Row(MAP_TABLE, pack((b"a",)), pack((b"1",)), 7)]
    new = MapMachine()
    new.follow(SECOND)
    new.restore(rows)
    assert list(new.rows()) == rows
    new.follow(MAP_DESCRIPTION)
    assert list(new.rows()) == rows, "a row that is left alone keeps its bytes"
    change = new.apply(PUT, (b"a", b"2", 7, 2, None), 9)
    assert (change.old, change.new) == (pack((b"1",)), pack((b"2", 7, 2, None)))


class _Fleet:
    """Which version each next process runs; commands of one session."""

    def __init__(self) -> None:
        self.version: type[MapMachine] = SecondMap
        self.sequence = 0

    def machine(self) -> MapMachine:
        return self.version()

    async def do(self, world: LogWorld, command: m.MapCommand) -> m.MapReply:
        self.sequence += 1
        one = Command(SESSION, self.sequence, self.sequence - 1, m.encode(command))
        (answer,) = await world.leader.submit([one])
        assert answer.status is AnswerStatus.OK
        return m.decode_reply(answer.payload)

    async def restart(self, world: LogWorld, number: int, version: type[MapMachine]) -> None:
        self.version = version
        host = world.cluster.hosts[number]
        before = world.cluster.replicas[host.name]
        host.kill()
        await world.until(lambda: world.cluster.replicas.get(host.name) not in (before, None))
        await world.until(lambda: world.cluster.leader is not None)


def _found(world: LogWorld, key: bytes) -> Any:
    context = world.leader._context
    return m.decode_result(context.machine.query(m.encode(m.Get(key)), context.tip.revision))


def test_replicas_are_rolled_and_back_until_the_version_is_raised() -> None:
    fleet = _Fleet()

    async def scenario(world: LogWorld) -> None:
        await fleet.do(world, m.Put(b"a", b"1"))
        for number, version in ((0, MapMachine), (1, MapMachine), (0, SecondMap), (1, SecondMap), (2, MapMachine)):
            await fleet.restart(world, number, version)
            await fleet.do(world, m.Put(b"a", b"2"))
            await world.leader.snapshot()
        await asyncio.sleep(5)
        described = world.leader._context.state.description
        assert described is not None
        assert described.version == 2, "live replicas run the version of before"
        for number in (0, 1):
            await fleet.restart(world, number, MapMachine)
            await fleet.do(world, m.Put(b"a", b"3"))

        def is_raised() -> bool:
            found = [one._context.state.description for one in world.cluster.replicas.values()]
            return all(one is not None and one.version == 5 for one in found)

        await world.until(is_raised, limit_s=120)
        found = _found(world, b"a")
        assert (found.value, found.create_revision, found.version) == (b"3", found.revision, 1)
        await fleet.do(world, m.Put(b"a", b"4"))
        again = _found(world, b"a")
        assert (again.value, again.create_revision, again.version) == (b"4", found.revision, 2)
        revision = world.leader.revision
        await world.until(lambda: all(one.revision >= revision for one in world.cluster.replicas.values()))
        assert {one.digest for one in world.cluster.replicas.values()} == {world.leader.digest}
        assert (await world.chain()).format_level == COUNTS_LEVEL, "a replica of before refuses the log by name"

    run(scenario, machine=fleet.machine)
