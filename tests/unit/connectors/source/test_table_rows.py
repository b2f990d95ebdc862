from __future__ import annotations

import struct

import pytest

from connectors.errors import OptionError
from connectors.source.schema import check_table_schema, ddl_of, pick_columns, table_columns
from connectors.source.table_rows import table_of
from rsm_spark.core.machine import (
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    TableDescription,
    encode_description,
)
from rsm_spark.core.records import KernelRecord, Record
from rsm_spark.errors import CorruptLogError
from tests.unit.connectors.source.written import payloads_of, read_log, table_plan

ID, NAME, COUNT, PRICE = (
    Field("id", FieldType.INT),
    Field("name", FieldType.STR),
    Field("count", FieldType.INT),
    Field("price", FieldType.FLOAT),
)


def shop(*row: Field) -> MachineDescription:
    names = tuple(field.name for field in row)
    return MachineDescription(
        "shop",
        1,
        (TableDescription("stock", (ID,), row), TableDescription("names", (ID,), (NAME,))),
        (
            RecordDescription(20, "stocked", (*row, ID), "stock", Fold.UPSERT, ("id",), names),
            RecordDescription(21, "emptied", (ID,), "stock", Fold.DELETE, ("id",)),
            RecordDescription(22, "named", (ID, NAME), "names", Fold.UPSERT, ("id",), ("name",)),
        ),
    )


OLD, NEW = shop(NAME, COUNT), shop(NAME, COUNT, PRICE)
STOCK = table_plan(*table_columns(OLD.tables[0]), table="stock")


def stocked(name: object, count: object, key: object) -> Record:
    return Record(20, None, (name, count, key))


def test_rows_are_typed_and_deletes_are_rows_too() -> None:
    records = [stocked("bolt", 5, 1), Record(22, None, (1, "other")), Record(21, None, (1,)), stocked(None, 6, 2)]
    rows = read_log(payloads_of([records]), STOCK, description=OLD)
    assert list(rows[0]) == ["id", "name", "count", "_fold", "_revision", "_logged_at", "_extra"]
    assert [tuple(row.values())[:5] for row in rows] == [
        (1, "bolt", 5, "upsert", 1),
        (1, None, None, "delete", 3),
        (2, None, 6, "upsert", 4),
    ]
    assert rows[0]["_logged_at"].timestamp() == 1.0
    assert {row["_extra"] for row in rows} == {None}


def test_columns_that_come_later_are_kept_apart_and_missing_ones_are_null() -> None:
    described = Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(NEW),))
    later = Record(20, None, ("nut", 7, 1.5, 2))
    payloads = payloads_of([[stocked("bolt", 5, 1)], [described, later, Record(21, None, (2,))]])
    rows = read_log(payloads, STOCK, description=OLD)
    assert [(row["id"], row["count"], row["_extra"]) for row in rows] == [
        (1, 5, None),
        (2, 7, [("price", b"\xcb" + struct.pack(">d", 1.5))]),
        (2, None, None),
    ]
    newer = read_log(payloads, table_plan(*table_columns(NEW.tables[0]), table="stock"), description=OLD)
    assert [(row["id"], row["price"], row["_extra"]) for row in newer] == [
        (1, None, None),
        (2, 1.5, None),
        (2, None, None),
    ]


def test_what_columns_leaves_out_is_not_there() -> None:
    picked = pick_columns(table_columns(OLD.tables[0]), ["_revision", "count"])
    rows = read_log(payloads_of([[stocked("bolt", 5, 1)]]), table_plan(*picked, table="stock"), description=OLD)
    assert rows == [{"_revision": 1, "count": 5}]


def test_a_value_that_does_not_fit_is_an_error_that_names_its_record() -> None:
    payloads = payloads_of([[stocked("bolt", 5, 1), stocked("nut", "many", 2)]])
    with pytest.raises(CorruptLogError, match="orders: ledger 3: record 2: column count of table stock str is no int"):
        read_log(payloads, STOCK, description=OLD)


def test_a_value_that_does_not_fit_becomes_a_row_with_its_error() -> None:
    columns = pick_columns(table_columns(OLD.tables[0]), ["id", "count"], has_errors=True)
    payloads = payloads_of([[stocked("bolt", 5, 1), stocked("nut", "many", 2), Record(20, None, (1,))]])
    rows = read_log(payloads, table_plan(*columns, table="stock", keeps_bad=True), description=OLD)
    assert [(row["id"], row["count"], row["_error"] is None) for row in rows] == [
        (1, 5, True),
        (2, None, False),
        (None, None, False),
    ]
    assert "record 3 of type stocked has 1 fields" in rows[2]["_error"]


def test_records_without_a_description_are_an_error_that_says_what_to_do() -> None:
    payloads = payloads_of([[stocked("bolt", 5, 1)]])
    with pytest.raises(CorruptLogError, match="has been trimmed: read rows=records, or start later"):
        read_log(payloads, STOCK, description=None)
    kernel = payloads_of([[Record(KernelRecord.COMMAND_ANSWERED, None, ())]])
    assert read_log(kernel, STOCK, description=None) == []


def test_the_table_is_the_one_that_is_named_or_the_only_one_or_the_machines() -> None:
    assert table_of(OLD, "names").name == "names"
    one = MachineDescription("shop", 1, OLD.tables[:1], ())
    assert table_of(one, "").name == "stock"
    two = MachineDescription("names", 1, OLD.tables, ())
    assert table_of(two, "").name == "names"
    with pytest.raises(OptionError, match="needs option table: machine shop has stock, names"):
        table_of(OLD, "")
    with pytest.raises(OptionError, match="option table is stok: machine shop has stock, names"):
        table_of(OLD, "stok")


def test_columns_that_spark_cannot_tell_apart_are_refused() -> None:
    table = TableDescription("t", (Field("Id", FieldType.INT),), (Field("id", FieldType.INT),))
    with pytest.raises(OptionError, match="cannot tell apart: id"):
        table_columns(table)
    with pytest.raises(OptionError, match="cannot tell apart: _fold"):
        table_columns(TableDescription("t", (Field("_fold", FieldType.STR),), ()))


def test_an_unknown_column_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(OptionError, match=r"names cuont: did you mean count\? there are id, name, count, _fold"):
        pick_columns(table_columns(OLD.tables[0]), ["cuont"])


def test_odd_names_of_columns_are_quoted() -> None:
    table = TableDescription("t", (Field("a b", FieldType.INT),), ())
    assert ddl_of(table_columns(table)).startswith("`a b` bigint, _fold string")


def test_a_schema_of_the_users_may_only_have_types_of_the_log() -> None:
    columns = table_columns(OLD.tables[0])
    check_table_schema(columns)
    with pytest.raises(OptionError, match="column count of the schema is int; it may be bigint"):
        check_table_schema([columns[2]._replace(type="int")])
