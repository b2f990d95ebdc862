"""Versions of a machine: what may follow, rows of before, records until the log's version is raised."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.machine import (
    AdvisedMachine,
    Decision,
    EvolvingMachine,
    Field,
    FieldType,
    MachineDescription,
    Row,
    TableDescription,
    decode_description,
    encode_description,
)
from rsm_spark.core.records import pack
from rsm_spark.core.state import ReplicatedState, StateTip
from rsm_spark.core.table_machine import TableMachine, note, upsert
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError, InvalidDescriptionError, MachineVersionError
from rsm_spark.testing.counter_map import CounterMap

STR, INT, BYTES, BOOL = FieldType.STR, FieldType.INT, FieldType.BYTES, FieldType.BOOL
NAME = (Field("name", STR),)
BALANCE = Field("balance", INT)
SET, CLOSED = 16, 17


def described(version: int, *columns: Field, tables: tuple[TableDescription, ...] = ()) -> MachineDescription:
    accounts = TableDescription("accounts", NAME, columns)
    records = (upsert(SET, "set", accounts), *((note(CLOSED, "closed", *NAME),) if version > 1 else ()))
    return MachineDescription("bank", version, (accounts, *tables), records)


V1 = described(1, BALANCE)
EMAIL, LIMIT = Field("email", STR, nullable=True), Field("overdraft", INT, default=0)
V2 = described(2, BALANCE, EMAIL, LIMIT)
V3 = described(
    3, BALANCE, Field("email", STR, nullable=True, dropped=True), Field("limit", INT, was=("overdraft",), default=0)
)


def machine(description: MachineDescription) -> TableMachine:
    class Bank(TableMachine):
        description: ClassVar[MachineDescription]

        def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
            return Decision((), b"")

    Bank.description = description
    return Bank()


def test_descriptions_without_the_new_words_are_the_bytes_that_they_were() -> None:
    assert b"nullable" not in encode_description(V1)
    assert b'{"name":"balance","type":"int"}' in encode_description(V1)
    for one in (V1, V2, V3, described(2, Field("photo", BYTES, default=b"\xff"))):
        assert decode_description(encode_description(one)) == one


def test_rows_of_an_older_version_are_filled_renamed_and_dropped_as_they_are_read() -> None:
    bank = machine(V3)
    bank.follow(V1)
    bank.apply(SET, ("ann", 5), 1)
    assert bank.get("accounts", "ann") == (5, None, 0)
    bank.follow(V2)
    bank.apply(SET, ("bob", 6, "b@x", 100), 2)
    assert bank.get("accounts", "bob") == (6, None, 100)
    bank.follow(V3)
    assert dict(bank.items("accounts")) == {("ann",): (5, None, 0), ("bob",): (6, None, 100)}
    assert [row.row for row in bank.rows()] == [pack((5,)), pack((6, "b@x", 100))], "stored bytes do not change"


def test_an_older_version_folds_what_a_newer_one_has_described() -> None:
    old, new = machine(V1), machine(V2)
    for one in (old, new):
        one.follow(V2)
    for fields in (("ann", 5, None, 7), ("bob", 6, "b@x", 0)):
        assert old.apply(SET, fields, 3) == new.apply(SET, fields, 3)
    assert old.apply(CLOSED, ("ann",), 4) is None
    assert list(old.rows()) == list(new.rows())
    assert old.get("accounts", "bob") == (6,)


def test_until_the_version_is_raised_decisions_are_those_of_the_log() -> None:
    bank = machine(V2)
    bank.follow(V1)
    assert bank.loggable([(SET, ("ann", 5, None, 0))]) == [(SET, ("ann", 5))]
    for record, said in (
        ((SET, ("ann", 5, "a@x", 0)), "field 'email' of record 'set' is new"),
        ((SET, ("ann", 5, None, 9)), "field 'overdraft' of record 'set' is new"),
        ((CLOSED, ("ann",)), r"record 'closed' \(type 17\) is new"),
    ):
        with pytest.raises(InvalidDescriptionError, match=f"{said} in version 2, the log is still of version 1"):
            bank.loggable([record])
    bank.follow(V2)
    both = [(SET, ("ann", 5, "a@x", 9)), (CLOSED, ("ann",))]
    assert bank.loggable(both) is both


def test_a_renamed_field_is_found_in_the_older_record() -> None:
    bank = machine(V3)
    bank.follow(V2)
    assert bank.loggable([(SET, ("ann", 5, None, 9))]) == [(SET, ("ann", 5, None, 9))]


def test_a_decision_is_checked_by_its_own_version_first() -> None:
    bank = machine(V2)
    bank.follow(V1)
    with pytest.raises(InvalidDescriptionError, match="record 'set' has 4 fields, this one 2"):
        bank.loggable([(SET, ("ann", 5))])


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (described(2, Field("balance", FieldType.FLOAT)), "column 'balance' was int and is now float"),
        (described(2), "column 'balance' is gone: keep it in its place"),
        (described(2, Field("credit", INT)), r"in place of column 'balance' stands 'credit'.*was=\('balance',\)"),
        (described(2, EMAIL, BALANCE), "in place of column 'balance' stands 'email'"),
        (described(2, BALANCE, Field("email", STR)), "new column 'email' needs a default, or nullable=True"),
        (MachineDescription("bank", 2, (), ()), "table 'accounts' is gone"),
        (described(1, BALANCE, EMAIL), "give it a higher version"),
        (
            MachineDescription("bank", 2, (TableDescription("accounts", (Field("id", STR),), (BALANCE,)),), ()),
            "has another key",
        ),
        (
            MachineDescription("bank", 2, V2.tables, (note(SET, "noted", *NAME),)),
            r"record type 16 was 'set' \(upsert of 'accounts'\) and is now 'noted'",
        ),
        (MachineDescription("shop", 2, (), ()), "the log is one of machine 'bank'"),
    ],
)
def test_a_change_that_rows_of_before_do_not_bear_is_refused_by_name(new: MachineDescription, said: str) -> None:
    with pytest.raises(InvalidDescriptionError, match=said):
        check_evolution(V1, new)
    with pytest.raises(CorruptLogError, match=said):
        machine(V1).follow(new)


def test_what_was_allowed_or_dropped_once_stays_so() -> None:
    for later, said in (
        (described(4, BALANCE, Field("email", STR), LIMIT), "'email' is nullable"),
        (described(4, BALANCE, EMAIL, Field("limit", INT, was=("overdraft",), default=0)), "'email' was dropped"),
    ):
        with pytest.raises(InvalidDescriptionError, match=said):
            check_evolution(V3, later)
    check_evolution(V1, V3)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (TableDescription("t", (Field("k", STR, nullable=True),), ()), "key column 'k'"),
        (TableDescription("t", NAME, (Field("n", INT, default="0"),)), "column 'n' is int, its default '0' is not"),
        (TableDescription("t", NAME, (Field("n", INT, default=True),)), "column 'n' is int, its default True is not"),
        (TableDescription("t", NAME, (Field("n", INT, dropped=True),)), "'n' is dropped: say nullable=True too"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(table: TableDescription, said: str) -> None:
    with pytest.raises(InvalidDescriptionError, match=said):
        machine(MachineDescription("bank", 1, (table,), ()))


def test_a_snapshot_of_an_older_version_is_restored_and_one_that_lacks_what_must_be_is_not() -> None:
    bank = machine(V2)
    bank.follow(V2)
    bank.restore(
        [Row("accounts", pack(("ann",)), pack((5,)), 1), Row("accounts", pack(("bob",)), pack((6, None, 1)), 2)]
    )
    assert dict(bank.items("accounts")) == {("ann",): (5, None, 0), ("bob",): (6, None, 1)}
    for row in ((), (1, None, 2, 3)):
        with pytest.raises(CorruptSnapshotError, match="has there"):
            bank.restore([Row("accounts", pack(("ann",)), pack(row), 1)])
    assert list(bank.rows()) == []


def test_a_machine_that_neither_follows_nor_heeds_levels_refuses_a_newer_description_by_name() -> None:
    fixed = CounterMap()
    assert not isinstance(fixed, EvolvingMachine | AdvisedMachine)
    newer = msgspec.structs.replace(fixed.description, version=fixed.description.version + 1)
    state = ReplicatedState(fixed, bytes(16))
    with pytest.raises(MachineVersionError, match="start it with the newer one"):
        state.fold(0, None, (encode_description(newer),), 0)


def test_tables_that_do_not_follow_refuse_a_newer_description_unless_levels_say_what_is_logged() -> None:
    class Fixed(TableMachine):
        description = V1
        is_evolving = False

    class Levelled(Fixed):
        heeds_levels = True

    with pytest.raises(MachineVersionError, match="start it with the newer one"):
        ReplicatedState(Fixed(), bytes(16)).fold(0, None, (encode_description(V2),), 0)
    state = ReplicatedState(Levelled(), bytes(16))
    state.fold(0, None, (encode_description(V2),), 0)
    assert state.description == V2


_names = st.sampled_from(("ann", "bob", "cid"))
_v1 = st.tuples(st.just(1), _names, st.integers(0, 9))
_v2 = st.tuples(st.just(2), _names, st.integers(0, 9), st.none() | st.text(max_size=3), st.integers(0, 3))


@given(st.lists(_v1, max_size=10), st.lists(_v2, max_size=10), st.integers(0, 20))
def test_replicas_of_every_version_have_the_same_digest_wherever_they_took_their_snapshot(
    before: list[Any], after: list[Any], cut: int
) -> None:
    log: list[tuple[MachineDescription, list[Any]]] = [(V1, before), (V2, after)]
    seen = []
    for own in (V1, V2, V3):
        state = ReplicatedState(machine(own), bytes(16))
        for description, records in log:
            state.fold(0, None, (encode_description(description),), 0)
            for record in records:
                state.fold(SET, None, tuple(record[1:]), 0)
                if state.revision == cut:
                    again = ReplicatedState(machine(own), bytes(16))
                    tip = StateTip(state.revision, bytes(32), 0, 0)
                    again.restore(list(state.rows()), tip, state.description)
                    assert again.digest == state.digest
                    state = again
        state.validate()
        seen.append((state.digest, state.row_count, sorted(state.rows())))
    assert seen[0] == seen[1] == seen[2]
