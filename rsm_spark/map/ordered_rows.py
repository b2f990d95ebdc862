"""Rows by key, in order, that can be looked at as they were a moment ago while they change.

    live      the rows as they are                                     `entries`, in the order of `SortedKeys`
    overlay   what keys written since a moment held at that moment     one note a key, at its first write since
    frozen    all rows as of a moment, for a consumer in any thread    an overlay of its own; ends with its consumer
    pinned    rows as of a revision, for scans that come back          overlays in a chain, the last one takes notes:
                                                                       each goes on where the next one began

While nothing is frozen or pinned, nothing is noted. The oldest pin goes when there are too many, or when the notes of
all of them hold too much.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator
from heapq import merge
from typing import Any, Generic, TypeVar

from rsm_spark.map.sorted_keys import SortedKeys

PINS_MAX = 32
NOTED_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of keys and rows noted for pins, all together."""
_NOTE_BYTES = 200

Entry = TypeVar("Entry")
_NOTHING: Any = object()


class _Overlay(Generic[Entry]):
    """Older values, at one moment, of the keys written since; None = there was no such key."""

    __slots__ = ("__weakref__", "bytes", "newer", "olds", "scan_count")

    def __init__(self) -> None:
        self.olds: dict[bytes, Entry | None] = {}
        self.newer: _Overlay[Entry] | None = None  # Pins only; once it is set, `olds` never changes again.
        self.scan_count = 0
        self.bytes = 0

    def first(self, key: bytes) -> Any:
        """Return what the key held at this moment; `_NOTHING` if it was not written since."""
        overlay: _Overlay[Entry] | None = self
        while overlay is not None:
            old = overlay.olds.get(key, _NOTHING)
            if old is not _NOTHING:
                return old
            overlay = overlay.newer
        return _NOTHING


class FrozenOrderedRows(Generic[Entry]):
    """All rows as of one moment. Any thread may iterate, as slowly as it likes, while the rows change."""

    def __init__(self, entries: dict[bytes, Entry], keys: list[list[bytes]], overlay: _Overlay[Entry]) -> None:
        self._entries = entries
        self._keys = keys
        self._overlay = overlay

    def __iter__(self) -> Iterator[tuple[bytes, Entry]]:
        """Iterate in order of the keys."""
        live, olds = self._entries.get, self._overlay.olds
        for chunk in self._keys:
            for key in chunk:
                # The live row first: a writer notes the old one before it writes, so where a note is missing after
                # the look, what was seen is old.
                entry = live(key)
                if key in olds:
                    entry = olds[key]
                assert entry is not None
                yield key, entry


class OrderedRows(Generic[Entry]):
    """Rows by key.

    Attributes:
        entries: As they are; written by `put` and `remove` alone.

    """

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        # Invariant: knows every key of `entries`, once placed.
        self._order = SortedKeys(self.entries)
        # Overlays that take notes as long as anybody holds them: those of frozen rows, and the last pin's.
        self._noting: list[weakref.ref[_Overlay[Entry]]] = []
        # Oldest first. Invariant: from each of them `newer` leads to the tail, which takes the notes for all.
        self._pins: OrderedDict[int, _Overlay[Entry]] = OrderedDict()
        self._tail: _Overlay[Entry] | None = None
        self._bytes_left = NOTED_BYTES_MAX
        # Keys that were removed since the oldest pin, and do not exist now.
        self._gone: dict[bytes, None] = {}
        self._gone_order = SortedKeys(self._gone)

    def put(self, key: bytes, entry: Entry) -> Entry | None:
        """Write a row; return the one that it replaces, or None."""
        old = self.entries.get(key)
        if self._noting:
            self._note(key, old)
            if key in self._gone:
                del self._gone[key]
                self._gone_order.note(key)
        self.entries[key] = entry
        if old is None:
            self._order.note(key)
        return old

    def remove(self, key: bytes) -> Entry | None:
        """Remove a row; return it, or None if there was none."""
        old = self.entries.get(key)
        if old is None:
            return None
        if self._noting:
            self._note(key, old)
            if self._pins:
                self._gone[key] = None
                self._gone_order.note(key)
        del self.entries[key]
        self._order.note(key)
        return old

    def load(self, entries: dict[bytes, Entry]) -> None:
        """Begin anew; who still iterates over frozen rows goes on with those."""
        self.entries = entries
        self._order = SortedKeys(entries)
        self._order.load(entries)
        self._noting = []
        self._pins.clear()
        self._forget_pins()

    def since(self, start: bytes) -> Iterator[bytes]:
        """Iterate over the keys >= start, in order; nothing may change meanwhile."""
        return self._order.since(start)

    def count(self, start: bytes, end: bytes | None) -> int:
        """Return how many keys there are with start <= key < end; None = to the last."""
        return self._order.count(start, end)

    # ---- as they were

    def freeze(self) -> FrozenOrderedRows[Entry]:
        """Return all rows as they are now; costs what it takes to place a few thousand keys."""
        return FrozenOrderedRows(self.entries, self._order.freeze(), self._begin())

    @property
    def pinned(self) -> tuple[int, ...]:
        """Revisions that are remembered, oldest first."""
        return tuple(self._pins)

    def pin(self, revision: int) -> None:
        """Remember the rows as they are now, at this revision, for one scan more."""
        pin = self._pins.get(revision)
        if pin is None:
            if len(self._pins) >= PINS_MAX:
                self._pins.popitem(last=False)
            pin = self._pins[revision] = self._begin()
            if self._tail is not None:
                self._tail.newer = pin
                self._noting = [ref for ref in self._noting if ref() is not self._tail]
            self._tail = pin
        pin.scan_count += 1

    def unpin(self, revision: int) -> None:
        """Say that one scan of this revision has ended."""
        pin = self._pins.get(revision)
        if pin is None:
            return
        pin.scan_count -= 1
        if pin.scan_count > 0:
            return
        del self._pins[revision]
        if not self._pins:
            self._forget_pins()

    def since_at(self, revision: int, start: bytes) -> Iterator[tuple[bytes, Entry]]:
        """Iterate over the rows with a key >= start as of a pinned revision, in order; nothing may change meanwhile."""
        overlay = self._pins[revision]
        keys = merge(self._order.since(start), self._gone_order.since(start)) if self._gone else self.since(start)
        for key in keys:
            entry = overlay.first(key)
            if entry is _NOTHING:
                entry = self.entries.get(key)
            if entry is not None:
                yield key, entry

    def _begin(self) -> _Overlay[Entry]:
        """Return an overlay of this moment, which takes notes from now on."""
        overlay: _Overlay[Entry] = _Overlay()
        self._noting.append(weakref.ref(overlay))
        return overlay

    def _note(self, key: bytes, old: Entry | None) -> None:
        """Note what a key holds before it is written."""
        lost = False
        for ref in self._noting:
            overlay = ref()
            if overlay is None:
                lost = True
            elif key not in overlay.olds:
                overlay.olds[key] = old
                if overlay is self._tail:
                    size = _size(key, old)
                    overlay.bytes += size
                    self._bytes_left -= size
                    if self._bytes_left < 0:
                        self._make_room()
        if lost:
            self._noting = [ref for ref in self._noting if ref() is not None]

    def _make_room(self) -> None:
        """Drop the oldest pins until the notes of the others are within bounds."""
        while self._pins:
            held = 0
            overlay: _Overlay[Entry] | None = next(iter(self._pins.values()))
            while overlay is not None:
                held += overlay.bytes
                overlay = overlay.newer
            self._bytes_left = NOTED_BYTES_MAX - held
            if self._bytes_left >= 0:
                return
            self._pins.popitem(last=False)
        self._forget_pins()

    def _forget_pins(self) -> None:
        self._tail = None
        self._bytes_left = NOTED_BYTES_MAX
        self._gone = {}
        self._gone_order = SortedKeys(self._gone)

    def validate(self) -> None:
        self._order.validate()
        assert list(self.since(b"")) == sorted(self.entries)
        assert not any(key in self.entries for key in self._gone)
        assert bool(self._pins) == (self._tail is not None)
        for pin in self._pins.values():
            assert pin.scan_count > 0
            while pin.newer is not None:
                pin = pin.newer  # noqa: PLW2901 - along the chain
            assert pin is self._tail


def _size(key: bytes, old: Any) -> int:
    """Return about what a note holds in memory."""
    held = len(old[0]) if isinstance(old, tuple) and isinstance(old[0], bytes) else 0
    return len(key) + held + _NOTE_BYTES
