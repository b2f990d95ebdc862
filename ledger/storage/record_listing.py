"""The records of one journal file or segment, one by one, for people who look into it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator

import msgspec

from ledger.errors import UsageError
from ledger.storage.disk import Disk
from ledger.storage.flush import JournalFile
from ledger.storage.records import RecordId, entry_place
from ledger.storage.segment_format import Block, parse_file_name
from ledger.storage.segments import Segments

_JOURNAL_SUFFIXES = ("j", "free", "unreadable")
_RECORD_NAMES = {int(record_id): record_id.name.lower() for record_id in RecordId}


class StoredRecord(msgspec.Struct, frozen=True):
    """One record as it lies in a file.

    Attributes:
        byte_offset: Of its content in a journal file; of its block in a segment.
        byte_count: Of its content.
        ledger_id: The ledger that the file says it is of.
        entry_id: The entry; a record about the ledger has a negative number.
        kind: entry, or which record about the ledger: key, fence, explicit_lac, deleted.
        is_in_place: Whether the content names the same ledger and entry; False says that it was written wrong.
        content: The bytes; valid until the next one is told.

    """

    byte_offset: int
    byte_count: int
    ledger_id: int
    entry_id: int
    kind: str
    is_in_place: bool
    content: memoryview


class DamagedPlace(msgspec.Struct, frozen=True):
    """A place in a file whose checksum is wrong, or that the device cannot read: what it held is not known.

    Attributes:
        what: What was seen.
        byte_offset: Where it begins, if that is known.
        byte_end: Where it ends, exclusive, if that is known.

    """

    what: str
    byte_offset: int | None = None
    byte_end: int | None = None


def list_journal(disk: Disk, path: str) -> Iterator[StoredRecord | DamagedPlace]:
    """Yield what a journal file holds, in the order of writing, then the places that are damaged.

    Raises:
        UsageError: The name is not that of a journal file.
        OSError: It cannot be opened.

    """
    stem, _, suffix = posixpath.basename(path).partition(".")
    try:
        journal_id = int(stem, 16) if len(stem) == 16 and suffix in _JOURNAL_SUFFIXES else -1
    except ValueError:
        journal_id = -1
    if journal_id < 0:
        raise UsageError(f"{path}: a journal file is called <16 hexadecimal digits>.j, and the digits are its id")
    file = JournalFile(disk, path, journal_id, has_successor=False)
    try:
        for ledger_id, entry_id, offset, content in file.records():
            kind = _RECORD_NAMES.get(entry_id, "entry")
            yield StoredRecord(offset, len(content), ledger_id, entry_id, kind, True, content)  # noqa: FBT003
        for start, end in file.scan.lost:
            yield DamagedPlace("checksum wrong, and sound batches lie behind it", start, end)
        for start, end in file.unreadable:
            yield DamagedPlace("the device cannot read it", start, end)
        if not file.scan.batches and not file.scan.end_offset:
            yield DamagedPlace(f"no sound batch of journal {journal_id:016x} is in this file: it is unused, or foreign")
    finally:
        file.close()


def list_segment(disk: Disk, path: str, tell: Callable[[StoredRecord], None]) -> list[DamagedPlace]:
    """Tell each record of the sound blocks of a segment, in order; return what is damaged.

    Raises:
        UsageError: The name is not that of a segment.
        OSError: It cannot be opened.

    """
    folder, name = posixpath.split(path)
    segment_id = parse_file_name(name)
    if segment_id is None:
        raise UsageError(f"{path}: a segment is called <16 hexadecimal digits>.seg, and the digits are its id")
    disk.close(disk.open(path))  # A file that is not there is no damage.
    segments = Segments(disk, [folder or "."])
    segments.open(is_looking=True)

    def look(offset: int, block: Block) -> None:
        ledger_id = block.header.ledger_id
        for entry_id, content in block.entries():
            kind = _RECORD_NAMES.get(entry_id, "entry")
            is_in_place = entry_place(content) == (ledger_id, entry_id)
            tell(StoredRecord(offset, len(content), ledger_id, entry_id, kind, is_in_place, content))

    return [DamagedPlace(what) for what in segments.rows(segment_id, look=look).damages]
