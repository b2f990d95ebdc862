"""The packed list of entries says exactly which are held."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ledger.core.bookie_entry_list import pack_entry_ids


def unpacked(packed: bytes) -> list[int]:
    version, count = struct.unpack_from(">ii", packed)
    assert version == 0
    assert len(packed) == 64 + 24 * count
    ids: list[Any] = []
    for first, last, size, period in struct.iter_unpack(">qqii", packed[64:]):
        for start in range(first, last + 1, period or 1) if period else [first]:
            ids += range(start, start + size)
    return ids


@given(st.lists(st.integers(0, 300), unique=True).map(sorted))
def test_it_can_be_read_back(ids) -> None:
    assert unpacked(pack_entry_ids(ids)) == ids


def test_striped_entries_take_few_groups() -> None:
    ids = [n for n in range(3000) if n % 3 != 1]
    assert len(pack_entry_ids(ids)) == 64 + 3 * 24
    assert unpacked(pack_entry_ids(ids)) == ids
