"""One connection of gRPC over HTTP/2 as its server sees it (RFC 9113): bytes in, calls and messages out. No IO.

    idle       not opened yet; streams open in the order of their ids
    open       -> `_streams`; the caller may send messages
    half       -> `_streams`, `has_ended`: it sends nothing more
    closed     not in `_streams`, id at or below the last one: what still comes of it is dropped

Bounds: a block of headers, messages, streams, calls in work (a stream that its caller has reset counts until its work
is over), frames that carry nothing. What is answered waits in the stream until windows let it go; who writes asks
`unsent_of`. Messages are not compressed, and no state of compressed headers is kept for what is sent.

* `Http2Error(RsmError)`   the caller breaks the protocol, or a bound: the connection ends
"""

# Longer than 400 lines: windows, streams and headers of a connection depend on each other.

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

import hpack
import msgspec

from rsm_spark.errors import RsmError
from rsm_spark.transport.head_reader import HeadReader
from rsm_spark.transport.http2_heads import ANSWER_HEAD, RpcHead

CALLS_MAX: Final = 256
"""Open streams of a connection."""
WORK_MAX: Final = 2 * CALLS_MAX
"""Calls of it in work: those that were reset count while they are ended."""
HEAD_BYTES_MAX: Final = 16 * 1024
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_BYTES: Final = 9
_FRAME_BYTES_MAX: Final = 16 * 1024
_FIRST_WINDOW: Final = 65_535
_STREAM_WINDOW: Final = 256 * 1024
_CONNECTION_WINDOW: Final = 16 * 1024 * 1024
_UNREAD_BYTES_MAX: Final = 64 * 1024
_WINDOW_MAX: Final = 2**31 - 1
_IDLE_FRAMES_MAX: Final = 1_000
"""Frames that carry nothing, between two looks of a second."""
_IDLE_FRAMES_OF_STRANGERS_MAX: Final = 100
_IDLE_FRAMES_A_STEP: Final = 4
"""So many more for each call, and for each frame of messages that was sent."""
_BURST_BYTES_MAX: Final = 256 * 1024
"""Of messages, between two `take`s: who sends learns meanwhile whether the caller takes them."""
_PREFIX_BYTES: Final = 5

_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY, _ACK = 0x1, 0x4, 0x8, 0x20, 0x1
_CONCURRENT_STREAMS, _INITIAL_WINDOW, _HEADER_LIST = 3, 4, 6


class Http2Code(IntEnum):
    """Reason for the end of a stream or a connection."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class _Frame(IntEnum):
    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Http2Error(RsmError):
    """The caller breaks the protocol, or a bound: the connection ends; `code` says how."""

    def __init__(self, code: Http2Code, what: str) -> None:
        super().__init__(what)
        self.code = code


class RpcOpened(msgspec.Struct, frozen=True, gc=False):
    """A call began."""

    stream_id: int
    head: RpcHead


class RpcMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of a call is whole."""

    stream_id: int
    text: bytes


class RpcHalfClosed(msgspec.Struct, frozen=True, gc=False):
    """The caller sends no further message; `is_whole` is False if it was within one."""

    stream_id: int
    is_whole: bool


class RpcReset(msgspec.Struct, frozen=True, gc=False):
    """The caller has left its call."""

    stream_id: int


class RpcRefused(msgspec.Struct, frozen=True, gc=False):
    """A message cannot be taken: the call is to be ended with this status, a number of gRPC's."""

    stream_id: int
    status: int
    why: str


RpcEvent = RpcOpened | RpcMessage | RpcHalfClosed | RpcReset | RpcRefused


class _Stream:
    __slots__ = ("coming", "has_ended", "has_head", "is_deaf", "room", "tail", "unread", "unsent", "window")

    def __init__(self, room: int) -> None:
        self.room = room  # That the caller has left for us.
        self.window = _STREAM_WINDOW  # That it has left of ours.
        self.coming = bytearray()  # Of messages that are not whole.
        self.unread = 0  # Bytes of whole messages that nobody has taken yet.
        self.unsent = bytearray()
        self.tail = b""  # Headers that follow what is unsent; empty = more may come.
        self.has_head = False
        self.has_ended = False
        self.is_deaf = False  # What comes is dropped: it has been refused.


class Http2Session:
    """See the module.

    Args:
        message_bytes_max: Of a message that comes in.

    Attributes:
        room: That the caller has left for all streams.
        held_bytes: Of messages that are not whole, were not taken, or were not sent.
        unsent_bytes: Of those that were not sent.
        is_paused: Nothing of messages is sent now; control frames are few.
        is_known: A call came of somebody who is known here: it may send more frames that carry nothing.

    """

    def __init__(self, *, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._coming = b""
        self._has_preface = False
        self._has_settings = False
        self._streams: dict[int, _Stream] = {}
        self._last_id = 0
        self._work = 0
        self._heads = HeadReader(HEAD_BYTES_MAX)
        # Headers that go on in the next frame: stream, flags, what came so far.
        self._block: tuple[int, int, bytearray] | None = None
        self._window = _CONNECTION_WINDOW
        self._first_room = _FIRST_WINDOW
        self._idle_frames = 0
        self._out: list[bytes] = []
        self._burst = 0  # Bytes of messages in `_out`.
        # Streams with something unsent that their own windows let go.
        self._ready: dict[int, _Stream] = {}
        self.room = _FIRST_WINDOW
        self.held_bytes = 0
        self.unsent_bytes = 0
        self.is_paused = False
        self.is_known = False
        settings = (
            (_CONCURRENT_STREAMS, CALLS_MAX),
            (_INITIAL_WINDOW, _STREAM_WINDOW),
            (_HEADER_LIST, HEAD_BYTES_MAX),
        )
        text = b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in settings)
        self._out.append(_frame(_Frame.SETTINGS, 0, 0, text))
        self._out.append(_window_update(0, _CONNECTION_WINDOW - _FIRST_WINDOW))
        self._on: dict[int, Callable[[int, int, bytes, list[RpcEvent]], None]] = {
            _Frame.DATA: self._on_data,
            _Frame.HEADERS: self._on_headers,
            _Frame.RST_STREAM: self._on_reset,
            _Frame.SETTINGS: self._on_settings,
            _Frame.PING: self._on_ping,
            _Frame.WINDOW_UPDATE: self._on_window,
        }

    @property
    def is_idle(self) -> bool:
        """True if no call is open."""
        return not self._streams

    @property
    def has_more(self) -> bool:
        """True if there is something to send after the next `take`."""
        return bool(self._ready) and self.room > 0 and not self.is_paused

    def take(self) -> bytes:
        """Return what is to be sent now."""
        out, self._out, self._burst = self._out, [], 0
        return out[0] if len(out) == 1 else b"".join(out)

    def look(self) -> None:
        """Count anew what came; called once a second."""
        self._idle_frames = 0

    # ---- what comes

    def receive(self, data: bytes) -> list[RpcEvent]:
        """Take bytes; return what they mean.

        Raises:
            Http2Error: See the class.

        """
        text = self._coming + data if self._coming else data
        events: list[RpcEvent] = []
        place, end = 0, len(text)
        if not self._has_preface:
            if not _PREFACE.startswith(text[: len(_PREFACE)]):
                raise Http2Error(Http2Code.PROTOCOL_ERROR, "a caller that does not speak HTTP/2")
            if end < len(_PREFACE):
                self._coming = text
                return events
            self._has_preface, place = True, len(_PREFACE)
        while end - place >= _FRAME_BYTES:
            size = int.from_bytes(text[place : place + 3], "big")
            if size > _FRAME_BYTES_MAX:
                raise Http2Error(Http2Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes: {_FRAME_BYTES_MAX} are allowed")
            begin = place + _FRAME_BYTES
            if end - begin < size:
                break
            kind, flags = text[place + 3], text[place + 4]
            stream_id = int.from_bytes(text[place + 5 : begin], "big") & _WINDOW_MAX
            place = begin + size
            self._on_frame(kind, flags, stream_id, text[begin:place], events)
        self._coming = text[place:]
        return events

    def _on_frame(self, kind: int, flags: int, stream_id: int, text: bytes, events: list[RpcEvent]) -> None:
        if self._block is not None or kind == _Frame.CONTINUATION:
            self._on_continuation(kind, flags, stream_id, text, events)
            return
        if not self._has_settings:
            if kind != _Frame.SETTINGS or flags & _ACK:
                raise Http2Error(Http2Code.PROTOCOL_ERROR, "the first frame tells no settings")
            self._has_settings = True
        if kind == _Frame.PUSH_PROMISE:
            raise Http2Error(Http2Code.PROTOCOL_ERROR, "a caller pushes nothing")
        handle = self._on.get(kind)
        if kind > _Frame.HEADERS:
            self._count_idle()
        if handle is not None:  # Others mean nothing here.
            handle(flags, stream_id, text, events)

    def _count_idle(self) -> None:
        self._idle_frames += 1
        allowed = _IDLE_FRAMES_MAX if self.is_known else _IDLE_FRAMES_OF_STRANGERS_MAX
        if self._idle_frames > allowed:
            raise Http2Error(Http2Code.ENHANCE_YOUR_CALM, f"more than {allowed} frames a second that carry nothing")

    # ---- calls

    def _on_headers(self, flags: int, stream_id: int, text: bytes, events: list[RpcEvent]) -> None:
        text = _unpadded(flags, text)
        if flags & _PRIORITY:
            if len(text) < 5:
                raise Http2Error(Http2Code.FRAME_SIZE_ERROR, "headers without the priority that they name")
            text = text[5:]
        if flags & _END_HEADERS:
            self._on_block(stream_id, flags, text, events)
        else:
            self._block = (stream_id, flags, bytearray(text))

    def _on_continuation(self, kind: int, flags: int, stream_id: int, text: bytes, events: list[RpcEvent]) -> None:
        if self._block is None or kind != _Frame.CONTINUATION or stream_id != self._block[0]:
            raise Http2Error(Http2Code.PROTOCOL_ERROR, "headers do not go on where they should, or nothing goes on")
        self._count_idle()
        _, first, block = self._block
        block += text
        if len(block) > HEAD_BYTES_MAX:
            raise Http2Error(Http2Code.ENHANCE_YOUR_CALM, f"more than {HEAD_BYTES_MAX} bytes of headers")
        if flags & _END_HEADERS:
            self._block = None
            self._on_block(stream_id, first, bytes(block), events)

    def _on_block(self, stream_id: int, flags: int, block: bytes, events: list[RpcEvent]) -> None:
        head = self._decoded(block)
        stream = self._streams.get(stream_id)
        if stream is not None:  # Of what follows the messages nothing is of interest.
            if not flags & _END_STREAM or stream.has_ended:
                raise Http2Error(Http2Code.PROTOCOL_ERROR, "headers within a call")
            self._half_close(stream_id, stream, events)
            return
        if stream_id <= self._last_id and stream_id % 2:
            return
        if not stream_id % 2:
            raise Http2Error(Http2Code.PROTOCOL_ERROR, f"a caller opens no stream {stream_id}")
        self._last_id = stream_id
        if len(self._streams) >= CALLS_MAX or self._work >= WORK_MAX:
            self._count_idle()
            self._out.append(_reset(stream_id, Http2Code.REFUSED_STREAM))
            return
        if head.fault:
            self._count_idle()
            self._out.append(_frame(_Frame.HEADERS, _END_HEADERS | _END_STREAM, stream_id, head.fault))
            if not flags & _END_STREAM:
                self._out.append(_reset(stream_id, Http2Code.NO_ERROR))
            return
        stream = self._streams[stream_id] = _Stream(self._first_room)
        self._work += 1
        self._idle_frames -= _IDLE_FRAMES_A_STEP
        events.append(RpcOpened(stream_id, head))
        if flags & _END_STREAM:
            self._half_close(stream_id, stream, events)

    def _decoded(self, block: bytes) -> RpcHead:
        try:
            return self._heads.read(block)
        except (hpack.HPACKError, UnicodeDecodeError) as error:
            raise Http2Error(Http2Code.COMPRESSION_ERROR, f"headers cannot be read: {error}") from error

    def _half_close(self, stream_id: int, stream: _Stream, events: list[RpcEvent]) -> None:
        stream.has_ended = True
        events.append(RpcHalfClosed(stream_id, not stream.coming))

    def _on_reset(self, _flags: int, stream_id: int, text: bytes, events: list[RpcEvent]) -> None:
        if len(text) != 4:
            raise Http2Error(Http2Code.FRAME_SIZE_ERROR, "a reset without its code")
        if not stream_id or stream_id > self._last_id:
            raise Http2Error(Http2Code.PROTOCOL_ERROR, "a reset of what was never opened")
        if stream_id in self._streams:
            self._forget(stream_id)
            events.append(RpcReset(stream_id))

    # ---- messages

    def _on_data(self, flags: int, stream_id: int, text: bytes, events: list[RpcEvent]) -> None:
        size = len(text)
        self._window -= size
        stream = self._streams.get(stream_id)
        if not stream_id or stream_id > self._last_id:
            raise Http2Error(Http2Code.PROTOCOL_ERROR, "a message of no call")
        if self._window < 0:
            raise Http2Error(Http2Code.FLOW_CONTROL_ERROR, "more than the window of the connection")
        if self._window < _CONNECTION_WINDOW // 2:
            self._out.append(_window_update(0, _CONNECTION_WINDOW - self._window))
            self._window = _CONNECTION_WINDOW
        if not size and not flags & _END_STREAM:
            self._count_idle()
        if stream is None:
            return
        stream.window -= size
        if stream.window < 0 or stream.has_ended:
            raise Http2Error(Http2Code.FLOW_CONTROL_ERROR, "more than the window of a call, or after its end")
        if not stream.is_deaf:
            self._gather(stream_id, stream, _unpadded(flags, text), events)
            self._open_window(stream_id, stream)
        if flags & _END_STREAM:
            self._half_close(stream_id, stream, events)

    def _gather(self, stream_id: int, stream: _Stream, text: bytes, events: list[RpcEvent]) -> None:
        """Add to what is coming; cut the messages that are whole."""
        coming = stream.coming
        is_begin = not coming and len(text) >= _PREFIX_BYTES and not text[0]
        if is_begin and int.from_bytes(text[1:5], "big") == len(text) - _PREFIX_BYTES <= self._message_bytes_max:
            self._whole(stream_id, stream, text[_PREFIX_BYTES:], events)  # As nearly all come.
            return
        coming += text
        self.held_bytes += len(text)
        place = 0
        while len(coming) - place >= _PREFIX_BYTES:
            size = int.from_bytes(coming[place + 1 : place + _PREFIX_BYTES], "big")
            if coming[place]:
                self._refuse(stream_id, stream, events, 12, "messages are not compressed here")
                return
            if size > self._message_bytes_max:
                why = f"a message of {size} bytes: {self._message_bytes_max} are allowed"
                self._refuse(stream_id, stream, events, 8, why)
                return
            if len(coming) - place - _PREFIX_BYTES < size:
                break
            begin = place + _PREFIX_BYTES
            place = begin + size
            self.held_bytes -= size + _PREFIX_BYTES
            self._whole(stream_id, stream, bytes(coming[begin:place]), events)
        del coming[:place]

    def _whole(self, stream_id: int, stream: _Stream, text: bytes, events: list[RpcEvent]) -> None:
        size = len(text) + _PREFIX_BYTES
        stream.unread += size
        self.held_bytes += size
        events.append(RpcMessage(stream_id, text))

    def _refuse(self, stream_id: int, stream: _Stream, events: list[RpcEvent], status: int, why: str) -> None:
        self.held_bytes -= len(stream.coming)
        stream.coming.clear()
        stream.is_deaf = True
        events.append(RpcRefused(stream_id, status, why))

    def taken(self, stream_id: int, text: bytes) -> None:
        """Take note that a message was taken: more may come."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.unread -= len(text) + _PREFIX_BYTES
            self.held_bytes -= len(text) + _PREFIX_BYTES
            self._open_window(stream_id, stream)

    def _open_window(self, stream_id: int, stream: _Stream) -> None:
        if stream.window < _STREAM_WINDOW // 2 and stream.unread <= _UNREAD_BYTES_MAX and not stream.has_ended:
            self._out.append(_window_update(stream_id, _STREAM_WINDOW - stream.window))
            stream.window = _STREAM_WINDOW

    # ---- the connection

    def _on_settings(self, flags: int, stream_id: int, text: bytes, _events: list[RpcEvent]) -> None:
        if stream_id or len(text) % 6 or (flags & _ACK and text):
            raise Http2Error(Http2Code.FRAME_SIZE_ERROR, "settings that are none")
        if flags & _ACK:
            return
        for place in range(0, len(text), 6):
            name, value = int.from_bytes(text[place : place + 2], "big"), int.from_bytes(text[place + 2 : place + 6])
            if name == _INITIAL_WINDOW:
                self._set_first_room(value)
        self._out.append(_frame(_Frame.SETTINGS, _ACK, 0, b""))

    def _set_first_room(self, value: int) -> None:
        if value > _WINDOW_MAX:
            raise Http2Error(Http2Code.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
        change, self._first_room = value - self._first_room, value
        for stream_id, stream in self._streams.items():
            self._widen(stream_id, stream, change)
        self.pump()

    def _on_ping(self, flags: int, stream_id: int, text: bytes, _events: list[RpcEvent]) -> None:
        if stream_id or len(text) != 8:
            raise Http2Error(Http2Code.FRAME_SIZE_ERROR, "a ping has eight bytes")
        if not flags & _ACK:
            self._out.append(_frame(_Frame.PING, _ACK, 0, text))

    def _on_window(self, _flags: int, stream_id: int, text: bytes, _events: list[RpcEvent]) -> None:
        step = int.from_bytes(text, "big") & _WINDOW_MAX
        if len(text) != 4 or not step:
            raise Http2Error(Http2Code.PROTOCOL_ERROR, "a window that grows by nothing")
        if not stream_id:
            self.room += step
            if self.room > _WINDOW_MAX:
                raise Http2Error(Http2Code.FLOW_CONTROL_ERROR, "the window of the connection is too large")
        elif stream_id > self._last_id:
            raise Http2Error(Http2Code.PROTOCOL_ERROR, "a window of no call")
        elif stream_id in self._streams:
            self._widen(stream_id, self._streams[stream_id], step)
        self.pump()

    def _widen(self, stream_id: int, stream: _Stream, step: int) -> None:
        stream.room += step
        if stream.room > _WINDOW_MAX:
            raise Http2Error(Http2Code.FLOW_CONTROL_ERROR, "the window of a call is too large")
        if stream.unsent and stream.room > 0:
            self._ready[stream_id] = stream
        elif stream.room <= 0:
            self._ready.pop(stream_id, None)

    # ---- what goes

    def unsent_of(self, stream_id: int) -> int:
        """Return how many bytes of a call wait for the caller."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else len(stream.unsent)

    def send(self, stream_id: int, text: bytes) -> None:
        """Send a message of a call; dropped if the call is over."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        self._begin(stream_id, stream)
        stream.unsent += b"\0" + len(text).to_bytes(4, "big") + text
        self.held_bytes += len(text) + _PREFIX_BYTES
        self.unsent_bytes += len(text) + _PREFIX_BYTES
        if stream.room > 0:
            self._ready[stream_id] = stream
            self.pump()

    def answer(self, stream_id: int, text: bytes, tail: bytes) -> None:
        """Send the only message of a call, and its end."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        size = len(text) + _PREFIX_BYTES
        is_short = size <= min(_FRAME_BYTES_MAX, stream.room, self.room) and not self._ready
        if not is_short or stream.has_head or self.is_paused or not stream.has_ended or self._burst > _BURST_BYTES_MAX:
            self.send(stream_id, text)
            self.finish(stream_id, tail)
            return
        self.room -= size
        self._burst += size
        place = stream_id.to_bytes(4, "big")
        self._out.append(
            b"".join((
                _ANSWER_BEGIN, place, ANSWER_HEAD,
                size.to_bytes(3, "big"), b"\0\0", place, b"\0", (size - _PREFIX_BYTES).to_bytes(4, "big"), text,
                len(tail).to_bytes(3, "big"), b"\x01\x05", place, tail,
            ))
        )  # fmt: skip
        self._forget(stream_id)

    def finish(self, stream_id: int, tail: bytes) -> None:
        """End a call when all of it is sent.

        Args:
            stream_id: The call.
            tail: Headers that say how it went.

        """
        stream = self._streams.get(stream_id)
        if stream is None or stream.tail:
            return
        stream.tail = tail if stream.has_head else ANSWER_HEAD + tail
        if not stream.unsent:
            self._end(stream_id, stream)

    def reset(self, stream_id: int) -> None:
        """Break a call off."""
        if stream_id in self._streams:
            self._forget(stream_id)
            self._out.append(_reset(stream_id, Http2Code.INTERNAL_ERROR))

    def done(self) -> None:
        """Take note that the work for a call is over, whether it was reset or answered."""
        self._work -= 1

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._out.append(_frame(_Frame.PING, 0, 0, bytes(8)))

    def go_away(self, code: Http2Code = Http2Code.NO_ERROR, why: str = "") -> None:
        """Say that no further call is taken."""
        text = self._last_id.to_bytes(4, "big") + code.to_bytes(4, "big") + why.encode()[:200]
        self._out.append(_frame(_Frame.GOAWAY, 0, 0, text))

    def pump(self) -> None:
        """Send what the windows let go, a frame of each call in turn."""
        while self.has_more and self._burst < _BURST_BYTES_MAX:
            stream_id, stream = next(iter(self._ready.items()))
            del self._ready[stream_id]
            size = min(_FRAME_BYTES_MAX, len(stream.unsent), stream.room, self.room)
            self._out.append(_frame(_Frame.DATA, 0, stream_id, bytes(stream.unsent[:size])))
            del stream.unsent[:size]
            stream.room -= size
            self.room -= size
            self._burst += size
            self.held_bytes -= size
            self.unsent_bytes -= size
            self._idle_frames -= _IDLE_FRAMES_A_STEP
            if stream.unsent and stream.room > 0:
                self._ready[stream_id] = stream
            elif not stream.unsent and stream.tail:
                self._end(stream_id, stream)

    def _begin(self, stream_id: int, stream: _Stream) -> None:
        if not stream.has_head:
            stream.has_head = True
            self._out.append(_frame(_Frame.HEADERS, _END_HEADERS, stream_id, ANSWER_HEAD))

    def _end(self, stream_id: int, stream: _Stream) -> None:
        self._out.append(_frame(_Frame.HEADERS, _END_HEADERS | _END_STREAM, stream_id, stream.tail))
        if not stream.has_ended:
            self._out.append(_reset(stream_id, Http2Code.NO_ERROR))
        self._forget(stream_id)

    def _forget(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id)
        self._ready.pop(stream_id, None)
        self.held_bytes -= len(stream.coming) + stream.unread + len(stream.unsent)
        self.unsent_bytes -= len(stream.unsent)


def _frame(kind: int, flags: int, stream_id: int, text: bytes) -> bytes:
    return b"".join((len(text).to_bytes(3, "big"), bytes((kind, flags)), stream_id.to_bytes(4, "big"), text))


def _reset(stream_id: int, code: Http2Code) -> bytes:
    return _frame(_Frame.RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def _window_update(stream_id: int, step: int) -> bytes:
    return _frame(_Frame.WINDOW_UPDATE, 0, stream_id, step.to_bytes(4, "big"))


def _unpadded(flags: int, text: bytes) -> bytes:
    if not flags & _PADDED:
        return text
    if not text or text[0] >= len(text):
        raise Http2Error(Http2Code.PROTOCOL_ERROR, "more padding than there is")
    return text[1 : len(text) - text[0]]


_ANSWER_BEGIN: Final = len(ANSWER_HEAD).to_bytes(3, "big") + bytes((_Frame.HEADERS, _END_HEADERS))
