"""Queries of the map's clients, and their answers; `rsm_spark.map.messages` has the bytes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rsm_spark.map.commands import MapRefused, NotFound


class Get(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    key: bytes


class Scan(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """Read keys in order.

    Attributes:
        start: First key, inclusive; empty for the very first.
        end: Exclusive; None = to the last.
        limit: Most keys wanted; a page also ends at `SCAN_LIMIT_MAX` keys or `SCAN_BYTES_MAX` bytes.
        at_revision: Show the map as it was at the first page of this scan; 0 = as it is.
        keeps: More pages of the same revision will be asked for: this replica remembers what is overwritten.
        keys_only: Rows come without their values. Replicas of version 0.1 send the values all the same.
        counts: Rows come with create revision and version, which clients of version 0.1 could not read.

    """

    start: bytes
    end: bytes | None
    limit: int
    at_revision: int = 0
    keeps: bool = False
    keys_only: bool = False
    counts: bool = False


class ShowLease(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    lease: int


class ShowExpiry(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    """Read how long one key lives."""

    key: bytes


class ListLeases(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """Read leases with a number above `after`, ascending, at most `limit`."""

    after: int
    limit: int


class Count(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=6):
    """Count keys with start <= key < end; an end of None = to the last."""

    start: bytes
    end: bytes | None


class ListAlarms(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=7):
    """Read which alarms are raised."""


class Found(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """Value and numbers of a key; see `KeyValue`."""

    value: bytes
    revision: int
    create_revision: int = 0
    version: int = 0


class KeyValue(NamedTuple):
    """One row of a scan.

    Attributes:
        key: The key.
        value: What it holds.
        revision: Mod revision: of the last record of the command that last wrote the key.
        create_revision: Mod revision that it got when it was created; a key that was deleted and put again is a new
            one. 0 = the log is of a version of the map before 3, which does not tell.
        version: Number of its writes since then, the first one included; 0 likewise.

    """

    key: bytes
    value: bytes
    revision: int
    create_revision: int = 0
    version: int = 0


class Page(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Some keys in order, all at one revision (that of the answer, or the one that was asked for).

    Attributes:
        entries: Ascending by key.
        next_start: Where the next page begins; None: the range holds no more.

    """

    entries: list[KeyValue]
    next_start: bytes | None


class LeaseShown(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """A lease.

    Attributes:
        lease: Its number.
        ttl_ms: Its full time.
        since_ms: Logged time at which it was granted or kept last; its time also begins anew with a new leader.
        key_count: Keys attached to it.

    """

    lease: int
    ttl_ms: int
    since_ms: int
    key_count: int


class ExpiryShown(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=6):
    """Remaining life of a key.

    Attributes:
        ttl_ms: Full time of the key, or of its lease; 0 = it does not expire.
        since_ms: Logged time from which it counts.
        lease: That it is attached to; 0 = none.

    """

    ttl_ms: int
    since_ms: int
    lease: int


class Leases(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=7):
    """Leases, ascending by number; the last one's number is where to go on, unless there are fewer than asked for."""

    leases: list[LeaseShown]


class Forgotten(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=8):
    """The replica does not remember the map at that revision any more, or never did."""


class Counted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=9):
    """Number of keys in a range."""

    count: int


class AlarmShown(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An alarm that is raised; see `SetAlarm`. `since_ms` is the logged time at which it was."""

    kind: str
    member: int
    since_ms: int


class AlarmsShown(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=10):
    """All alarms that are raised, by kind and member."""

    alarms: list[AlarmShown]


MapQuery = Get | Scan | ShowLease | ShowExpiry | ListLeases | Count | ListAlarms
MapResult = Found | NotFound | MapRefused | Page | LeaseShown | ExpiryShown | Leases | Forgotten | Counted | AlarmsShown
