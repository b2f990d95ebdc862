"""History of the map's keys: what they held before the last changes, so that it is shown as it was while it changes.

    notes      one a change: which key, and what it held before                       ascending by mod revision
    overlay    of a revision: what each key held then that has changed since          all others are as they are now

Half of the notes is forgotten at once when they hold too much. Whoever asks for the same revision again, for the next
page of a list, has its overlay carried on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import NamedTuple

from rsm_spark.map.rows import MapEntry

HISTORY_BYTES = 64 * 1024 * 1024
_NOTE_BYTES = 200
"""Memory of a note beside the bytes of row and key, about."""
_OVERLAYS_MAX = 8


class OldKey(NamedTuple):
    """A key before a change: its row, None = there was none; and its lease, 0 = none."""

    entry: MapEntry | None
    lease: int


class _Notes:
    """Notes in order: their revisions, and of each the key and what it held."""

    __slots__ = ("notes", "revisions")

    def __init__(self) -> None:
        self.revisions: list[int] = []
        self.notes: list[tuple[bytes, OldKey]] = []


class _Overlay:
    """Keys as they were at a revision, as far as changes up to `up_to` are noted in it."""

    __slots__ = ("olds", "up_to")

    def __init__(self, revision: int) -> None:
        self.up_to = revision
        self.olds: dict[bytes, OldKey] = {}


class KeyHistory:
    """See the module.

    Args:
        bytes_max: Notes of about so many bytes are kept.

    Attributes:
        floor: The map can be shown at this revision and from it on; None = not known yet.

    """

    def __init__(self, bytes_max: int = HISTORY_BYTES) -> None:
        self._half_max = bytes_max // 2
        self.clear()

    def clear(self) -> None:
        """Begin anew: the map is another one now."""
        self.floor: int | None = None
        self._early = _Notes()
        self._late = _Notes()
        self._room = self._half_max
        self._overlays: OrderedDict[int, _Overlay] = OrderedDict()

    def begin(self, revision: int) -> None:
        """Say that nothing has been missed since this revision."""
        if self.floor is None:
            self.floor = revision

    def note(self, revision: int, key: bytes, entry: MapEntry | None, lease: int) -> None:
        """Note what a change replaces or removes.

        Args:
            revision: Mod revision of its command: between those of two commands the map is as after the first.
            key: That is changed.
            entry: What it holds; None = it does not exist.
            lease: That it is attached to; 0 = none.

        """
        if self.floor is None:
            self.floor = revision - 1
        late = self._late
        late.revisions.append(revision)
        late.notes.append((key, OldKey(entry, lease)))
        self._room -= len(key) + _NOTE_BYTES + (0 if entry is None else len(entry.row))
        if self._room < 0:
            if self._early.revisions:
                self._raise(self._early.revisions[-1])
            self._early, self._late, self._room = late, _Notes(), self._half_max

    def _raise(self, floor: int) -> None:
        self.floor = floor
        for revision in [one for one in self._overlays if one < floor]:
            del self._overlays[revision]

    def before(self, revision: int, key: bytes) -> OldKey | None:
        """Return what a key held before the command of a mod revision; None = it was not changed, or is forgotten."""
        for notes in (self._early, self._late):
            for at in range(bisect_left(notes.revisions, revision), len(notes.revisions)):
                if notes.revisions[at] != revision:
                    break
                if notes.notes[at][0] == key:
                    return notes.notes[at][1]
        return None

    def overlay(self, revision: int, *, again: bool = False) -> dict[bytes, OldKey]:
        """Return what keys held at a revision that have changed since; not to be changed, nor kept over a change.

        Args:
            revision: At or above `floor`.
            again: It will be asked for more often.

        """
        assert self.floor is not None, "nothing is remembered yet"
        assert revision >= self.floor, "it is forgotten"
        last = self._last
        if last <= revision:
            return {}
        overlay = self._overlays.get(revision)
        if overlay is None:
            overlay = _Overlay(revision)
            if again:
                self._overlays[revision] = overlay
                if len(self._overlays) > _OVERLAYS_MAX:
                    self._overlays.popitem(last=False)
        elif again:
            self._overlays.move_to_end(revision)
        olds = overlay.olds
        for notes in (self._early, self._late):
            for key, old in notes.notes[bisect_right(notes.revisions, overlay.up_to) :]:
                if key not in olds:
                    olds[key] = old
        overlay.up_to = last
        return olds

    @property
    def _last(self) -> int:
        """Revision of the last note; 0 = there is none."""
        revisions = self._late.revisions or self._early.revisions
        return revisions[-1] if revisions else 0
