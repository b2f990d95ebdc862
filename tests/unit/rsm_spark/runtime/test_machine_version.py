"""A service is upgraded while it runs: version 1, 2, 3 of a user's machine, replica by replica, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, ClassVar

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Command
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.machine import Decision, Field, FieldType, MachineDescription, TableDescription, decode_description
from rsm_spark.core.migrations import RowMigration, migrate
from rsm_spark.core.records import TYPES_LEVEL, KernelRecord, decode_records
from rsm_spark.core.table_machine import TableMachine, upsert
from rsm_spark.log.admin_requests import AdminRequests, RaiseVersionRequest
from rsm_spark.log.discovery import Discovery
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.cluster import LOG
from tests.unit.rsm_spark.runtime.log_world import SESSION, LogWorld, run

STR, INT, DATE = FieldType.STR, FieldType.INT, FieldType.DATE
_COLUMNS = (
    (Field("balance", INT),),
    (Field("balance", INT), Field("email", STR, nullable=True)),
    (Field("balance", INT), Field("mail", STR, nullable=True, was=("email",)), Field("limit", INT, default=0)),
    (
        Field("balance", INT),
        Field("mail", STR, nullable=True),
        Field("limit", INT, default=0),
        Field("day", DATE, nullable=True),
    ),
)
SET = 16


def _described(version: int) -> MachineDescription:
    table = TableDescription("accounts", (Field("name", STR),), _COLUMNS[min(version, 4) - 1])
    return MachineDescription("bank", version, (table,), (upsert(SET, "set", table),))


class Bank(TableMachine):
    """Command: name, or name=mail. Adds one to the balance."""

    description: ClassVar[MachineDescription]

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        name, _, mail = command.decode().partition("=")
        row = list(self.get("accounts", name) or (0, *(f.default for f in self.description.tables[0].row[1:])))
        row[0] += 1
        if mail:
            row[1] = mail
        return Decision([(SET, (name, *row))], b"%d" % row[0])


class Bank1(Bank):
    description = _described(1)


class Bank2(Bank):
    description = _described(2)


class Bank3(Bank):
    description = _described(3)


class Bank4(Bank):
    description = _described(4)


class _Roll:
    """Which version each next process runs."""

    def __init__(self) -> None:
        self.version: type[Bank] = Bank1

    def machine(self) -> Bank:
        return self.version()


class _Load:
    """Commands of one session."""

    def __init__(self, world: LogWorld) -> None:
        self._world = world
        self._sequence = 0

    async def ask(self, text: str) -> Answer:
        self._sequence += 1
        one = Command(SESSION, self._sequence, self._sequence - 1, text.encode())
        (answer,) = await self._world.leader.submit([one])
        return answer

    async def add(self, text: str) -> None:
        answer = await self.ask(text)
        assert answer.status is AnswerStatus.OK, answer


async def _restart(world: LogWorld, roll: _Roll, number: int, version: type[Bank]) -> None:
    """Kill a replica and start it with a version; return when it follows or leads again."""
    roll.version = version
    host = world.cluster.hosts[number]
    before = world.cluster.replicas[host.name]
    host.kill()
    await world.until(lambda: world.cluster.replicas.get(host.name) not in (before, None))
    await world.until(lambda: world.cluster.leader is not None)


def _versions(world: LogWorld) -> list[int]:
    """The versions that the log has been described with, one a description."""
    return [
        decode_description(record.fields[0]).version
        for ledger_id in sorted(world.ledgers.ledgers)
        for entry in world.ledgers.ledgers[ledger_id].entries
        for record in decode_records(entry.payload[HEADER_BYTES:])
        if record.type == KernelRecord.MACHINE_DESCRIBED
    ]


async def _until_version(world: LogWorld, version: int) -> None:
    def is_there() -> bool:
        described = [one._context.state.description for one in world.cluster.replicas.values()]
        return all(one is not None and one.version == version for one in described)

    await world.until(is_there, limit_s=120)


async def _until_members(world: LogWorld) -> None:
    """Wait until the present processes of all replicas are known, and none of before."""
    wanted = sorted(one._context.me.incarnation for one in world.cluster.replicas.values())
    while sorted(one.incarnation for one in await Discovery(world.store, LOG).members()) != wanted:
        await asyncio.sleep(0.1)


def _machines(world: LogWorld) -> list[Any]:
    return [replica._context.machine for replica in world.cluster.replicas.values()]


def test_a_log_is_raised_when_the_last_replica_runs_the_new_version_and_not_before() -> None:
    roll = _Roll()

    async def scenario(world: LogWorld) -> None:
        load = _Load(world)
        await load.add("ann")
        for version, (first, now) in ((Bank2, (1, 2)), (Bank3, (2, 3))):
            for number in (0, 1):
                await _restart(world, roll, number, version)
                await load.add("ann")
                await asyncio.sleep(5)
                assert set(_versions(world)) <= set(range(1, now)), "a live replica does not run it yet"
            assert world.leader._context.state.description.version == first  # type: ignore[union-attr]
            await _restart(world, roll, 2, version)
            await _until_version(world, now)
            await load.add("ann=a@x")
        assert _versions(world) == sorted(_versions(world)), "a version once raised is never lowered"
        await load.add("bob")
        revision = world.leader.revision
        await world.until(lambda: all(one.revision >= revision for one in world.cluster.replicas.values()))
        assert {one.digest for one in world.cluster.replicas.values()} == {world.leader.digest}
        for machine in _machines(world):
            assert machine.get("accounts", "ann")[1:] == ("a@x", 0)
        assert not world.cluster.stopped or all(isinstance(why, str) for _, why in world.cluster.stopped)

    run(scenario, machine=roll.machine)


def test_until_then_what_the_log_cannot_hold_is_refused_and_one_may_go_back() -> None:
    roll = _Roll()

    async def scenario(world: LogWorld) -> None:
        load = _Load(world)
        await load.add("ann")
        for number in range(3):
            await _restart(world, roll, number, Bank2)
        await load.add("ann")
        refused = await load.ask("ann=a@x")
        assert refused.status is not AnswerStatus.OK
        for number in range(3):
            await _restart(world, roll, number, Bank1)
            await load.add("bob")
        assert set(_versions(world)) == {1}
        assert all(machine.get("accounts", "ann") == (2,) for machine in _machines(world)[:1])

    run(scenario, machine=roll.machine, raise_version=False)


def test_an_operator_raises_it_and_a_replica_of_before_follows_but_never_leads() -> None:
    roll = _Roll()

    async def scenario(world: LogWorld) -> None:
        load = _Load(world)
        await load.add("ann")
        for number in (0, 1):
            await _restart(world, roll, number, Bank2)
        orders = AdminRequests(world.store, LOG)
        while world.cluster.leader != "replica-2":
            for number in (0, 1):
                await _restart(world, roll, number, Bank2)
        await _until_members(world)
        said = (await orders.place(RaiseVersionRequest(force=True), timeout_s=60)).refusal
        assert said.endswith("that of the log. A newer one is run by replica-0, replica-1: upgrade replica-2 too")
        while world.cluster.leader == "replica-2":
            await _restart(world, roll, 2, Bank1)
        refused = await orders.place(RaiseVersionRequest(), timeout_s=60)
        assert "replica-2" in refused.refusal
        answer = await orders.place(RaiseVersionRequest(force=True), timeout_s=60)
        assert answer.outcome == {"version": 2}
        await _until_version(world, 2)
        await load.add("ann=a@x")
        old = world.cluster.replicas["replica-2"]
        await world.until(lambda: old.revision == world.leader.revision)
        assert old.digest == world.leader.digest
        roll.version = Bank2
        for number in (0, 1):
            world.cluster.hosts[number].kill()
        await world.until(lambda: world.cluster.leader in ("replica-0", "replica-1"), limit_s=120)
        assert world.cluster.replicas["replica-2"] is old, "it lives"
        assert old.role is ReplicaRole.FOLLOWER
        assert "does not lead" in old._context.alarms["version"]
        await load.add("ann")

    run(scenario, machine=roll.machine, raise_version=False)


def test_a_version_with_a_column_of_a_newer_type_raises_the_format_level_first() -> None:
    roll = _Roll()
    roll.version = Bank3

    async def scenario(world: LogWorld) -> None:
        load = _Load(world)
        await load.add("ann")
        assert world.leader._driver.protocol.chain.format_level < TYPES_LEVEL  # type: ignore[union-attr]
        for number in range(3):
            await _restart(world, roll, number, Bank4)
        await _until_version(world, 4)
        await load.add("ann")
        kinds = [
            (record.type, *record.fields)
            for ledger_id in sorted(world.ledgers.ledgers)
            for entry in world.ledgers.ledgers[ledger_id].entries
            for record in decode_records(entry.payload[HEADER_BYTES:])
            if record.type in (KernelRecord.MACHINE_DESCRIBED, KernelRecord.FORMAT_RAISED)
        ]
        raised = kinds.index((KernelRecord.FORMAT_RAISED, TYPES_LEVEL))
        versions = [decode_description(text).version for kind, text in kinds if kind == KernelRecord.MACHINE_DESCRIBED]
        assert versions.index(4) + 1 > raised, "who cannot read the description has to stop before it"
        assert world.leader._driver.protocol.chain.format_level == TYPES_LEVEL  # type: ignore[union-attr]

    run(scenario, machine=roll.machine)


def test_a_log_that_begins_with_such_a_column_has_that_level_from_its_first_entry_on() -> None:
    roll = _Roll()
    roll.version = Bank4

    async def scenario(world: LogWorld) -> None:
        await _Load(world).add("ann")
        assert world.leader._driver.protocol.chain.format_level == TYPES_LEVEL  # type: ignore[union-attr]

    run(scenario, machine=roll.machine)


class Bank5(Bank):
    """Every row of before is one richer, once."""

    description = _described(5)
    migrated_rows_max = 2
    migrations = (migrate(5, "accounts", lambda row: {"limit": row["limit"] + 1}),)


@pytest.mark.parametrize("planted", [False, True])
def test_a_migration_is_applied_once_however_often_its_leader_is_killed(
    planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: which rows are left is not told by their revisions, so that each leader begins anew."""
    if planted:
        monkeypatch.setattr(RowMigration, "is_due", lambda *_: True)
    roll = _Roll()
    roll.version = Bank3
    names = [f"n{number}" for number in range(60)]

    async def scenario(world: LogWorld) -> None:
        load = _Load(world)
        for name in names:
            await load.add(name)
        for number in range(3):
            await _restart(world, roll, number, Bank5)
        await world.until(lambda: world.leader is not None and world.leader._context.state.migration is not None)
        leaders = set()
        for _ in range(3):
            leader = world.cluster.leader
            leaders.add(leader)
            await _restart(world, roll, int(leader.rpartition("-")[2]), Bank5)
        await load.add("late")

        def has_ended() -> bool:
            states = [one._context.state for one in world.cluster.replicas.values()]
            return all(one.description is not None and one.description.version == 5 for one in states) and not any(
                one.migration for one in states
            )

        await world.until(has_ended, limit_s=300)
        revision = world.leader.revision
        await world.until(lambda: all(one.revision >= revision for one in world.cluster.replicas.values()))
        assert len({one.digest for one in world.cluster.replicas.values()}) == 1
        for machine in _machines(world):
            limits = {key[0]: row[2] for key, row in machine.items("accounts")}
            assert limits == dict.fromkeys(names, 1) | {"late": 0}

    with pytest.raises(AssertionError, match="limits == |assert {") if planted else contextlib.nullcontext():
        run(scenario, machine=roll.machine)
