"""Draft of a command: the records of its operations, each deciding on the result of those before it.

Nothing is changed: a draft reads the map and remembers what it has written itself. So a command of many operations is
decided as a whole, and dropped as a whole if one of them cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Any

import msgspec

from rsm_spark.errors import InvalidCommandError
from rsm_spark.map.commands import (
    Compare,
    Delete,
    DeleteRange,
    GrantLease,
    Increment,
    Incremented,
    NotFound,
    Operation,
    OperationResult,
    Put,
    PutExpiring,
    Read,
    Removed,
    Seen,
    Unmet,
    WriteKey,
    Written,
)
from rsm_spark.map.expiries import Expiries
from rsm_spark.map.limits import (
    INTEGER_MAX,
    INTEGER_MIN,
    RECORD_BYTES_MAX,
    RECORD_COUNT_MAX,
    integer_of,
    key_fault,
    ttl_fault,
    value_fault,
)
from rsm_spark.map.ordered_rows import OrderedRows
from rsm_spark.map.records import COUNTS_VERSION, DELETED, EXPIRY_CLEARED, EXPIRY_SET, PUT
from rsm_spark.map.rows import MapEntry, columns_of

_COUNTS_BYTES = 27
"""Bytes of create revision, version and mod revision in a record, at most."""

RELATIONS: dict[str, tuple[bool, bool, bool]] = {
    "=": (False, True, False),
    "!=": (True, False, True),
    "<": (True, False, False),
    ">": (False, False, True),
}
"""Truth of each relation if the left side is smaller, equal, greater."""


class Draft:
    """Records of one command.

    Args:
        rows: The map.
        expiries: What expires in it.
        revision: What the first record will get.
        now_ms: Logged time.
        counts: Records say create revision and version: the log is of a version of the map that has them.
        dates: The same of the mod revision that all keys of a command have.
        record_count_max: More are refused.

    Attributes:
        records: So far. Their mod revision, that of the last one, is not known yet: see `dated_records`.

    """

    def __init__(
        self,
        rows: OrderedRows[MapEntry],
        expiries: Expiries,
        revision: int,
        now_ms: int,
        *,
        counts: bool,
        dates: bool,
        record_count_max: int = RECORD_COUNT_MAX,
    ) -> None:
        self.records: list[tuple[int, tuple[Any, ...]]] = []
        self._rows = rows
        self._expiries = expiries
        self._revision = revision
        self._now_ms = now_ms
        self._counts = counts
        self._dates = dates
        self._record_count_max = record_count_max
        # What the records so far have made of keys; None = gone.
        self._written: dict[bytes, Seen | None] = {}
        self._expires: dict[bytes, bool] = {}
        self._bytes = 0

    def dated_records(self) -> list[tuple[int, tuple[Any, ...]]]:
        """Return the records, now that there will be no more: keys written say their mod and create revisions."""
        first, last = self._revision, self._last
        if not self._dates or first == last:
            return self.records
        dated: list[tuple[int, tuple[Any, ...]]] = []
        for revision, (record_type, fields) in enumerate(self.records, first):
            if record_type == PUT:
                key, value, created, version, _ = fields
                created = created if created < first else last
                fields = (key, value, created, version, None if revision == last else last)  # noqa: PLW2901
            elif record_type == DELETED and revision < last:
                fields = (*fields, last)  # noqa: PLW2901
            dated.append((record_type, fields))
        return dated

    def dated(self, result: OperationResult) -> OperationResult:
        """Return a result of an operation with the revision that its keys got; after the last operation."""
        if not self._dates or isinstance(result, NotFound) or result.revision < self._revision:
            return result
        if isinstance(result, Seen) and result.create_revision >= self._revision:
            return msgspec.structs.replace(result, revision=self._last, create_revision=self._last)
        return msgspec.structs.replace(result, revision=self._last)

    @property
    def _last(self) -> int:
        return self._revision + len(self.records) - 1

    def holds(self, compare: Compare) -> bool:
        """Return whether a condition holds.

        Raises:
            InvalidCommandError: The log does not tell yet what is compared.

        """
        found = self.look(compare.key)
        left: Any
        match compare.what:
            case "exists":
                left = found is not None
            case "revision":
                left = 0 if found is None else found.revision
            case "create_revision" | "version":
                if not self._counts:
                    raise InvalidCommandError(
                        f"the {compare.what} of key {compare.key!r} cannot be compared: the log is of a version of the "
                        f"map before {COUNTS_VERSION}, which does not count writes. Compare the revision, or raise the "
                        "version (`rsm log raise-version`)"
                    )
                left = 0 if found is None else getattr(found, compare.what)
            case _:
                if found is None:
                    return False
                left = found.value
        right: Any = compare.operand
        return RELATIONS[compare.relation][1 + (left > right) - (left < right)]

    def run(self, operation: Operation) -> OperationResult:
        """Do one operation; its records are added.

        Raises:
            InvalidCommandError: It cannot be done: the command is refused.

        """
        match operation:
            case Put(key, value):
                return Written(self.put(key, value))
            case PutExpiring(key, value, ttl_ms, lease):
                return Written(self.put_expiring(key, value, ttl_ms, lease))
            case Delete(key):
                return NotFound() if self.look(key) is None else Written(self.delete(key))
            case DeleteRange(start, end):
                return self._delete_range(start, end)
            case Increment(key, amount):
                return self._increment(key, amount)
            case Read(key):
                found = self.look(key)
                return NotFound() if found is None else found

    def put(self, key: bytes, value: bytes, *, keeps_expiry: bool = False) -> int:
        """Write a key; return the revision of the record."""
        size, created, version = len(key) + len(value), 0, 0
        fields: tuple[Any, ...] = (key, value)
        if self._counts:
            created, version = self._next_counts(key)
            fields = (key, value, created, version, None) if self._dates else (key, value, created, version)
            size += _COUNTS_BYTES
        revision = self._add(PUT, fields, size)
        self._written[key] = Seen(value, revision, created, version)
        if not keeps_expiry:
            self._clear(key)
        return revision

    def put_expiring(self, key: bytes, value: bytes, ttl_ms: int, lease: int = 0) -> int:
        """Write a key that goes by itself; return the revision of the record.

        Raises:
            InvalidCommandError: There is no such lease.

        """
        revision = self.put(key, value, keeps_expiry=True)
        self._expire(key, ttl_ms, lease)
        return revision

    def write(self, operation: WriteKey) -> Unmet | None:
        """Write a key as a branch wants it; return what is missing for that, or None."""
        key, value, lease = operation.key, operation.value, operation.lease
        if lease and lease not in self._expiries.leases:
            return "no lease"
        if value is None or lease is None:
            found = self.look(key)
            if found is None:
                return "no key"
            value = found.value if value is None else value
        if lease is None:
            kept = self._expiries.keys.entries.get(key)
            lease = kept.lease if kept is not None else 0
            self.put(key, value, keeps_expiry=True)
        else:
            self.put(key, value, keeps_expiry=bool(lease))
        if lease:
            # Said again where it stays: who reads the log alone knows the lease of every key that is written.
            self._add(EXPIRY_SET, (key, lease, 0, 0), len(key))
            self._expires[key] = True
        return None

    def lease_of(self, key: bytes) -> int:
        """Return the lease of a key before the command; 0 = none."""
        expiry = self._expiries.keys.entries.get(key)
        return 0 if expiry is None else expiry.lease

    def delete(self, key: bytes) -> int:
        """Remove a key that exists; return the revision of the record."""
        revision = self._add(DELETED, (key,), len(key))
        self._written[key] = None
        self._clear(key)
        return revision

    def _next_counts(self, key: bytes) -> tuple[int, int]:
        """Return create revision and version of a key after it is written by the next record."""
        if key in self._written:
            seen = self._written[key]
            if seen is not None:
                return seen.create_revision, seen.version + 1
        else:
            found = self._rows.entries.get(key)
            if found is not None:
                return found.create_revision, found.version + 1
        return self._revision + len(self.records), 1

    def look(self, key: bytes) -> Seen | None:
        """Return a key as the records so far have left it."""
        if key in self._written:
            return self._written[key]
        found = self._rows.entries.get(key)
        return None if found is None else Seen(*columns_of(found, counts=self._counts))

    def _add(self, record_type: int, fields: tuple[Any, ...], size: int) -> int:
        self._bytes += size
        if len(self.records) >= self._record_count_max or self._bytes > RECORD_BYTES_MAX:
            raise InvalidCommandError(
                f"the command needs more than {self._record_count_max} records or {RECORD_BYTES_MAX} bytes, which are "
                "more than one entry of the log holds: do it in several commands, ranges in parts"
            )
        self.records.append((record_type, fields))
        return self._revision + len(self.records) - 1

    def _clear(self, key: bytes) -> None:
        """Let a key live until it is deleted, or be gone with how long it lived."""
        if self._expires.get(key, key in self._expiries.keys.entries):
            self._add(EXPIRY_CLEARED, (key,), len(key))
            self._expires[key] = False

    def _expire(self, key: bytes, ttl_ms: int, lease: int) -> None:
        if lease and lease not in self._expiries.leases:
            raise InvalidCommandError(f"there is no lease {lease}: it has ended, or was never granted")
        since_ms = 0 if lease else self._now_ms
        self._add(EXPIRY_SET, (key, lease, ttl_ms, since_ms), len(key))
        self._expires[key] = True

    def _delete_range(self, start: bytes, end: bytes | None) -> Removed:
        count = revision = 0
        for key in self.keys(start, end):
            revision = self.delete(key)
            count += 1
        return Removed(count, revision)

    def keys(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        """Yield the keys of a range as the records so far leave them."""
        added = sorted(key for key, found in self._written.items() if found is not None and key >= start)
        gone = {key for key, found in self._written.items() if found is None}
        last = None
        for key in merge(self._rows.since(start), added):
            if end is not None and key >= end:
                return
            if key != last and key not in gone:
                yield key
            last = key

    def _increment(self, key: bytes, amount: int) -> Incremented:
        found = self.look(key)
        number = 0 if found is None else integer_of(found.value)
        if number is None:
            raise InvalidCommandError(
                f"key {key!r} holds no integer: increments need decimal digits of a 64-bit number"
            )
        number += amount
        if not INTEGER_MIN <= number <= INTEGER_MAX:
            raise InvalidCommandError(f"key {key!r}: the sum, {number}, does not fit 64 bits")
        return Incremented(number, self.put(key, b"%d" % number, keeps_expiry=found is not None))


def operation_fault(operation: Operation | GrantLease | WriteKey) -> str | None:
    """Return what is wrong with an operation, or None."""
    match operation:
        case Put(key, value):
            return key_fault(key) or value_fault(value)
        case PutExpiring(key, value, ttl_ms, lease):
            if lease and ttl_ms:
                return "a key has a time to live of its own, or a lease, not both"
            if lease < 0:
                return f"a lease is a number above 0, this one is {lease}"
            return key_fault(key) or value_fault(value) or (None if lease else ttl_fault(ttl_ms))
        case Delete(key) | Read(key):
            return key_fault(key)
        case Increment(key, amount):
            if not INTEGER_MIN <= amount <= INTEGER_MAX:
                return f"an amount has 64 bits, {amount} has more"
            return key_fault(key)
        case GrantLease(ttl_ms, lease):
            if not INTEGER_MIN <= lease <= INTEGER_MAX:
                return f"a lease has 64 bits, {lease} has more"
            return ttl_fault(ttl_ms)
        case WriteKey(key, value, lease):
            return key_fault(key) or (None if value is None else value_fault(value))
        case _:
            return None
