"""A look at all files of a bookie that does not run: what is damaged, where, and what that means. It changes nothing.

It judges as a start does, with the readers of a start: journal files against the landmarks, segments block by block,
the index against the segments. Beyond that it compares each entry with the place that it lies at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ledger.errors import CorruptStorageError
from ledger.storage.disk import Disk
from ledger.storage.flush import JournalFile
from ledger.storage.index import BlockRow, CorruptIndexError, Index, LedgerRow, SegmentRow, merge_ledger_rows
from ledger.storage.journal_format import parse_file_name, sealed_file_name
from ledger.storage.landmarks import FILE_NAME as LANDMARKS_FILE_NAME
from ledger.storage.landmarks import Landmarks
from ledger.storage.limbo import load_limbo
from ledger.storage.records import entry_place
from ledger.storage.recovery import DOUBT_FILE_NAME, known_of_journal, largest_journal_bytes, missing_journals
from ledger.storage.segment_format import Block, segment_file_name
from ledger.storage.segments import Converted, Segments
from ledger.storage.unreadable import is_unreadable

_PAGE = 1000
_FETCHED = (
    "what it held lies on other bookies; the next start puts the bookie in limbo, and it fetches that by itself: keep "
    "the others up"
)
_FETCHED_LATER = (
    "other bookies hold these entries; this one answers EIO for them, and copies them, when they are asked for. To have"
    " all of them copied: `rsm bookie rebuild-index`, then start it; it begins in limbo"
)
_REBUILT = "nothing is lost: run `rsm bookie rebuild-index`, then start the bookie"
_NOT_TOLD = "what else is missing cannot be told; the next start puts the bookie in limbo: keep the other bookies up"


class StorageDamage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is damaged.

    Attributes:
        kind: journal, segment, index or landmarks.
        path: The file.
        what: What was seen.
        meaning: What follows from it, and what makes it good.
        byte_offset: Where it begins, if that is known.
        byte_end: Where it ends, exclusive, if that is known.
        ledger_id: The ledger, if one is concerned.
        first_entry_id: First entry concerned.
        last_entry_id: Last entry concerned, inclusive.

    """

    kind: str
    path: str
    what: str
    meaning: str
    byte_offset: int | None = None
    byte_end: int | None = None
    ledger_id: int | None = None
    first_entry_id: int | None = None
    last_entry_id: int | None = None


class StorageReport(msgspec.Struct):
    """Result of a look.

    Attributes:
        journal_file_count: Journal files read; free ones hold nothing.
        journal_record_count: Entries in them, and records about ledgers.
        segment_count: Segments read.
        block_count: Sound blocks in them.
        segment_record_count: Entries in these, and records about ledgers.
        indexed_block_count: Blocks that the index points to.
        damages: What is damaged.
        notes: What is worth knowing and no damage.

    """

    journal_file_count: int = 0
    journal_record_count: int = 0
    segment_count: int = 0
    block_count: int = 0
    segment_record_count: int = 0
    indexed_block_count: int = 0
    damages: list[StorageDamage] = []
    notes: list[str] = []


def check_storage(
    disk: Disk,
    journal_folder: str,
    folders: Sequence[str],
    open_index: Callable[[], Index | None],
    on_file: Callable[[str, int, int], None],
) -> StorageReport:
    """Read all files of a bookie that does not run.

    Args:
        disk: The disk; nothing is written to it.
        journal_folder: Where journal files are.
        folders: Where segments are; landmarks and limbo lie in the first.
        open_index: Opens the index to be looked at; None if there is none.
        on_file: Called with (path, number from 0, number of files) before each file is read.

    Raises:
        OSError: A folder or file cannot be read, for another reason than that its bytes are gone.

    """
    return _StorageCheck(disk, journal_folder, folders, on_file).run(open_index)


class _StorageCheck:
    def __init__(
        self, disk: Disk, journal_folder: str, folders: Sequence[str], on_file: Callable[[str, int, int], None]
    ) -> None:
        self._disk = disk
        self._journal_folder = journal_folder
        self._folders = folders
        self._on_file = on_file
        self._segments = Segments(disk, folders)
        self._segments.open(is_looking=True)
        self._landmarks = Landmarks(disk, folders[0])
        self._report = StorageReport()

    def run(self, open_index: Callable[[], Index | None]) -> StorageReport:
        journal_ids = self._journal_ids()
        file_count = len(journal_ids) + len(self._segments.segment_ids())
        self._check_landmarks(journal_ids)
        for number, journal_id in enumerate(journal_ids):
            self._on_file(self._journal_path(journal_id), number, file_count)
            self._check_journal(journal_id, journal_ids)
        index = self._opened(open_index)
        try:
            check = _IndexCheck(index, self._segments, self._report)
            for number, segment_id in enumerate(self._segments.segment_ids(), len(journal_ids)):
                self._on_file(self._segments.path(segment_id), number, file_count)
                check.compare(self._check_segment(segment_id))
            check.end()
        finally:
            if index is not None:
                index.close()
        return self._report

    def _journal_path(self, journal_id: int) -> str:
        return f"{self._journal_folder}/{sealed_file_name(journal_id)}"

    def _journal_ids(self) -> list[int]:
        names = self._disk.list_dir(self._journal_folder)
        self._report.notes.extend(
            f"{self._journal_folder}/{name}: the device could not read a part of it at a start; kept as evidence"
            for name in names
            if name.endswith(".unreadable")
        )
        return sorted(i for i in map(parse_file_name, names) if i is not None)

    # -- journal -------------------------------------------------------------------------------------------

    def _check_landmarks(self, journal_ids: list[int]) -> None:
        report, landmarks = self._report, self._landmarks
        path = f"{self._folders[0]}/{LANDMARKS_FILE_NAME}"
        if landmarks.damage:
            report.damages.append(StorageDamage(kind="landmarks", path=path, what=landmarks.damage, meaning=_NOT_TOLD))
        lost_count = landmarks.held.lost_segment_count(self._segments.segment_ids())
        if lost_count:
            what = f"{lost_count} segments that the landmarks know are gone"
            report.damages.append(StorageDamage(kind="segment", path=self._folders[0], what=what, meaning=_FETCHED))
        report.damages.extend(
            StorageDamage(kind="journal", path=self._journal_path(i), what="the file is gone", meaning=_FETCHED)
            for i in missing_journals(landmarks.held, journal_ids, self._segments)
        )
        limbo = load_limbo(self._disk, self._folders[0])
        report.notes.extend(f"the bookie is in limbo already: {reason}" for reason in limbo.reasons)
        if self._disk.exists(f"{self._folders[0]}/{DOUBT_FILE_NAME}"):
            report.notes.append("the next start rebuilds the index from the segments")

    def _check_journal(self, journal_id: int, journal_ids: list[int]) -> None:
        report, path = self._report, self._journal_path(journal_id)
        known = known_of_journal(self._landmarks.held, journal_ids, journal_id)
        named_bytes = self._landmarks.held.journal_file_bytes
        file_bytes = named_bytes or largest_journal_bytes(self._disk, self._journal_folder)
        report.journal_file_count += 1
        try:
            file = JournalFile(self._disk, path, journal_id, **known, file_bytes=file_bytes)
        except OSError as error:
            if not is_unreadable(error):
                raise
            what = f"it cannot be opened: {error}"
            report.damages.append(StorageDamage(kind="journal", path=path, what=what, meaning=_FETCHED))
            return
        try:
            report.journal_record_count += sum(1 for _ in file.records())
            ranges = [(place, "were synced once and are damaged") for place in file.scan.lost]
            ranges += [(place, "cannot be read by the device") for place in file.unreadable]
        finally:
            file.close()
        if ranges and journal_id in self._segments.segment_ids():
            report.notes.append(f"{path} is damaged, but was made a segment before: nothing of it is needed")
            return
        report.damages.extend(
            StorageDamage(
                kind="journal",
                path=path,
                what=f"bytes {start}-{end} {words}",
                meaning=_FETCHED,
                byte_offset=start,
                byte_end=end,
            )
            for (start, end), words in ranges
        )

    # -- segments ------------------------------------------------------------------------------------------

    def _check_segment(self, segment_id: int) -> Converted:
        """Read a whole segment; what is damaged is reported, what is sound is returned."""
        report, path = self._report, self._segments.path(segment_id)
        sizes: dict[int, int] = {}

        def look(offset: int, block: Block) -> None:
            header = block.header
            sizes[header.ledger_id] = sizes.get(header.ledger_id, 0) + header.byte_count
            report.block_count += 1
            report.segment_record_count += header.entry_count
            for entry_id, content in block.entries():
                place = entry_place(content)
                if place != (header.ledger_id, entry_id):
                    found = "too short for an entry" if place is None else f"entry {place[1]} of ledger {place[0]}"
                    report.damages.append(
                        StorageDamage(
                            kind="segment",
                            path=path,
                            what=f"{found} lies where entry {entry_id} of ledger {header.ledger_id} should be",
                            meaning=_FETCHED_LATER,
                            byte_offset=offset,
                            byte_end=offset + header.byte_count,
                            ledger_id=header.ledger_id,
                            first_entry_id=entry_id,
                            last_entry_id=entry_id,
                        )
                    )

        converted = self._segments.rows(segment_id, look=look)
        report.segment_count += 1
        damages = list(converted.damages)
        if not damages:
            damages = self._footer_damages(segment_id, sizes)
        report.damages.extend(
            StorageDamage(kind="segment", path=path, what=what, meaning=_FETCHED_LATER) for what in damages
        )
        return converted

    def _footer_damages(self, segment_id: int, sizes: dict[int, int]) -> list[str]:
        """Compare the footer of a segment whose blocks are all sound with them."""
        try:
            footer = self._segments.footer(segment_id)
        except (CorruptStorageError, OSError) as error:
            if isinstance(error, OSError) and not is_unreadable(error):
                raise
            return [str(error)]
        same = footer.ledger_bytes == sizes
        return [] if same else [f"{segment_file_name(segment_id)}: the footer does not say what the blocks are"]

    # -- index ---------------------------------------------------------------------------------------------

    def _opened(self, open_index: Callable[[], Index | None]) -> Index | None:
        try:
            index = open_index()
        except CorruptIndexError as error:
            self._report.damages.append(_index_damage(str(error)))
            return None
        if index is None:
            self._report.notes.append("there is no index: the next start makes it from the segments")
        return index


def _index_damage(what: str, **where: int) -> StorageDamage:
    return StorageDamage(kind="index", path="index", what=what, meaning=_REBUILT, **where)


class _IndexCheck:
    """Compares the index with each segment in turn; an index that is damaged is compared no further."""

    def __init__(self, index: Index | None, segments: Segments, report: StorageReport) -> None:
        self._index = index
        self._segments = segments
        self._report = report
        self._rows: dict[int, SegmentRow] = {}
        self._suspects: dict[int, dict[BlockRow, None]] = {}  # segment -> its rows that are right
        self._told: dict[str, None] = {}  # What was said of a block before it was known which entries it held.
        if index is not None:
            self._guard(lambda: self._rows.update({row.segment_id: row for row in index.segments()}))

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except CorruptIndexError as error:
            self._report.damages.append(_index_damage(str(error)))
            self._index = None

    def compare(self, converted: Converted) -> None:
        """Compare what a segment holds with what the index says of it."""
        index = self._index
        if index is not None:
            self._guard(lambda: self._compare(index, converted))

    def _compare(self, index: Index, converted: Converted) -> None:
        row = self._rows.get(converted.segment_id)
        name = segment_file_name(converted.segment_id)
        if row is None or row.is_retired:
            words = "is not in the index yet: the next start adds it" if row is None else "is no longer needed"
            self._report.notes.append(f"{name} {words}")
            return
        living = {ledger.ledger_id for ledger in converted.ledgers if self._is_known(index, ledger, name)}
        pointed: list[BlockRow] = []
        for block in converted.blocks:
            if index.holds(block):
                pointed.append(block)
            elif block.ledger_id in living:
                what = f"it does not point to a sound block of {name} at byte {block.byte_offset}: {_entries(block)}"
                self._report.damages.append(_index_damage(what, **_place(block)))
        self._report.indexed_block_count += len(pointed)
        if sum(block.byte_count for block in pointed) != row.live_byte_count:
            self._suspects[converted.segment_id] = dict.fromkeys(pointed)

    def _is_known(self, index: Index, ledger: LedgerRow, name: str) -> bool:
        """Report a ledger of which the index knows less than a segment; return whether it is there and not deleted."""
        held = index.ledger(ledger.ledger_id)
        if held is None or held.deleted_at_ms:
            return False
        if merge_ledger_rows(held, ledger) != held:
            what = f"it knows less of ledger {ledger.ledger_id} than {name}: its key, fence or last entry"
            self._report.damages.append(_index_damage(what, ledger_id=ledger.ledger_id))
        return True

    def end(self) -> None:
        """Name what the index points to and no segment has."""
        index = self._index
        if index is not None:
            self._guard(lambda: self._find_wrong_rows(index))

    def _find_wrong_rows(self, index: Index) -> None:
        on_disk = self._segments.segment_ids()
        gone = [i for i, row in self._rows.items() if not row.is_retired and i not in on_disk]
        for segment_id in gone:
            self._report.damages.append(
                StorageDamage(
                    kind="segment",
                    path=self._segments.path(segment_id),
                    what="the index knows this segment, and it is gone",
                    meaning=_FETCHED,
                )
            )
        suspects = {**self._suspects, **{segment_id: {} for segment_id in gone}}
        first = 0
        while suspects and (ledger_ids := index.ledger_ids(first, _PAGE)):
            for ledger_id in ledger_ids:
                for row in index.blocks(ledger_id):
                    if row.segment_id in suspects and row not in suspects[row.segment_id]:
                        self._report_wrong(row)
            first = ledger_ids[-1] + 1
        damages = self._report.damages
        damages[:] = [found for found in damages if found.ledger_id is not None or found.what not in self._told]

    def _report_wrong(self, row: BlockRow) -> None:
        path = self._segments.path(row.segment_id)
        try:
            self._segments.read_block(row)
        except (CorruptStorageError, OSError) as error:
            self._told[str(error)] = None
            kind, what, meaning = "segment", f"{_entries(row)} cannot be read here: {error}", _FETCHED_LATER
        else:
            kind, meaning = "index", _REBUILT
            what = f"the index says other entries of a block than it has: {_entries(row)}"
        self._report.indexed_block_count += 1
        self._report.damages.append(StorageDamage(kind=kind, path=path, what=what, meaning=meaning, **_place(row)))


def _entries(row: BlockRow) -> str:
    return f"ledger {row.ledger_id}, entries {row.first_entry_id}-{row.last_entry_id}"


def _place(row: BlockRow) -> dict[str, int]:
    return {
        "byte_offset": row.byte_offset,
        "byte_end": row.byte_offset + row.byte_count,
        "ledger_id": row.ledger_id,
        "first_entry_id": row.first_entry_id,
        "last_entry_id": row.last_entry_id,
    }
