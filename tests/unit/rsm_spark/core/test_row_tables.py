"""Rows of a state as described tables."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rsm_spark.core.machine import Field, FieldType, MachineDescription, Row, TableDescription
from rsm_spark.core.records import pack
from rsm_spark.core.row_tables import DescribedTables
from rsm_spark.errors import CorruptSnapshotError

PRICE = Field("price", FieldType.DECIMAL, default=Decimal(1), precision=4, scale=2)
GONE = Field("gone", FieldType.STR, nullable=True, dropped=True)
ORDERS = TableDescription("orders", (Field("id", FieldType.INT),), (GONE, Field("item", FieldType.STR), PRICE))
TABLES = DescribedTables(MachineDescription("shop", 1, (ORDERS,), ()))


def row(*columns: object) -> Row:
    return Row("orders", pack((7,)), pack(columns), 3)


def test_a_row_has_the_columns_that_are_not_dropped_and_defaults_of_those_that_came_later() -> None:
    table = TABLES.tables()["orders"]
    assert [field.name for field in table.fields] == ["id", "item", "price"]
    assert table.values(row(None, "tea", "2.50")) == (7, "tea", "2.50")
    assert table.values(row("x", "tea")) == (7, "tea", "1.00")


def test_the_kernels_rows_are_in_no_table() -> None:
    assert TABLES.look(row(None, "tea")) == TABLES.name_of(row(None, "tea")) == "orders"
    assert TABLES.look(Row("_sessions", b"", b"", 1)) is None


def test_a_key_of_another_table_is_refused() -> None:
    with pytest.raises(CorruptSnapshotError, match="a row of table orders has 2 key columns, not 1"):
        TABLES.tables()["orders"].values(Row("orders", pack((1, 2)), pack(()), 3))
