"""View of the map at one revision: rows of the machine as they are, and of its history what has changed since.

A view is looked at in one go: it holds nothing, and the next change makes it invalid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from rsm_spark.map.etcd.key_texts import KeyTexts, key_text
from rsm_spark.map.etcd.requests import Span, holds
from rsm_spark.map.key_history import OldKey
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.rows import MapEntry, value_of

_NUMBERS_BYTES = 20
"""Of a key that is told, about: its revisions, its version, its lease."""


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

    def told_bytes(self, *, keys_only: bool) -> int:
        """Return about how many bytes it has in an answer."""
        return len(self.key) + _NUMBERS_BYTES + (0 if keys_only else len(self.entry.row))


class RangePart(NamedTuple):
    """First keys of a range, in order.

    Attributes:
        rows: The keys.
        next_key: That follows, and is there; None = there are no more.

    """

    rows: list[KeyShown]
    next_key: bytes | None


class MapView:
    """See the module.

    Args:
        machine: With a history that knows the revision.
        revision: At which it is shown.
        olds: Of that history: what keys held then that have changed since.
        texts: What keys are told as, of other views of the same machine.

    Attributes:
        revision: The same.

    """

    def __init__(
        self, machine: MapMachine, revision: int, olds: dict[bytes, OldKey], texts: KeyTexts | None = None
    ) -> None:
        self.revision = revision
        self._texts = KeyTexts() if texts is None else texts
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
        for key in self._since(span):
            if end is not None and key >= end:
                return
            found = self.get(key)
            if found is not None:
                yield found

    def _since(self, span: Span) -> Iterator[bytes]:
        """Iterate over the keys from the first of a range on, and over those of the range that are gone."""
        live = self._live
        gone = sorted(
            key
            for key, old in self._olds.items()
            if old.entry is not None and key not in live.entries and holds(span, key)
        )
        return merge(live.since(span[0]), gone) if gone else live.since(span[0])

    def texts(self, span: Span, limit: int, found: list[bytes]) -> bytes | None:
        """Add the keys of a range as answers tell them, in order.

        Args:
            span: The range.
            limit: So many at most.
            found: They are added here.

        Returns:
            The key to go on with; None = there are no more.

        """
        start, end = span
        if end is not None and end <= start:
            return None
        keys: Iterable[bytes] = (start,) if end == start + b"\0" else self._since(span)
        live, olds, texts, lease_of = self._live.entries, self._olds, self._texts, self._lease_of
        known, limit = texts.known, limit + len(found)
        for key in keys:
            if end is not None and key >= end:
                return None
            if len(found) == limit:
                return key
            if key in olds:
                entry, lease = olds[key]
            else:
                entry, text = live.get(key), known.get(key)
                if text is not None and text[0] is entry:  # Most keys: the rest may take its time.
                    found.append(text[1])
                    continue
                lease = lease_of(key)
            if entry is None:
                continue
            if lease:
                found.append(key_text(key, entry, lease))
            else:
                found.append(texts.make(key, entry))
                known = texts.known
        return None

    def part(self, span: Span, *, keys_max: int, bytes_max: int, keys_only: bool) -> RangePart:
        """Return the first keys of a range, in order, until they are much.

        Args:
            span: The range.
            keys_max: So many at most, one at least.
            bytes_max: The last one may pass this many bytes.
            keys_only: Their values do not count.

        """
        rows: list[KeyShown] = []
        size = 0
        for shown in self.rows(span):
            if size >= bytes_max or len(rows) == keys_max:
                return RangePart(rows, shown.key)
            rows.append(shown)
            size += shown.told_bytes(keys_only=keys_only)
        return RangePart(rows, None)

    def text(self, shown: KeyShown) -> bytes:
        """Return a key of this view as answers tell it."""
        key, entry, lease = shown
        known = self._texts.known.get(key)
        if known is not None and known[0] is entry and not lease:
            return known[1]
        is_now = not lease and self._live.entries.get(key) is entry
        return self._texts.make(key, entry) if is_now else key_text(key, entry, lease)

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
