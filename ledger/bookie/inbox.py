"""Buffer of one connection for received bytes that are less than one whole frame.

All connections of a server read into one `ReceiveRoom`: a read fills it and is taken out before anything else runs,
so that an idle connection holds no buffer at all. Between two reads an inbox keeps only the beginning of a frame;
a long frame gathers in a buffer of its own, which grows with what came and is gone with the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from ledger.errors import RemoteProtocolError
from ledger.frame_pot import FrameShare
from ledger.wire.frames import FRAME_BYTES_MAX

_PREFIX_BYTES: Final = 4
_KEPT_BYTES_MAX: Final = 128 << 10
"""A beginning up to this long is copied back into the room for the next read; a longer one gathers by itself."""
_unpack_length = struct.Struct(">I").unpack_from


class ReceiveRoom:
    """Buffer into which all transports of one server read.

    Args:
        byte_count: Room for one read.

    """

    __slots__ = ("buffer", "view")

    def __init__(self, byte_count: int) -> None:
        assert byte_count >= 2 * _KEPT_BYTES_MAX
        self.buffer = bytearray(byte_count)
        self.view = memoryview(self.buffer)


class Inbox:
    """See the module.

    Args:
        room: Where the transport writes.
        share: Told what is kept; it ends the connection when all of them keep too much.
        frame_bytes_max: A frame that announces more ends the connection.

    Attributes:
        frame_bytes_max: As given; may be raised.

    Invariant: `_kept` and `_gathered` are not both in use; either begins a frame that is not whole.

    """

    __slots__ = ("_filled", "_gathered", "_kept", "_room", "_share", "frame_bytes_max")

    def __init__(self, room: ReceiveRoom, share: FrameShare, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._room = room
        self._share = share
        self.frame_bytes_max = frame_bytes_max
        self._kept = b""
        self._gathered: bytearray | None = None
        self._filled = 0

    @property
    def kept_bytes(self) -> int:
        """Memory that an unfinished frame holds."""
        return len(self._kept) if self._gathered is None else len(self._gathered)

    def get_buffer(self) -> memoryview:
        """Return where the transport writes next; never empty. `take` must follow before another inbox's."""
        if self._gathered is not None:
            return memoryview(self._gathered)[self._filled :]
        kept = len(self._kept)
        if kept:
            self._room.buffer[:kept] = self._kept
        return self._room.view[kept:]

    def take(self, byte_count: int, run: Callable[[bytes, int], int]) -> tuple[bytes, int, int]:
        """Account for bytes just written and return what is whole.

        Args:
            byte_count: Just written.
            run: (chunk, end) -> end of the frames at the front that it handled at once. Not called before the first
                frame is whole.

        Returns:
            A chunk, and the bounds of the whole frames in it that `run` left.

        Raises:
            RemoteProtocolError: A length is 0, or over what is allowed.

        """
        if self._gathered is not None:
            view, filled = memoryview(self._gathered), self._filled + byte_count
        else:
            view, filled = self._room.view, len(self._kept) + byte_count
        if filled < _PREFIX_BYTES or filled - _PREFIX_BYTES < self._announced(view, 0):
            self._keep(view, 0, filled)
            return b"", 0, 0
        chunk = bytes(view[:filled])
        start = run(chunk, filled)
        stop = start
        while filled - stop >= _PREFIX_BYTES:
            after = stop + _PREFIX_BYTES + self._announced(chunk, stop)
            if after > filled:
                break
            stop = after
        self._keep(view, stop, filled)
        return chunk, start, stop

    def _announced(self, data: bytes | memoryview, position: int) -> int:
        length: int = _unpack_length(data, position)[0]
        if not 0 < length <= self.frame_bytes_max:
            reason = "this is not BookKeeper's protocol, or the stream is damaged"
            if 0 < length <= FRAME_BYTES_MAX:
                reason = "longer ones are taken after TLS and log-in"
            raise RemoteProtocolError(
                f"a frame announces {length} bytes; 1 to {self.frame_bytes_max} are allowed: {reason}"
            )
        return length

    def _keep(self, view: memoryview, start: int, filled: int) -> None:
        """Keep the beginning of a frame; `view[start:filled]` is less than one."""
        rest = filled - start
        needed = _PREFIX_BYTES + self._announced(view, start) if rest >= _PREFIX_BYTES else rest
        if needed <= _KEPT_BYTES_MAX:
            self._kept, self._gathered = bytes(view[start:filled]), None
        elif self._gathered is None or start:
            self._gather(view[start:filled], needed)
        elif filled == len(self._gathered):
            self._gather(view[:filled], needed)
        self._filled = rest
        self._share.set(self.kept_bytes, is_new_frame=start > 0)

    def _gather(self, beginning: memoryview, needed: int) -> None:
        """Continue in a buffer of its own: twice what came, but not more than the frame."""
        gathered = bytearray(min(needed, max(2 * len(beginning), 2 * _KEPT_BYTES_MAX)))
        gathered[: len(beginning)] = beginning
        self._kept, self._gathered = b"", gathered

    def clear(self) -> None:
        """Forget what came: the connection is over."""
        self._kept, self._gathered, self._filled = b"", None, 0
        self._share.set(0, is_new_frame=True)
