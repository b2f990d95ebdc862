"""Writes files of bbolt, the format of etcd's own storage, from front to back. Pure but for the file it writes to.

    page 0, 1   where the root is, twice; written last        page 2   pages that are free: none
    page 3 …    leaves of a bucket, then the branches above them; at the end the root, which names the buckets

Numbers are little-endian. A page is 4 KiB; a leaf whose only row is larger has more of them, one behind the other.
Source: what bbolt 1.5 reads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

PAGE_BYTES: Final = 4096
_PAGE = struct.Struct("<QHHI")  # number, kind, rows, pages more
_LEAF_ROW = struct.Struct("<IIII")  # kind, place from here, bytes of key, of value
_BRANCH_ROW = struct.Struct("<IIQ")  # place from here, bytes of key, page
_BUCKET = struct.Struct("<QQ")  # page of its root, sequence
_META = struct.Struct("<IIIIQQQQQ")
_MAGIC, _VERSION = 0xED0CDAED, 2
_BRANCH, _LEAF, _META_PAGE, _FREE = 1, 2, 4, 16
_IS_BUCKET = 1
_FIRST_FREE = 3
_ROWS_MAX = 1_000
_HASH, _HASH_PRIME, _HASH_MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


class BoltRow(NamedTuple):
    """A key with its value, or the bucket of that name."""

    key: bytes
    value: bytes
    kind: int = 0


class BoltWriter:
    """See the module.

    Args:
        file: Empty, at its beginning; can be gone back in.

    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._next = _FIRST_FREE
        self._buckets: dict[bytes, int] = {}
        file.write(bytes(_FIRST_FREE * PAGE_BYTES))

    def bucket(self, name: bytes, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Write a bucket.

        Args:
            name: Of the bucket.
            rows: Keys and values; keys rise.

        """
        self._buckets[name] = self._tree(BoltRow(key, value) for key, value in rows)

    def finish(self) -> int:
        """Write the root and the first pages; return the size in bytes."""
        names = sorted(self._buckets)
        root = self._tree(BoltRow(name, _BUCKET.pack(self._buckets[name], 0), _IS_BUCKET) for name in names)
        size = self._next * PAGE_BYTES
        self._file.seek(0)
        for number in range(2):
            page = _PAGE.pack(number, _META_PAGE, 0, 0) + _meta(root, self._next, number)
            self._file.write(page.ljust(PAGE_BYTES, b"\0"))
        self._file.write(_PAGE.pack(2, _FREE, 0, 0).ljust(PAGE_BYTES, b"\0"))
        self._file.seek(size)
        return size

    def _tree(self, rows: Iterator[BoltRow]) -> int:
        level = [self._leaf(page) for page in _leaves(rows)] or [self._leaf([])]
        while len(level) > 1:
            level = [self._branch(page) for page in _branches(level)]
        return level[0][1]

    def _leaf(self, rows: list[BoltRow]) -> tuple[bytes, int]:
        place = len(rows) * _LEAF_ROW.size
        heads, contents = [], []
        for at, row in enumerate(rows):
            heads.append(_LEAF_ROW.pack(row.kind, place - at * _LEAF_ROW.size, len(row.key), len(row.value)))
            contents += [row.key, row.value]
            place += len(row.key) + len(row.value)
        return rows[0].key if rows else b"", self._page(_LEAF, len(rows), [*heads, *contents])

    def _branch(self, pages: list[tuple[bytes, int]]) -> tuple[bytes, int]:
        place = len(pages) * _BRANCH_ROW.size
        heads, contents = [], []
        for at, (key, page) in enumerate(pages):
            heads.append(_BRANCH_ROW.pack(place - at * _BRANCH_ROW.size, len(key), page))
            contents.append(key)
            place += len(key)
        return pages[0][0], self._page(_BRANCH, len(pages), [*heads, *contents])

    def _page(self, kind: int, count: int, parts: list[bytes]) -> int:
        number, content = self._next, b"".join(parts)
        pages = -(-(_PAGE.size + len(content)) // PAGE_BYTES)
        head = _PAGE.pack(number, kind, count, pages - 1)
        self._file.write((head + content).ljust(pages * PAGE_BYTES, b"\0"))
        self._next += pages
        return number


def _leaves(rows: Iterator[BoltRow]) -> Iterator[list[BoltRow]]:
    page: list[BoltRow] = []
    size = _PAGE.size
    for row in rows:
        more = _LEAF_ROW.size + len(row.key) + len(row.value)
        if page and (size + more > PAGE_BYTES or len(page) == _ROWS_MAX):
            yield page
            page, size = [], _PAGE.size
        page.append(row)
        size += more
    if page:
        yield page


def _branches(level: list[tuple[bytes, int]]) -> Iterator[list[tuple[bytes, int]]]:
    """Yield what is below each branch: two pages at least."""
    groups: list[list[tuple[bytes, int]]] = [[]]
    size = _PAGE.size
    for one in level:
        more = _BRANCH_ROW.size + len(one[0])
        if len(groups[-1]) >= 2 and (size + more > PAGE_BYTES or len(groups[-1]) == _ROWS_MAX):
            groups.append([])
            size = _PAGE.size
        groups[-1].append(one)
        size += more
    if len(groups) > 1 and len(groups[-1]) == 1:
        if len(groups[-2]) > 2:
            groups[-1].insert(0, groups[-2].pop())
        else:
            groups[-2] += groups.pop()
    yield from groups


def _meta(root: int, pages: int, transaction: int) -> bytes:
    text = _META.pack(_MAGIC, _VERSION, PAGE_BYTES, 0, root, 0, 2, pages, transaction)
    found = _HASH
    for byte in text:
        found = (found ^ byte) * _HASH_PRIME & _HASH_MASK
    return text + struct.pack("<Q", found)
