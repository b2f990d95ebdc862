"""One journal file becomes one segment, in little memory.

The file is scanned in a window; then only the place of each body is known, not the bodies. Blocks are put together in
slices of some megabytes in the order of the segment: for each slice the file is swept once, in its own order, and the
bodies of the slice are picked. A ledger that has the journal for itself is so read once, 10,000 interleaved ones
`file_bytes / SLICE_BYTES` times, from the page cache that the journal has just filled.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from operator import lt

import msgspec

from ledger.core.metadata import NO_ENTRY
from ledger.storage.disk import Buffer, Disk
from ledger.storage.file_window import WINDOW_BYTES, FileWindow
from ledger.storage.index import BlockRow, LedgerRow
from ledger.storage.journal_format import JournalScan, bodies, scan_file
from ledger.storage.records import RecordId
from ledger.storage.segment_format import split_ids
from ledger.storage.segment_writer import SegmentWriter
from ledger.storage.segments import Converted, Segments, ledger_row_of
from ledger.storage.unreadable import FileReader

SLICE_BYTES = 4 << 20
"""Bodies held at a time."""
_HEAD = struct.Struct(">qqq")
_IDS = struct.Struct(">qq")
_LENGTH_BITS = 24
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1

Places = tuple["array[int]", "array[int]"]
"""Entry ids, and for each ``byte offset << 24 | length``."""


class _Piece(msgspec.Struct, frozen=True, gc=False):
    """One block to be written."""

    ledger_id: int
    ids: array[int]
    places: array[int]


class JournalFile:
    """A sealed journal file on its way into a segment. Blocking; `close` when done.

    Attributes:
        scan: What it holds, and what of it is lost.
        unreadable: (first, end) byte offsets of what the device cannot read; whether that held anything is not known.

    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        journal_id: int,
        *,
        has_successor: bool,
        synced_to: int = 0,
        file_bytes: int = 0,
    ) -> None:
        self._disk = disk
        self._handle = disk.open(path)
        self._journal_id = journal_id
        self._reader = FileReader(disk, self._handle)
        self._window = FileWindow(self._reader.read, disk.size(self._handle))
        self.scan: JournalScan = scan_file(
            self._window, journal_id, has_successor=has_successor, synced_to=synced_to, file_bytes=file_bytes
        )
        self.unreadable = list(self._reader.lost)
        self._reader.is_settled = True  # What is made of it must be what was checked.

    def close(self) -> None:
        self._disk.close(self._handle)

    def records(self) -> Iterator[tuple[int, int, int, memoryview]]:
        """Yield (ledger id, entry id or record id, byte offset, content) of each body in a sound batch, as written.

        The content is valid until the next one is asked for.
        """
        for batch in self.scan.batches:
            for position, length in bodies(self._window, batch):
                content = self._window.view(position, length)
                yield *_IDS.unpack_from(content), position, content

    def write_segment(self, segments: Segments, *, slice_bytes: int = SLICE_BYTES) -> Converted | None:
        """Write the segment with the id of this file; durable under its name when this returns.

        Returns:
            Its rows, or None if the file holds nothing.

        Raises:
            OSError: Nothing may be assumed of the segment; the journal file must be kept.

        """
        entries, records = self._collect()
        ledger_ids = sorted({**dict.fromkeys(entries), **dict.fromkeys(records)})
        if not ledger_ids:
            return None
        writer = segments.create(self._journal_id)
        try:
            converted = self._write(writer, ledger_ids, entries, records, slice_bytes)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        segments.add(self._journal_id, writer)
        return converted

    def _collect(self) -> tuple[dict[int, Places], dict[int, dict[int, bytes]]]:
        """Find the place of every entry, and the records about ledgers themselves."""
        window, unpack = self._window, _IDS.unpack_from
        entries: dict[int, Places] = {}
        records: dict[int, dict[int, bytes]] = {}
        current = NO_ENTRY
        ids, places = array("q"), array("q")
        data, start, end = memoryview(b""), 0, 0
        for batch in self.scan.batches:
            for position, length in bodies(window, batch):
                if position < start or position + _IDS.size > end:
                    data = window.view(position, min(WINDOW_BYTES, window.byte_count - position))
                    start, end = position, position + len(data)
                ledger_id, entry_id = unpack(data, position - start)
                if entry_id < 0:
                    _keep_record(records.setdefault(ledger_id, {}), entry_id, bytes(window.view(position, length)))
                    continue
                if ledger_id != current:
                    found = entries.get(ledger_id)
                    if found is None:
                        found = entries[ledger_id] = array("q"), array("q")
                    ids, places = found
                    current = ledger_id
                ids.append(entry_id)
                places.append(position << _LENGTH_BITS | length)
        return entries, records

    def _write(
        self,
        writer: SegmentWriter,
        ledger_ids: list[int],
        entries: dict[int, Places],
        records: dict[int, dict[int, bytes]],
        slice_bytes: int,
    ) -> Converted:
        blocks: list[BlockRow] = []
        ledgers: dict[int, LedgerRow] = {}
        highest: dict[int, int] = {}
        for part in _slices(ledger_ids, entries, slice_bytes):
            for piece, found in zip(part, self._pick(part), strict=True):
                lac = max([_HEAD.unpack_from(entry)[2] for entry in found])
                highest[piece.ledger_id] = max(lac, highest.get(piece.ledger_id, NO_ENTRY))
                blocks.append(writer.add_block(piece.ledger_id, piece.ids, found, lac))
        for ledger_id in ledger_ids:
            of_ledger = sorted(records.get(ledger_id, {}).items())
            for first, last in split_ids([i for i, _ in of_ledger], [len(body) for _, body in of_ledger]):
                part_ids, part_bodies = zip(*of_ledger[first:last], strict=True)
                writer.add_block(ledger_id, part_ids, part_bodies, NO_ENTRY)
            last_entry_id = max(entries[ledger_id][0]) if ledger_id in entries else NO_ENTRY
            lac = highest.get(ledger_id, NO_ENTRY)
            ledgers[ledger_id] = ledger_row_of(ledger_id, iter(of_ledger), last_entry_id, lac)
        return Converted(self._journal_id, blocks, list(ledgers.values()))

    def _pick(self, part: list[_Piece]) -> Iterator[list[Buffer]]:
        """Read the bodies of a slice in one sweep over the file; yield them piece by piece."""
        places = [place for piece in part for place in piece.places]
        order = sorted(range(len(places)), key=places.__getitem__)
        found: list[Buffer] = [b""] * len(places)
        data, start, end = b"", 0, 0
        for number in order:
            place = places[number]
            position, length = place >> _LENGTH_BITS, place & _LENGTH_MASK
            if position + length > end:
                data = self._reader.read(max(length, WINDOW_BYTES), position)
                start, end = position, position + len(data)
            found[number] = data[position - start : position - start + length]
        at = 0
        for piece in part:
            yield found[at : at + len(piece.ids)]
            at += len(piece.ids)


def _slices(ledger_ids: list[int], entries: dict[int, Places], slice_bytes: int) -> Iterator[list[_Piece]]:
    """Cut all entries, sorted, into blocks, and the blocks into slices of about `slice_bytes`."""
    part: list[_Piece] = []
    used = 0
    for ledger_id in ledger_ids:
        if ledger_id not in entries:
            continue
        ids, places = _sorted(*entries[ledger_id])
        lengths = array("I", (place & _LENGTH_MASK for place in places))
        for first, last in split_ids(ids, lengths):
            part.append(_Piece(ledger_id, ids[first:last], places[first:last]))
            used += sum(lengths[first:last])
            if used >= slice_bytes:
                yield part
                part, used = [], 0
    if part:
        yield part


def _sorted(ids: array[int], places: array[int]) -> Places:
    """Return ascending ids and their places; an entry that came twice counts with its last bytes."""
    if all(map(lt, ids, ids[1:])):
        return ids, places
    latest = dict(zip(ids, places, strict=True))
    ids = array("q", sorted(latest))
    return ids, array("q", [latest[i] for i in ids])


def _keep_record(kept: dict[int, bytes], record_id: int, record: bytes) -> None:
    if record_id == RecordId.EXPLICIT_LAC and kept.get(record_id, b"")[28:36] > record[28:36]:
        return  # The higher one stays.
    kept[record_id] = record
