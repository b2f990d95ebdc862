"""The index in memory: for the simulation, where nothing but the simulated disk may survive a crash."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ledger.storage.index_rows import IndexTable, KeyValueIndex


class MemoryIndex(KeyValueIndex):
    """See `ledger.storage.index.Index`; it lives as long as its object."""

    def __init__(self) -> None:
        self._rows = _Maps()
        super().__init__(self._rows, "in memory")
        self.count_ledgers()

    def damage(self, rng: random.Random) -> None:
        """Lose a row, or flip a bit of one, as a damaged page does."""
        rows = [(table, key) for table in IndexTable for key, _ in self._rows.ascend(table, b"")]
        if not rows:
            return
        table, key = rng.choice(rows)
        value = bytearray(self._rows.get(table, key) or b"")
        self._rows.delete(table, key)
        if rng.random() < 0.5:
            value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
            self._rows.put(table, key, bytes(value))


class _Maps:
    """A dictionary and its sorted keys for each map."""

    def __init__(self) -> None:
        self._values: list[dict[bytes, bytes]] = [{} for _ in IndexTable]
        self._keys: list[list[bytes]] = [[] for _ in IndexTable]

    @contextmanager
    def read(self) -> Iterator[_Maps]:
        yield self

    @contextmanager
    def write(self) -> Iterator[_Maps]:
        yield self

    def get(self, table: IndexTable, key: bytes) -> bytes | None:
        return self._values[table].get(key)

    def ascend(self, table: IndexTable, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys, values = self._keys[table], self._values[table]
        for number in range(bisect_left(keys, first), len(keys)):
            yield keys[number], values[keys[number]]

    def descend(self, table: IndexTable, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys, values = self._keys[table], self._values[table]
        for number in range(bisect_left(keys, below) - 1, -1, -1):
            yield keys[number], values[keys[number]]

    def put(self, table: IndexTable, key: bytes, value: bytes) -> None:
        if key not in self._values[table]:
            insort(self._keys[table], key)
        self._values[table][key] = value

    def put_all(self, table: IndexTable, rows: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in rows:
            self.put(table, key, value)

    def delete(self, table: IndexTable, key: bytes) -> None:
        if self._values[table].pop(key, None) is not None:
            del self._keys[table][bisect_left(self._keys[table], key)]

    def close(self) -> None:
        pass
