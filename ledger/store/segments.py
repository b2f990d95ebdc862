"""Segment files: write one from a sealed journal file, read blocks of it, list what it holds."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from ledger.core.metadata import NO_ENTRY
from ledger.errors import CorruptStorageError
from ledger.store.disk import Buffer, Disk
from ledger.store.index import BlockRow, LedgerRow, merge_ledger_rows
from ledger.store.journal_format import JournalScan, bodies
from ledger.store.records import RecordId, parse_explicit_lac, parse_key
from ledger.store.segment_format import (
    BLOCK_ENTRIES_MAX,
    HEADER_BYTES,
    TRAILER_BYTES,
    Block,
    decode_block,
    decode_footer,
    decode_header,
    decode_ids,
    decode_trailer,
    encode_block,
    encode_footer,
    parse_file_name,
    segment_file_name,
    split_ids,
)

__all__ = ["Converted", "SegmentFolder", "collect", "ledger_row_of"]

_SYNC_BYTES = 4 << 20
"""A large sync would queue before the journal's: so one every 4 MiB."""
_WRITE_BYTES = 1 << 20
_HEAD = struct.Struct(">qqq")
_LENGTH_BITS = 24
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1


class Converted(msgspec.Struct, frozen=True):
    """What a segment holds: the rows that the index needs, and what could not be read any more."""

    segment_id: int
    blocks: list[BlockRow]
    ledgers: list[LedgerRow]
    damages: list[str] = []


# ledger id -> {entry id: byte offset << 24 | length}; a body that comes twice counts with its last bytes.
Collected = dict[int, dict[int, int]]


def collect(data: bytearray, scan: JournalScan) -> Collected:
    """Find the bodies of a journal file, by ledger and entry."""
    view = memoryview(data)
    ledgers: Collected = {}
    unpack = _HEAD.unpack_from
    current, entries = None, {}
    for batch in scan.batches:
        for position, length in bodies(view, batch):
            ledger_id, entry_id = unpack(data, position)[:2] if length >= 24 else _short(data, position)
            if ledger_id != current:
                entries = ledgers.setdefault(ledger_id, {})
                current = ledger_id
            if entry_id == RecordId.EXPLICIT_LAC and entry_id in entries:
                kept = entries[entry_id] >> _LENGTH_BITS
                if data[kept + 28 : kept + 36] > data[position + 28 : position + 36]:
                    continue  # The higher one stays.
            entries[entry_id] = position << _LENGTH_BITS | length
    return ledgers


def _short(data: bytearray, position: int) -> tuple[int, int]:
    ledger_id, entry_id = struct.unpack_from(">qq", data, position)
    return ledger_id, entry_id


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
    return row


class _Writer:
    """Appends buffers to a file in large writes, synced every few megabytes."""

    def __init__(self, disk: Disk, handle: int) -> None:
        self._disk, self._handle = disk, handle
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._written = 0
        self._synced = 0

    def append(self, buffers: list[Buffer], byte_count: int) -> int:
        """Take buffers; return the byte offset where they begin."""
        start = self._written + self._pending_bytes
        self._pending += buffers
        self._pending_bytes += byte_count
        if self._pending_bytes >= _WRITE_BYTES:
            self.flush()
            if self._written - self._synced >= _SYNC_BYTES:
                self._disk.fdatasync(self._handle)
                self._synced = self._written
        return start

    def flush(self) -> None:
        """Write what is pending."""
        if self._pending:
            self._disk.pwritev(self._handle, self._pending, self._written)
            self._written += self._pending_bytes
            self._pending, self._pending_bytes = [], 0


class SegmentFolder:
    """The segments of one bookie in one folder."""

    def __init__(self, disk: Disk, folder: str, *, cache_bytes_max: int = 8 << 20) -> None:
        self._disk = disk
        self._folder = folder
        self._cache_bytes_max = cache_bytes_max
        # (segment, byte offset) -> block, least recently used first. Used by reader threads: each single
        # operation is atomic, and a race costs at most a second read.
        self._cache: OrderedDict[tuple[int, int], Block] = OrderedDict()
        self._cache_bytes = 0

    def path(self, segment_id: int) -> str:
        """Return the path of a segment."""
        return f"{self._folder}/{segment_file_name(segment_id)}"

    def segment_ids(self) -> list[int]:
        """Return the segments on disk, ascending; a file that was never finished does not count."""
        found = [parse_file_name(name) for name in self._disk.list_dir(self._folder)]
        return sorted(i for i in found if i is not None)

    def remove_unfinished(self) -> None:
        """Remove what an interrupted conversion left behind."""
        for name in self._disk.list_dir(self._folder):
            if name.endswith(".seg.tmp"):
                self._disk.remove(f"{self._folder}/{name}")

    def write(self, segment_id: int, data: bytearray, collected: Collected) -> Converted:
        """Write a segment from the bodies in `data`; when this returns it is durable under its name.

        Raises:
            OSError: Nothing may be assumed of the file; its journal file must be kept.

        """
        temporary = f"{self.path(segment_id)}.tmp"
        if self._disk.exists(temporary):
            self._disk.remove(temporary)  # An attempt that found the disk full.
        handle = self._disk.open(temporary, create=True)
        try:
            writer = _Writer(self._disk, handle)
            blocks: list[BlockRow] = []
            ledgers: list[LedgerRow] = []
            sizes: dict[int, int] = {}
            for ledger_id in sorted(collected):
                rows, row, size = self._write_ledger(writer, segment_id, ledger_id, data, collected[ledger_id])
                blocks += rows
                ledgers.append(row)
                sizes[ledger_id] = size
            end = writer.append([], 0)
            footer = encode_footer(segment_id, end, sizes)
            writer.append([footer], len(footer))
            writer.flush()
            self._disk.fdatasync(handle)
        finally:
            self._disk.close(handle)
        self._disk.rename(temporary, self.path(segment_id))
        self._disk.fsync_dir(self._folder)
        return Converted(segment_id, blocks, ledgers)

    def _write_ledger(
        self, writer: _Writer, segment_id: int, ledger_id: int, data: bytearray, entries: dict[int, int]
    ) -> tuple[list[BlockRow], LedgerRow, int]:
        ids = sorted(entries)
        places = [entries[i] for i in ids]
        view = memoryview(data)
        blocks: list[BlockRow] = []
        records: list[tuple[int, Buffer]] = []
        size, highest_lac = 0, NO_ENTRY
        for start, end in split_ids(ids, [place & _LENGTH_MASK for place in places]):
            part = [view[p >> _LENGTH_BITS : (p >> _LENGTH_BITS) + (p & _LENGTH_MASK)] for p in places[start:end]]
            lac = NO_ENTRY
            if ids[start] < 0:
                records += zip(ids[start:end], part, strict=True)
            else:
                lac = max([_HEAD.unpack_from(entry)[2] for entry in part])
                highest_lac = max(highest_lac, lac)
            buffers, byte_count = encode_block(ledger_id, ids[start:end], part, lac)
            offset = writer.append(buffers, byte_count)
            size += byte_count
            if ids[start] >= 0:
                blocks.append(BlockRow(ledger_id, ids[start], ids[end - 1], segment_id, offset, byte_count))
        last = max(ids[-1], NO_ENTRY)
        return blocks, ledger_row_of(ledger_id, iter(records), last, highest_lac), size

    def read_block(self, row: BlockRow) -> Block:
        """Read and check one block; recently read ones come from memory.

        Raises:
            CorruptStorageError: It is damaged: what it held is unknown.
            OSError: The disk failed.

        """
        key = (row.segment_id, row.byte_offset)
        block = self._cache.pop(key, None)
        if block is None:
            handle = self._disk.open(self.path(row.segment_id))
            try:
                data = self._disk.pread(handle, row.byte_count, row.byte_offset)
            finally:
                self._disk.close(handle)
            block = decode_block(data, segment_file_name(row.segment_id))
            if block.header.ledger_id != row.ledger_id or block.header.first_entry_id != row.first_entry_id:
                raise CorruptStorageError(f"{segment_file_name(row.segment_id)}: another block than indexed")
            self._cache_bytes += row.byte_count
        self._cache[key] = block
        while self._cache_bytes > self._cache_bytes_max and len(self._cache) > 1:
            try:
                _, evicted = self._cache.popitem(last=False)
            except KeyError:
                break  # Another reader emptied it.
            self._cache_bytes -= evicted.header.byte_count
        return block

    def ledger_bytes(self, segment_id: int) -> dict[int, int]:
        """Return the bytes that each ledger holds in a segment."""
        where = segment_file_name(segment_id)
        handle = self._disk.open(self.path(segment_id))
        try:
            blocks_end, size = self._blocks_end(handle, segment_id)
            return decode_footer(self._disk.pread(handle, size - blocks_end, blocks_end), segment_id, where)
        finally:
            self._disk.close(handle)

    def _blocks_end(self, handle: int, segment_id: int) -> tuple[int, int]:
        size = self._disk.size(handle)
        trailer = self._disk.pread(handle, TRAILER_BYTES, max(0, size - TRAILER_BYTES))
        blocks_end, _ = decode_trailer(trailer, segment_id, segment_file_name(segment_id))
        return blocks_end, size

    def rows(self, segment_id: int) -> Converted:
        """Read and check a whole segment, to rebuild the index; what is damaged is named and left out."""
        where = segment_file_name(segment_id)
        blocks: list[BlockRow] = []
        ledgers: dict[int, LedgerRow] = {}
        damages: list[str] = []
        handle = self._disk.open(self.path(segment_id))
        try:
            offset, blocks_end = 0, 0
            try:
                blocks_end, _ = self._blocks_end(handle, segment_id)
                while offset < blocks_end:
                    header = decode_header(self._disk.pread(handle, HEADER_BYTES, offset), where)
                    byte_count = min(header.byte_count, blocks_end - offset)
                    block = _block_or_damage(self._disk.pread(handle, byte_count, offset), where, damages)
                    if block is not None:
                        _add_rows(block, segment_id, offset, blocks, ledgers)
                    offset += header.byte_count
            except CorruptStorageError as error:
                damages.append(f"{error}; nothing behind byte {offset} can be found")
        finally:
            self._disk.close(handle)
        return Converted(segment_id, blocks, list(ledgers.values()), damages)

    def entry_ids(self, row: BlockRow) -> list[int]:
        """Return the ids of the entries in a block, from its head alone."""
        handle = self._disk.open(self.path(row.segment_id))
        try:
            head = self._disk.pread(handle, HEADER_BYTES + 12 * BLOCK_ENTRIES_MAX, row.byte_offset)
        finally:
            self._disk.close(handle)
        return decode_ids(head, segment_file_name(row.segment_id))

    def sync(self, segment_id: int) -> None:
        """Make a segment durable that an interrupted process may have left in the kernel's cache."""
        handle = self._disk.open(self.path(segment_id))
        try:
            self._disk.fdatasync(handle)
        finally:
            self._disk.close(handle)
        self._disk.fsync_dir(self._folder)

    def remove(self, segment_id: int) -> None:
        """Unlink a segment whose ledgers are all gone."""
        self._disk.remove(self.path(segment_id))
        self._disk.fsync_dir(self._folder)


def _block_or_damage(data: bytes, where: str, damages: list[str]) -> Block | None:
    try:
        return decode_block(data, where)
    except CorruptStorageError as error:
        damages.append(str(error))
        return None


def _add_rows(
    block: Block, segment_id: int, offset: int, blocks: list[BlockRow], ledgers: dict[int, LedgerRow]
) -> None:
    header = block.header
    records: Iterator[tuple[int, Buffer]] = iter(())
    if header.first_entry_id < 0:
        records = block.entries()
    else:
        blocks.append(
            BlockRow(
                header.ledger_id,
                header.first_entry_id,
                header.last_entry_id,
                segment_id,
                offset,
                header.byte_count,
            )
        )
    last = max(header.last_entry_id, NO_ENTRY)
    row = ledger_row_of(header.ledger_id, records, last, header.last_add_confirmed)
    ledgers[header.ledger_id] = merge_ledger_rows(ledgers.get(header.ledger_id), row)
