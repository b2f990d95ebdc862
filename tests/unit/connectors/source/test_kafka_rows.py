from __future__ import annotations

from typing import Any

from rsm_spark.core.machine import (
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    TableDescription,
    encode_description,
)
from rsm_spark.core.records import KernelRecord, Record, pack
from tests.unit.connectors.source.written import payloads_of, plan_of, put, read_log

KAFKA = plan_of(rows="kafka")
ID, NAME, COUNT = Field("id", FieldType.STR), Field("name", FieldType.STR), Field("count", FieldType.INT)
SHOP = MachineDescription(
    "shop",
    1,
    (TableDescription("names", (ID,), (NAME,)), TableDescription("stock", (ID, COUNT), (COUNT,))),
    (
        RecordDescription(20, "named", (ID, NAME), "names", Fold.UPSERT, ("id",), ("name",)),
        RecordDescription(21, "stocked", (ID, COUNT), "stock", Fold.UPSERT, ("id", "count"), ("count",)),
    ),
)


def test_a_record_has_the_columns_of_sparks_kafka_source() -> None:
    (row,) = read_log(payloads_of([[put(b"k", b"v")]], first_revision=7), KAFKA)
    assert list(row) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert (row["key"], row["value"], row["topic"], row["partition"], row["offset"]) == (b"k", b"v", "orders", 0, 7)
    assert (row["timestamp"].timestamp(), row["timestampType"]) == (1.0, 1)


def test_a_delete_is_a_tombstone_and_a_record_of_no_table_has_its_fields_as_value() -> None:
    deleted, noted = read_log(payloads_of([[Record(17, None, (b"j", "gone")), Record(18, None, ("x",))]]), KAFKA)
    assert (deleted["key"], deleted["value"]) == (b"j", None)
    assert (noted["key"], noted["value"]) == (None, pack(["x"]))


def test_records_of_the_kernel_are_left_out_and_leave_gaps() -> None:
    described = Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(SHOP),))
    rows = read_log(payloads_of([[described, Record(20, None, ("a", "Ann"))], [described]]), KAFKA)
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(2, b"a", b"Ann")]


def test_several_columns_and_numbers_stay_msgpack() -> None:
    rows = read_log(payloads_of([[Record(21, None, ("a", 5)), Record(20, None, ("a", None))]]), KAFKA, description=SHOP)
    assert [(row["key"], row["value"]) for row in rows] == [(pack(["a", 5]), pack([5])), (b"a", pack([None]))]


def test_records_whose_description_was_trimmed_have_their_fields_as_value() -> None:
    (row,) = read_log(payloads_of([[put(b"k", b"v")]]), KAFKA, description=None)
    assert (row["key"], row["value"]) == (None, pack([b"k", b"v"]))


def test_headers_say_what_the_columns_do_not() -> None:
    plan = plan_of(rows="kafka", includeHeaders="true", columns="offset,headers")
    first, second = read_log(payloads_of([[put(b"k", b"v"), Record(18, None, ("x",))]]), plan)
    headers: list[dict[str, Any]] = first["headers"]
    assert [(one["key"], one["value"]) for one in headers] == [("name", b"put"), ("table", b"map"), ("fold", b"upsert")]
    assert [one["key"] for one in second["headers"]] == ["name", "fold"]


def test_what_cannot_be_decoded_is_a_row_with_its_error() -> None:
    payloads = payloads_of([[put(b"a", b"b"), Record(16, None, (b"a",))]])
    rows = read_log(payloads, plan_of(rows="kafka", badRecords="column"))
    assert [(row["offset"], row["key"], row["_error"] is None) for row in rows] == [(1, b"a", True), (2, None, False)]
