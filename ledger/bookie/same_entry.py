"""Comparison of two copies of an entry: a held entry may be sent again but never changed (safety 30).

A recovery sends an entry again under another LAC, and with it under another digest; ledger, id, length and payload
stay. A bookie does not know a ledger's digest, but it can see which of the unkeyed ones fits.
"""

from __future__ import annotations

import zlib
from typing import Final

from crc32c import crc32c

from ledger.storage.disk import Buffer

_LAC: Final = slice(16, 24)
_HEADER_BYTES: Final = 32
_DIGEST_BYTES_MAX: Final = 20


def is_same_entry(held: Buffer, offered: Buffer) -> bool:
    """Return whether both are copies of one entry: equal, or equal but for the LAC and the digest over it."""
    if held == offered:
        return True
    if len(held) != len(offered) or held[_LAC] == offered[_LAC]:
        return False
    if held[:16] != offered[:16] or held[24:_HEADER_BYTES] != offered[24:_HEADER_BYTES]:
        return False
    start = _HEADER_BYTES + _digest_bytes(held)
    return held[start:] == offered[start:]


def _digest_bytes(entry: Buffer) -> int:
    """Return the size of the entry's digest as far as it can be told, else the longest."""
    header = entry[:_HEADER_BYTES]
    if entry[32:36] == crc32c(entry[36:], crc32c(header)).to_bytes(4, "big"):
        return 4
    if entry[32:40] == zlib.crc32(entry[40:], zlib.crc32(header)).to_bytes(8, "big"):
        return 8
    return _DIGEST_BYTES_MAX
