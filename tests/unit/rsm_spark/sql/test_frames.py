"""Rows as tables of Arrow."""

from __future__ import annotations

import pytest

from rsm_spark.sql.dbapi.errors import DataError
from rsm_spark.sql.dbapi.frames import arrow_table


def test_columns_have_the_types_that_are_declared_else_those_of_their_values() -> None:
    columns = [
        ("id", "INTEGER"),
        ("price", "REAL"),
        ("name", "VARCHAR(9)"),
        ("b", "BLOB"),
        ("at", "TIMESTAMP"),
        ("n", ""),
    ]
    table = arrow_table(columns, [(1, 2, "x", b"\0", "2026-01-02", 5), (None, 2.5, None, None, None, 2.5)])
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("id", "int64"), ("price", "double"), ("name", "string"), ("b", "binary"), ("at", "string"), ("n", "double"),
    ]  # fmt: skip
    assert table.to_pylist()[1] == {"id": None, "price": 2.5, "name": None, "b": None, "at": None, "n": 2.5}
    assert arrow_table(columns, []).num_rows == 0


@pytest.mark.parametrize(("declared", "values"), [("INT", (1, "x")), ("", (1, "x")), ("TEXT", ("x", 1))])
def test_a_column_of_several_types_is_refused_by_name(declared: str, values: tuple[object, ...]) -> None:
    with pytest.raises(DataError, match="mixed"):
        arrow_table([("mixed", declared)], [(value,) for value in values])
