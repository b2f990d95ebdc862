"""Plan of a read of a log's state at some point: a snapshot of the lake, or none, and a range of the log.

1. A snapshot is of use where the log holds the entry after it, or where it is the very state that is asked for.
2. That it belongs there is told by the hash that the next entry names, not by its place alone.
3. Without one the log must begin with its first record.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from connectors.errors import OptionError
from connectors.source.plan import EntryHead, LogView, locate_revision
from rsm_spark.core.chain import Ancestry
from rsm_spark.core.envelope import decode_envelope, root_hash
from rsm_spark.core.machine import MachineDescription
from rsm_spark.errors import CorruptLogError, ForkedLogError, LogError, MissingLogError
from rsm_spark.snapshots.manifest import SnapshotManifest


class AsOfKind(StrEnum):
    """Kinds of points of the past."""

    NEWEST = "newest"
    REVISION = "revision"
    TIMESTAMP = "timestamp"
    POSITION = "position"


class AsOf(msgspec.Struct, frozen=True):
    """A point of the past: the state right after the last record that lies before or at it.

    Attributes:
        kind: How it is given.
        revision: For REVISION; 0 = the empty state.
        timestamp_ms: Logged time since 1970, for TIMESTAMP.
        ledger_id: For POSITION.
        entry_id: For POSITION: the state after this entry.

    """

    kind: AsOfKind = AsOfKind.NEWEST
    revision: int = 0
    timestamp_ms: int = 0
    ledger_id: int = -1
    entry_id: int = -1


class AsOfReader(Protocol):
    """Reader of a log for its past; `connectors.source.look.LogLook` is the real one."""

    @property
    def log_id(self) -> bytes:
        """Id of the log, known after the first look."""
        ...

    @property
    def ancestry(self) -> Ancestry:
        """Ids that the log's entries bear, known after the first look."""
        ...

    def look(self) -> LogView:
        """Return what may be read now."""
        ...

    def head_at(self, ledger_id: int, entry_id: int) -> EntryHead:
        """Return an entry's head."""
        ...

    def payload_at(self, ledger_id: int, entry_id: int) -> bytes:
        """Return an entry's payload."""
        ...

    def description_at(self, view: LogView, ledger_id: int) -> MachineDescription | None:
        """Return how the machine is described at the begin of a ledger; None if that is not known."""
        ...


class LogRange(msgspec.Struct, frozen=True):
    """Range of a log to read.

    Attributes:
        log: Name of the log.
        log_id: Its id, 16 bytes.
        ancestry: Ids that its entries bear.
        base: Snapshot to begin with; None = the empty state.
        ledger_ids: Ledgers of the log, in the order of the chain.
        first: Ledger and entry of the first entry to read.
        last: Of the last one, inclusive; (-1, -1) = none is read, and `first` means nothing.
        first_revision: Of the first record that is not in the base.
        revision: Of the last record in the state.
        before: Prefix hash that the first entry must name.
        machine: Description of the machine at the end.
        descriptions: At the begin of each ledger of the log.
        payload_bytes: Of the entries to read.

    """

    log: str
    log_id: bytes
    ancestry: Ancestry
    base: SnapshotManifest | None
    ledger_ids: tuple[int, ...]
    first: tuple[int, int]
    last: tuple[int, int]
    first_revision: int
    revision: int
    before: bytes
    machine: MachineDescription
    descriptions: dict[int, MachineDescription]
    payload_bytes: int

    @property
    def is_read(self) -> bool:
        """True if any entry is read."""
        return self.last[0] >= 0


def parse_as_of(revision: str | None, timestamp: str | None, position: str | None) -> AsOf:
    """Return the point that one of three texts names; none of them = the newest.

    Args:
        revision: Digits.
        timestamp: Milliseconds since 1970, or an ISO 8601 time; without an offset it is UTC.
        position: ``ledger:entry``.

    Raises:
        OptionError: More than one is given, or what is given means nothing.

    """
    given = {"asOfRevision": revision, "asOfTimestamp": timestamp, "asOfPosition": position}
    named = [name for name, text in given.items() if text is not None]
    if len(named) > 1:
        raise OptionError(f"options {' and '.join(named)} are set: give one of them")
    if revision is not None:
        if not (revision.isascii() and revision.isdigit()):
            raise OptionError(f"option asOfRevision is {revision!r}: it must be a revision: 0, 1, 2, …")
        return AsOf(AsOfKind.REVISION, revision=int(revision))
    if timestamp is not None:
        return AsOf(AsOfKind.TIMESTAMP, timestamp_ms=_milliseconds(timestamp))
    if position is not None:
        ledger, colon, entry = position.partition(":")
        if not (colon and all(part.isascii() and part.isdigit() for part in (ledger, entry))):
            raise OptionError(f"option asOfPosition is {position!r}: write ledger and entry like 17:1203")
        return AsOf(AsOfKind.POSITION, ledger_id=int(ledger), entry_id=int(entry))
    return AsOf()


def _milliseconds(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"option asOfTimestamp is {text!r}: write milliseconds since 1970, or a time like 2026-11-22T02:20:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)


def find_range(
    look: AsOfReader, log: str, as_of: AsOf, manifests: Sequence[SnapshotManifest], *, from_oldest: bool = False
) -> LogRange:
    """Return what has to be read for a point of the past.

    Args:
        look: At the log.
        log: Its name.
        as_of: The point.
        manifests: Snapshots that there are.
        from_oldest: Begin as early as can be, at the log's first record or the oldest snapshot of use, and not with
            the newest: to prove as much as can be proved.

    Raises:
        MissingLogError: The log does not reach back so far, and no snapshot fills the gap.
        LogError: The log does not reach so far.
        ForkedLogError: The snapshots that would be of use are of another history.

    """
    view = look.look()
    mine = sorted((m for m in manifests if m.log_id == look.log_id.hex() and not m.contradiction), key=_revision)
    revision, last = _target(look, view, as_of, mine)
    usable = [m for m in mine if m.revision <= revision]
    if not from_oldest:
        usable.reverse()
    if view.first_revision == 1 and from_oldest:
        usable = []
    forked: list[str] = []
    for base in usable:
        if base.revision == revision and not from_oldest and not _holds(view, base):
            return _log_range(look, view, log, base, (-1, -1), (-1, -1), revision)
        first = _after(view, base)
        if first is None:
            continue
        if first != _end(view) and _named_by(look, first) != base.prefix_hash:
            forked.append(f"that of revision {base.revision} is not what ledger {first[0]} entry {first[1]} continues")
            continue
        reads = base.revision < revision or from_oldest
        is_ahead = (view.index_of(first[0]), first[1]) <= (view.index_of(last[0]), last[1])
        return _log_range(look, view, log, base, first, last if reads and is_ahead else (-1, -1), revision)
    if view.first_revision == 1 or revision == 0:
        first = (view.spans[0].ledger_id, 0) if view.spans else (-1, -1)
        return _log_range(look, view, log, None, first, last if revision else (-1, -1), revision)
    if forked:
        raise ForkedLogError(f"log {log}: its snapshots are of another history: {'; '.join(forked)}")
    raise _missing(log, view, revision, mine)


def _revision(manifest: SnapshotManifest) -> int:
    return manifest.revision


def _missing(log: str, view: LogView, revision: int, mine: Sequence[SnapshotManifest]) -> MissingLogError:
    there = ", ".join(str(m.revision) for m in mine) or "none"
    return MissingLogError(
        f"log {log}: records 1 to {view.first_revision - 1} have been trimmed, and no snapshot of the lake reaches the "
        f"state of revision {revision} (snapshots of this log: {there}): name the lake that holds one of revision "
        f"{view.first_revision - 1} or later, up to {revision}",
        first_revision=1,
        last_revision=view.first_revision - 1,
    )


def _holds(view: LogView, base: SnapshotManifest) -> bool:
    return base.entry_id < 0 or view.index_of(base.ledger_id) >= 0


def _end(view: LogView) -> tuple[int, int]:
    """Return where the next entry will be, after the last one that may be read."""
    return view.end.ledger_id, view.end.entry_id


def _after(view: LogView, base: SnapshotManifest) -> tuple[int, int] | None:
    """Return the entry after a snapshot; None if the log does not hold it (any more)."""
    if base.entry_id < 0:
        return (view.spans[0].ledger_id, 0) if view.first_revision == 1 and view.spans else None
    index = view.index_of(base.ledger_id)
    if index < 0:
        return (view.spans[0].ledger_id, 0) if view.spans and view.first_revision == base.revision + 1 else None
    entry_id, ledger_id = base.entry_id + 1, view.spans[index].ledger_id
    if entry_id <= view.spans[index].last_entry_id:
        return ledger_id, entry_id
    following = [span for span in view.spans[index + 1 :] if span.last_entry_id >= 0]
    if following:
        return following[0].ledger_id, 0
    return _end(view) if _end(view) == (ledger_id, entry_id) else None


def _named_by(look: AsOfReader, place: tuple[int, int]) -> str:
    return decode_envelope(look.payload_at(*place)).prefix_hash.hex()


def _target(
    look: AsOfReader, view: LogView, as_of: AsOf, mine: Sequence[SnapshotManifest]
) -> tuple[int, tuple[int, int]]:
    """Return the last revision of the state that is asked for, and the last entry to read for it."""
    newest, end = view.end.revision - 1, (view.end.ledger_id, view.end.entry_id - 1)
    if as_of.kind == AsOfKind.NEWEST:
        return newest, end
    if as_of.kind == AsOfKind.POSITION:
        index = view.index_of(as_of.ledger_id)
        kept = next((m for m in mine if (m.ledger_id, m.entry_id) == (as_of.ledger_id, as_of.entry_id)), None)
        if index < 0 and kept is not None:
            return kept.revision, (-1, -1)
        if index < 0 or as_of.entry_id > view.spans[index].last_entry_id:
            ids = ", ".join(f"{span.ledger_id}:0 to {span.ledger_id}:{span.last_entry_id}" for span in view.spans)
            raise LogError(
                f"log {view.log}: it has no entry {as_of.ledger_id}:{as_of.entry_id} that can be read; there are "
                f"{ids or 'none'}"
            )
        place = (view.spans[index].ledger_id, as_of.entry_id)
        return look.head_at(*place).last_revision, place
    revision = as_of.revision if as_of.kind == AsOfKind.REVISION else _at_time(look, view, as_of.timestamp_ms, mine)
    if revision < 0:
        raise LogError(f"log {view.log}: there is no record {revision}: revisions are 1, 2, 3, …; 0 is the empty state")
    if revision > newest:
        raise LogError(f"log {view.log}: there is no record {revision} yet: it ends with {newest}")
    if revision == newest:
        return newest, end
    if revision < view.first_revision:
        return revision, (-1, -1)
    found = locate_revision(view, revision, lambda ledger, entry: look.head_at(ledger, entry).last_revision)
    return revision, (found.ledger_id, found.entry_id)


def _at_time(look: AsOfReader, view: LogView, timestamp_ms: int, mine: Sequence[SnapshotManifest]) -> int:
    """Return the last revision that was logged at or before a time; logged times never decrease along a log."""
    spans = [span for span in view.spans if span.last_entry_id >= 0]
    if not spans:
        return view.end.revision - 1

    def is_late(index: int, entry_id: int) -> bool:
        return look.head_at(spans[index].ledger_id, entry_id).logged_ms > timestamp_ms

    late = _first(len(spans), lambda index: is_late(index, spans[index].last_entry_id))
    if late == len(spans):
        return view.end.revision - 1
    entry_id = _first(spans[late].last_entry_id + 1, lambda entry: is_late(late, entry))
    if entry_id:
        return look.head_at(spans[late].ledger_id, entry_id - 1).last_revision
    if late or view.first_revision == 1:
        return spans[late].first_revision - 1
    known = [m for m in mine if m.logged_ms <= timestamp_ms and m.revision == view.first_revision - 1]
    if known:
        return known[0].revision
    begin_ms = look.head_at(spans[0].ledger_id, 0).logged_ms
    raise MissingLogError(
        f"log {view.log}: the records of time {timestamp_ms} are gone: those that are left were logged from {begin_ms} "
        "on (milliseconds since 1970); ask for a later time, or for the revision of a snapshot",
        first_revision=1,
        last_revision=view.first_revision - 1,
    )


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """Return the first index below `count` for which something holds that holds for all after it; `count` = none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _log_range(
    look: AsOfReader,
    view: LogView,
    log: str,
    base: SnapshotManifest | None,
    first: tuple[int, int],
    last: tuple[int, int],
    revision: int,
) -> LogRange:
    descriptions = {span.ledger_id: look.description_at(view, span.ledger_id) for span in view.spans}
    known = {ledger_id: one for ledger_id, one in descriptions.items() if one is not None}
    if base is not None:
        # What the log has trimmed of its machine's descriptions, the snapshot says.
        known = {ledger_id: descriptions[ledger_id] or base.machine for ledger_id in descriptions}
    machine = known.get(last[0]) or (base.machine if base is not None else next(iter(known.values()), None))
    if machine is None:
        raise CorruptLogError(f"log {log}: nothing describes its machine: nobody has led it yet, or it is damaged")
    return LogRange(
        log,
        look.log_id,
        look.ancestry,
        base,
        tuple(span.ledger_id for span in view.spans),
        first,
        last,
        1 if base is None else base.revision + 1,
        revision,
        root_hash(look.ancestry.root) if base is None else bytes.fromhex(base.prefix_hash),
        machine,
        known,
        _payload_bytes(look, view, first, last),
    )


def _payload_bytes(look: AsOfReader, view: LogView, first: tuple[int, int], last: tuple[int, int]) -> int:
    if last[0] < 0:
        return 0
    begin, end = view.index_of(first[0]), view.index_of(last[0])
    total = sum(span.length for span in view.spans[begin:end]) + look.head_at(*last).length
    return total - (look.head_at(first[0], first[1] - 1).length if first[1] else 0)
