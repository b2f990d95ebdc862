"""Bytes of a journal file, and what a scan makes of them after a crash.

A file is preallocated, zeroed once and recycled. It holds batches, one directly behind the other::

    header (48, little-endian)  magic, CRC32C of all that follows, journal id, byte offset of this header,
                                synced-to, entry count, TOC bytes, blob bytes
    TOC                         per entry two u32: gap since the last body (or the blob's start), body length
    blob                        chunks as they came from the sockets: bodies, and what lay between them

A *mark* is a header alone. The idle mark (count 0) is written after a pause, the seal (count 2**32 - 1) when
the file is left for the next one: both say that all before them was synced.

The journal has one batch in flight, so `synced-to` of a header is its own offset: whatever lies before a
valid header was durable before that header was written. Hence the verdict of a scan (safety 28): damage with
a valid header behind it, or without the seal in a file that has a successor, is **loss**; so is a file of another size
than it was given, and one whose valid batches end before its landmark (`ledger.storage.landmarks`: written with the
mark that follows a pause of 0.1 s, and once a second under load). Other damage with nothing behind it is the **tail**
of a batch that nobody was told of. One case stays open: damage of the last batches, if the process ends before the next
landmark; to close it, every batch would need a second sync.

Journal id and offset lie inside the CRC, so what an earlier use of the file left behind never validates; the id ends in
32 random bits, so that a client cannot send a payload which looks like a batch.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence

import crc32c
import msgspec

from ledger.storage.disk import Buffer
from ledger.storage.file_window import WINDOW_BYTES, FileWindow

HEADER_BYTES = 48
_MAGIC = b"RSJ1"
_HEADER = struct.Struct("<4sIQQQIIQ")
_TAIL = struct.Struct("<QQQIIQ")
_SEAL_COUNT = 0xFFFFFFFF
_crc = crc32c.crc32c


def sealed_file_name(journal_id: int) -> str:
    """Name a journal file: sequence number (32 bits) and random bits (32), so that names sort by age."""
    return f"{journal_id:016x}.j"


def parse_file_name(name: str) -> int | None:
    """Return the journal id of a file name, or None for any other file."""
    stem, dot, suffix = name.partition(".")
    if not dot or suffix != "j" or len(stem) != 16:
        return None
    try:
        return int(stem, 16)
    except ValueError:
        return None


class JournalBatch(msgspec.Struct, frozen=True, gc=False):
    """One valid batch of a file.

    Attributes:
        toc_offset: Byte offset of the TOC in the file.
        blob_offset: Byte offset of the blob in the file; the TOC ends there.
        entry_count: Bodies that the TOC names, records about ledgers included.

    """

    toc_offset: int
    blob_offset: int
    entry_count: int


class JournalScan(msgspec.Struct, frozen=True):
    """Result of a scan of a journal file.

    Attributes:
        batches: Every valid batch, also those behind a damage.
        end_offset: End of the last valid header or batch.
        synced_to: All before this offset was durable before the crash.
        is_sealed: The file was left for the next one.
        lost: (start, end) byte ranges that were synced once and are damaged now.

    """

    batches: list[JournalBatch]
    end_offset: int
    synced_to: int
    is_sealed: bool
    lost: list[tuple[int, int]]


def _header(tail: bytes, checksum: int) -> bytes:
    return _MAGIC + checksum.to_bytes(4, "little") + tail


def batch_buffers(
    journal_id: int, byte_offset: int, toc: array[int], chunks: Sequence[Buffer], entry_count: int
) -> list[Buffer]:
    """Return the buffers of one batch for a vectored write at `byte_offset`."""
    toc_bytes = toc.tobytes()
    blob_bytes = sum(map(len, chunks))
    tail = _TAIL.pack(journal_id, byte_offset, byte_offset, entry_count, len(toc_bytes), blob_bytes)
    checksum = _crc(toc_bytes, _crc(tail))
    for chunk in chunks:
        checksum = _crc(chunk, checksum)
    return [_header(tail, checksum), toc_bytes, *chunks]


def mark(journal_id: int, byte_offset: int, *, seal: bool) -> bytes:
    """Return an idle mark or a seal."""
    tail = _TAIL.pack(journal_id, byte_offset, byte_offset, _SEAL_COUNT if seal else 0, 0, 0)
    return _header(tail, _crc(tail))


def scan(data: bytearray | bytes, journal_id: int, *, has_successor: bool = False) -> JournalScan:
    """Find all valid batches of a whole file in memory; see `scan_file`."""
    return scan_file(FileWindow.of(data), journal_id, has_successor=has_successor)


def scan_file(
    window: FileWindow, journal_id: int, *, has_successor: bool = False, synced_to: int = 0, file_bytes: int = 0
) -> JournalScan:
    """Find all valid batches of a file and tell loss from an unacknowledged tail.

    Args:
        window: The file.
        journal_id: From the file's name.
        has_successor: There was a later file, so this one was sealed before.
        synced_to: The file was valid and synced up to here.
        file_bytes: Its right size; 0 if it is not known.

    """
    batches: list[JournalBatch] = []
    lost: list[tuple[int, int]] = []
    position, proven_to, is_sealed = 0, 0, False
    while position + HEADER_BYTES <= window.byte_count:
        found = _valid_at(window, journal_id, position)
        if found is None:
            behind = _next_valid(window, journal_id, position + 1)
            if behind is None:
                break
            lost.append((position, behind))
            position = behind
            continue
        proven_to = max(proven_to, found.synced_to)
        if found.entry_count == _SEAL_COUNT:
            is_sealed = True
            position = found.end
            break
        if found.entry_count:
            batches.append(JournalBatch(position + HEADER_BYTES, found.blob_offset, found.entry_count))
        position = found.end
    if has_successor and not is_sealed:
        lost.append((position, window.byte_count))
    elif position < synced_to:
        lost.append((position, synced_to))
    if file_bytes and window.byte_count != file_bytes:
        lost.append((min(window.byte_count, file_bytes), max(window.byte_count, file_bytes)))
    return JournalScan(batches, position, proven_to, is_sealed, lost)


class _Found(msgspec.Struct, frozen=True, gc=False):
    synced_to: int
    entry_count: int
    blob_offset: int
    end: int


def _valid_at(window: FileWindow, journal_id: int, position: int) -> _Found | None:
    header = window.view(position, HEADER_BYTES)
    if header[:4] != _MAGIC or len(header) < HEADER_BYTES:
        return None
    _, checksum, found_id, byte_offset, synced_to, count, toc_bytes, blob_bytes = _HEADER.unpack(header)
    blob_offset = position + HEADER_BYTES + toc_bytes
    end = blob_offset + blob_bytes
    if found_id != journal_id or byte_offset != position or end > window.byte_count:
        return None
    computed = _crc(header[8:])
    at = position + HEADER_BYTES
    while at < end:
        piece = window.view(at, min(WINDOW_BYTES, end - at))
        if not piece:
            return None  # The file is shorter than it says.
        computed = _crc(piece, computed)
        at += len(piece)
    return _Found(synced_to, count, blob_offset, end) if computed == checksum else None


def _next_valid(window: FileWindow, journal_id: int, start: int) -> int | None:
    """Return the offset of the first valid header behind a damage, or None."""
    while start + HEADER_BYTES <= window.byte_count:
        piece = bytes(window.view(start, min(WINDOW_BYTES, window.byte_count - start)))
        at = piece.find(_MAGIC)
        while at >= 0 and start + at + HEADER_BYTES <= window.byte_count:
            if _valid_at(window, journal_id, start + at) is not None:
                return start + at
            at = piece.find(_MAGIC, at + 1)
        start += max(1, len(piece) - len(_MAGIC) + 1)
    return None


def bodies(window: FileWindow, batch: JournalBatch) -> Iterator[tuple[int, int]]:
    """Yield (byte offset in the file, length) of every body of a batch."""
    position = batch.blob_offset
    toc = bytes(window.view(batch.toc_offset, batch.blob_offset - batch.toc_offset))
    pairs = iter(array("I", toc))
    for gap, length in zip(pairs, pairs, strict=True):
        position += gap
        yield position, length
        position += length
