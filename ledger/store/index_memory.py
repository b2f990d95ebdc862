"""The index in memory: for the simulation, where nothing but the simulated disk may survive a crash."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ledger.store.index_rows import KeyValueIndex, Table

__all__ = ["MemoryIndex"]


class MemoryIndex(KeyValueIndex):
    """See `ledger.store.index.Index`; always empty at a start, so always rebuilt."""

    def __init__(self) -> None:
        super().__init__(_Maps(), "in memory")


class _Maps:
    """A dictionary and its sorted keys for each map."""

    def __init__(self) -> None:
        self._values: list[dict[bytes, bytes]] = [{} for _ in Table]
        self._keys: list[list[bytes]] = [[] for _ in Table]

    @contextmanager
    def read(self) -> Iterator[_Maps]:
        yield self

    @contextmanager
    def write(self) -> Iterator[_Maps]:
        yield self

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self._values[table].get(key)

    def ascend(self, table: Table, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys, values = self._keys[table], self._values[table]
        for number in range(bisect_left(keys, first), len(keys)):
            yield keys[number], values[keys[number]]

    def descend(self, table: Table, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys, values = self._keys[table], self._values[table]
        for number in range(bisect_left(keys, below) - 1, -1, -1):
            yield keys[number], values[keys[number]]

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        if key not in self._values[table]:
            insort(self._keys[table], key)
        self._values[table][key] = value

    def put_all(self, table: Table, rows: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in rows:
            self.put(table, key, value)

    def delete(self, table: Table, key: bytes) -> None:
        if self._values[table].pop(key, None) is not None:
            del self._keys[table][bisect_left(self._keys[table], key)]

    def close(self) -> None:
        pass
