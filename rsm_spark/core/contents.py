"""A content in a ledger of its own: chunks, then their digests, for which the record's digest vouches. Pure.

Entry n of the ledger is chunk n. The entry behind the last chunk is the index: the SHA-256 of each chunk, one after the
other. The log holds the SHA-256 of the index, so that every byte that is read of a ledger is what was written, whatever
part of the content it is, and whatever a bookie says.

A machine that keeps contents beside its log logs that by the records below, whatever else it logs: so a log can be
copied with its contents by who knows nothing of the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from ledger.decoding import msgpack_decoder
from rsm_spark.core.machine import Row
from rsm_spark.core.records import Record

CONTENT_NAMED, CONTENT_UNNAMED, CONTENT_FREED, CONTENT_GONE = range(24, 28)
"""Types of records: (number, `FileContent`): a name has it; (number): it has none any more; (ledger, number, whether it
had one): its ledger is about to go; (ledger): it is gone."""
CONTENTS_TABLE, FREED_TABLE = "contents", "freed"
"""Tables of such a machine: number -> `FileContent`; ledger -> number, whether a name has had it."""

CHUNK_BYTES = 1024 * 1024
"""Bytes of each chunk but the last one."""
DIGEST_BYTES = 32


class FileContent(msgspec.Struct, frozen=True, array_like=True):
    """Content in a ledger: the columns of its row in `contents`.

    Attributes:
        ledger: Which.
        size: Bytes.
        chunk_count: Chunks; the index is the entry of this number.
        digest: SHA-256 of the index.

    """

    ledger: int
    size: int
    chunk_count: int
    digest: bytes

    @property
    def is_whole(self) -> bool:
        """True if the numbers fit together."""
        fits = self.size > 0 and self.chunk_count == chunks_of(self.size)
        return fits and self.ledger >= 0 and len(self.digest) == DIGEST_BYTES

    def fault_of_index(self, index: bytes) -> str:
        """Return why something is not the index; "" = it is."""
        if len(index) != self.chunk_count * DIGEST_BYTES:
            return f"its index has {len(index)} bytes, {self.chunk_count} chunks need {self.chunk_count * DIGEST_BYTES}"
        return "" if digest_of(index) == self.digest else "its index has another digest than the log says"

    def fault_of_chunk(self, index: bytes, number: int, chunk: bytes) -> str:
        """Return why something is not a chunk; "" = it is.

        Args:
            index: Of the content.
            number: Of the chunk.
            chunk: What was read.

        """
        wanted = index[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        is_it = len(chunk) == self.bytes_of(number) and digest_of(chunk) == wanted
        return "" if is_it else f"chunk {number} has another digest than was written"

    def bytes_of(self, number: int) -> int:
        """Return how long a chunk is."""
        return min(CHUNK_BYTES, self.size - number * CHUNK_BYTES)


def chunks_of(size: int) -> int:
    """Return how many chunks so many bytes are."""
    return -(-size // CHUNK_BYTES)


def digest_of(data: bytes) -> bytes:
    """Return the digest of a chunk, or of an index."""
    return hashlib.sha256(data).digest()


def content_of_row(row: Row) -> tuple[int, FileContent]:
    """Return a row of `CONTENTS_TABLE`: the number of the content, and what it is."""
    (number,) = msgspec.msgpack.decode(row.key)
    return number, msgpack_decoder(FileContent).decode(row.row)


class KnownContent(msgspec.Struct, frozen=True):
    """Content that a log names in some of its states.

    Attributes:
        number: Under which the log knows it: the revision of the record that began it.
        content: As it was named.
        named: Revision of the record that named it, or of an older state that has it.
        freed: Revision since which no state names it; 0 = the last one does.

    """

    number: int
    content: FileContent
    named: int
    freed: int = 0

    def is_named_at(self, revision: int) -> bool:
        """Return whether the state at a revision names it."""
        return self.named <= revision and not 0 < self.freed <= revision


class KnownContents:
    """Contents that a log names, as its records pass in their order.

    Args:
        known: From records or from a state before them.

    Attributes:
        by_number: The same, and what was learnt since.

    """

    def __init__(self, known: Iterable[KnownContent] = ()) -> None:
        self.by_number = {one.number: one for one in known}
        self._freed: dict[int, int] = {}

    def fold(self, records: Iterable[Record], first_revision: int) -> None:
        """Learn from records.

        Args:
            records: Of one entry.
            first_revision: Of the first of them.

        """
        for revision, record in enumerate(records, first_revision):
            if record.type == CONTENT_NAMED:
                number, ledger, size, chunk_count, digest = record.fields
                content = FileContent(ledger, size, chunk_count, digest)
                self.by_number[number] = KnownContent(number, content, revision)
            elif record.type == CONTENT_FREED:
                _ledger, number, was_named = record.fields
                known = self.by_number.get(number)
                if known is not None:
                    self.by_number[number] = msgspec.structs.replace(known, freed=revision)
                elif was_named:  # A state before these records has it.
                    self._freed[number] = revision

    def add_row(self, number: int, content: FileContent, revision: int) -> None:
        """Learn that a state has a content; records behind it may have passed already.

        Args:
            number: Of the content.
            content: As the row says.
            revision: Of the record that wrote the row.

        """
        if number not in self.by_number:
            self.by_number[number] = KnownContent(number, content, revision, self._freed.get(number, 0))
