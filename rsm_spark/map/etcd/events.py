"""Events of an entry of the log, as watches tell them: all of one command have its mod revision. Pure.

In what versions of the map before 4 have written each change has the revision of its own record, as its row has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rsm_spark.core.records import Record, pack
from rsm_spark.map.etcd.view import KeyShown
from rsm_spark.map.key_history import KeyHistory, OldKey
from rsm_spark.map.records import DELETED, EXPIRED, EXPIRY_CLEARED, EXPIRY_SET, PUT, said_revision
from rsm_spark.map.rows import MapEntry, entry_of
from rsm_spark.runtime.change_feed import FeedEntry

_KEPT_ENTRIES = 64


class KeyEvent(NamedTuple):
    """A key was written or removed.

    Attributes:
        key: The key.
        entry: Its row; None = it is gone.
        lease: Of a key that was written; 0 = none.
        revision: The key's mod revision.

    """

    key: bytes
    entry: MapEntry | None
    lease: int
    revision: int


KeyBefore = Callable[[int, bytes], OldKey | None]
"""Returns what a key held before the command of a mod revision; None = it is not known. See `KeyHistory.before`."""


def events_of(entry: FeedEntry, before: KeyBefore) -> list[KeyEvent]:
    """Return the events of an entry, in order.

    Args:
        entry: Of the log.
        before: Knows the lease of keys that kept it.

    Raises:
        CorruptLogError: It holds no records of the map.

    """
    return [event for command in commands_of(entry) for event in events_of_command(command, before)]


def commands_of(entry: FeedEntry) -> list[list[tuple[int, Record]]]:
    """Return the records of an entry with their revisions, in a list for each command; what is of none is alone.

    Raises:
        CorruptLogError: It holds no records.

    """
    found: list[list[tuple[int, Record]]] = []
    last = 0  # Revision of the last record of the present command.
    for revision, record in enumerate(entry.records(), entry.first_revision):
        if record.command is not None:
            last = revision + record.command.record_count - 1
            found.append([])
        elif revision > last:
            found.append([])
        found[-1].append((revision, record))
    return found


def events_of_command(records: Sequence[tuple[int, Record]], before: KeyBefore) -> list[KeyEvent]:
    """Return the events of one command, in order; see `events_of`."""
    events: list[KeyEvent] = []
    places: dict[bytes, int] = {}  # Where the event of a key stands that has no lease yet.
    for revision, record in records:
        if record.type == PUT:
            key, *columns = record.fields
            written = entry_of(pack(columns), revision)
            places[key] = len(events)
            events.append(KeyEvent(key, written, 0, written.mod_revision))
        elif record.type in {DELETED, EXPIRED}:
            key = record.fields[0]
            places.pop(key, None)
            events.append(KeyEvent(key, None, 0, said_revision(record.type, record.fields) or revision))
        elif record.type == EXPIRY_SET:
            key, lease, _, _ = record.fields
            if key in places:
                place = places.pop(key)
                events[place] = events[place]._replace(lease=lease)
        elif record.type == EXPIRY_CLEARED:
            places.pop(record.fields[0], None)
    for place in places.values():  # Of which it says nothing else: they keep the lease that they had.
        event = events[place]
        if event.entry is not None and event.entry.version > 1:
            old = before(event.revision, event.key)
            if old is not None and old.lease:
                events[place] = event._replace(lease=old.lease)
    return events


class EventCache:
    """Events of the last entries, for all watches of a replica: each entry is looked through once.

    Args:
        history: Returns the machine's.

    """

    def __init__(self, history: Callable[[], KeyHistory]) -> None:
        self._history = history
        self._kept: OrderedDict[int, list[KeyEvent]] = OrderedDict()

    def of(self, entry: FeedEntry) -> list[KeyEvent]:
        """Return the events of an entry; see `events_of`."""
        found = self._kept.get(entry.first_revision)
        if found is None:
            found = self._kept[entry.first_revision] = events_of(entry, self._history().before)
            if len(self._kept) > _KEPT_ENTRIES:
                self._kept.popitem(last=False)
        return found

    def shown(self, event: KeyEvent) -> KeyShown | None:
        """Return a key as an event leaves it; None = it is gone."""
        return None if event.entry is None else KeyShown(event.key, event.entry, event.lease)

    def remembers(self, event: KeyEvent) -> bool:
        """Return whether the history knows what was before an event."""
        floor = self._history().floor
        return floor is not None and floor < event.revision

    def before(self, event: KeyEvent) -> KeyShown | None:
        """Return a key as it was before an event; None = it did not exist, or that is forgotten."""
        return shown_before(event, self._history().before)


def shown_before(event: KeyEvent, before: KeyBefore) -> KeyShown | None:
    """Return a key as it was before an event; None = it did not exist, or that is not known."""
    old = before(event.revision, event.key)
    return None if old is None or old.entry is None else KeyShown(event.key, old.entry, old.lease)
