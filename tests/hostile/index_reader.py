"""Looks up everything that an index should hold, then changes it: `python -m tests.hostile.index_reader FOLDER DEATH`.

Exit code 0: all is there. 3: it says that it is damaged. 4: it lies. Anything else: the library ended the process.
"""

from __future__ import annotations

import sys

from ledger.storage.index import BlockRow, CorruptIndexError, LedgerRow
from ledger.storage.index_check import tell_of_death
from ledger.storage.index_lmdb import LmdbIndex

_SEGMENTS, _LEDGERS, _BLOCKS = 4, 300, 3
SOUND, DAMAGED, LIES, LIED_AFTER_WRITE = 0, 3, 4, 5


def _ledger(ledger_id: int) -> LedgerRow:
    return LedgerRow(ledger_id, b"k" * 20, ledger_id % 7 == 0, last_entry_id=_SEGMENTS * 100 - 1)


def _blocks(segment_id: int) -> list[BlockRow]:
    first = segment_id * 100
    return [
        BlockRow(ledger_id, first + 10 * n, first + 10 * n + 9, segment_id, 1000 * (3 * ledger_id + n), 1000)
        for ledger_id in range(_LEDGERS)
        for n in range(_BLOCKS if ledger_id % 3 == 0 else 0)
    ]


def write(path: str) -> None:
    """Make an index of 1,200 block rows and 300 ledgers; fences and first entries came later, so pages are free."""
    index = LmdbIndex(path)
    for segment_id in range(_SEGMENTS):
        rows = [LedgerRow(i, b"k" * 20, last_entry_id=segment_id * 100 + 99) for i in range(_LEDGERS)]
        index.commit_segment(segment_id, _blocks(segment_id), rows)
    index.commit_segment(99, [], [_ledger(i) for i in range(_LEDGERS)])
    index.close()


def is_whole(index: LmdbIndex) -> bool:
    """Whether it holds all that was written."""
    expected = [row for segment_id in range(_SEGMENTS) for row in _blocks(segment_id)]
    by_ledger: dict[int, list[BlockRow]] = {i: [] for i in range(_LEDGERS)}
    for row in expected:
        by_ledger[row.ledger_id].append(row)
    are_here = all(index.blocks(i) == sorted(rows, key=_order) for i, rows in by_ledger.items())
    are_found = all(index.candidates(row.ledger_id, row.first_entry_id + 5) == [row] for row in expected)
    return are_here and are_found and all(index.ledger(i) == _ledger(i) for i in range(_LEDGERS))


def _order(row: BlockRow) -> tuple[int, int]:
    return row.first_entry_id, row.segment_id


def _main(path: str, death: str) -> int:
    with tell_of_death(death):
        try:
            index = LmdbIndex(path)
            if not is_whole(index):
                return LIES
            for segment_id in range(10, 40):
                rows = [BlockRow(n, 10_000 + segment_id, 10_000 + segment_id, segment_id, 0, 10) for n in range(99)]
                index.commit_segment(segment_id, rows, [LedgerRow(n, last_entry_id=9_999) for n in range(99)])
        except CorruptIndexError:
            return DAMAGED
        return SOUND


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
