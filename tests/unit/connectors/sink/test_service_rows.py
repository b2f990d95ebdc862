"""Rows of a frame as rows of a service's table, carried out by the service."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from connectors.errors import BadRowError, OptionError
from connectors.sink.commands import commands_of
from connectors.sink.options import RowKind, SinkOptions
from connectors.sink.service_rows import ServiceRowCommands, spark_type
from rsm_spark.testing import MachineHarness
from tests.unit.rsm_spark.core.typed_stock import Stock

_FIELDS = Stock().goods.columns
_OPTIONS = SinkOptions("stock", RowKind.TABLE, "w", table="goods", table_fields=_FIELDS, table_key_width=2)
_KEY: dict[str, DataType] = {"shop": StringType(), "number": IntegerType()}


def _commands(**more: DataType) -> ServiceRowCommands:
    found = commands_of(_OPTIONS, StructType([StructField(name, kind) for name, kind in {**_KEY, **more}.items()]))
    assert isinstance(found, ServiceRowCommands)
    return found


def _rows(commands: ServiceRowCommands, *rows: dict[str, Any], part: int = 0) -> list[Any]:
    batch = pa.RecordBatch.from_pylist([{"shop": "a", "number": 1, **row} for row in rows])
    return [row for row, _ in commands.items(batch, part)]


def _execute(stock: MachineHarness, command: bytes) -> None:
    reply = msgspec.msgpack.decode(stock.execute(command).reply)
    assert len(reply) == 1, reply


def test_values_arrive_as_the_service_has_them() -> None:
    commands = _commands(
        title=StringType(), price=DecimalType(10, 1), code=StringType(), at=TimestampType(), day=DateType(),
        tags=ArrayType(StringType()), more=StringType(), picture=StringType(), weight=IntegerType(),
        is_new=BooleanType(),
    )  # fmt: skip
    stock = MachineHarness(Stock())
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    row = {
        "title": "tea", "price": Decimal("2.5"), "code": "00000000-0000-0000-0000-00000000000a", "at": at,
        "day": at.date(), "tags": ["x", "y"], "more": '{"b": 1, "a": null}', "picture": "é", "weight": 3,
        "is_new": True,
    }  # fmt: skip
    _execute(stock, commands.command(_rows(commands, row)))
    service = stock.machine
    assert isinstance(service, Stock)
    good = service.goods.get("a", 1)
    assert good is not None
    assert (good.price, good.at, good.day, good.tags) == (Decimal("2.50"), at, at.date(), ["x", "y"])
    assert (good.code and good.code.int, good.more, good.picture, good.weight, good.is_new) == (
        10, {"a": None, "b": 1}, "é".encode(), 3.0, True,
    )  # fmt: skip


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from([None, "upsert", "delete"]), st.text(max_size=3))),
        max_size=5,
    )
)
def test_whatever_the_chunks_the_table_has_the_last_of_each_key(chunks: list[list[tuple[int, Any, str]]]) -> None:
    commands = _commands(title=StringType(), _op=StringType())
    apart, together = MachineHarness(Stock()), MachineHarness(Stock())
    wanted: dict[int, str] = {}
    made: list[bytes] = []
    for chunk in chunks:
        texts = [(name, pa.string()) for name in ("shop", "title", "_op")]
        types: list[tuple[str, pa.DataType]] = [*texts, ("number", pa.int32())]
        rows = [{"shop": "a", "number": number, "title": title, "_op": op} for number, op, title in chunk]
        batch = pa.RecordBatch.from_pylist(rows, pa.schema(types))
        made.append(commands.command([row for row, _ in commands.items(batch, 0)]))
        _execute(apart, made[-1])
        for number, op, title in chunk:
            wanted.pop(number, None)
            if op != "delete":
                wanted[number] = title
    _execute(together, commands.joined(made))
    for stock in (apart, together):
        assert {key[1]: row[0] for key, row in stock.rows("goods").items()} == wanted


@pytest.mark.parametrize(
    ("more", "row", "said"),
    [
        ({}, {"number": None}, "row 0 of partition 3, column number: it is null: it is the table's key"),
        ({"title": StringType()}, {"title": None}, "column title (key ('a', 1)): it is null"),
        ({"price": DecimalType(12, 4)}, {"price": Decimal("1.2345")}, "column price (key ('a', 1)): Decimal('1.2345')"),
        ({"code": StringType()}, {"code": "x"}, "column code (key ('a', 1)): 'x' is no uuid"),
        ({"more": StringType()}, {"more": "{"}, "column more (key ('a', 1)): '{' is no json"),
        (
            {"tags": ArrayType(StringType())},
            {"tags": ["x", None]},
            "column tags (key ('a', 1)): ['x', None] is no list",
        ),
        ({"_op": StringType()}, {"_op": "drop"}, "column _op (key ('a', 1)): 'drop' is no operation"),
        ({"title": StringType()}, {"title": "x" * (1 << 20)}, "the row has 1,048,5"),
    ],
)
def test_a_bad_row_is_named(more: dict[str, DataType], row: dict[str, Any], said: str) -> None:
    commands = _commands(**more)
    types = {"number": pa.int32()} if row.get("number", 1) is None else {}
    given = {"shop": "a", "number": 1, **row}
    arrays = {name: pa.array([value], types.get(name)) for name, value in given.items()}
    with pytest.raises(BadRowError) as raised:
        list(commands.items(pa.RecordBatch.from_pydict(arrays), 3))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"amount": StringType()}, "column amount is string, it must be an integer, since the table has int: cast it"),
        ({"tags": ArrayType(IntegerType())}, "column tags is array<int>, its elements must be string"),
        ({"colour": StringType()}, "there is no column colour"),
        ({"at": StringType()}, "column at is string, it must be timestamp"),
    ],
)
def test_types_are_checked_before_the_first_row(more: dict[str, DataType], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        _commands(**more)
    assert said in str(raised.value)
    with pytest.raises(OptionError, match="column number is missing"):
        ServiceRowCommands(_OPTIONS, StructType([StructField("shop", StringType())]))


def test_a_table_of_the_catalog_has_the_types_of_the_table() -> None:
    assert [spark_type(field) for field in _FIELDS] == [
        "string", "bigint", "string", "decimal(12,2)", "bigint", "string", "timestamp", "date", "array<string>",
        "string", "binary", "double", "boolean",
    ]  # fmt: skip
