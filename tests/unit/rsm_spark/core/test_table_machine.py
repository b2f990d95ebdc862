"""A machine that is only described: its tables follow its records, by the same rules as everybody's fold."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.machine import (
    Decision,
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    Row,
    StateMachine,
    TableDescription,
)
from rsm_spark.core.records import pack
from rsm_spark.core.state import ReplicatedState, StateTip
from rsm_spark.core.table_machine import TableMachine, delete, note, upsert
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError, InvalidDescriptionError

STR, INT, FLOAT, BOOL, BYTES = FieldType.STR, FieldType.INT, FieldType.FLOAT, FieldType.BOOL, FieldType.BYTES
SEATS = TableDescription("seats", (Field("hall", STR), Field("seat", INT)), (Field("guest", BYTES), Field("vip", BOOL)))
DOORS = TableDescription("doors", (Field("hall", STR),), ())
TAKEN, LEFT, OPENED, KNOCKED, SWAPPED = range(16, 21)
# A record whose fields are in another order than the columns.
SWAP = RecordDescription(
    SWAPPED,
    "swapped",
    (Field("vip", BOOL), Field("seat", INT), Field("guest", BYTES), Field("hall", STR), Field("why", STR)),
    "seats",
    Fold.UPSERT,
    ("hall", "seat"),
    ("guest", "vip"),
)


class Theatre(TableMachine):
    description: ClassVar = MachineDescription(
        "theatre",
        1,
        (SEATS, DOORS),
        (
            upsert(TAKEN, "taken", SEATS),
            delete(LEFT, "left", SEATS),
            upsert(OPENED, "opened", DOORS),
            note(KNOCKED, "knocked", Field("loudness", FLOAT)),
            SWAP,
        ),
    )

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        return Decision((), b"")


@pytest.fixture
def theatre() -> Theatre:
    return Theatre()


def test_it_is_a_state_machine_and_reads_nothing_unless_told(theatre: Theatre) -> None:
    machine: StateMachine = theatre
    assert machine.query(b"?", 1) == b""


def test_record_writes_the_row_that_its_description_names(theatre: Theatre) -> None:
    change = theatre.apply(TAKEN, ("red", 3, b"ann", True), 7)
    assert change == ("seats", pack(("red", 3)), None, pack((b"ann", True)))
    assert theatre.get("seats", "red", 3) == (b"ann", True)
    assert theatre.revision_of("seats", "red", 3) == 7
    swapped = theatre.apply(SWAPPED, (False, 3, b"bob", "red", "fight"), 8)
    assert swapped == ("seats", pack(("red", 3)), pack((b"ann", True)), pack((b"bob", False)))
    assert list(theatre.items("seats")) == [(("red", 3), (b"bob", False))]


def test_record_removes_its_row_and_says_so_when_there_was_none(theatre: Theatre) -> None:
    theatre.apply(TAKEN, ("red", 3, b"ann", True), 7)
    assert theatre.apply(LEFT, ("red", 3), 8) == ("seats", pack(("red", 3)), pack((b"ann", True)), None)
    assert theatre.apply(LEFT, ("red", 3), 9) == ("seats", pack(("red", 3)), None, None)
    assert theatre.get("seats", "red", 3) is None
    assert (theatre.revision_of("seats", "red", 3), theatre.count("seats")) == (0, 0)


def test_record_without_a_table_changes_nothing(theatre: Theatre) -> None:
    assert theatre.apply(KNOCKED, (0.5,), 1) is None
    assert list(theatre.rows()) == []


def test_table_may_be_keys_alone(theatre: Theatre) -> None:
    theatre.apply(OPENED, ("red",), 1)
    assert theatre.get("doors", "red") == ()
    assert theatre.get("doors", "blue") is None


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (99, (), "no record type 99"),
        (TAKEN, ("red", 3, b"ann"), "has 4 fields, this one 3"),
        (TAKEN, ("red", "3", b"ann", True), "'seat' of record 'taken' is described as int, this one is of type str"),
        (TAKEN, ("red", True, b"ann", True), "'seat' .* of type bool"),
        (TAKEN, ("red", 3, None, True), "'guest' .* of type NoneType"),
        (KNOCKED, (1,), "'loudness' .* described as float"),
    ],
)
def test_record_that_is_not_as_described_stops_the_replica_and_changes_nothing(
    theatre: Theatre, kind: int, fields: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(CorruptLogError, match=message):
        theatre.apply(kind, fields, 5)
    assert list(theatre.rows()) == []


def test_rows_are_those_of_the_call_though_records_follow(theatre: Theatre) -> None:
    theatre.apply(TAKEN, ("red", 3, b"ann", True), 1)
    rows = theatre.rows()
    theatre.apply(LEFT, ("red", 3), 2)
    assert list(rows) == [Row("seats", pack(("red", 3)), pack((b"ann", True)), 1)]


_step = st.one_of(
    st.tuples(
        st.just(TAKEN), st.tuples(st.sampled_from(["r", "b"]), st.integers(0, 2), st.binary(max_size=3), st.booleans())
    ),
    st.tuples(st.just(LEFT), st.tuples(st.sampled_from(["r", "b"]), st.integers(0, 2))),
    st.tuples(st.just(OPENED), st.tuples(st.sampled_from(["r", "b"]))),
)


@given(st.lists(_step, max_size=30))
def test_any_history_gives_the_rows_of_a_fold_by_key_and_a_snapshot_goes_on_alike(steps: list[Any]) -> None:
    state = ReplicatedState(Theatre(), bytes(16))
    expected: dict[tuple[str, bytes], bytes] = {}
    for kind, fields in steps:
        state.fold(kind, None, fields, 0)
        table, key = ("doors", fields) if kind == OPENED else ("seats", fields[:2])
        if kind == LEFT:
            expected.pop((table, pack(key)), None)
        else:
            expected[table, pack(key)] = pack(fields[len(key) :])
    assert {(row.table, row.key): row.row for row in state.rows()} == expected
    state.validate()
    other = ReplicatedState(Theatre(), bytes(16))
    other.restore(state.rows(), StateTip(state.revision, bytes(32), 1, 0), None)
    assert (other.digest, other.row_count) == (state.digest, len(expected))


@pytest.mark.parametrize(
    "row",
    [
        Row("cellar", pack(("a",)), pack(()), 1),
        Row("seats", pack(("a",)), pack((b"", True)), 1),
        Row("seats", pack(("a", 1)), pack((b"",)), 1),
        Row("doors", b"\xc1", pack(()), 1),
    ],
)
def test_row_that_is_none_of_the_tables_is_refused_and_leaves_the_state_empty(theatre: Theatre, row: Row) -> None:
    theatre.apply(OPENED, ("red",), 1)
    with pytest.raises(CorruptSnapshotError, match=row.table):
        theatre.restore([Row("doors", pack(("blue",)), pack(()), 1), row])
    assert list(theatre.rows()) == []


def _described(**changes: Any) -> MachineDescription:
    return msgspec.structs.replace(Theatre.description, **changes)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (_described(tables=(SEATS, SEATS)), "two tables"),
        (_described(tables=(msgspec.structs.replace(DOORS, name="_doors"),), records=()), "are the kernel's"),
        (_described(tables=(msgspec.structs.replace(DOORS, key=()),), records=()), "needs a key"),
        (_described(tables=(msgspec.structs.replace(DOORS, row=DOORS.key),), records=()), "different names"),
        (_described(records=(upsert(15, "low", DOORS),)), "from 16 on"),
        (_described(records=(upsert(16, "a", DOORS), upsert(16, "b", DOORS))), "different numbers"),
        (_described(tables=(SEATS,), records=(upsert(16, "a", DOORS),)), "no table 'doors'"),
        (_described(records=(note(16, "a", Field("x", INT), Field("x", INT)),)), "two fields"),
        (_described(records=(msgspec.structs.replace(SWAP, key=("seat", "hall")),)), "its key"),
        (_described(records=(msgspec.structs.replace(SWAP, row=("guest", "gone")),)), "its row"),
    ],
)
def test_description_that_contradicts_itself_is_refused_at_once(description: MachineDescription, message: str) -> None:
    machine = type("Wrong", (Theatre,), {"description": description})
    with pytest.raises(InvalidDescriptionError, match=message):
        machine()
