"""Invariants of a replicated log, whoever leads: checked after every entry and every reply.

* `no-gap`            what replicas treat as committed is one sequence of entries, the same for all, whose revisions
                      are dense
* `single-writer`     epochs never fall along it, and each is confirmed by one process
* `same-state`        replicas at the same entry have the same digest; a read shows the state of its revision
* `once-per-session`  a command is in the log once; its reply is the logged one, each time
* `acked-is-durable`  a reply leaves only when its command is committed
* `denied`            a command whose only attempt was denied is never committed
* `stale`             no reply shows less than a reply that was there before the request was sent; no read is older than
                      its bound, and those of a session never go back
* `time-is-data`      no session expires before its time, whatever the clocks say

`BrokenInvariantError` names the one that does not hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from rsm_spark.core.envelope import Envelope, body_of, decode_envelope, entry_hash, root_hash
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import CommandHead, KernelRecord, Record, decode_records
from rsm_spark.testing.counter_map import COUNTED, DROPPED


class BrokenInvariantError(Exception):
    """An invariant does not hold; the message begins with its name."""


class Place:
    """Place of a replica's process in the one sequence of entries.

    Attributes:
        index: Entries applied.

    """

    def __init__(self, index: int) -> None:
        self.index = index


class Ghosts:
    """Observer of all replicas and clients.

    Attributes:
        hashes: Prefix hash after each committed entry; the first is the root's.
        replies: Logged reply by (session, sequence).
        acknowledged: Commands whose reply reached their client.
        revision: The last that is committed.
        verified: By place, the failure domain and the revision of the snapshot that the log calls verified.
        foreign: Hashes of entries that no leader wrote: nobody may apply them.
        counts_counters: The machine is a `CounterMap`, whose values are known here.
        on_commit: Called with each committed entry, once: its header and its records.
        on_broken: Called with an error before it is raised: code under test may well swallow it.

    """

    def __init__(self, clock_s: Callable[[], float] = lambda: 0.0) -> None:
        self.on_broken: Callable[[BrokenInvariantError], None] = lambda _error: None
        self.on_commit: list[Callable[[Envelope, list[Record]], None]] = []
        self.revision = 0
        self.foreign: set[bytes] = set()
        self.counts_counters = True
        self.verified: dict[str, tuple[str, int]] = {}
        self._clock_s = clock_s
        # Of each committed entry: when it was first known to be, and its last revision.
        self._times: list[float] = []
        self._revisions: list[int] = []
        # Of each counter: revisions that changed it, and what it was from then on.
        self._changes: dict[str, tuple[list[int], list[int]]] = {}
        self._confirmers: dict[int, str] = {}
        self.hashes: list[bytes] = []
        self.replies: dict[tuple[bytes, int], bytes] = {}
        self.acknowledged: set[tuple[bytes, int]] = set()
        self.epochs: list[int] = []
        self._index: dict[bytes, int] = {}
        self._digests: dict[int, tuple[int, int]] = {}
        self._denied: set[tuple[bytes, int]] = set()
        self._floors: dict[str, int] = {}

    def fail(self, name: str, what: str) -> None:
        """Report a broken invariant."""
        error = BrokenInvariantError(f"{name}: {what}")
        self.on_broken(error)
        raise error

    # ---- replicas

    def begin(self, log_id: bytes, prefix_hash: bytes, who: str) -> Place:
        """Note that a replica begins with a state of this prefix hash."""
        if not self.hashes:
            root = root_hash(log_id)
            self.hashes.append(root)
            self._index[root] = 0
            self.epochs.append(0)
        if prefix_hash not in self._index:
            self.fail("no-gap", f"{who} begins with a state that nobody committed")
        return Place(self._index[prefix_hash])

    def apply(self, place: Place, payload: bytes, position: LogPosition, digest: int, revision: int, who: str) -> None:
        """Note that a replica treats this entry, its next, as committed."""
        envelope = decode_envelope(payload)
        after = entry_hash(payload)
        if after in self.foreign:
            self.fail("foreign-entry", f"{who} applies {position}, which no leader of the log wrote")
        if envelope.prefix_hash != self.hashes[place.index]:
            self.fail("no-gap", f"{who} applies {position}, which does not follow its entry {place.index}")
        place.index += 1
        if place.index < len(self.hashes):
            if self.hashes[place.index] != after:
                self.fail("no-gap", f"{who} commits {position} as entry {place.index}, another one is committed")
        else:
            self._commit(payload, envelope.leader_epoch, after, who)
        seen = self._digests.setdefault(place.index, (digest, revision))
        if seen != (digest, revision):
            self.fail("same-state", f"{who} differs at entry {place.index}, revision {revision}")

    def _commit(self, payload: bytes, epoch: int, after: bytes, who: str) -> None:
        envelope = decode_envelope(payload)
        if epoch < self.epochs[-1]:
            self.fail("single-writer", f"{who} commits epoch {epoch} after epoch {self.epochs[-1]}")
        if envelope.first_revision != self.revision + 1:
            self.fail("no-gap", f"{who} commits revision {envelope.first_revision} after revision {self.revision}")
        self._index[after] = len(self.hashes)
        self.hashes.append(after)
        self.epochs.append(epoch)
        records = decode_records(body_of(payload))
        for revision, record in enumerate(records, envelope.first_revision):
            if record.command is not None:
                self._execute(record.command)
            if self.counts_counters and record.type in (COUNTED, DROPPED):
                revisions, values = self._changes.setdefault(record.fields[0], ([], []))
                revisions.append(revision)
                values.append(record.fields[1] if record.type == COUNTED else 0)
            if record.type == KernelRecord.SNAPSHOT_VERIFIED:
                self.verified[record.fields[0]] = (record.fields[1], record.fields[2])
            elif record.type == KernelRecord.SNAPSHOT_WITHDRAWN:
                self.verified.pop(record.fields[0], None)
        self.revision = envelope.last_revision
        self._times.append(self._clock_s())
        self._revisions.append(self.revision)
        for listener in self.on_commit:
            listener(envelope, records)

    def confirm(self, epoch: int, incarnation: str) -> None:
        """Note that a leader takes its entry as confirmed."""
        if self._confirmers.setdefault(epoch, incarnation) != incarnation:
            self.fail("single-writer", f"epoch {epoch} is confirmed by {self._confirmers[epoch]} and by {incarnation}")

    def _execute(self, head: CommandHead) -> None:
        command = (head.session, head.sequence)
        name = f"command {head.sequence} of session {head.session.hex()[:8]}"
        if command in self.replies:
            self.fail("once-per-session", f"{name} is in the log twice")
        if command in self._denied:
            self.fail("denied", f"{name} is committed, its client was told that it is not")
        self.replies[command] = head.reply

    # ---- clients

    def floor(self, key: str) -> int:
        """Return what a request sent now must not fall below: counters only grow."""
        return self._floors.get(key, 0)

    def told(self, session: bytes, sequence: int, reply: bytes) -> None:
        """Note that a client got the reply of a command."""
        command = (session, sequence)
        name = f"command {sequence} of session {session.hex()[:8]}"
        if command not in self.replies:
            self.fail("acked-is-durable", f"{name} is acknowledged, but not committed")
        if self.replies[command] != reply:
            self.fail("once-per-session", f"{name} has reply {reply!r}, logged is {self.replies[command]!r}")
        self.acknowledged.add(command)

    def denied(self, session: bytes, sequence: int) -> None:
        """Note that a command's only attempt was answered NOT_LEADER."""
        command = (session, sequence)
        if command in self.replies:
            self.fail("denied", f"command {sequence} of session {session.hex()[:8]} is committed")
        self._denied.add(command)

    def shown(self, key: str, value: Any, floor: int, *, is_added: bool) -> None:
        """Note that a client was shown a counter; `floor` is from when it asked."""
        if value < floor + is_added:
            self.fail("stale", f"counter {key} shows {value}, {floor} was shown before")
        self._floors[key] = max(self._floors.get(key, 0), value)

    def read(self, key: str, value: Any, revision: int) -> None:
        """Note that a read showed a counter at a revision, be it an old one."""
        revisions, values = self._changes.get(key, ([], []))
        at = bisect_right(revisions, revision)
        truth = values[at - 1] if at else 0
        if value != truth:
            self.fail("same-state", f"counter {key} is read as {value} at revision {revision}, where it is {truth}")

    def revision_at(self, time_s: float) -> int:
        """Return the last revision that was committed by then."""
        at = bisect_right(self._times, time_s)
        return self._revisions[at - 1] if at else 0
