"""Compression by zlib; what it is unpacked to is bounded."""

from __future__ import annotations

import zlib

from rsm_spark.codecs.framing import CodecError

_STORED, _DEFLATED = b"\0", b"\1"
_BYTES_MAX = 16 * 1024 * 1024


class DeflateCodec:
    """Makes values smaller where that is worth it. Anybody can read them.

    Args:
        level: Of zlib: 1 is quick, 9 is small.
        bytes_max: A value that would be larger is not unpacked.

    """

    codec_id = 1
    reads_plain = True

    def __init__(self, *, level: int = 6, bytes_max: int = _BYTES_MAX) -> None:
        self._level = level
        self._bytes_max = bytes_max

    def encode(self, plain: bytes, place: bytes) -> bytes:  # noqa: ARG002 - compression knows no place
        """Return the value smaller, or as it is."""
        packed = zlib.compress(plain, self._level)
        return _DEFLATED + packed if len(packed) < len(plain) else _STORED + plain

    def decode(self, body: bytes, place: bytes) -> bytes:
        """Return the value.

        Raises:
            CodecError: It is damaged, or too large.

        """
        how, content = body[:1], body[1:]
        if how == _STORED:
            return content
        if how != _DEFLATED:
            raise CodecError(f"{place[:120]!r}: the value is packed in a way that is not known")
        return inflated(content, self._bytes_max, place)


def inflated(content: bytes, bytes_max: int, place: bytes) -> bytes:
    """Unpack, to a bound.

    Raises:
        CodecError: It is damaged, or would become larger.

    """
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(content, bytes_max + 1)
    except zlib.error as error:
        raise CodecError(f"{place[:120]!r}: the value cannot be unpacked: {error}") from error
    if len(plain) > bytes_max:
        raise CodecError(f"{place[:120]!r}: the value would have more than {bytes_max:,} bytes")
    if not unpacking.eof or unpacking.unused_data:
        raise CodecError(f"{place[:120]!r}: the value is cut off, or has something behind it")
    return plain
