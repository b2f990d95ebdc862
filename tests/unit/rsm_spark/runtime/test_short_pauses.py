"""Pauses of the garbage collector: what takes long is put out of its sight, seldom."""

from __future__ import annotations

import gc

from rsm_spark.core.table_rows import StoredRow, TableRows
from rsm_spark.runtime.short_pauses import ShortPauses, short_pauses


class _World:
    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.now_s = 1_000.0
        self.frozen = 0
        self.pauses = ShortPauses(lambda: self.cpu_s, lambda: self.now_s, self._freeze)

    def _freeze(self) -> None:
        self.frozen += 1

    def collect(self, cpu_s: float, generation: int = 2) -> None:
        info = {"generation": generation, "collected": 0, "uncollectable": 0}
        self.pauses("start", info)
        self.cpu_s += cpu_s
        self.now_s += cpu_s
        self.pauses("stop", info)


def test_what_a_full_collection_walked_through_for_long_is_frozen_once_a_minute_at_most() -> None:
    world = _World()
    world.collect(0.004)
    world.collect(1.0, generation=1)
    assert world.frozen == 0
    world.collect(0.006)
    world.collect(0.5)
    assert world.frozen == world.pauses.freeze_count == 1
    world.now_s += 60
    world.collect(0.001)
    assert world.frozen == 1
    world.collect(0.5)
    assert world.frozen == 2


def test_it_watches_while_the_block_runs() -> None:
    before = list(gc.callbacks)
    try:
        with short_pauses():
            assert gc.get_freeze_count() > 1_000
            assert len(gc.callbacks) == len(before) + 1
    finally:
        gc.unfreeze()
    assert gc.callbacks == before


def test_tables_are_none_of_the_collectors_business() -> None:
    rows = TableRows()
    for number in range(1_000):
        rows.put(b"%d" % number, b"row", number)
    assert not gc.is_tracked(rows.entries)
    assert not gc.is_tracked(rows.entries[b"7"])
    assert rows.entries[b"7"] == StoredRow(b"row", 7)
