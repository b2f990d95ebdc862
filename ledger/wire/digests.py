"""Digests that protect entries, and the keys that a ledger's password gives."""

from __future__ import annotations

import hashlib
import hmac
import zlib
from typing import Final

from crc32c import crc32c

from ledger.core.metadata import DigestType

MASTER_KEY_BYTES: Final = 20
_SIZES: Final = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}


def master_key(password: bytes) -> bytes:
    """Return the 20 bytes that a client shows to bookies as proof of the ledger's password."""
    return hashlib.sha1(b"ledger" + password).digest()  # noqa: S324 - the protocol's choice


class Digest:
    """One ledger's digest: a function of (header, payload) with a fixed size.

    Attributes:
        type: Which of the four.
        size: Bytes of the digest on the wire: 4 (CRC32C), 8 (CRC32), 20 (HMAC-SHA1) or 0 (DUMMY).

    """

    __slots__ = ("_key", "size", "type")

    def __init__(self, digest_type: DigestType, password: bytes = b"") -> None:
        self.type = digest_type
        self.size = _SIZES[digest_type]
        self._key = hashlib.sha1(b"mac" + password).digest()  # noqa: S324 - the protocol's choice

    def compute(self, header: bytes | memoryview, payload: bytes | memoryview = b"") -> bytes:
        """Return the digest of header and payload, `size` bytes, as it stands on the wire."""
        if self.type == DigestType.CRC32C:
            return crc32c(payload, crc32c(header)).to_bytes(4, "big")
        if self.type == DigestType.CRC32:
            return zlib.crc32(payload, zlib.crc32(header)).to_bytes(8, "big")
        if self.type == DigestType.HMAC:
            mac = hmac.new(self._key, header, hashlib.sha1)
            mac.update(payload)
            return mac.digest()
        return b""
