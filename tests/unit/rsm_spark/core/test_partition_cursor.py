"""Places in partitioned logs as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.partition_cursor import decode_cursor, encode_cursor
from rsm_spark.core.partition_layout import PARTITIONS_MAX
from rsm_spark.errors import LogError


@given(st.dictionaries(st.integers(0, PARTITIONS_MAX - 1), st.integers(1, 10**16 - 1)))
def test_a_place_is_read_as_it_was_written(positions: dict[int, int]) -> None:
    assert decode_cursor(encode_cursor(positions)) == positions


def test_partitions_are_written_in_order_and_position_0_is_the_first() -> None:
    assert encode_cursor({2: 98, 0: 4711}) == "0:4711,2:98"
    assert decode_cursor("3:0") == {3: 1}


@pytest.mark.parametrize(
    "text", ["1", "a:1", "1:", ":1", "1:2,", "256:1", "01:1", "1:1,1:2", "1:-1", "1:99999999999999999", "1:1 ", "²:1"]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(LogError, match="partition"):
        decode_cursor(text)


def test_more_partitions_than_a_log_can_have_are_refused() -> None:
    with pytest.raises(LogError, match="more than 256"):
        decode_cursor(",".join(["1:1"] * (PARTITIONS_MAX + 1)))
