"""The segment files of one bookie, over one directory or several: where they are, what a block of one says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from ledger.core.metadata import NO_ENTRY
from ledger.errors import CorruptStorageError
from ledger.storage.block_cache import BlockCache
from ledger.storage.disk import Buffer, Disk
from ledger.storage.file_window import FileWindow
from ledger.storage.index import BlockRow, LedgerRow, merge_ledger_rows
from ledger.storage.landmarks import Landmarks
from ledger.storage.records import RecordId, parse_deleted_at_ms, parse_explicit_lac, parse_key
from ledger.storage.segment_format import (
    BLOCK_ENTRIES_MAX,
    HEADER_BYTES,
    TRAILER_BYTES,
    Block,
    BlockHeader,
    Footer,
    check_block,
    decode_block,
    decode_footer,
    decode_header,
    decode_ids,
    decode_trailer,
    parse_file_name,
    segment_file_name,
)
from ledger.storage.segment_writer import SegmentWriter
from ledger.storage.unreadable import FileReader


class Converted(msgspec.Struct, frozen=True):
    """Content of a segment: the rows that the index needs, and the places that could not be read any more."""

    segment_id: int
    blocks: list[BlockRow]
    ledgers: list[LedgerRow]
    damages: list[str] = []


def ledger_row_of(ledger_id: int, records: Iterator[tuple[int, Buffer]], last: int, lac: int) -> LedgerRow:
    """Sum up what a segment knows of one ledger from its records and the ends of its blocks."""
    row = LedgerRow(ledger_id, last_entry_id=last, last_add_confirmed=lac)
    for record_id, record in records:
        view = memoryview(record)
        if record_id == RecordId.KEY:
            row = merge_ledger_rows(row, LedgerRow(ledger_id, master_key=parse_key(view)))
        elif record_id == RecordId.FENCE:
            row = merge_ledger_rows(row, LedgerRow(ledger_id, is_fenced=True))
        elif record_id == RecordId.EXPLICIT_LAC:
            row = merge_ledger_rows(row, LedgerRow(ledger_id, explicit_lac=parse_explicit_lac(view)))
        elif record_id == RecordId.DELETED:
            deleted_at_ms = parse_deleted_at_ms(view)
            row = merge_ledger_rows(row, LedgerRow(ledger_id, is_fenced=True, deleted_at_ms=deleted_at_ms))
    return row


class Segments:
    """All segments. Calls block; `read_block` comes from several threads, what changes files from one alone.

    Args:
        disk: The disk.
        folders: Where segments are; a new one goes where most room is.
        cache_bytes_max: Blocks kept in memory after they were read.

    Attributes:
        landmarks: Told before a segment comes or goes; nobody is, if None.

    """

    def __init__(self, disk: Disk, folders: Sequence[str], *, cache_bytes_max: int = 8 << 20) -> None:
        self._disk = disk
        self._folders = list(folders)
        self._cache = BlockCache(cache_bytes_max)
        self._folder_of: dict[int, str] = {}
        self._begun: dict[int, None] = {}
        self.landmarks: Landmarks | None = None

    # -- files ---------------------------------------------------------------------------------------------

    def open(self, *, is_looking: bool = False) -> None:
        """See which files are there; remove what an interrupted conversion or compaction left unfinished.

        Args:
            is_looking: Look alone: make and remove nothing.

        """
        self._folder_of.clear()
        self._begun.clear()
        for folder in self._folders:
            if not is_looking:
                self._disk.make_dirs(folder)
            for name in self._disk.list_dir(folder):
                segment_id = parse_file_name(name)
                if segment_id is not None:
                    self._folder_of[segment_id] = folder
                elif name.endswith(".seg.tmp") and not is_looking:
                    self._disk.remove(f"{folder}/{name}")

    def segment_ids(self) -> list[int]:
        """Return the segments on disk, ascending."""
        return sorted(self._folder_of)

    @property
    def coming_ids(self) -> list[int]:
        """Segments that were begun and are not finished: a compaction takes its time, conversions come between."""
        return [segment_id for segment_id in self._begun if segment_id not in self._folder_of]

    def path(self, segment_id: int) -> str:
        """Return the path of a segment; of one that is gone, where it would be."""
        return f"{self._folder_of.get(segment_id, self._folders[0])}/{segment_file_name(segment_id)}"

    def free_bytes(self) -> int:
        """Return the free bytes of the directory that has most of them."""
        return max(map(self._disk.free_bytes, self._folders))

    def create(self, segment_id: int) -> SegmentWriter:
        """Begin a segment where most room is; one that exists is written again where it lies.

        Raises:
            OSError: The disk refuses.

        """
        folder = self._folder_of.get(segment_id) or max(self._folders, key=self._disk.free_bytes)
        if self.landmarks is not None and segment_id not in self._folder_of:
            self._begun[segment_id] = None
            self.landmarks.change_segments(self.segment_ids(), coming=self.coming_ids)
        return SegmentWriter(self._disk, folder, segment_file_name(segment_id), segment_id)

    def add(self, segment_id: int, writer: SegmentWriter) -> None:
        """Take note of a segment that is finished."""
        self._folder_of[segment_id] = writer.path.rpartition("/")[0]
        self._begun.pop(segment_id, None)

    def give_up(self, segment_id: int) -> None:
        """Take note that a segment that was begun will not be finished."""
        self._begun.pop(segment_id, None)

    def sync(self, segment_id: int) -> None:
        """Make a segment durable that an interrupted process may have left in the kernel's cache."""
        handle = self._disk.open(self.path(segment_id))
        try:
            self._disk.fdatasync(handle)
        finally:
            self._disk.close(handle)
        self._disk.fsync_dir(self._folder_of[segment_id])

    def remove(self, segment_ids: Sequence[int]) -> None:
        """Unlink segments for good; one that is gone already does not matter."""
        folders: dict[str, None] = {}
        going = [segment_id for segment_id in segment_ids if segment_id in self._folder_of]
        if self.landmarks is not None and going:
            self.landmarks.change_segments(self.segment_ids(), coming=self.coming_ids, going=going)
        for segment_id in segment_ids:
            self._begun.pop(segment_id, None)
            folder = self._folder_of.get(segment_id)
            if folder is not None:
                self._disk.remove(self.path(segment_id))
                folders[folder] = None
                del self._folder_of[segment_id]
        for folder in folders:
            self._disk.fsync_dir(folder)

    # -- reads ---------------------------------------------------------------------------------------------

    def read_block(self, row: BlockRow) -> Block:
        """Read and check one block; recently read ones come from memory.

        Raises:
            CorruptStorageError: It is damaged: what it held is unknown.
            OSError: The disk failed; ENOENT says that the segment was replaced since the index was asked.

        """
        key = (row.segment_id, row.byte_offset)
        block = self._cache.get(key)
        if block is None:
            where = segment_file_name(row.segment_id)
            handle = self._disk.open(self.path(row.segment_id))
            try:
                data = self._disk.pread(handle, row.byte_count, row.byte_offset)
            finally:
                self._disk.close(handle)
            block = decode_block(data, where)
            if block.header.ledger_id != row.ledger_id or block.header.first_entry_id != row.first_entry_id:
                raise CorruptStorageError(f"{where}: another block than indexed at byte {row.byte_offset}")
            self._cache.put(key, block)
        return block

    def entry_ids(self, row: BlockRow) -> list[int]:
        """Return the ids of the entries in a block, from its head alone."""
        handle = self._disk.open(self.path(row.segment_id))
        try:
            head = self._disk.pread(handle, HEADER_BYTES + 12 * BLOCK_ENTRIES_MAX, row.byte_offset)
            head_bytes = HEADER_BYTES + decode_header(head, segment_file_name(row.segment_id)).table_bytes
            if len(head) < head_bytes <= row.byte_count:  # A compaction joined two blocks.
                head = self._disk.pread(handle, head_bytes, row.byte_offset)
        finally:
            self._disk.close(handle)
        return decode_ids(head, segment_file_name(row.segment_id))

    def footer(self, segment_id: int) -> Footer:
        """Return what the end of a segment says.

        Raises:
            CorruptStorageError: It is damaged.

        """
        handle = self._disk.open(self.path(segment_id))
        try:
            blocks_end, size = self._blocks_end(handle, segment_id)
            end = self._disk.pread(handle, size - blocks_end, blocks_end)
            return decode_footer(end, segment_id, segment_file_name(segment_id))
        finally:
            self._disk.close(handle)

    def _blocks_end(self, handle: int, segment_id: int) -> tuple[int, int]:
        size = self._disk.size(handle)
        trailer = self._disk.pread(handle, TRAILER_BYTES, max(0, size - TRAILER_BYTES))
        blocks_end, _ = decode_trailer(trailer, segment_id, segment_file_name(segment_id))
        return blocks_end, size

    # -- whole segments ------------------------------------------------------------------------------------

    def walk(self, segment_id: int) -> Iterator[tuple[int, BlockHeader, memoryview]]:
        """Yield (byte offset, header, bytes) of every block in order, each checked.

        Raises:
            CorruptStorageError: At the first damage, or if the disk cannot read.

        """
        damages: list[str] = []
        for found in self._walk(segment_id, damages):
            if damages:
                break
            yield found
        if damages:
            raise CorruptStorageError(damages[0])

    def rows(self, segment_id: int, *, look: Callable[[int, Block], None] | None = None) -> Converted:
        """Read and check a whole segment, to rebuild the index; what is damaged is named and left out.

        Args:
            segment_id: The segment.
            look: Called with byte offset and content of each block that is sound, in order.

        """
        blocks: list[BlockRow] = []
        ledgers: dict[int, LedgerRow] = {}
        damages: list[str] = []
        for offset, header, data in self._walk(segment_id, damages):
            if look is not None:
                look(offset, decode_block(data, ""))
            records: Iterator[tuple[int, Buffer]] = iter(())
            if header.first_entry_id < 0:
                records = decode_block(data, "").entries()
            else:
                place = (segment_id, offset, header.byte_count)
                blocks.append(BlockRow(header.ledger_id, header.first_entry_id, header.last_entry_id, *place))
            last = max(header.last_entry_id, NO_ENTRY)
            row = ledger_row_of(header.ledger_id, records, last, header.last_add_confirmed)
            ledgers[header.ledger_id] = merge_ledger_rows(ledgers.get(header.ledger_id), row)
        return Converted(segment_id, blocks, list(ledgers.values()), damages)

    def _walk(self, segment_id: int, damages: list[str]) -> Iterator[tuple[int, BlockHeader, memoryview]]:
        """Yield the sound blocks; name the others. A damaged trailer leaves the blocks to be found one by one."""
        where = segment_file_name(segment_id)
        offset = 0
        try:
            handle = self._disk.open(self.path(segment_id))
        except OSError as error:
            damages.append(f"{where} cannot be opened: {error}")
            return
        try:
            try:
                blocks_end, _ = self._blocks_end(handle, segment_id)
            except (CorruptStorageError, OSError) as error:
                damages.append(f"{where}: {error}" if isinstance(error, OSError) else str(error))
                blocks_end = self._disk.size(handle)
            window = FileWindow(FileReader(self._disk, handle).read, blocks_end)
            while offset < blocks_end:
                byte_count = decode_header(window.view(offset, HEADER_BYTES), where).byte_count
                data = window.view(offset, min(byte_count, blocks_end - offset))
                try:
                    header = check_block(data, where)
                except CorruptStorageError as error:
                    damages.append(str(error))
                else:
                    yield offset, header, data
                offset += byte_count
        except (CorruptStorageError, OSError) as error:
            damages.append(f"{error}; nothing behind byte {offset} can be found")
        finally:
            self._disk.close(handle)
