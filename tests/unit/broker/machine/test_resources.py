"""Amounts of resources as a column."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.machine import resources
from broker.machine.resources import resources_of, resources_text

NAMES = st.text(min_size=1, max_size=5).filter(lambda name: "," not in name and "=" not in name)


@given(amounts=st.dictionaries(NAMES, st.integers(1, 10**9), max_size=5))
def test_a_column_says_what_was_asked_for_by_name(amounts: dict[str, int]) -> None:
    assert resources_of(resources_text(amounts)) == tuple(sorted(amounts.items()))


def test_what_nothing_is_asked_of_is_left_out() -> None:
    assert resources_text({"db": 0, "gpu": 2}) == "gpu=2"
    assert resources_of("") == ()


def test_columns_of_every_kind_do_not_pile_up() -> None:
    for number in range(30_000):
        resources_of(f"r{number}=1")
    assert len(resources._CACHE) <= 10_001
    assert resources_of("") == ()
