"""Bounds on what is under way: one caller has a part, and gives it back."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from rsm_spark.map.etcd.errors import TOO_MANY_REQUESTS, EtcdError
from rsm_spark.map.etcd.work_bounds import WorkBounds


def test_one_caller_has_a_quarter_of_the_calls_and_the_others_have_room() -> None:
    bounds = WorkBounds(calls_max=40)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(bounds.room("many", 1))
        with pytest.raises(EtcdError, match=TOO_MANY_REQUESTS), bounds.room("many", 1):
            pass
        with bounds.room("victim", 1):
            assert bounds.calls == 11
    assert (bounds.calls, bounds.refused_count) == (0, 1)
    with bounds.room("many", 1):
        pass


def test_one_large_call_is_taken_and_the_next_one_waits_for_room() -> None:
    bounds = WorkBounds(bytes_max=40_000)
    with bounds.room("large", 30_000):
        with pytest.raises(EtcdError), bounds.room("large", 100):
            pass
        with bounds.room("victim", 100):
            pass
    with bounds.room("large", 100):
        pass


def test_a_call_may_grow_as_far_as_there_is_room_and_gives_all_back() -> None:
    bounds = WorkBounds(bytes_max=40_000)
    with bounds.room("grows", 1_000) as room, bounds.room("grows", 1_000):
        room.resize(6_000)
        with pytest.raises(EtcdError, match=TOO_MANY_REQUESTS):
            room.resize(7_001)
        assert room.size == 7_000, "with its own bytes it holds what it held"
        room.resize(500)
        with bounds.room("grows", 5_000):
            pass
    with bounds.room("grows", 38_000):
        pass
