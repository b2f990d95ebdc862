"""A content in a ledger of its own: chunks, then their digests, for which the record's digest vouches. Pure.

Entry n of the ledger is chunk n. The entry behind the last chunk is the index: the SHA-256 of each chunk, one after the
other. The log holds the SHA-256 of the index, so that every byte that is read of a ledger is what was written, whatever
part of the content it is, and whatever a bookie says.
"""

from __future__ import annotations

import hashlib

import msgspec

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
