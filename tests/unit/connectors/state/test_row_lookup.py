"""What a lookup join with rows cannot do is said before anything is asked; what it asks, and makes of the answers."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructType

from connectors.errors import OptionError
from connectors.state.row_lookup import _answered, _typed, query_lookup, table_lookup

_PAGE = (Path(__file__).parents[4] / "docs" / "spark.md").read_text()
_SCHEMA = StructType().add("who", StringType()).add("n", IntegerType()).add("weight", DoubleType())


def _frame(schema: StructType = _SCHEMA) -> Any:
    return SimpleNamespace(schema=schema, mapInArrow=lambda _function, wider: wider)


def test_columns_are_added_behind_those_of_the_frame() -> None:
    kinds = {"a": "string", "b": "bigint", "c": "double", "d": "boolean", "e": "binary"}
    wider: Any = table_lookup("shop", "item", key={"id": "n", "owner": "who"}, columns=kinds)(_frame())
    added = "a:string,b:bigint,c:double,d:boolean,e:binary"
    assert wider.simpleString() == f"struct<who:string,n:int,weight:double,{added}>"
    wider = query_lookup("bank", "balance", arguments={"name": "who"}, columns={"balance": "bigint"})(_frame())
    assert wider.names == ["who", "n", "weight", "balance"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"key": {"id": "nobody"}}, "the keys are in one column 'nobody'"),
        ({"key": {"id": "weight"}}, "binary, string or a whole number; the frame has struct<who:string"),
        ({"columns": {"n": "string"}}, "has a column n already"),
        ({"columns": {"x": "date"}}, "column x is 'date': it may be string, bigint"),
        ({"columns": {}}, "name all"),
        ({"key": {}}, "name all"),
        ({"read_from": "anybody"}, "it may be leader or followers"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"key": {"id": "who"}, "columns": {"x": "string"}, **changes}
    with pytest.raises(OptionError, match=re.escape(said)):
        table_lookup("shop", "item", **given)(_frame())


def test_values_are_of_the_type_that_was_named() -> None:
    assert [_typed(1, "", "x", "double"), _typed(1, "", "x", "boolean"), _typed(None, "", "x", "string")] == [
        1.0,
        True,
        None,
    ]
    for value, kind in ((2, "boolean"), ("x", "bigint"), (1.5, "bigint"), (b"x", "string"), (True, "bigint")):
        with pytest.raises(OptionError, match=f"table t: column x is to be {kind}, and holds"):
            _typed(value, "table t", "x", kind)


def test_an_answer_is_a_row_a_value_none_or_an_error() -> None:
    def answered(*reply: Any, names: tuple[str, ...] = ("a", "b")) -> Any:
        return _answered("query q", ("k",), msgspec.msgpack.encode(reply), names)

    assert answered({"b": 2, "a": 1, "c": 3}) == [1, 2]
    assert answered(None) is None
    assert answered(7, names=("a",)) == [7]
    with pytest.raises(OptionError, match="it returns one value, 2 columns"):
        answered(7)
    with pytest.raises(OptionError, match="its row has no field b, it has a"):
        answered({"a": 1})
    with pytest.raises(OptionError, match=r"query q: key \('k',\): no such account"):
        answered("InvalidCommandError", {"message": "no such account"})


def test_the_lines_of_the_page_run() -> None:
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL) if "table_lookup" in one)
    frame = _frame(StructType().add("item", LongType()).add("customer", StringType()))
    seen: list[list[str]] = []

    def transform(look: Any) -> Any:
        frame.schema = look(frame)
        seen.append(frame.schema.names)
        return names["orders"]

    names: dict[str, Any] = {"orders": SimpleNamespace(transform=transform)}
    exec(block, names)  # noqa: S102 - the page's own
    assert seen[-1] == ["item", "customer", "name", "price", "balance"]
