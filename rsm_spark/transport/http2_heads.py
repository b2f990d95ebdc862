"""Headers of gRPC's calls over HTTP/2: what callers say, and how a call is said to have ended. No IO.

Answers are written as literals that no table keeps: there is nothing to remember, and nothing to attack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

_UNITS_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_DIGITS_MAX: Final = 8
_LENGTH_MAX: Final = 127
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {0x25}
_DETAILS_BYTES_MAX: Final = 4_096


class RpcHead(msgspec.Struct, frozen=True):
    """Headers that a caller sends before its messages.

    Attributes:
        path: "/service/Method".
        metadata: The rest, as it came, without what HTTP and gRPC keep for themselves.
        timeout_s: That it waits; None = as long as it takes.
        fault: Headers of the answer to what is no call of gRPC; empty = it is one.

    """

    path: str
    metadata: tuple[tuple[str, bytes], ...] = ()
    timeout_s: float | None = None
    fault: bytes = b""


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header that no table keeps."""
    return b"\0" + _length(name) + name + _length(value) + value


def _length(text: bytes) -> bytes:
    size = len(text)
    if size < _LENGTH_MAX:
        return bytes((size,))
    out, size = bytearray((_LENGTH_MAX,)), size - _LENGTH_MAX
    while size >= 0x80:
        out.append(0x80 | (size & 0x7F))
        size >>= 7
    out.append(size)
    return bytes(out)


ANSWER_HEAD: Final = b"\x88" + literal(b"content-type", b"application/grpc")
"""Headers before the messages of an answer: status 200."""
ENDED_WELL: Final = literal(b"grpc-status", b"0")


def ending(status: int, details: str, metadata: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return the headers that say how a call ended.

    Args:
        status: Number of gRPC's.
        details: In words.
        metadata: More of it.

    """
    if not status and not details and not metadata:
        return ENDED_WELL
    parts = [literal(b"grpc-status", b"%d" % status)]
    if details:
        text = details.encode()[:_DETAILS_BYTES_MAX]
        told = b"".join(bytes((one,)) if one in _PLAIN else b"%%%02X" % one for one in text)
        parts.append(literal(b"grpc-message", told))
    parts += [literal(name.encode(), value.encode()) for name, value in metadata]
    return b"".join(parts)


def head_of(fields: Iterable[Any]) -> RpcHead:
    """Return what headers say that came as pairs of bytes; trailing ones say nothing.

    Raises:
        UnicodeDecodeError: A name or the path is no text.

    """
    special: dict[bytes, bytes] = {}
    metadata: list[tuple[str, bytes]] = []
    for name, value in fields:
        if name[:1] == b":" or name in _SPECIAL:
            special[name] = value
        else:
            metadata.append((name.decode(), value))
    path = special.get(b":path", b"").decode()
    fault = b""
    if not special.get(b"content-type", b"").startswith(b"application/grpc"):
        fault = _HTTP + b"\x03415"
    elif special.get(b":method") != b"POST":
        fault = _HTTP + b"\x03405"
    return RpcHead(path, tuple(metadata), timeout_of(special.get(b"grpc-timeout", b"")), fault)


def timeout_of(text: bytes) -> float | None:
    """Return the seconds of a time limit; None = it is none."""
    unit, digits = _UNITS_S.get(text[-1:]), text[:-1]
    if unit is None or not digits.isdigit() or len(digits) > _DIGITS_MAX:
        return None
    return int(digits) * unit


_SPECIAL: Final = frozenset({b"content-type", b"te", b"grpc-timeout", b"grpc-accept-encoding", b"user-agent"})
_HTTP: Final = b"\x08"
"""`:status`, by its place in the static table, without being kept."""
