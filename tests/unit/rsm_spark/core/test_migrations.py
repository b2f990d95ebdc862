from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from rsm_spark.core.envelope import body_of
from rsm_spark.core.machine import Decision, Field, FieldType, MachineDescription, TableDescription
from rsm_spark.core.migrations import Migration, MigrationTable, RunningMigration, migrate, steps_between
from rsm_spark.core.records import MIGRATIONS_TABLE, KernelRecord, decode_records, pack
from rsm_spark.core.table_machine import TableMachine, delete, upsert
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError, InvalidDescriptionError
from rsm_spark.testing import MachineHarness

STR = FieldType.STR
SET, GONE = 16, 17


def described(version: int, *columns: Field) -> MachineDescription:
    people = TableDescription("people", (Field("id", FieldType.INT),), columns)
    return MachineDescription("people", version, (people,), (upsert(SET, "set", people), delete(GONE, "gone", people)))


class People(TableMachine):
    """Command: id, or id=text, or -id."""

    description: ClassVar[MachineDescription] = described(1, Field("name", STR))

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        number, _, text = command.decode().partition("=")
        if number.startswith("-"):
            return Decision([(GONE, (int(number[1:]),))], b"")
        row = self.get("people", int(number))
        return Decision([(SET, (int(number), *self.changed(row, text)))] if text else (), repr(row).encode())

    def changed(self, row: tuple[Any, ...] | None, text: str) -> tuple[Any, ...]:
        return (text,)


def split(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    first, _, last = row["name"].partition(" ")
    if row["name"] == "broken":
        raise ValueError("no such name")
    return None if row["name"] == "kept" else {"first": first, "last": last}


class Split(People):
    """The name in two columns, its own is dropped; how often a row was migrated."""

    description = described(
        2, Field("name", STR, nullable=True, dropped=True), Field("first", STR, default=""),
        Field("last", STR, default=""), Field("times", FieldType.INT, default=0),
    )  # fmt: skip
    migrations: ClassVar[tuple[Migration, ...]] = (
        migrate(2, "people", split),
        migrate(2, "people", lambda row: {"times": row["times"] + 1}),
    )

    def changed(self, row: tuple[Any, ...] | None, text: str) -> tuple[Any, ...]:
        times = 0 if row is None else row[3]
        return (None, text, "new", times)


def grown(count: int = 1_200) -> MachineHarness:
    harness = MachineHarness(People())
    for number in range(count):
        harness.execute(b"%d=Ann No%d" % (number, number))
    return harness


def test_rows_of_before_are_changed_once_and_the_log_says_from_where_to_where() -> None:
    harness = grown()
    machine = Split()
    harness.restart(machine)
    assert machine.get("people", 7) == (None, "", "", 0), "until it is raised rows are as they were"
    harness.raise_version()
    assert machine.get("people", 7) == (None, "Ann", "No7", 1)
    assert len(harness.rows("people")[(7,)]) == 4
    records = [record for payload in harness.entries for record in decode_records(body_of(payload))]
    told = [record.fields for record in records if record.type == KernelRecord.MIGRATED]
    assert [fields[:2] for fields in told] == [(2, 1), (2, 1)]
    assert (told[0][3], told[1][2]) == (0, told[0][2])
    assert sum(record.type == SET for record in records[told[0][2] :]) == 1_200, "a record a row"
    assert machine.migration is None
    before = harness.digest
    harness.restart(Split())
    harness.execute(b"7")
    assert harness.machine.get("people", 7) == (None, "Ann", "No7", 1)  # type: ignore[attr-defined]
    follower = harness.replay(Split())
    follower.validate()
    assert follower.digest == harness.digest != before
    old = harness.replay(People())
    assert old.digest == harness.digest, "a replica of before folds it too"


def test_commands_meanwhile_see_new_rows_alone_and_another_leader_goes_on() -> None:
    harness = grown(4_000)
    machine = Split()
    harness.restart(machine)
    composer = harness._composer
    composer.description, composer.describe_wanted = machine.description, True
    assert harness.execute(b"3900").reply == b"(None, 'Ann', 'No3900', 1)"
    assert len(harness.rows("people")[(3_900,)]) == 1, "it has not been its turn"
    harness.execute(b"3901=Bob")
    harness.execute(b"-3902")
    harness.execute(b"-3")
    assert machine.migration is not None
    successor = Split()
    harness.restart(successor)
    assert successor.migration is not None
    assert successor.migration.running == machine.migration.running
    assert dict(successor.items("people"))[(3_950,)] == (None, "Ann", "No3950", 1)
    while successor.migration is not None:
        harness.execute(b"0")
    rows = dict(successor.items("people"))
    assert len(rows) == 3_998
    assert rows.pop((3_901,)) == (None, "Bob", "new", 1)
    assert rows == {(n,): (None, "Ann", f"No{n}", 1) for n in range(4_000) if n not in {3, 3_901, 3_902}}
    assert harness.replay(Split()).digest == harness.digest


def test_a_row_on_which_it_fails_is_told_and_the_rest_goes_on_until_it_is_mended() -> None:
    harness = MachineHarness(People())
    for text in (b"1=kept", b"2=broken", b"3=Ann B"):
        harness.execute(text)
    harness.restart(Split())
    with pytest.raises(InvalidDescriptionError, match=r"to version 2: table 'people', row \(2,\): ValueError: no such"):
        harness.raise_version()
    assert harness.rows("people")[(3,)] == (None, "Ann", "B", 1)
    assert harness.machine.migration is not None  # type: ignore[attr-defined]
    with pytest.raises(InvalidDescriptionError, match="no such name"):
        harness.execute(b"2")

    class Mended(Split):
        migrations = (migrate(2, "people", lambda _row: {"first": "x", "last": "y"}), Split.migrations[1])

    harness.restart(Mended())
    harness.execute(b"3")
    assert harness.machine.migration is None  # type: ignore[attr-defined]
    assert harness.machine.get("people", 2) == (None, "x", "y", 1)  # type: ignore[attr-defined]
    assert harness.machine.get("people", 3) == (None, "Ann", "B", 1)  # type: ignore[attr-defined]


def test_a_log_that_is_raised_over_a_version_needs_both_migrations_in_their_order() -> None:
    steps = (migrate(3, "a", dict), migrate(2, "a", dict), migrate(4, "a", dict))
    assert [one.version for one in steps_between(steps, 1, 3)] == [2, 3]
    assert steps_between(steps, 3, 3) == []


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (migrate(2, "persons", dict), "there is no table 'persons'"),
        (migrate(2, "people", lambda _row: {"id": 5}), "it changes 'id': columns behind the key are first"),
        (migrate(2, "people", lambda _row: {"first": 5}), "field 'first' of record 'set' is described as str"),
    ],
)
def test_what_a_migration_cannot_do_is_an_error_with_the_name(step: Any, said: str) -> None:
    class Wrong(Split):
        migrations = (step,)

    harness = MachineHarness(People())
    harness.execute(b"1=Ann")

    def roll() -> None:
        harness.restart(Wrong())
        harness.raise_version()

    with pytest.raises(InvalidDescriptionError, match=said):
        roll()


def test_the_kernel_s_table_takes_its_own_records_alone() -> None:
    table = MigrationTable()
    for fields in ((2, 1, 5), (2, 1, "x", 0), (2, 1, 6, 0)):
        with pytest.raises(CorruptLogError):
            table.fold(fields, 5)
    assert table.fold((2, 1, 5, 0), 5)[0] == MIGRATIONS_TABLE
    assert table.running == RunningMigration(2, 1, 5)
    again = MigrationTable()
    again.restore(list(table.rows()))
    assert again.running == table.running
    change = table.fold((2, 1, 5, 9), 9)
    assert (change.key, change.old, change.new) == (pack((2,)), pack((1, 5, 0)), pack((1, 5, 9)))
    assert table.running is None
    (row,) = table.rows()
    for broken in (row._replace(key=b"\x00"), row._replace(row=pack((1, 2)))):
        with pytest.raises(CorruptSnapshotError):
            again.restore([broken])
