"""What the committed log of a map says, folded without the map's code: its rows over time, its changes, what expires.

* `time-is-data`   no lease and no key ends by time before its full time: in logged time, counted from the promotion of
                   the present leader if that came later, and in true time from when its command was first sent
* `expiry`         a key that goes by itself had a time of its own, or its lease has ended
* `counts`         a put says which revision created its key, the number of its writes since, and the revision of the
                   last record of its command, which all keys of the command have
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

from rsm_spark.core.envelope import Envelope
from rsm_spark.core.records import CommandHead, KernelRecord, Record, pack
from rsm_spark.map.records import (
    DELETED,
    EXPIRED,
    EXPIRY_CLEARED,
    EXPIRY_SET,
    LEASE_ENDED,
    LEASE_KEPT,
    PUT,
)
from rsm_spark.testing.ghosts import Ghosts

__all__ = ["MapTruth", "TrueChange"]


class TrueChange(NamedTuple):
    """A change of the table that clients see, as a watch tells it."""

    revision: int
    type: int
    key: bytes
    row: bytes | None
    mod_revision: int


class _Lifetime(NamedTuple):
    """How long a lease, or a key of its own, is to live."""

    ttl_ms: int
    since_ms: int
    sent_s: float


class MapTruth:
    """Judges every committed entry.

    Args:
        ghosts: Tell of entries; are told what is broken.
        clock_s: True time.

    Attributes:
        changes: Of the map, in order.
        rows: Keys and values, as of the last entry.
        counts: Create revision and version of those keys.
        leases: Those that have not ended.
        sent_s: When a command was first sent, by session and sequence: clients say so before they send.
        ended_by_time: Leases and keys that time has ended.

    """

    def __init__(self, ghosts: Ghosts, clock_s: Callable[[], float]) -> None:
        self.changes: list[TrueChange] = []
        self.rows: dict[bytes, bytes] = {}
        self.counts: dict[bytes, tuple[int, int]] = {}
        self.leases: dict[int, _Lifetime] = {}
        self.sent_s: dict[tuple[bytes, int], float] = {}
        self.ended_by_time = 0
        self._ghosts = ghosts
        self._clock_s = clock_s
        self._promoted_ms = 0
        self._own: dict[bytes, _Lifetime] = {}  # Keys with a time of their own.
        self._leased: dict[bytes, int] = {}
        self._history: dict[bytes, tuple[list[int], list[bytes | None], list[int]]] = {}
        self._last = 0  # Revision of the last record of the present command.
        self._head: CommandHead | None = None
        ghosts.on_commit.append(self._on_commit)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left that time would end."""
        return not self.leases and not self._own and not self._leased

    def value_at(self, key: bytes, revision: int) -> tuple[bytes | None, int]:
        """Return what a key was at a revision, and its mod revision; (None, 0) = there was none."""
        revisions, values, modified = self._history.get(key, ([], [], []))
        at = bisect_right(revisions, revision)
        return (None, 0) if not at or values[at - 1] is None else (values[at - 1], modified[at - 1])

    def _on_commit(self, envelope: Envelope, records: list[Record]) -> None:
        left = 0
        for revision, record in enumerate(records, envelope.first_revision):
            if record.command is not None:
                self._head, left = record.command, record.command.record_count
                self._last = revision + left - 1
            elif left <= 0:
                self._head, self._last = None, revision
            left -= 1
            self._fold(record.type, record.fields, revision, envelope.logged_ms)
        self._head = None

    def _fold(self, record_type: int, fields: tuple[Any, ...], revision: int, logged_ms: int) -> None:
        match record_type:
            case KernelRecord.LEADER_STARTED:
                self._promoted_ms = logged_ms
            case _ if record_type == PUT:
                key, value, *said = fields
                self._change(revision, record_type, key, value)
                true = (*self.counts[key], self._modified(revision))
                if tuple(said) != true:
                    self._ghosts.fail("counts", f"key {key!r} is written with {said}, it has {true}")
            case _ if record_type == DELETED:
                self._change(revision, record_type, fields[0], None)
            case _ if record_type == EXPIRED:
                self._judge_expired(fields[0], logged_ms)
                self._change(revision, record_type, fields[0], None)
            case _ if record_type == EXPIRY_SET:
                key, lease, ttl_ms, since_ms = fields
                self._forget(key)
                if lease:
                    self._leased[key] = lease
                else:
                    self._own[key] = _Lifetime(ttl_ms, since_ms, self._sent())
            case _ if record_type == EXPIRY_CLEARED:
                self._forget(fields[0])
            case _ if record_type == LEASE_KEPT:
                lease, ttl_ms, since_ms = fields
                self.leases[lease] = _Lifetime(ttl_ms, since_ms, self._sent())
            case _ if record_type == LEASE_ENDED:
                ended = self.leases.pop(fields[0])
                if self._head is None:  # Else somebody revoked it.
                    self._judge_end(f"lease {fields[0]}", ended, logged_ms)

    def _sent(self) -> float:
        assert self._head is not None, "time began something that a command begins"
        return self.sent_s[self._head.session, self._head.sequence]

    def _modified(self, revision: int) -> int | None:
        return None if revision == self._last else self._last

    def _forget(self, key: bytes) -> None:
        self._own.pop(key, None)
        self._leased.pop(key, None)

    def _change(self, revision: int, record_type: int, key: bytes, value: bytes | None) -> None:
        row = None
        if value is None:
            self.rows.pop(key, None)
            self.counts.pop(key, None)
        else:
            self.rows[key] = value
            created, version = self.counts.get(key, (self._last, 0))
            self.counts[key] = (created, version + 1)
            row = pack((value, created, version + 1, self._modified(revision)))
        revisions, values, modified = self._history.setdefault(key, ([], [], []))
        revisions.append(revision)
        values.append(value)
        modified.append(self._last)
        self.changes.append(TrueChange(revision, record_type, pack((key,)), row, self._last))

    def _judge_expired(self, key: bytes, logged_ms: int) -> None:
        if key in self._own:
            self._judge_end(f"key {key!r}", self._own[key], logged_ms)
        elif key not in self._leased:
            self._ghosts.fail("expiry", f"key {key!r} expires, it had no end")
        elif self._leased[key] in self.leases:
            self._ghosts.fail("expiry", f"key {key!r} goes, its lease {self._leased[key]} has not ended")

    def _judge_end(self, what: str, lifetime: _Lifetime, logged_ms: int) -> None:
        self.ended_by_time += 1
        due_ms = max(lifetime.since_ms, self._promoted_ms) + lifetime.ttl_ms
        if logged_ms < due_ms:
            self._ghosts.fail("time-is-data", f"{what} ends {due_ms - logged_ms} ms before its full time")
        lived_s = self._clock_s() - lifetime.sent_s
        if lived_s < (lifetime.ttl_ms - 1) / 1000:  # The log knows whole milliseconds.
            self._ghosts.fail("time-is-data", f"{what} of {lifetime.ttl_ms} ms ends {lived_s:.3f} s after its command")
