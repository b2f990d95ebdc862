"""Rows of a table: frozen ones stay what they were, whatever is written meanwhile."""

from __future__ import annotations

import gc
import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.table_rows import StoredRow, TableRows

_step = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 5), st.binary(max_size=2)),
    st.tuples(st.just("remove"), st.integers(0, 5), st.just(b"")),
    st.tuples(st.just("freeze"), st.just(0), st.just(b"")),
    st.tuples(st.just("look"), st.integers(0, 3), st.just(b"")),
    st.tuples(st.just("drop"), st.integers(0, 3), st.just(b"")),
    st.tuples(st.just("clear"), st.just(0), st.just(b"")),
)


@given(st.lists(_step, max_size=60))
def test_frozen_rows_are_those_of_their_moment_however_far_their_consumers_are(steps) -> None:
    rows = TableRows()
    expected: dict[Any, Any] = {}
    consumers = []
    for revision, (what, number, value) in enumerate(steps):
        key = b"k%d" % number
        match what:
            case "put":
                old = expected.get(key)
                assert rows.put(key, value, revision) == (None if old is None else old.row)
                expected[key] = StoredRow(value, revision)
            case "remove":
                old = expected.pop(key, None)
                assert rows.remove(key) == (None if old is None else old.row)
            case "freeze":
                consumers.append((iter(rows.freeze()), list(expected.items())))
            case "look" if number < len(consumers):
                seen, left = consumers[number]
                assert next(seen, None) == (left.pop(0) if left else None)
            case "drop" if number < len(consumers):
                del consumers[number]
            case "clear":
                rows.clear()
                expected = {}
        assert rows.entries == expected
    for seen, left in consumers:
        assert list(seen) == left


def test_nothing_is_noted_once_the_consumer_is_gone() -> None:
    rows = TableRows()
    rows.put(b"k", b"1", 1)
    frozen = rows.freeze()
    rows.put(b"k", b"2", 2)
    assert list(frozen) == [(b"k", StoredRow(b"1", 1))]
    del frozen
    gc.collect()
    rows.put(b"k", b"3", 3)
    assert rows._frozen == []


def test_another_thread_sees_the_moment_while_rows_change_under_it() -> None:
    rows = TableRows()
    for number in range(20_000):
        rows.put(b"%d" % number, b"old", number)
    seen: list[tuple[bytes, StoredRow]] = []
    frozen = rows.freeze()
    thread = threading.Thread(target=lambda: seen.extend(frozen))
    thread.start()
    for number in range(20_000):
        rows.remove(b"%d" % number) if number % 3 == 0 else rows.put(b"%d" % number, b"new", 99_999)
        rows.put(b"new-%d" % number, b"new", 99_999)
    thread.join()
    assert seen == [(b"%d" % number, StoredRow(b"old", number)) for number in range(20_000)]
