"""Files of entries: what the bookies had, byte for byte, with the places where it lay.

    file    magic `RSMB` 0x01, then frames to the end
    frame   ledger id (8 bytes), entry id (8), length of the payload (4), payload; numbers big-endian

Nothing is compressed: what a file can make a reader keep in memory is one entry.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import IO

from rsm_spark.backup.manifest import BackupSegment, CorruptBackupError, segment_name
from rsm_spark.core.envelope import ENTRY_BYTES_MAX, SEAL_BYTES, decode_envelope, entry_hash
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import CorruptLogError
from rsm_spark.log.commit_log import LogEntry

MAGIC = b"RSMB\x01"
_FRAME = struct.Struct(">QQI")
_PAYLOAD_BYTES_MAX = ENTRY_BYTES_MAX + SEAL_BYTES


class EntryFileWriter:
    """Writes one file of entries.

    Args:
        file: Open for writing, empty.

    Attributes:
        bytes: Written so far.
        last_ms: Logged time of the last entry.
        entries: How many there are.

    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hasher = hashlib.sha256()
        self._first: LogEntry | None = None
        self._last: LogEntry | None = None
        self._last_revision = 0
        self.bytes = self.entries = self.last_ms = 0
        self._write(MAGIC)

    def add(self, entry: LogEntry) -> None:
        """Write the next entry."""
        place = entry.position
        self._write(_FRAME.pack(place.ledger_id, place.entry_id, len(entry.payload)))
        self._write(entry.payload)
        self._first = self._first or entry
        self._last, self.last_ms = entry, entry.envelope.logged_ms
        self._last_revision = entry.envelope.last_revision
        self.entries += 1

    @property
    def has_records(self) -> bool:
        """True if it holds a record: what holds none is no file worth keeping."""
        return self._first is not None and self._last_revision >= self._first.envelope.first_revision

    def finish(self) -> BackupSegment:
        """Return what the file holds."""
        assert self._first is not None, "an empty file is none of a backup"
        assert self._last is not None, "likewise"
        self._file.flush()
        first, sha256 = self._first.envelope, self._hasher.hexdigest()
        return BackupSegment(
            segment_name(first.first_revision, self._last_revision, sha256),
            self.bytes,
            sha256,
            first.first_revision,
            self._last_revision,
            first.prefix_hash.hex(),
            (self._last.prefix_hash or entry_hash(self._last.payload)).hex(),
            self.last_ms,
            self._last.position.ledger_id,
            self._last.position.entry_id,
            self.entries,
        )

    def _write(self, text: bytes) -> None:
        self._file.write(text)
        self._hasher.update(text)
        self.bytes += len(text)


def read_segment(chunks: Iterable[bytes], segment: BackupSegment, place: str) -> Iterator[LogEntry]:
    """Yield the entries of a file.

    Args:
        chunks: The file, piece by piece.
        segment: What it must be.
        place: Of the file, for errors.

    Raises:
        CorruptBackupError: It is not that; possibly only after the last entry: what was made of them is of no use.

    """
    held, at, count = bytearray(), 0, 0
    is_begun = False
    for chunk in chunks:
        del held[:at]
        held += chunk
        at = 0
        if not is_begun:
            if len(held) < len(MAGIC):
                continue
            if bytes(held[: len(MAGIC)]) != MAGIC:
                raise CorruptBackupError(f"{place}: it begins with {bytes(held[:5])!r}: no file of entries")
            at, is_begun = len(MAGIC), True
        while len(held) - at >= _FRAME.size:
            ledger_id, entry_id, size = _FRAME.unpack_from(held, at)
            if size > _PAYLOAD_BYTES_MAX:
                raise CorruptBackupError(f"{place}: an entry of {size:,} bytes: the longest has {_PAYLOAD_BYTES_MAX:,}")
            begin = at + _FRAME.size
            if len(held) - begin < size:
                break
            payload = bytes(held[begin : begin + size])
            at = begin + size
            try:
                envelope = decode_envelope(payload)
            except CorruptLogError as error:
                raise CorruptBackupError(f"{place}: ledger {ledger_id} entry {entry_id}: {error}") from error
            count += 1
            yield LogEntry(LogPosition(ledger_id, entry_id), payload, envelope)
    if at != len(held) or count != segment.entries:
        raise CorruptBackupError(
            f"{place}: {count} whole entries and {len(held) - at} bytes more, should be {segment.entries} entries"
        )
