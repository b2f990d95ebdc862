"""Columns of all described types in Spark: rows of the log, the state at a revision, a Delta table that widens."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from connectors.state.verify import VerifySettings, verify_log
from rsm_spark.core.column_types import column_type
from rsm_spark.core.machine import Field, FieldType, MachineDescription, TableDescription
from rsm_spark.core.records import Record
from rsm_spark.core.table_machine import upsert
from tests.spark.conftest import MACHINE
from tests.spark.test_followers import described, digest_of, materialize, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = (Field("id", FieldType.UUID), Field("day", FieldType.DATE))
ROW = (
    Field("price", FieldType.DECIMAL, precision=12, scale=2),
    Field("at", FieldType.TIMESTAMP),
    Field("more", FieldType.JSON, nullable=True),
    Field("tags", FieldType.LIST, items=FieldType.STR),
    Field("prices", FieldType.LIST, nullable=True, items=FieldType.DECIMAL, precision=5, scale=1),
)
LATE = (Field("owner", FieldType.UUID, nullable=True), Field("fee", FieldType.DECIMAL, nullable=True, precision=30))
ID, DAY, AT = UUID(int=7), date(2026, 2, 28), datetime(2026, 2, 28, 12, 0, 0, 5, tzinfo=UTC)
FIRST = (ID, DAY, Decimal("12.50"), AT, {"b": [1, None]}, ["x", "é"], [Decimal("1.5")])
SECOND: tuple[Any, ...] = (ID, date(1969, 12, 31), Decimal("-0.01"), AT, None, [], None)
THIRD: tuple[Any, ...] = (UUID(int=8), DAY, Decimal(0), AT, None, ["y"], [], UUID(int=9), Decimal(10**29))


def shop(version: int, *row: Field) -> MachineDescription:
    orders = TableDescription("orders", KEY, row)
    records = (*MACHINE.records, upsert(30, "ordered", orders))
    return MachineDescription("map", version, (*MACHINE.tables, orders), records)


def kept(*values: Any) -> tuple[Any, ...]:
    fields = (*KEY, *ROW, *LATE)[: len(values)]
    converts = [column_type(field).to_log for field in fields]
    return tuple(v if v is None or c is None else c(v) for v, c in zip(values, converts, strict=True))


def ordered(*values: Any) -> Record:
    return Record(30, None, kept(*values))


def test_all_types_are_spark_s_own_and_come_back_from_delta_with_the_digest_of_the_log(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    lake = {"is_every_table": True, "place": str(tmp_path / "lake")}
    log.roll()
    log.append([described(shop(2, *ROW)), ordered(*FIRST), ordered(*SECOND)])
    materialize(spark, log, tmp_path, **lake)
    log.roll()
    log.append([described(shop(3, *ROW, *LATE)), ordered(*THIRD)])
    summary = materialize(spark, log, tmp_path, **lake)  # The columns of before are read back from Delta's schema.
    log.append([ordered(*THIRD[:-1], None)])
    summary = materialize(spark, log, tmp_path, **lake)
    logged = [kept(*FIRST), kept(*SECOND), kept(*THIRD[:-1], None)]
    digest = next(one.digest for one in summary.positions if one.table == "orders")
    assert digest == digest_of("orders", {row[:2]: row[2:] for row in logged})
    found = rows_of(tmp_path / "lake" / "orders", "price")
    assert found[Decimal("12.50")] | {"_revision": 0} == {
        "id": str(ID), "day": DAY, "price": Decimal("12.50"), "at": AT, "more": '{"b":[1,null]}', "tags": ["x", "é"],
        "prices": [Decimal("1.5")], "owner": None, "fee": None, "_revision": 0,
    }  # fmt: skip
    assert found[Decimal("-0.01")]["day"] == date(1969, 12, 31)
    assert found[Decimal("0.00")]["owner"] == str(UUID(int=9))

    log.roll()
    named = (*ROW[:3], Field("labels", FieldType.LIST, items=FieldType.STR, was=("tags",)), *ROW[4:], *LATE)
    log.append([described(shop(4, *named)), ordered(*THIRD)])
    materialize(spark, log, tmp_path, **lake)
    renamed = rows_of(tmp_path / "lake" / "orders", "price")
    assert [renamed[price]["labels"] for price in map(Decimal, ("12.50", "-0.01", "0.00"))] == [["x", "é"], [], ["y"]]
    assert "tags" not in renamed[Decimal("12.50")]
    tables = (str(tmp_path / "lake" / "orders"),)
    verdict = verify_log(spark, VerifySettings(log.name, source={"metadataUri": log.metadata_uri}, tables=tables))
    assert verdict.ok, verdict
    assert verdict.tables

    names = [field.name for field in (*KEY, *named)]
    types = dict(spark.read.format("ledger").options(**log.options(rows="table", table="orders")).load().dtypes)
    assert [types[name] for name in names] == [
        "string", "date", "decimal(12,2)", "timestamp", "string", "array<string>", "array<decimal(5,1)>", "string",
        "decimal(30,0)",
    ]  # fmt: skip
    changes = spark.read.format("ledger").options(**log.options(rows="table", table="orders")).load()
    fees = changes.orderBy("_revision").select("id", "day", "price", "labels", "fee").limit(4).collect()
    assert [tuple(row) for row in fees] == [
        (str(ID), DAY, Decimal("12.50"), ["x", "é"], None),
        (str(ID), date(1969, 12, 31), Decimal("-0.01"), [], None),
        (str(UUID(int=8)), DAY, Decimal("0.00"), ["y"], Decimal(10**29)),
        (str(UUID(int=8)), DAY, Decimal("0.00"), ["y"], None),
    ]
    state = spark.read.format("ledger_state").options(**log.options(table="orders")).load()
    assert {name: kind for name, kind in state.dtypes if name in names} == {name: types[name] for name in names}
    assert sorted((row.price, row.prices) for row in state.collect()) == [
        (Decimal("-0.01"), None), (Decimal("0.00"), []), (Decimal("12.50"), [Decimal("1.5")])
    ]  # fmt: skip
    before = "id string, tags array<string>, _revision bigint"
    old = spark.read.format("ledger").schema(before).options(**log.options(rows="table", table="orders")).load()
    assert [row.tags for row in old.orderBy("_revision").collect()] == [["x", "é"], [], ["y"], ["y"], ["y"]]
