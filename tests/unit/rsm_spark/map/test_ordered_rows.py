"""Rows as they were: frozen for a thread, pinned for scans that come back."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import pytest

from rsm_spark.map import ordered_rows
from rsm_spark.map.ordered_rows import OrderedRows

Rows = OrderedRows[tuple[bytes, int]]


def write(rows: Rows, rng: random.Random, revision: int, span: int = 300) -> None:
    key = b"%04d" % rng.randrange(span)
    if rng.random() < 0.4:
        rows.remove(key)
    else:
        rows.put(key, (b"v", revision))


@pytest.mark.parametrize("seed", range(4))
def test_frozen_rows_are_those_of_their_moment_however_many_writes_come_between(seed: int) -> None:
    rng = random.Random(seed)
    rows: Rows = OrderedRows()
    held: list[Any] = []
    for step in range(6_000):
        write(rows, rng, step)
        if step % 500 == 0:
            held.append((iter(rows.freeze()), [], sorted(rows.entries.items())))
        for frozen, seen, _ in held:
            if rng.random() < 0.1 and (row := next(frozen, None)) is not None:
                seen.append(row)
    for frozen, seen, expected in held:
        assert seen + list(frozen) == expected
    rows.validate()


def test_a_thread_may_consume_frozen_rows_while_they_are_written() -> None:
    rng = random.Random(1)
    rows: Rows = OrderedRows()
    rows.load({b"%04d" % n: (b"v", n) for n in range(5_000)})
    expected = sorted(rows.entries.items())
    for _ in range(5):
        frozen = rows.freeze()
        seen: list[tuple[bytes, tuple[bytes, int]]] = []
        thread = threading.Thread(target=lambda f=frozen, s=seen: s.extend(f))
        thread.start()
        while thread.is_alive():
            write(rows, rng, 10_000, span=6_000)
        thread.join()
        assert seen == expected
        expected = sorted(rows.entries.items())
    rows.validate()


def test_nothing_is_noted_once_nobody_looks_at_the_past() -> None:
    rows: Rows = OrderedRows()
    rows.put(b"a", (b"v", 1))
    frozen = rows.freeze()
    rows.put(b"a", (b"v", 2))
    assert list(frozen) == [(b"a", (b"v", 1))]
    del frozen
    gc.collect()
    rows.put(b"a", (b"v", 3))
    assert rows._noting == []
    rows.pin(3)
    rows.remove(b"a")
    rows.unpin(3)
    rows.put(b"b", (b"v", 4))
    assert rows._noting == []
    rows.validate()


def test_frozen_rows_outlive_a_load_of_others() -> None:
    rows: Rows = OrderedRows()
    rows.put(b"a", (b"v", 1))
    frozen = rows.freeze()
    rows.load({b"b": (b"v", 2)})
    rows.put(b"a", (b"w", 3))
    assert list(frozen) == [(b"a", (b"v", 1))]


@pytest.mark.parametrize("seed", range(4))
def test_pinned_revisions_show_what_stood_there_until_their_last_scan_ends(seed: int) -> None:
    rng = random.Random(seed)
    rows: Rows = OrderedRows()
    expected: dict[int, list[tuple[bytes, tuple[bytes, int]]]] = {}
    for step in range(1, 4_000):
        write(rows, rng, step)
        if rng.random() < 0.01:
            rows.pin(step)
            expected[step] = sorted(rows.entries.items())
            while len(expected) > ordered_rows.PINS_MAX:
                del expected[min(expected)]
        if expected and rng.random() < 0.01:
            gone = rng.choice(sorted(expected))
            rows.unpin(gone)
            del expected[gone]
        if expected and rng.random() < 0.05:
            at = rng.choice(sorted(expected))
            start = b"%04d" % rng.randrange(300)
            assert list(rows.since_at(at, start)) == [row for row in expected[at] if row[0] >= start]
            rows.validate()
    assert rows.pinned == tuple(sorted(expected))


def test_the_oldest_pin_goes_when_the_notes_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_rows, "NOTED_BYTES_MAX", 100_000)
    rows: Rows = OrderedRows()
    rows.load({b"%04d" % n: (b"v" * 1_000, 0) for n in range(1_000)})
    for revision in (1, 2):
        rows.pin(revision)
        for n in range(60):
            rows.put(b"%04d" % (60 * revision + n), (b"v" * 1_000, revision))
    assert rows.pinned == (2,)
    assert [entry[1] for _, entry in rows.since_at(2, b"")][60:180] == [1] * 60 + [0] * 60
    for n in range(500):
        rows.put(b"%04d" % n, (b"", 3))
    assert rows.pinned == ()
    rows.validate()
