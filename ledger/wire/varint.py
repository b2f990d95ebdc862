"""Protobuf's variable-length integers, for the packets that are encoded and decoded by hand.

A `raw` varint is its bytes. The tables trade 1 MiB and a few milliseconds at import for 70 ns a number.
"""

from __future__ import annotations

from typing import Final

_LOW: Final = (1 << 14) - 1
_SIGN: Final = 1 << 63
_WRAP: Final = 1 << 64

# Two groups of 7 bits each: as the end of a varint (1 or 2 bytes), and as a part that goes on (2 bytes).
_LAST: Final = [bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(1 << 14)]
_MORE: Final = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << 14)]


def encode_varint(number: int) -> bytes:
    """Return the canonical varint of a 64-bit integer; a negative one takes ten bytes (two's complement)."""
    if number < 0:
        number += _WRAP
    if number <= _LOW:
        return _LAST[number]
    if number < 1 << 28:
        return _MORE[number & _LOW] + _LAST[number >> 14]
    return _MORE[number & _LOW] + encode_varint(number >> 14)


def decode_varint(raw: bytes) -> int:
    """Return the signed 64-bit integer of a varint of at most ten bytes."""
    size = len(raw)
    if size == 1:
        return raw[0]
    if size == 2:
        return raw[0] & 127 | raw[1] << 7
    if size == 3:
        return raw[0] & 127 | (raw[1] & 127) << 7 | raw[2] << 14
    number = 0
    for shift, byte in enumerate(raw):
        number |= (byte & 127) << 7 * shift
    number %= _WRAP
    return number - _WRAP if number >= _SIGN else number
