"""The order of keys, kept lazily."""

from __future__ import annotations

import random

import pytest

from rsm_spark.map.sorted_keys import SortedKeys


@pytest.mark.parametrize("seed", range(5))
def test_keys_come_in_order_after_any_mix_of_coming_and_going(seed: int) -> None:
    rng = random.Random(seed)
    present: dict[bytes, None] = {}
    order = SortedKeys(present)
    for step in range(20_000):
        key = b"%05d" % rng.randrange(6_000)
        if rng.random() < (0.7 if step < 10_000 else 0.2):
            if key not in present:
                present[key] = None
                order.note(key)
        elif key in present:
            del present[key]
            order.note(key)
        if rng.random() < 0.002:
            start = b"%05d" % rng.randrange(6_000)
            assert list(order.since(start)) == sorted(k for k in present if k >= start)
            end = b"%05d" % rng.randrange(6_000)
            assert order.count(start, end) == sum(start <= key < end for key in present)
            assert order.count(start, None) == sum(start <= key for key in present)
            order.validate()
    assert list(order.since(b"")) == sorted(present)
    assert order.count(b"", None) == len(present)
    order.validate()


def test_a_loaded_order_goes_on_from_there() -> None:
    present = {b"%04d" % n: None for n in range(3_000)}
    order = SortedKeys(present)
    order.load(present)
    del present[b"0000"]
    order.note(b"0000")
    present[b"9999"] = None
    order.note(b"9999")
    assert list(order.since(b"2998")) == [b"2998", b"2999", b"9999"]
    assert next(order.since(b"")) == b"0001"
    order.validate()


@pytest.mark.parametrize("is_descending", [False, True])
def test_keys_that_come_in_bulk_are_merged_and_what_was_frozen_stays(is_descending: bool) -> None:
    present = {b"%05d" % n: None for n in range(0, 9_000, 3)}
    order = SortedKeys(present)
    order.load(present)
    frozen = order.freeze()
    before = [list(chunk) for chunk in frozen]
    numbers = [n for n in range(12_000) if n % 3]
    for n in sorted(numbers, reverse=is_descending):
        present[b"%05d" % n] = None
        order.note(b"%05d" % n)
    # Gone and there again before they are placed: they are placed once.
    for n in range(0, 600, 3):
        order.note(b"%05d" % n)
    assert list(order.since(b"")) == sorted(present)
    order.validate()
    assert max(map(len, order.freeze())) <= 1024
    assert frozen == before
