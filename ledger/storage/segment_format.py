"""Bytes of a segment: the entries of one sealed journal file, sorted by ledger and entry.

A segment is a list of blocks and a footer; it is written once, under a temporary name, and never changed. Blocks of
records come behind those of entries::

    block header (56, little-endian)  magic, CRC32C of all that follows, ledger, first entry, last entry,
                                      highest LAC in the block's entries, entry count, table bytes, body bytes
    table                             u32 per entry: its length; if ids are not dense also i64 per entry: its id
    body                              (length (4, big-endian), entry)*: what a batch read answers, as it is
    footer                            per ledger: id, bytes of its blocks; per segment that this one replaces:
                                      -1, its id; then the trailer (32): magic, CRC32C, segment id, end of the
                                      blocks, number of these pairs

A block holds at most 512 entries, about 512 KiB, and ids of a span of 4,096: a look-up of entry *n* finds it
in a block whose first id lies in (n - 4096, n]. Records about a ledger (negative ids) have a block of their
own, so that the index can be rebuilt from segments alone. A segment has the id of its journal file; one that a
compaction wrote has the sequence number of the youngest that it replaces, and random bits of its own.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import crc32c
import msgspec

from ledger.errors import CorruptStorageError
from ledger.storage.disk import Buffer

BLOCK_ENTRIES_MAX = 512
BLOCK_BYTES_MAX = 512 << 10
BLOCK_SPAN_MAX = 4096
HEADER_BYTES = 56
TRAILER_BYTES = 32

_MAGIC = b"RSE1"
_FOOTER_MAGIC = b"RSF1"
_REPLACES = -1
_PAIR = struct.Struct("<qQ")
_HEADER = struct.Struct("<4sIqqqqIIQ")
_HEADER_TAIL = struct.Struct("<qqqqIIQ")
_TRAILER = struct.Struct("<4sIQQQ")
_TRAILER_TAIL = struct.Struct("<QQQ")
_crc = crc32c.crc32c


def segment_file_name(segment_id: int) -> str:
    return f"{segment_id:016x}.seg"


def parse_file_name(name: str) -> int | None:
    """Return the segment id of a file name, or None for any other file."""
    stem, _, suffix = name.partition(".")
    if suffix != "seg" or len(stem) != 16:
        return None
    try:
        return int(stem, 16)
    except ValueError:
        return None


class BlockHeader(msgspec.Struct, frozen=True, gc=False):
    """Head of a block; `byte_count` is the whole block, header included."""

    checksum: int
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    last_add_confirmed: int
    entry_count: int
    table_bytes: int
    byte_count: int


class Block(msgspec.Struct, frozen=True):
    """A block whose CRC was right."""

    header: BlockHeader
    data: memoryview
    ids: Sequence[int]
    ends: Sequence[int]

    def get(self, entry_id: int) -> bytes | None:
        """Return an entry, or None if it is not in this block."""
        position = bisect_left(self.ids, entry_id)
        if position == len(self.ids) or self.ids[position] != entry_id:
            return None
        start = self.ends[position - 1] if position else HEADER_BYTES + self.header.table_bytes
        return bytes(self.data[start + 4 : self.ends[position]])

    def run(self, first_entry_id: int, count_max: int, byte_count_max: int, stride: int = 1) -> tuple[int, memoryview]:
        """Return how many entries, `stride` apart, from `first_entry_id` on this block gives, and their bytes.

        The bytes are (length (4, big-endian), entry)*, at most `byte_count_max` of them; consecutive entries are one
        slice of the block. The count is 0 if the first entry is not here or too large.
        """
        position = bisect_left(self.ids, first_entry_id)
        if position == len(self.ids) or self.ids[position] != first_entry_id:
            return 0, self.data[:0]
        if stride > 1:
            return self._apart(position, count_max, byte_count_max, stride)
        ids = self.ids
        end = min(len(ids), position + count_max)
        if ids[end - 1] - first_entry_id != end - 1 - position:  # Not dense: up to the first gap.
            end = next(n for n in range(position + 1, end) if ids[n] != first_entry_id + n - position)
        start = self.ends[position - 1] if position else HEADER_BYTES + self.header.table_bytes
        end = bisect_right(self.ends, start + byte_count_max, position, end)
        if end == position:
            return 0, self.data[:0]
        return end - position, self.data[start : self.ends[end - 1]]

    def _apart(self, position: int, count_max: int, byte_count_max: int, stride: int) -> tuple[int, memoryview]:
        """Do as `run` for entries that are not neighbours, from the one at a position of the block on."""
        ids, ends = self.ids, self.ends
        pieces: list[memoryview] = []
        wanted, left = ids[position], byte_count_max
        while len(pieces) < count_max and position < len(ids) and ids[position] == wanted:
            start = ends[position - 1] if position else HEADER_BYTES + self.header.table_bytes
            left -= ends[position] - start
            if left < 0:
                break
            pieces.append(self.data[start : ends[position]])
            wanted += stride
            position = bisect_left(ids, wanted, position + 1, min(len(ids), position + stride))
        return len(pieces), memoryview(b"".join(pieces))

    def entries(self) -> Iterator[tuple[int, memoryview]]:
        """Yield (entry id, entry) in order."""
        start = HEADER_BYTES + self.header.table_bytes
        for entry_id, end in zip(self.ids, self.ends, strict=True):
            yield entry_id, self.data[start + 4 : end]
            start = end


def split_ids(ids: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut the ascending ids of one ledger into (start, end) positions of blocks."""
    start, used = 0, 0
    for position, length in enumerate(lengths):
        full = position - start == BLOCK_ENTRIES_MAX or used + length > BLOCK_BYTES_MAX
        far = ids[start] >= 0 and ids[position] - ids[start] >= BLOCK_SPAN_MAX
        # Records about the ledger lie before 0 and get a block of their own.
        if position > start and (full or far or (ids[start] < 0 <= ids[position])):
            yield start, position
            start, used = position, 0
        used += length
    if start < len(ids):
        yield start, len(ids)


def encode_block(
    ledger_id: int, ids: Sequence[int], entries: Sequence[Buffer], last_add_confirmed: int
) -> tuple[list[Buffer], int]:
    """Return the buffers of one block and their bytes; `ids` ascend."""
    lengths = list(map(len, entries))
    table = array("I", lengths).tobytes()
    if ids[-1] - ids[0] + 1 != len(ids):
        table += array("q", ids).tobytes()
    prefixes = struct.pack(f">{len(lengths)}I", *lengths)
    pieces: list[Buffer] = [b""] * (2 * len(entries))
    pieces[0::2] = [prefixes[i : i + 4] for i in range(0, len(prefixes), 4)]
    pieces[1::2] = entries
    body = b"".join(pieces)
    tail = _HEADER_TAIL.pack(ledger_id, ids[0], ids[-1], last_add_confirmed, len(ids), len(table), len(body))
    checksum = _crc(body, _crc(table, _crc(tail)))
    head = _MAGIC + checksum.to_bytes(4, "little") + tail
    return [head, table, body], HEADER_BYTES + len(table) + len(body)


def decode_header(data: Buffer, where: str) -> BlockHeader:
    """Read a block's header; its CRC is checked with the block.

    Raises:
        CorruptStorageError: These bytes cannot be a header.

    """
    if len(data) < HEADER_BYTES:
        raise CorruptStorageError(f"{where}: {len(data)} bytes where a block header should be")
    magic, checksum, ledger_id, first, last, lac, count, table_bytes, body_bytes = _HEADER.unpack_from(data, 0)
    if magic != _MAGIC or not count or table_bytes not in (4 * count, 12 * count):
        raise CorruptStorageError(f"{where}: no block header where the segment should have one")
    return BlockHeader(
        checksum, ledger_id, first, last, lac, count, table_bytes, HEADER_BYTES + table_bytes + body_bytes
    )


def check_block(data: Buffer, where: str) -> BlockHeader:
    """Check a whole block without opening it.

    Raises:
        CorruptStorageError: The CRC does not match: the entries in it are unknown, not absent.

    """
    header = decode_header(data, where)
    view = memoryview(data)
    if header.byte_count != len(view) or _crc(view[8:]) != header.checksum:
        raise CorruptStorageError(
            f"{where}: block of ledger {header.ledger_id}, entries {header.first_entry_id}"
            f"-{header.last_entry_id} is damaged; other bookies hold its entries",
            ledger_id=header.ledger_id,
        )
    return header


def decode_block(data: Buffer, where: str) -> Block:
    """Check and open a whole block.

    Raises:
        CorruptStorageError: The CRC does not match: the entries in it are unknown, not absent.

    """
    header = check_block(data, where)
    view = memoryview(data)
    count = header.entry_count
    lengths = array("I", view[HEADER_BYTES : HEADER_BYTES + 4 * count].tobytes())
    ids: Sequence[int] = range(header.first_entry_id, header.first_entry_id + count)
    if header.table_bytes != 4 * count:
        ids = array("q", view[HEADER_BYTES + 4 * count : HEADER_BYTES + header.table_bytes].tobytes())
    ends = list(accumulate([4 + length for length in lengths], initial=HEADER_BYTES + header.table_bytes))
    del ends[0]
    return Block(header, view, ids, ends)


def decode_ids(data: Buffer, where: str) -> list[int]:
    """Return the entry ids of a block from its header and table; no CRC is checked.

    Raises:
        CorruptStorageError: These bytes cannot be the head of a block.

    """
    header = decode_header(data, where)
    count = header.entry_count
    if header.table_bytes == 4 * count:
        return list(range(header.first_entry_id, header.first_entry_id + count))
    start, end = HEADER_BYTES + 4 * count, HEADER_BYTES + header.table_bytes
    if len(data) < end:
        raise CorruptStorageError(f"{where}: a block's table is cut short")
    return list(array("q", bytes(data[start:end])))


class Footer(msgspec.Struct, frozen=True):
    """Footer at the end of a segment.

    Attributes:
        ledger_bytes: Bytes of blocks by ledger, records about it included.
        replaces: Segments whose living blocks this one holds; empty unless a compaction wrote it.

    """

    ledger_bytes: dict[int, int]
    replaces: list[int]


def encode_footer(segment_id: int, blocks_end: int, footer: Footer) -> bytes:
    """Encode which ledgers live here, how much of each, and which segments this one stands for."""
    pairs = [*footer.ledger_bytes.items(), *((_REPLACES, old_id) for old_id in footer.replaces)]
    table = b"".join([_PAIR.pack(*pair) for pair in pairs])
    tail = _TRAILER_TAIL.pack(segment_id, blocks_end, len(pairs))
    return table + _FOOTER_MAGIC + _crc(tail, _crc(table)).to_bytes(4, "little") + tail


def decode_trailer(data: Buffer, segment_id: int, where: str) -> tuple[int, int]:
    """Return (end of the blocks, number of pairs before the trailer) from the last 32 bytes of a segment.

    Raises:
        CorruptStorageError: This is no trailer, or another segment's.

    """
    if len(data) == TRAILER_BYTES:
        magic, _, found_id, blocks_end, pair_count = _TRAILER.unpack(data)
        if magic == _FOOTER_MAGIC and found_id == segment_id:
            return blocks_end, pair_count
    raise CorruptStorageError(f"{where}: the segment's trailer is missing or another segment's")


def decode_footer(data: Buffer, segment_id: int, where: str) -> Footer:
    """Read footer and trailer.

    Raises:
        CorruptStorageError: The CRC does not match.

    """
    view = memoryview(data)
    _, pair_count = decode_trailer(view[-TRAILER_BYTES:], segment_id, where)
    checksum = int.from_bytes(view[-TRAILER_BYTES + 4 : -TRAILER_BYTES + 8], "little")
    table = view[:-TRAILER_BYTES]
    if len(table) != 16 * pair_count or _crc(view[-TRAILER_BYTES + 8 :], _crc(table)) != checksum:
        raise CorruptStorageError(f"{where}: the segment's footer is damaged")
    pairs = list(_PAIR.iter_unpack(table))
    return Footer(
        {key: size for key, size in pairs if key != _REPLACES}, [old_id for key, old_id in pairs if key == _REPLACES]
    )
