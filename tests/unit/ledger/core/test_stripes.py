"""Stripes become consecutive entries again, in whatever order and pieces they come."""

from __future__ import annotations

import random

import pytest

from ledger.core.entry import Entry
from ledger.core.entry_block import EntryBlock
from ledger.core.stripes import Stripes

_FIRST = 70


def _entry(entry_id: int) -> Entry:
    return Entry(entry_id, entry_id - 1, 10 * entry_id, b"%d" % entry_id)


def _payloads(found: object) -> list[tuple[bytes, int]]:
    if isinstance(found, EntryBlock):
        return list(zip(found.payloads, found.lengths, strict=True))  # type: ignore[arg-type]
    assert isinstance(found, (list, tuple))
    return [(one.payload, one.length) for one in found]


@pytest.mark.parametrize("takes_blocks", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_what_comes_in_pieces_is_whole_when_all_of_it_has_come(seed: int, *, takes_blocks: bool) -> None:
    rng = random.Random(seed)
    stride, count = rng.randrange(2, 6), rng.randrange(2, 40)
    stripes = Stripes(_FIRST, count, stride, takes_blocks=takes_blocks)
    pieces: list[list[int]] = []
    for first in range(_FIRST, _FIRST + min(stride, count)):
        ids = list(range(first, _FIRST + count, stride))
        while ids:
            cut = rng.randrange(1, len(ids) + 1)
            pieces.append(ids[:cut])
            ids = ids[cut:]
    rng.shuffle(pieces)
    put: list[int] = []
    for ids in pieces:
        assert not stripes.is_whole
        entries = [_entry(entry_id) for entry_id in ids]
        as_block = takes_blocks and (len(ids) > 1 or rng.random() < 0.5)  # A single entry may come as itself.
        given = EntryBlock.of(entries) if as_block else entries
        one_by_one = [(at, _payloads(found)) for at, found in stripes.one_by_one(ids[0], given)]
        assert one_by_one == [(at, _payloads([_entry(at)])) for at in ids]
        stripes.put(ids[0], given)
        put += ids
        assert [(at, _payloads(found)) for at, found in stripes.present()] == [
            (at, _payloads([_entry(at)])) for at in sorted(put)
        ]
    assert stripes.is_whole
    taken = stripes.taken()
    assert isinstance(taken, EntryBlock) == takes_blocks
    assert _payloads(taken) == _payloads([_entry(entry_id) for entry_id in range(_FIRST, _FIRST + count)])
