from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.delta.columns import REVISION_COLUMN, Column, FollowedTable
from connectors.delta.packing import PackedRows, arrow_columns, packed_rows
from connectors.errors import DeltaSinkError
from rsm_spark.core.machine import Field, FieldType, TableDescription
from rsm_spark.core.records import pack
from tests.unit.connectors.delta.logged import MAP, PAIRS, wider

ROWS = st.lists(
    st.tuples(
        st.tuples(st.text(max_size=3), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.none() | st.floats(allow_nan=False), st.none() | st.booleans(), st.none() | st.integers(0, 9)),
    ),
    max_size=20,
)


@given(rows=ROWS, since=st.integers(0, 20))
def test_rows_come_back_with_the_bytes_of_the_log(rows: list[Any], since: int) -> None:
    followed = FollowedTable.described(PAIRS)
    if since:
        followed = followed.widened(wider(PAIRS, "late"), since)
    widths = [3 if since and number >= since else 2 for number in range(len(rows))]
    packed = PackedRows(
        [pack(key) for key, _ in rows],
        [pack(row[:width]) for (_, row), width in zip(rows, widths, strict=True)],
        list(range(len(rows))),
    )
    columns = arrow_columns(followed, packed)
    table = pa.Table.from_arrays(
        [*columns, pa.array(range(len(rows)), pa.int64())],
        schema=followed.schema(pa.field(REVISION_COLUMN, pa.int64())),
    )
    assert packed_rows(followed, table) == packed


def test_an_added_column_says_since_when() -> None:
    followed = FollowedTable.described(MAP).widened(wider(MAP, "more"), 7).widened(wider(MAP, "more", "most"), 9)
    assert followed.row[1:] == (Column(Field("more", FieldType.INT), 7), Column(Field("most", FieldType.INT), 9))
    assert [followed.width_at(revision) for revision in (6, 7, 8, 9)] == [1, 2, 2, 3]
    assert followed.schema().field("more").metadata == {b"rsm.since": b"7", b"rsm.place": b"1"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (None, "it is gone"),
        (
            TableDescription("pairs", PAIRS.key[:1], PAIRS.row),
            r"its key was left \(str\), right \(int\) and is now left",
        ),
        (TableDescription("pairs", PAIRS.key, PAIRS.row[:1]), "column is_on is gone"),
        (TableDescription("pairs", PAIRS.key, PAIRS.row[::-1]), r"column weight \(float\) is now is_on \(bool\)"),
        (
            TableDescription("pairs", PAIRS.key, (Field("weight", FieldType.INT), *PAIRS.row[1:])),
            r"column weight \(float\) is now weight \(int\)",
        ),
    ],
)
def test_a_change_that_is_no_addition_is_refused(table: TableDescription | None, said: str) -> None:
    with pytest.raises(DeltaSinkError, match=f"table pairs: at revision 12 the machine describes it anew, and {said}"):
        FollowedTable.described(PAIRS).widened(table, 12)


@pytest.mark.parametrize("name", ["_revision", "_fold", "KEY", "a b", "a`b", "a=b", ""])
def test_columns_that_delta_cannot_have_are_refused(name: str) -> None:
    with pytest.raises(DeltaSinkError, match="table map:"):
        FollowedTable.described(wider(MAP, name))
    with pytest.raises(DeltaSinkError, match="table map:"):
        FollowedTable.described(MAP).widened(wider(MAP, name), 3)


@pytest.mark.parametrize(
    ("key", "row", "said"),
    [
        (("a", 1), (1, True), r"weight \(float\): it is of type int"),
        (("a", 1), (1.0, 1), r"is_on \(bool\): it is of type int"),
        (("a", None), (1.0, True), r"right \(int\): it is of type NoneType"),
        (("a", 2**63), (1.0, True), r"right \(int\)"),
        (("a", 1), (1.0,), "record 5 has 1 columns, the machine describes 2"),
    ],
)
def test_a_value_that_would_not_come_back_the_same_is_refused(key: Any, row: Any, said: str) -> None:
    with pytest.raises(DeltaSinkError, match=said):
        arrow_columns(FollowedTable.described(PAIRS), PackedRows([pack(key)], [pack(row)], [5]))
