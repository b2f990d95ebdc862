"""Frame of an encoded value: five bytes with which no text begins, and the codec's number.

    ff 72 73 6d 00 | codec id, 1 byte | what the codec wrote

* `CodecError(RsmError)`   a value cannot be decoded: another codec's, another key's, plain, or changed by somebody
"""

from __future__ import annotations

from typing import Protocol

from rsm_spark.errors import RsmError

_PREFIX = b"\xffrsm\x00"
_HEADER_BYTES = len(_PREFIX) + 1


class CodecError(RsmError):
    """A value cannot be decoded."""


class PayloadCodec(Protocol):
    """Codec of payloads; called from any thread.

    Attributes:
        codec_id: 1 to 255, kept for ever: the values say which codec wrote them. Ours are below 128.
        reads_plain: Values that nobody has encoded are taken as they are. With an encrypting codec that means that
            whoever can write to the servers can also write values which readers take.

    """

    codec_id: int
    reads_plain: bool

    def encode(self, plain: bytes, place: bytes) -> bytes:
        """Return what is kept of a value.

        Args:
            plain: The value.
            place: Where it belongs, the same when it is decoded: an encrypting codec binds it to that.

        """
        ...

    def decode(self, body: bytes, place: bytes) -> bytes:
        """Return the value.

        Raises:
            CodecError: It is not what `encode` made for this place.

        """
        ...


def encoded(codec: PayloadCodec | None, plain: bytes, place: bytes) -> bytes:
    """Return a value as it is kept; without a codec as it is."""
    if codec is None:
        return plain
    return _PREFIX + bytes((codec.codec_id,)) + codec.encode(plain, place)


def decoded(codec: PayloadCodec | None, kept: bytes, place: bytes) -> bytes:
    """Return a value that is kept; without a codec as it is.

    Raises:
        CodecError: It cannot be decoded.

    """
    if codec is None:
        return kept
    if not kept.startswith(_PREFIX):
        if codec.reads_plain:
            return kept
        raise CodecError(
            f"{_named(place)}: the value of {len(kept):,} bytes is plain, and this codec takes encoded ones only "
            "(reads_plain=True takes both, while values are being encoded)"
        )
    number = kept[len(_PREFIX)] if len(kept) >= _HEADER_BYTES else 0
    if number != codec.codec_id:
        raise CodecError(f"{_named(place)}: the value was encoded by codec {number}, this one is {codec.codec_id}")
    return codec.decode(kept[_HEADER_BYTES:], place)


def _named(place: bytes) -> str:
    return place[:120].decode(errors="backslashreplace").replace("\0", " ")
