"""Frames of the framed port: bytes in, frames out, without IO. A connection carries one call.

    u32 length of what follows, big-endian | u8 kind | content

    caller                        replica
    HELLO                 ->                            versions that it speaks, method, token
                          <-      WELCOME, or END       the version that is spoken, or why there is no call
    MESSAGE … END         <->     MESSAGE … END         END: nothing more follows; the replica's has the call's status
    BEAT                  <->     BEAT                  "I am here", of who says nothing else

A caller waits for the welcome: before it, a stranger could send no more than a hello. Hello, welcome and end are
msgpack arrays, to which later versions append; messages belong to the method. Statuses are gRPC's numbers.

* `FrameError(RsmError)`           what came is no such frame, or not what may come now; the connection is of no use
    * `FrameTooLongError`          a frame is longer than the other end may send
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, TypeVar

import msgspec

from rsm_spark.errors import RsmError

VERSION: Final = 1
"""Highest version that is spoken here; the lowest is the same so far."""
ALPN: Final = "rsm-framed"
"""Name of the protocol in TLS: no other protocol's client is led here."""
HELLO_BYTES_MAX: Final = 4 * 1024
MAGIC: Final = "rsm"
_DETAILS_MAX: Final = 3_000
_END_BYTES_MAX: Final = 64 * 1024
_HEADER: Final = struct.Struct(">IB")
_LENGTH_BYTES: Final = 4

_T = TypeVar("_T")


class FrameError(RsmError):
    """Bytes came that are no frame of this protocol, or none that may come now."""


class FrameTooLongError(FrameError):
    """A frame is longer than the other end may send."""


class FrameKind(IntEnum):
    """First byte of a frame behind its length."""

    HELLO = 1
    WELCOME = 2
    MESSAGE = 3
    END = 4
    BEAT = 5


class CallHello(msgspec.Struct, frozen=True, array_like=True):
    """Beginning of a call.

    Attributes:
        method: "/service/Method", as over gRPC.
        token: Of the caller; empty = it has none.
        lowest: Version of this protocol that the caller speaks at least.
        highest: The same, at most.
        magic: Always `MAGIC`.

    """

    method: str
    token: bytes = b""
    lowest: int = VERSION
    highest: int = VERSION
    magic: str = MAGIC

    @property
    def version(self) -> int | None:
        """Version that both speak; None = there is none."""
        return VERSION if self.lowest <= VERSION <= self.highest else None


class CallWelcome(msgspec.Struct, frozen=True, array_like=True):
    """Word of a replica that it takes a call.

    Attributes:
        version: That is spoken from now on.
        message_bytes_max: Of a message, either way.

    """

    version: int
    message_bytes_max: int


class CallEnd(msgspec.Struct, frozen=True, array_like=True):
    """End of what one end sends.

    Attributes:
        status: gRPC's number; 0 = as it should. A caller's is always 0.
        details: In words.
        metadata: What else a program may want to know.

    """

    status: int = 0
    details: str = ""
    metadata: tuple[tuple[str, str], ...] = ()


_ENCODER: Final = msgspec.msgpack.Encoder()
_HELLOS: Final = msgspec.msgpack.Decoder(CallHello)
_WELCOMES: Final = msgspec.msgpack.Decoder(CallWelcome)
_ENDS: Final = msgspec.msgpack.Decoder(CallEnd)

BEAT: Final = _HEADER.pack(1, FrameKind.BEAT)


def encode_frame(kind: FrameKind, content: bytes) -> bytes:
    return _HEADER.pack(len(content) + 1, kind) + content


def encode_hello(hello: CallHello) -> bytes:
    """Return the frame.

    Raises:
        FrameTooLongError: Its method or token is too long.

    """
    content = _ENCODER.encode(hello)
    if len(content) > HELLO_BYTES_MAX:
        raise FrameTooLongError(
            f"a hello of {len(content)} bytes: {HELLO_BYTES_MAX} are allowed; the token is too long"
        )
    return encode_frame(FrameKind.HELLO, content)


def encode_welcome(welcome: CallWelcome) -> bytes:
    return encode_frame(FrameKind.WELCOME, _ENCODER.encode(welcome))


def encode_end(end: CallEnd) -> bytes:
    """Return the frame; details that are very long are cut."""
    if len(end.details) > _DETAILS_MAX:
        end = msgspec.structs.replace(end, details=end.details[:_DETAILS_MAX] + " …")
    return encode_frame(FrameKind.END, _ENCODER.encode(end))


def decode_hello(content: bytes) -> CallHello:
    """Return the hello.

    Raises:
        FrameError: It is none.

    """
    hello = _decoded(_HELLOS, content, "hello")
    if hello.magic != MAGIC:
        raise FrameError(f"a hello without the word {MAGIC!r}: this is the framed port of a replica")
    return hello


def decode_welcome(content: bytes) -> CallWelcome:
    """Return the welcome.

    Raises:
        FrameError: It is none.

    """
    return _decoded(_WELCOMES, content, "welcome")


def decode_end(content: bytes) -> CallEnd:
    """Return the end.

    Raises:
        FrameError: It is none.

    """
    return _decoded(_ENDS, content, "end")


def _decoded(decoder: msgspec.msgpack.Decoder[_T], content: bytes, what: str) -> _T:
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"{len(content)} bytes are no {what}: {error}") from error


_BEGINNING_OF: Final = {
    False: frozenset({FrameKind.WELCOME, FrameKind.END}),
    True: frozenset({FrameKind.HELLO}),
}
_AFTER: Final = {
    FrameKind.WELCOME: frozenset({FrameKind.MESSAGE, FrameKind.END, FrameKind.BEAT}),
    FrameKind.HELLO: frozenset[FrameKind](),  # Until `let_in`.
}
_AFTER_END_OF: Final = {False: frozenset[FrameKind](), True: frozenset({FrameKind.BEAT})}
"""By whether the reader is a replica."""


class CallFrameReader:
    """Bytes that one end has received and not yet taken: frames are handed out whole, as far as they may come now.

    Args:
        is_server: It reads what callers send.
        message_bytes_max: Of a message, once messages may come.

    Attributes:
        damage: Why the connection is of no use any more, behind the frames that were handed out; None = it is.
        held_bytes: Of the frame that is not whole.
        frame_count: Frames that were whole.

    Invariants: `_held` is less than one whole frame; a frame that is too long, or may not come now, is refused by its
    first five bytes.
    """

    def __init__(self, *, is_server: bool, message_bytes_max: int) -> None:
        self._is_server = is_server
        self._may_come = _BEGINNING_OF[is_server]
        self._message_bytes_max = message_bytes_max
        self._held = bytearray()
        self.damage: FrameError | None = None
        self.frame_count = 0

    @property
    def held_bytes(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        """Let go of the frame that is not whole: nothing follows."""
        self._held = bytearray()

    def let_in(self) -> None:
        """Take messages from now on: the caller of the hello may call."""
        self._may_come = _AFTER[FrameKind.WELCOME]

    def feed(self, data: bytes) -> list[tuple[FrameKind, bytes]]:
        """Return the frames that are whole now, as kind and content; look at `damage` behind them."""
        if not self._held:
            frames, taken = self._take(data)
            if taken < len(data):
                self._held += data[taken:] if taken else data
            return frames
        self._held += data
        with memoryview(self._held) as view:
            frames, taken = self._take(view)
        del self._held[:taken]
        return frames

    def _take(self, source: bytes | memoryview) -> tuple[list[tuple[FrameKind, bytes]], int]:
        """Return the frames that are whole, and where they end."""
        frames: list[tuple[FrameKind, bytes]] = []
        position, end = 0, len(source)
        while end - position > _LENGTH_BYTES:
            length, number = _HEADER.unpack_from(source, position)
            try:
                kind = self._check(length, number)
            except FrameError as error:
                self.damage = error
                break
            stop = position + _LENGTH_BYTES + length
            if stop > end:
                break
            frames.append((kind, bytes(source[position + _HEADER.size : stop])))
            position = stop
            if kind is FrameKind.END:
                self._may_come = _AFTER_END_OF[self._is_server]
            elif kind is FrameKind.HELLO or kind is FrameKind.WELCOME:
                self._may_come = _AFTER[kind]
        self.frame_count += len(frames)
        return frames, position

    def _check(self, length: int, number: int) -> FrameKind:
        may_come = self._may_come
        if number not in may_come:
            if may_come is _BEGINNING_OF[self._is_server]:
                raise FrameError(
                    "what came first is no frame of the framed protocol: gRPC and HTTP have ports of their own"
                )
            told = _KINDS[number].name if number in _KINDS else f"kind {number}"
            raise FrameError(f"a frame of {told}, which may not come now")
        kind = _KINDS[number]
        bytes_max = self._message_bytes_max if kind is FrameKind.MESSAGE else _BYTES_MAX[kind]
        if not 0 < length <= bytes_max + 1:
            if may_come is _BEGINNING_OF[self._is_server]:
                raise FrameError(f"what came first announces {length} bytes: it is no frame of the framed protocol")
            raise FrameTooLongError(f"a frame of {length - 1} bytes: {bytes_max} are allowed for {kind.name}")
        return kind


_KINDS: Final = {kind.value: kind for kind in FrameKind}
_BYTES_MAX: Final = {
    FrameKind.HELLO: HELLO_BYTES_MAX,
    FrameKind.WELCOME: HELLO_BYTES_MAX,
    FrameKind.END: _END_BYTES_MAX,
    FrameKind.BEAT: 0,
}
