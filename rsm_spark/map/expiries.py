"""Expiry: keys with a time of their own, leases, and the keys attached to leases go by themselves.

1. Nothing goes before its time, counted from when it was set or kept, or from the promotion of the present leader,
   whichever is later; and nothing goes but by a logged record.
2. A lease ends first, then its keys go: at once as far as they fit, the others with the next entries. Nobody can keep
   a lease of which half is gone.

    live       a row in `leases`, or in `expiries` with a time of its own    due at its time
    ended      no row in `leases`, but keys attached to it                   due at once
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from rsm_spark.core.machine import Row, RowChange
from rsm_spark.core.records import pack
from rsm_spark.map.limits import RECORD_BYTES_MAX
from rsm_spark.map.ordered_rows import OrderedRows
from rsm_spark.map.records import (
    EXPIRED,
    EXPIRIES_TABLE,
    EXPIRY_CLEARED,
    LEASE_ENDED,
    LEASES_TABLE,
)

_HEAP_SLACK = 1024
_KEY_COLUMNS = msgspec.msgpack.Decoder(tuple[bytes])
_LEASE_COLUMNS = msgspec.msgpack.Decoder(tuple[int])
_EXPIRY_ROW = msgspec.msgpack.Decoder(tuple[int, int, int])
_LEASE_ROW = msgspec.msgpack.Decoder(tuple[int, int])


class KeyExpiry(msgspec.Struct, frozen=True, gc=False):
    """Expiry of a key; see `records.EXPIRY_SET`. The revision is that of its row."""

    lease: int
    ttl_ms: int
    since_ms: int
    revision: int


class Lease(NamedTuple):
    """A lease; see `records.LEASE_KEPT`. The revision is that of its row."""

    ttl_ms: int
    since_ms: int
    revision: int


class Expiries:
    """The tables `expiries` and `leases`, and what is due in them.

    Attributes:
        keys: Of every key that does not live until it is deleted.
        leases: By number.

    """

    def __init__(self) -> None:
        self.keys: OrderedRows[KeyExpiry] = OrderedRows()
        self.leases: dict[int, Lease] = {}
        # Keys of each lease, ended ones included; no empty entries.
        self._attached: dict[int, dict[bytes, None]] = {}
        # (when, 0 | 1, lease or key). Invariant: whatever is live or ended has the entry that `_planned` names, at or
        # before its time; others are leftovers.
        self._heap: list[tuple[int, int, Any]] = []
        self._planned: dict[int | bytes, int] = {}

    # ---- folding

    def set_key(self, key: bytes, lease: int, ttl_ms: int, since_ms: int, revision: int) -> RowChange:
        """Fold EXPIRY_SET."""
        old = self.keys.put(key, KeyExpiry(lease, ttl_ms, since_ms, revision))
        if old is not None:
            self._detach(key, old)
        if lease:
            self._attached.setdefault(lease, {})[key] = None
            self._planned.pop(key, None)
            if lease not in self.leases:
                self._plan(lease, 0)
        else:
            self._plan(key, since_ms + ttl_ms)
        before = None if old is None else _packed(old)
        return RowChange(EXPIRIES_TABLE, pack((key,)), before, pack((lease, ttl_ms, since_ms)))

    def clear_key(self, key: bytes) -> RowChange:
        """Fold EXPIRY_CLEARED."""
        old = self.keys.remove(key)
        if old is not None:
            self._detach(key, old)
            self._planned.pop(key, None)
        return RowChange(EXPIRIES_TABLE, pack((key,)), None if old is None else _packed(old), None)

    def keep_lease(self, lease: int, ttl_ms: int, since_ms: int, revision: int) -> RowChange:
        """Fold LEASE_KEPT."""
        old = self.leases.get(lease)
        self.leases[lease] = Lease(ttl_ms, since_ms, revision)
        self._plan(lease, since_ms + ttl_ms)
        return RowChange(LEASES_TABLE, pack((lease,)), None if old is None else pack(old[:2]), pack((ttl_ms, since_ms)))

    def end_lease(self, lease: int) -> RowChange:
        """Fold LEASE_ENDED."""
        old = self.leases.pop(lease, None)
        if lease in self._attached:
            self._plan(lease, 0)
        else:
            self._planned.pop(lease, None)
        return RowChange(LEASES_TABLE, pack((lease,)), None if old is None else pack(old[:2]), None)

    def _detach(self, key: bytes, old: KeyExpiry) -> None:
        if old.lease:
            keys = self._attached[old.lease]
            del keys[key]
            if not keys:
                del self._attached[old.lease]

    # ---- what is due

    def key_count(self, lease: int) -> int:
        return len(self._attached.get(lease, ()))

    def keys_of(self, lease: int) -> Iterable[bytes]:
        """Return the keys that are attached to a lease, as they are now."""
        return self._attached.get(lease, ())

    def ending(self, lease: int, present: Container[bytes], room: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the records that remove keys of a lease, at most `room` of them."""
        held = 0
        for key in islice(self._attached.get(lease, ()), room // 2):
            yield from self._going(key, present)
            held += 2 * len(key)
            if held > RECORD_BYTES_MAX // 2:
                return

    def _going(self, key: bytes, present: Container[bytes]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        if key in present:
            yield EXPIRED, (key,)
        yield EXPIRY_CLEARED, (key,)

    def due(
        self, now_ms: int, promoted_ms: int, present: Container[bytes], limit: int
    ) -> list[tuple[int, tuple[Any, ...]]]:
        """Return the records that time makes due, oldest first.

        Args:
            now_ms: Logged time.
            promoted_ms: Logged time at which the present leader began.
            present: The keys that exist.
            limit: Most records; 3 at least.

        """
        records: list[tuple[int, tuple[Any, ...]]] = []
        looked_at: list[tuple[int, int, Any]] = []
        held = 0
        while (next_due := self._next(promoted_ms)) is not None:
            at_ms, is_key, thing = next_due
            if looked_at and looked_at[-1] == next_due:
                heappop(self._heap)  # Planned again for the time at which it was planned once: equal ones follow.
                continue
            if at_ms > now_ms or len(records) + 3 > max(limit, 3) or held > RECORD_BYTES_MAX // 2:
                break
            looked_at.append(heappop(self._heap))
            if is_key:
                records += self._going(thing, present)
                held += 2 * len(thing)
                continue
            if thing in self.leases:
                records.append((LEASE_ENDED, (thing,)))
            if thing in self._attached:
                first = len(records)
                records += self.ending(thing, present, max(limit, 3) - first)
                held += sum(len(key) for _, (key,) in records[first:])
        # Still due until the records are applied: what is logged is the caller's business.
        for entry in looked_at:
            heappush(self._heap, entry)
        return records

    def next_due_ms(self, promoted_ms: int) -> int | None:
        """Return the logged time at which something will be due, or None."""
        next_due = self._next(promoted_ms)
        return None if next_due is None else next_due[0]

    def _next(self, promoted_ms: int) -> tuple[int, int, Any] | None:
        """Return the first entry of the heap, which then is right."""
        heap, planned = self._heap, self._planned
        while heap:
            entry = heap[0]
            at_ms, is_key, thing = entry
            if planned.get(thing) != at_ms:
                heappop(heap)
                continue
            right_ms = self._due_ms(thing, promoted_ms)
            if right_ms == at_ms:
                return entry
            if right_ms is None:
                heappop(heap)
                del planned[thing]
            else:
                planned[thing] = right_ms
                heapreplace(heap, (right_ms, is_key, thing))
        return None

    def _due_ms(self, thing: int | bytes, promoted_ms: int) -> int | None:
        found: KeyExpiry | Lease | None
        if isinstance(thing, bytes):
            found = self.keys.entries.get(thing)
            if found is None or found.lease:
                return None
        else:
            found = self.leases.get(thing)
            if found is None:
                return 0 if thing in self._attached else None
        return max(found.since_ms, promoted_ms) + found.ttl_ms

    def _plan(self, thing: int | bytes, at_ms: int) -> None:
        """See to it that this is looked at by then."""
        planned_ms = self._planned.get(thing)
        if planned_ms is not None and planned_ms <= at_ms:
            return  # Looked at too early, and put off then.
        self._planned[thing] = at_ms
        heappush(self._heap, (at_ms, int(isinstance(thing, bytes)), thing))
        if len(self._heap) > 2 * len(self._planned) + _HEAP_SLACK:
            self._heap = [(when, int(isinstance(what, bytes)), what) for what, when in self._planned.items()]
            heapify(self._heap)

    # ---- snapshots

    def rows(self) -> Iterator[Row]:
        """Iterate over the rows of both tables as they are at this call; any thread may consume."""
        keys, leases = self.keys.freeze(), list(self.leases.items())

        def _rows() -> Iterator[Row]:
            for key, expiry in keys:
                yield Row(EXPIRIES_TABLE, pack((key,)), _packed(expiry), expiry.revision)
            for number, lease in leases:
                yield Row(LEASES_TABLE, pack((number,)), pack(lease[:2]), lease.revision)

        return _rows()

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace both tables by these rows.

        Raises:
            MsgspecError: A row is none of theirs.

        """
        keys: dict[bytes, KeyExpiry] = {}
        leases: dict[int, Lease] = {}
        for row in rows:
            if row.table == EXPIRIES_TABLE:
                keys[_KEY_COLUMNS.decode(row.key)[0]] = KeyExpiry(*_EXPIRY_ROW.decode(row.row), row.revision)
            else:
                leases[_LEASE_COLUMNS.decode(row.key)[0]] = Lease(*_LEASE_ROW.decode(row.row), row.revision)
        self.keys.load(keys)
        self.leases = leases
        self._attached = {}
        self._planned = {number: lease.since_ms + lease.ttl_ms for number, lease in leases.items()}
        for key, expiry in keys.items():
            if expiry.lease:
                self._attached.setdefault(expiry.lease, {})[key] = None
                self._planned.setdefault(expiry.lease, 0)
            else:
                self._planned[key] = expiry.since_ms + expiry.ttl_ms
        self._heap = [(when, int(isinstance(what, bytes)), what) for what, when in self._planned.items()]
        heapify(self._heap)

    def validate(self) -> None:
        self.keys.validate()
        attached = [(expiry.lease, key) for key, expiry in self.keys.entries.items() if expiry.lease]
        assert sorted(attached) == sorted((lease, key) for lease, keys in self._attached.items() for key in keys)
        entries = {(when, what) for when, _, what in self._heap}
        for thing, when in self._planned.items():
            assert (when, thing) in entries, f"{thing!r} is planned for {when}, but nobody will look"
        live: list[int | bytes] = [*self.leases, *self._attached]
        live += [key for key, expiry in self.keys.entries.items() if not expiry.lease]
        for thing in live:
            right_ms = self._due_ms(thing, 0)
            assert right_ms is not None
            assert thing in self._planned, f"{thing!r} will never be due"


def _packed(expiry: KeyExpiry) -> bytes:
    return pack((expiry.lease, expiry.ttl_ms, expiry.since_ms))
