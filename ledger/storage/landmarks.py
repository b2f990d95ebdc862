"""Landmarks of the disks, kept outside of the journal and of the segments: what the next start must find.

A journal file that was cut short, emptied, deleted or zeroed behind its last valid batch looks like one that never held
more: nothing in it can tell. So a small file in another folder names the journal files in use, their size, how far the
newest was synced, which segments there are (count and checksum of their ids), and the *age* of the disks, a counter
that the metadata hold too (`ledger.bookie.disk_age`). What the disks show less of than their landmarks was lost.

The file has two slots, written in turn and synced, so that a torn write leaves the other one::

    slot (32 KiB)  magic, CRC32C of all that follows, length (u32), msgpack of `Landmark`

A landmark is set before what depends on it (a journal file is named before its first batch, a segment before it has its
name), and withdrawn before what it names goes (a journal file before it becomes free, a segment before it is unlinked).
So after a crash at any point the disks show at least what the landmarks say.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Sequence

import crc32c
import msgspec

from ledger.decoding import msgpack_decoder
from ledger.storage.disk import Disk, read_file, write_atomically
from ledger.storage.unreadable import is_unreadable

FILE_NAME = "landmarks"
_SLOT_BYTES = 32 << 10
_MAGIC = b"RSL1"
_HEAD_BYTES = 12
_IDS_MAX = 1000
"""Ids in each list, so that all fit a slot; of journal files the newest are kept. A change of segments is much less."""


class Age(msgspec.Struct, frozen=True, array_like=True):
    """Number of times that the disks were made older, and the process of the last time; (0, "") before the first."""

    count: int = 0
    by: str = ""


class Landmark(msgspec.Struct, frozen=True, array_like=True):
    """Content of one slot.

    Attributes:
        number: Of the write; the slot with the higher one counts.
        age: Of the disks.
        journal_file_bytes: Size of every journal file; 0 if it is not known.
        journal_ids: Journal files in use, ascending.
        synced_journal_id: The file that `synced_to` is about.
        synced_to: All of that file before this byte offset was synced, and was not empty space.
        segment_count: Segments before the change that is under way; -1 if it is not known.
        segment_checksum: Of their ids.
        coming_ids: Segments that may be there in addition.
        going_ids: Segments that may be gone already.

    """

    number: int = 0
    age: Age = Age()
    journal_file_bytes: int = 0
    journal_ids: tuple[int, ...] = ()
    synced_journal_id: int = 0
    synced_to: int = 0
    segment_count: int = -1
    segment_checksum: int = 0
    coming_ids: tuple[int, ...] = ()
    going_ids: tuple[int, ...] = ()

    def lost_segment_count(self, segment_ids: Iterable[int]) -> int:
        """Return how many segments are missing among those on disk; 0 if all are there, or nothing is known."""
        if self.segment_count < 0:
            return 0
        present = sorted({*(i for i in segment_ids if i not in self.coming_ids), *self.going_ids})
        # Newer ones: a version that knows no landmarks served meanwhile. The older ones are all there.
        if _checksum(present[: self.segment_count]) == self.segment_checksum:
            return 0
        return max(1, self.segment_count - len(present))


class Landmarks:
    """The landmarks of one bookie's disks. Calls block and raise `OSError`; they come from several threads.

    Attributes:
        held: What counts now.
        damage: Why what the last process left cannot be read, or empty.

    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk, self._folder = disk, folder
        self._lock = threading.Lock()
        self._handle: int | None = None
        self.held = Landmark()
        self.damage = ""
        path = f"{folder}/{FILE_NAME}"
        self.is_new = not disk.exists(path)
        if not self.is_new:
            content = _content(disk, path)
            found = [_decode(content[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES)]
            readable = [landmark for landmark in found if landmark is not None]
            if readable:
                self.held = max(readable, key=lambda landmark: landmark.number)
            else:
                self.damage = f"{path} cannot be read"

    def replace(self, **changes: object) -> None:
        """Write the whole file anew: at a start, when nothing may be assumed of what the kernel still shows."""
        with self._lock:
            self.close()
            held = msgspec.structs.replace(self.held, number=self.held.number + 1, **changes)
            slots = bytearray(2 * _SLOT_BYTES)
            encoded = _encode(held)
            start = held.number % 2 * _SLOT_BYTES
            slots[start : start + len(encoded)] = encoded
            write_atomically(self._disk, self._folder, FILE_NAME, bytes(slots))
            self.held = held
            self.damage = ""
            self.is_new = False

    def _write(self, **changes: object) -> None:
        held = msgspec.structs.replace(self.held, number=self.held.number + 1, **changes)
        if self._handle is None:
            self._handle = self._disk.open(f"{self._folder}/{FILE_NAME}")
        self._disk.pwritev(self._handle, [_encode(held)], held.number % 2 * _SLOT_BYTES)
        self._disk.fdatasync(self._handle)
        self.held = held

    def close(self) -> None:
        if self._handle is not None:
            self._disk.close(self._handle)
            self._handle = None

    # -- journal -------------------------------------------------------------------------------------------

    def open_journal(self, journal_id: int) -> None:
        """Name a journal file that has its place in the folder, and whose first batch comes next."""
        with self._lock:
            ids = sorted({*self.held.journal_ids, journal_id})[-_IDS_MAX:]
            self._write(journal_ids=tuple(ids), synced_journal_id=journal_id, synced_to=0)

    def advance(self, journal_id: int, synced_to: int) -> None:
        """Note that all before this offset of the newest journal file is synced."""
        with self._lock:
            if self.held.synced_journal_id == journal_id and self.held.synced_to < synced_to:
                self._write(synced_to=synced_to)

    def free_journal(self, journal_id: int, segment_ids: Sequence[int], coming: Sequence[int] = ()) -> None:
        """Withdraw a journal file: all that it holds is in a segment and in the index, and it is free next.

        In the same write that segment becomes one that must be found: nothing else holds these entries from here on.

        Args:
            journal_id: The file.
            segment_ids: All segments that there are now.
            coming: Segments that are being written.

        """
        with self._lock:
            changes = {
                "journal_ids": tuple(i for i in self.held.journal_ids if i != journal_id),
                "segment_count": len(segment_ids),
                "segment_checksum": _checksum(segment_ids),
                "coming_ids": tuple(coming)[:_IDS_MAX],
                "going_ids": (),
            }
            if any(getattr(self.held, name) != value for name, value in changes.items()):
                self._write(**changes)

    # -- segments ------------------------------------------------------------------------------------------

    def change_segments(
        self, segment_ids: Sequence[int], *, coming: Sequence[int] = (), going: Sequence[int] = ()
    ) -> None:
        """Note which segments come or go next; `segment_ids` are all that there are now."""
        with self._lock:
            self._write(
                segment_count=len(segment_ids),
                segment_checksum=_checksum(segment_ids),
                coming_ids=tuple(coming)[:_IDS_MAX],
                going_ids=tuple(going)[:_IDS_MAX],
            )

    # -- age -----------------------------------------------------------------------------------------------

    def raise_age(self, by: str) -> Age:
        """Make the disks older by one; return their age."""
        with self._lock:
            self._write(age=Age(self.held.age.count + 1, by))
            return self.held.age


def _content(disk: Disk, path: str) -> bytes:
    """Return the file; of one that the device cannot read, nothing: the newer slot may be what it lacks."""
    try:
        return bytes(read_file(disk, path))
    except OSError as error:
        if not is_unreadable(error):
            raise
        return b""


def _checksum(segment_ids: Iterable[int]) -> int:
    return crc32c.crc32c(array("Q", sorted(segment_ids)).tobytes())


def _encode(landmark: Landmark) -> bytes:
    content = msgspec.msgpack.encode(landmark)
    rest = len(content).to_bytes(4, "little") + content
    assert len(rest) + 8 <= _SLOT_BYTES
    return _MAGIC + crc32c.crc32c(rest).to_bytes(4, "little") + rest


def _decode(slot: bytes) -> Landmark | None:
    """Return what a slot holds; None if it was never written, or torn, or is damaged."""
    length = int.from_bytes(slot[8:_HEAD_BYTES], "little")
    rest = slot[8 : _HEAD_BYTES + length]
    if slot[:4] != _MAGIC or len(rest) != 4 + length:
        return None
    if crc32c.crc32c(rest) != int.from_bytes(slot[4:8], "little"):
        return None
    try:
        return msgpack_decoder(Landmark).decode(rest[4:])
    except msgspec.DecodeError:
        return None
