"""The entries that lie in a journal file and in no segment yet: where they are, and the newest in memory.

One `Generation` per journal file. A chunk that came from a socket is kept as it is; an entry's *place* is
``virtual offset << 24 | length``, the virtual offset counting the bytes of all chunks of the generation. So an
entry costs one integer, and a chunk that was evicted is read back from the journal file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator

import msgspec

from ledger.storage.disk import Buffer

LENGTH_BITS = 24
LENGTH_MASK = (1 << LENGTH_BITS) - 1
_NOT_WRITTEN = -1


class JournalPlace(msgspec.Struct, frozen=True, gc=False):
    """An entry whose chunk was evicted from memory: read it from the journal file."""

    sequence: int
    handle: int
    byte_offset: int
    byte_count: int


class SealedPlaces:
    """The places of one ledger's entries in a file that takes no more: a tenth of what a dictionary needs."""

    __slots__ = ("_ids", "_places")

    def __init__(self, entries: dict[int, int]) -> None:
        ids = array("q", entries)
        self._places = array("q", entries.values())
        dense = range(ids[0], ids[0] + len(ids)) if ids else range(0)
        self._ids: range | array[int] = dense
        # Entries come in order but for those that are sent again, and most ledgers are dense.
        if ids and (ids[-1] != dense[-1] or array("q", dense) != ids):
            self._ids = array("q", sorted(entries))
            self._places = array("q", [entries[entry_id] for entry_id in self._ids])

    def get(self, entry_id: int) -> int | None:
        """Return the place of an entry, or None."""
        number = bisect_left(self._ids, entry_id)
        if number == len(self._ids) or self._ids[number] != entry_id:
            return None
        return self._places[number]

    def __iter__(self) -> Iterator[int]:
        """Yield the entry ids, ascending."""
        return iter(self._ids)


class Generation:
    """One journal file in use, and what it holds.

    Attributes:
        sequence: 0, 1, 2, … since the start of the process; orders generations.
        journal_id: Id of the file.
        handle: Of the file.
        path: Of the file.
        write_offset: Where the next batch goes. Touched only by the journal's worker while a batch is in flight.
        reserved_bytes: What all items taken so far may use of the file, marks included.
        entry_count: Entries and records in it.
        ledgers: ledger id -> entry id -> place; dictionaries while it takes entries.
        is_opened: The file has its new name.

    Invariant: `bases`, `chunks` and `file_offsets` have one item per chunk; an item of `chunks` is None only
    where `file_offsets` is known.

    """

    __slots__ = (
        "_bases",
        "_chunks",
        "_file_offsets",
        "entry_count",
        "handle",
        "is_opened",
        "journal_id",
        "ledgers",
        "path",
        "reserved_bytes",
        "sequence",
        "virtual_bytes",
        "write_offset",
    )

    def __init__(self, sequence: int, journal_id: int, handle: int, path: str) -> None:
        self.sequence = sequence
        self.journal_id = journal_id
        self.handle = handle
        self.path = path
        self.is_opened = False
        self.write_offset = 0
        self.reserved_bytes = 0
        self.virtual_bytes = 0
        self.entry_count = 0
        self.ledgers: dict[int, dict[int, int] | SealedPlaces] = {}
        self._bases: list[int] = []
        self._chunks: list[Buffer | None] = []
        self._file_offsets: list[int] = []

    def places_of(self, ledger_id: int) -> dict[int, int]:
        """Return the dictionary that the places of a ledger's entries go to; only before `seal`."""
        places = self.ledgers.setdefault(ledger_id, {})
        assert isinstance(places, dict)
        return places

    def seal(self) -> None:
        """Make the places small: nothing comes any more. On any thread: readers see the one or the other."""
        sealed: dict[int, dict[int, int] | SealedPlaces] = {}
        for ledger_id, entries in self.ledgers.items():
            sealed[ledger_id] = SealedPlaces(entries) if isinstance(entries, dict) else entries
        self.ledgers = sealed

    def add_chunk(self, chunk: Buffer) -> int:
        """Keep a chunk whose entries were placed from `virtual_bytes` on; return its number."""
        self._bases.append(self.virtual_bytes)
        self._chunks.append(chunk)
        self._file_offsets.append(_NOT_WRITTEN)
        self.virtual_bytes += len(chunk)
        return len(self._chunks) - 1

    def set_written(self, chunk_number: int, byte_offset: int) -> None:
        """Note where in the file a chunk is durable."""
        self._file_offsets[chunk_number] = byte_offset

    def evict(self, chunk_number: int) -> None:
        """Let a written chunk go from memory."""
        assert self._file_offsets[chunk_number] != _NOT_WRITTEN
        self._chunks[chunk_number] = None

    def find(self, ledger_id: int, entry_id: int) -> Buffer | JournalPlace | None:
        """Return an entry, or where it is in the file, or None if it is not in this generation."""
        entries = self.ledgers.get(ledger_id)
        place = None if entries is None else entries.get(entry_id)
        if place is None:
            return None
        virtual, length = place >> LENGTH_BITS, place & LENGTH_MASK
        number = bisect_right(self._bases, virtual) - 1
        start = virtual - self._bases[number]
        chunk = self._chunks[number]
        if chunk is None:
            return JournalPlace(self.sequence, self.handle, self._file_offsets[number] + start, length)
        return memoryview(chunk)[start : start + length]


class ChunkCache:
    """Bounds the memory of written chunks: the oldest go first."""

    def __init__(self, byte_count_max: int) -> None:
        self._byte_count_max = byte_count_max
        self._byte_count = 0
        # (generation, chunk number, bytes), in the order in which they became durable.
        self._written: deque[tuple[Generation, int, int]] = deque()

    def add(self, generation: Generation, chunk_number: int, byte_count: int) -> None:
        """Take note of a durable chunk; evict what is too much."""
        self._written.append((generation, chunk_number, byte_count))
        self._byte_count += byte_count
        while self._byte_count > self._byte_count_max and self._written:
            oldest, number, size = self._written.popleft()
            oldest.evict(number)
            self._byte_count -= size

    def drop(self, generation: Generation) -> None:
        """Forget a generation that has become a segment."""
        kept = deque(item for item in self._written if item[0] is not generation)
        self._byte_count = sum(item[2] for item in kept)
        self._written = kept
