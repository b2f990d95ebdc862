"""Columns made from buffers are those that pyarrow makes, and nothing imports pandas for them."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.source import arrow
from connectors.source.arrow import chosen, column_of, repeated, scalar_of

_INT64, _INT32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
_KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.binary(): st.binary(),
    pa.bool_(): st.booleans(),
    pa.int32(): _INT32,
    pa.int64(): _INT64,
    pa.float64(): st.floats(allow_nan=False),
    pa.timestamp("us", tz="UTC"): _INT64,
    pa.date32(): _INT32,
}


@pytest.fixture(scope="module", autouse=True)
def _is_not_paid() -> Iterator[None]:
    """Have columns made from buffers, though something here has imported pandas."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow._Price, "is_paid", classmethod(lambda _cls, _count: False))
        yield


@given(data=st.data(), kind=st.sampled_from(list(_KINDS)))
def test_a_column_of_a_list_is_pyarrows(data: st.DataObject, kind: pa.DataType) -> None:
    values = data.draw(st.lists(st.none() | _KINDS[kind], max_size=20))
    made = column_of(values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))


@given(values=st.lists(st.tuples(_INT64, st.booleans()), max_size=20))
def test_a_column_of_numbers_and_a_mask_is_pyarrows(values: list[tuple[int, bool]]) -> None:
    numbers = np.array([number for number, _ in values], dtype=np.int64)
    mask = np.array([is_null for _, is_null in values], dtype=np.bool_)
    for one in (None, mask):
        made = column_of(numbers, pa.int64(), one)
        made.validate(full=True)
        assert made.equals(pa.array(numbers, pa.int64(), mask=one))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, "x"], pa.int64()),
        ([2**63], pa.int64()),
        ([2**31], pa.int32()),
        (["x"], pa.binary()),
        ([b"\xff"], pa.string()),
        (["\ud800"], pa.string()),
        ([1.5], pa.int64()),
        ([True, 2], pa.bool_()),
    ],
)
def test_what_pyarrow_does_not_take_is_not_taken(values: list[Any], kind: pa.DataType) -> None:
    def outcome(make: Any) -> Any:
        try:
            return make(values, kind).to_pylist()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            return isinstance(error, pa.ArrowException | TypeError | ValueError)

    assert outcome(column_of) == outcome(pa.array)


def test_values_that_arrow_converts_are_converted() -> None:
    day = dt.date(2026, 1, 2)
    assert column_of([day, None], pa.date32()).to_pylist() == [day, None]
    assert column_of([1, 2.5], pa.float64()).to_pylist() == [1.0, 2.5]
    assert column_of([[1], None], pa.list_(pa.int64())).to_pylist() == [[1], None]


def test_columns_that_say_the_same_or_little() -> None:
    assert repeated("é", 3).to_pylist() == ["é"] * 3
    assert repeated(None, 2).to_pylist() == [None, None]
    assert repeated("x", 0).to_pylist() == []
    assert chosen(["a", None, "b"], np.array([2, 1, 0, 2])).to_pylist() == ["b", None, "a", "b"]
    assert scalar_of(7, pa.int32()).equals(pa.scalar(7, pa.int32()))


_ROWS = """
import sys
from tests.unit.connectors.source.rows_without_pandas import make_rows
make_rows()
print("pandas" in sys.modules)
"""


def test_rows_of_every_kind_are_made_without_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", _ROWS], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr
