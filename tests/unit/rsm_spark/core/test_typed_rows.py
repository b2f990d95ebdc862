"""Rows that are written past the commands of a service: what is taken, what is refused, and in which words."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rsm_spark as rsm
from rsm_spark.core.typed_rows import ROWS_MAX, TABLES, WRITE, TableShown, WrittenRows
from rsm_spark.testing import MachineHarness
from tests.unit.rsm_spark.core.typed_stock import Good, Stock

_NAMES = ("shop", "number", "title", "amount")


def _write(harness: MachineHarness, *rows: tuple[Any, ...], columns: tuple[str, ...] = _NAMES, **more: Any) -> Any:
    asked = WrittenRows(more.pop("table", "goods"), columns, list(rows), **more)
    reply: Any = msgspec.msgpack.decode(harness.execute(msgspec.msgpack.encode((WRITE, asked))).reply)
    return reply[0] if len(reply) == 1 else reply[1]["message"]


def test_rows_are_written_over_by_their_key_and_deleted() -> None:
    stock = MachineHarness(Stock())
    assert _write(stock, ("a", 1, "tea", 5), ("a", 2, "milk", 6), ("b", 1, "rice", 7)) == 3
    assert _write(stock, ("a", 1, 9), columns=("shop", "number", "amount"), deleted=[("b", 1), ("b", 7)]) == 3
    service = stock.machine
    assert isinstance(service, Stock)
    assert list(service.goods) == [Good("a", 1, "tea", amount=9), Good("a", 2, "milk", amount=6)]
    assert stock.call(Stock.take, "a", 1) == 8


def test_values_are_those_of_the_log() -> None:
    stock = MachineHarness(Stock())
    columns = ("shop", "number", "title", "price", "code", "at", "day", "tags", "more", "picture", "weight", "is_new")
    values = ("a", 1, "tea", "12.50", bytes(16), 1_000_000, 10_000, ["x"], '{"k":[1]}', b"\0", 1.5, True)
    assert _write(stock, values, columns=columns) == 1
    (row,) = stock.rows("goods").values()
    assert row == ("tea", "12.50", 0, bytes(16), 1_000_000, 10_000, ["x"], '{"k":[1]}', b"\0", 1.5, True)
    service = stock.machine
    assert isinstance(service, Stock)
    found = service.goods.get("a", 1)
    assert found is not None
    assert (found.price, found.more) == (Decimal("12.50"), {"k": [1]})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"table": "nowhere"}, "there is no table 'nowhere'; there are goods, orders"),
        ({"table": "orders", "columns": ["number"], "rows": [[1]]}, "table 'orders' takes no rows as they are"),
        ({"columns": ["shop", "number", "colour"]}, "has no column 'colour'"),
        ({"columns": ["shop", "title"], "rows": [["a", "b"]]}, "column 'number' of the key is missing"),
        ({"columns": ["shop", "shop"]}, "a column is named twice"),
        ({"rows": [["a", 1, "tea"]]}, "a row of 3 values, there are 4 columns"),
        ({"rows": [["a", "1", "tea", 1]]}, "column 'number' is int, this one is '1': it is of type str"),
        ({"rows": [["a", 1, None, 1]]}, "row of key ('a', 1): Expected `str`, got `null` - at `$.title`"),
        ({"rows": [["a", 1, "tea", -1]]}, "row of key ('a', 1): Expected `int` >= 0 - at `$.amount`"),
        ({"columns": ["shop", "number"], "rows": [["a", 1]]}, "Object missing required field `title`"),
        ({"columns": [*_NAMES[:3], "price"], "rows": [["a", 1, "x", "much"]]}, "'much' is no decimal number"),
        ({"columns": [*_NAMES[:3], "at"], "rows": [["a", 1, "x", 1 << 62]]}, "beyond the years 1 to 9999"),
        ({"columns": [*_NAMES[:3], "code"], "rows": [["a", 1, "x", b"short"]]}, "column 'code' is uuid"),
        ({"columns": [*_NAMES[:3], "more"], "rows": [["a", 1, "x", "{"]]}, "column 'more' is json"),
        ({"columns": [*_NAMES[:3], "more"], "rows": [["a", 1, "x", "[" * 100_000]]}, "column 'more' is json"),
        ({"columns": [*_NAMES[:3], "price"], "rows": [["a", 1, "x", "1.234"]]}, "more than 2 digits behind the point"),
        ({"columns": [*_NAMES[:3], "tags"], "rows": [["a", 1, "x", [1]]]}, "column 'tags' is list(str)"),
        ({"rows": [["a", 1, "tea", 1]] * (ROWS_MAX + 1)}, "10,002 rows in one command, 10,000 go"),
        ({"colour": 1}, "unknown field `colour`"),
    ],
)
def test_a_row_that_does_not_fit_is_named_and_nothing_is_written(asked: dict[str, Any], said: str) -> None:
    stock = MachineHarness(Stock())
    whole = {"table": "goods", "columns": list(_NAMES), "rows": [["z", 9, "good", 1]], **asked}
    if "rows" in asked and "columns" not in asked:
        whole["rows"] = [["z", 9, "good", 1], *asked["rows"]]
    done = stock.execute(msgspec.msgpack.encode((WRITE, whole)))
    name, fields = msgspec.msgpack.decode(done.reply)
    assert (name, done.records) == ("InvalidCommandError", ())
    assert said in fields["message"], fields


_SENT = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=17),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(st.lists(st.sampled_from([one.name for one in Stock().goods.columns]), max_size=5, unique=True), st.data())
def test_whatever_is_sent_is_written_or_refused(names: list[str], data: st.DataObject) -> None:
    """A leader that failed in `decide` would be no answer: bytes of strangers come here."""
    columns = ["shop", "number", "title", *(name for name in names if name not in {"shop", "number", "title"})]
    rows = [["a", 1, "x", *(data.draw(_SENT) for _ in columns[3:])] for _ in range(2)]
    stock = Stock()
    decision = stock.decide(msgspec.msgpack.encode((WRITE, {"table": "goods", "columns": columns, "rows": rows})), 1, 0)
    reply = msgspec.msgpack.decode(decision.reply)
    assert reply == [2] or reply[0] == "InvalidCommandError"
    stock.loggable(list(decision.records))


def test_tables_are_told_with_their_columns() -> None:
    reply = Stock().query(msgspec.msgpack.encode((TABLES, {})), 0)
    (tables,) = msgspec.msgpack.decode(reply, type=tuple[list[TableShown]])
    goods, orders = tables
    assert (goods.name, goods.is_writable, orders.name, orders.is_writable) == ("goods", True, "orders", False)
    assert [one.name for one in goods.key] == ["shop", "number"]
    assert [one.type_name for one in goods.columns][:3] == ["str", "decimal(12,2)", "int"]


class Depot(rsm.Service):
    """A service that has the stock as its part."""

    stock = rsm.part(Stock)


def test_a_table_of_a_part_is_named_by_its_part() -> None:
    depot = MachineHarness(Depot())
    assert _write(depot, ("a", 1, "tea", 5), table="stock.goods") == 1
    assert depot.call(Depot.stock.amount, "a", 1) == 5
