"""View of the map at one revision: rows of the machine as they are, and of its history what has changed since.

A view is looked at in one go: it holds nothing, and the next change makes it invalid.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

from rsm_spark.map.etcd.requests import Span, holds
from rsm_spark.map.key_history import OldKey
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.rows import MapEntry, value_of


class KeyShown(NamedTuple):
    """A key as it is shown.

    Attributes:
        key: The key.
        entry: Its row.
        lease: That it is attached to; 0 = none.

    """

    key: bytes
    entry: MapEntry
    lease: int

    @property
    def value(self) -> bytes:
        """Value of the key."""
        return value_of(self.entry.row)


class MapView:
    """See the module.

    Args:
        machine: With a history that knows the revision.
        revision: At which it is shown.
        olds: Of that history: what keys held then that have changed since.

    Attributes:
        revision: The same.

    """

    def __init__(self, machine: MapMachine, revision: int, olds: dict[bytes, OldKey]) -> None:
        self.revision = revision
        self._live = machine.live
        self._lease_of = machine.lease_of
        self._olds = olds

    def get(self, key: bytes) -> KeyShown | None:
        """Return a key, or None."""
        old = self._olds.get(key)
        entry = self._live.entries.get(key) if old is None else old.entry
        if entry is None:
            return None
        return KeyShown(key, entry, self._lease_of(key) if old is None else old.lease)

    def rows(self, span: Span) -> Iterator[KeyShown]:
        """Iterate over the keys of a range, in order."""
        start, end = span
        if end is not None and end <= start:
            return
        if end == start + b"\0":
            found = self.get(start)
            if found is not None:
                yield found
            return
        olds = sorted(key for key, old in self._olds.items() if old.entry is not None and holds(span, key))
        last = None
        for key in merge(self._live.since(start), olds) if olds else self._live.since(start):
            if end is not None and key >= end:
                return
            if key != last:
                last, found = key, self.get(key)
                if found is not None:
                    yield found

    def count(self, span: Span) -> int:
        """Return how many keys a range has."""
        start, end = span
        if end is not None and end <= start:
            return 0
        if end == start + b"\0":
            return int(self.get(start) is not None)
        count, live = self._live.count(start, end), self._live.entries
        for key, old in self._olds.items():
            if holds(span, key):
                count += (old.entry is not None) - (key in live)
        return count
