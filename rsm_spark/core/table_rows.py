"""The rows of one table, which can be looked at as they were a moment ago while they change.

    live     the rows as they are                            `entries`
    frozen   all rows as of a moment, for another thread     the keys of that moment, and a note of what each row
                                                             was at its first change since; gone with its consumer

To freeze costs a tuple of the keys: ten milliseconds for a million. While nothing is frozen, nothing is noted.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import msgspec


class StoredRow(msgspec.Struct, frozen=True, gc=False):
    """A row. No tuple: the garbage collector would walk through the whole table, again after each new one.

    Attributes:
        row: Canonical bytes of its columns behind the key.
        revision: Of the record that wrote it.

    """

    row: bytes
    revision: int


class FrozenRows:
    """All rows as of one moment. Any thread may iterate, as slowly as it likes, while the rows change."""

    __slots__ = ("__weakref__", "_entries", "_keys", "olds")

    def __init__(self, entries: dict[bytes, StoredRow]) -> None:
        self._entries = entries
        self._keys = tuple(entries)
        # What rows were before their first change since; also of keys that came later, which nobody asks for.
        self.olds: dict[bytes, StoredRow] = {}

    def __iter__(self) -> Iterator[tuple[bytes, StoredRow]]:
        """Iterate over (key, row)."""
        live, noted = self._entries.get, self.olds.get
        for key in self._keys:
            # The live row first: a writer notes the old one before it writes, so where a note is missing after the
            # look, what was seen is old.
            entry = live(key)
            entry = noted(key, entry)
            assert entry is not None
            yield key, entry


class TableRows:
    """Rows by canonical key.

    Attributes:
        entries: By canonical key; changed only here.

    """

    __slots__ = ("_frozen", "entries")

    def __init__(self) -> None:
        self.entries: dict[bytes, StoredRow] = {}
        self._frozen: list[weakref.ref[FrozenRows]] = []

    def put(self, key: bytes, row: bytes, revision: int) -> bytes | None:
        """Write a row; return the one that it replaces, or None."""
        old = self.entries.get(key)
        if old is not None and self._frozen:
            self._note(key, old)
        self.entries[key] = StoredRow(row, revision)
        return None if old is None else old.row

    def remove(self, key: bytes) -> bytes | None:
        """Remove a row; return it, or None if there was none."""
        old = self.entries.get(key)
        if old is None:
            return None
        if self._frozen:
            self._note(key, old)
        del self.entries[key]
        return old.row

    def clear(self) -> None:
        """Begin anew, empty; who still iterates over frozen rows goes on with those."""
        self.entries = {}
        self._frozen = []

    def freeze(self) -> FrozenRows:
        """Return the rows as they are now."""
        frozen = FrozenRows(self.entries)
        self._frozen.append(weakref.ref(frozen))
        return frozen

    def _note(self, key: bytes, old: StoredRow) -> None:
        are_gone = False
        for reference in self._frozen:
            frozen = reference()
            if frozen is None:
                are_gone = True
            else:
                frozen.olds.setdefault(key, old)
        if are_gone:
            self._frozen = [reference for reference in self._frozen if reference() is not None]
