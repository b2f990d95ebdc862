"""What a lookup join cannot do is said before anything is asked."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from connectors.errors import OptionError
from connectors.state.lookup import map_lookup

_PAGE = (Path(__file__).parents[4] / "docs" / "spark.md").read_text()


def _frame(schema: StructType) -> Any:
    return SimpleNamespace(schema=schema, mapInArrow=lambda _function, wider: wider)


def test_columns_are_added_behind_those_of_the_frame() -> None:
    frame = _frame(StructType().add("who", StringType()).add("n", IntegerType()))
    wider: Any = map_lookup("people", key="who", value="name", revision="at")(frame)
    assert wider.simpleString() == "struct<who:string,n:int,name:binary,at:bigint>"
    wider = map_lookup("people", key="who")(frame)
    assert wider.names == ["who", "n", "value"]


def test_what_cannot_be_is_refused() -> None:
    frame = _frame(StructType().add("who", StringType()).add("n", IntegerType()))
    for key, value in (("nobody", "v"), ("n", "v")):
        with pytest.raises(OptionError, match=f"the keys are in one column {key!r}"):
            map_lookup("people", key=key, value=value)(frame)
    with pytest.raises(OptionError, match="has a column n already"):
        map_lookup("people", key="who", value="n")(frame)
    with pytest.raises(OptionError, match="it may be leader or followers"):
        map_lookup("people", read_from="anybody")
    with pytest.raises(OptionError, match="the last two differ"):
        map_lookup("people", value="v", revision="v")


def test_the_lines_of_the_page_run() -> None:
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL) if "map_lookup" in one)
    frame = _frame(StructType().add("customer", StringType()))
    asked: list[tuple[str, ...]] = []
    joined = SimpleNamespace(selectExpr=lambda *columns: asked.append(columns))
    names = {"orders": SimpleNamespace(transform=lambda look: joined if look(frame).names[-1] == "name" else None)}
    exec(block, names)  # noqa: S102 - the page's own
    assert asked == [("*", "CAST(name AS STRING) AS customer_name")]
