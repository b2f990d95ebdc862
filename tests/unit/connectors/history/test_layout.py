"""The description in the log says where the columns are."""

from __future__ import annotations

import msgspec
import pytest

from broker.machine.tables import BROKER_DESCRIPTION
from connectors.errors import DeltaSinkError
from connectors.history.layout import FACT_TYPES, layout_of
from connectors.history.words import FactKind
from rsm_spark.core.machine import Field, FieldType, MachineDescription, RecordDescription, TableDescription
from rsm_spark.core.records import pack


def described(**changes: object) -> MachineDescription:
    return msgspec.structs.replace(BROKER_DESCRIPTION, **changes)


def without(column: str) -> MachineDescription:
    def thin(fields: tuple[Field, ...]) -> tuple[Field, ...]:
        return tuple(field for field in fields if field.name != column)

    tables = tuple(TableDescription(one.name, one.key, thin(one.row)) for one in BROKER_DESCRIPTION.tables)
    records = tuple(
        msgspec.structs.replace(one, fields=thin(one.fields), row=tuple(name for name in one.row if name != column))
        for one in BROKER_DESCRIPTION.records
    )
    return described(tables=tables, records=records)


def test_columns_are_found_by_their_names_wherever_a_later_version_has_them() -> None:
    later = tuple(
        TableDescription(one.name, one.key, (Field("new", FieldType.INT), *reversed(one.row)))
        for one in BROKER_DESCRIPTION.tables
    )
    picks = layout_of(described(tables=later), payloads=False, log="jobs")
    row = {"status": 2, "attempts": 1, "worker_id": "w", "assignment_id": 7, "assigned_ms": 8, "ended_ms": 9}
    row |= {"due_ms": 0, "cancel_ms": 0, "outcome": "", "error": "", "result": b"much"}
    names = [field.name for field in BROKER_DESCRIPTION.tables[1].row]
    packed = pack([0, *(row[name] for name in reversed(names))])
    values = msgspec.msgpack.decode(picks["task_ended"].said(pack([5]), packed, None))
    assert values == [5, 2, 1, "w", 7, 8, 9, 0, 0, "", ""]


def test_payloads_and_results_are_taken_only_when_asked_for() -> None:
    for payloads, name in ((False, ""), (True, "payload")):
        picks = layout_of(BROKER_DESCRIPTION, payloads=payloads, log="jobs")
        assert len(picks["task_submitted"].places) == 19 + bool(name)
        assert len(picks["task_ended"].places) == 11 + bool(name)


def test_a_record_that_holds_more_than_its_row_is_read_by_its_fields() -> None:
    picks = layout_of(BROKER_DESCRIPTION, payloads=False, log="jobs")
    assert picks["transaction_committed"].uses_fields
    packed = picks["transaction_committed"].said(pack([4]), None, pack([4, 1_000]))
    assert msgspec.msgpack.decode(packed) == [4, 1_000]


def test_facts_have_the_names_of_the_columns_that_the_broker_describes() -> None:
    records = {record.name: record for record in BROKER_DESCRIPTION.records}
    assert FACT_TYPES.keys() == set(FactKind)
    for kind, fact in FACT_TYPES.items():
        columns = {field.name: field.type for field in records[kind].fields}
        assert set(fact._fields) <= columns.keys()
        assert all(columns[name] == FieldType.BYTES for name in fact._field_defaults), "only payloads may be left out"


def test_another_machine_is_refused() -> None:
    with pytest.raises(DeltaSinkError, match=r"of the machine 'map', not of a task broker.*materialize"):
        layout_of(described(name="map"), payloads=False, log="jobs")


def test_a_broker_that_lacks_what_is_needed_is_refused_by_name() -> None:
    with pytest.raises(DeltaSinkError, match=r"lacks task_assigned\.outcome, task_ended\.outcome"):
        layout_of(without("outcome"), payloads=False, log="jobs")
    records: tuple[RecordDescription, ...] = tuple(
        one for one in BROKER_DESCRIPTION.records if one.name != "worker_died"
    )
    with pytest.raises(DeltaSinkError, match="lacks worker_died"):
        layout_of(described(records=records), payloads=False, log="jobs")
