"""Length-prefixed frames, taken from a socket in batches.

A frame is a 4-byte big-endian length, then that many bytes of packet. `FrameBuffer` is the receiving half of an
`asyncio.BufferedProtocol`: the transport writes into it, and each wake-up takes all frames that are whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar

from ledger.errors import RemoteProtocolError

FRAME_BYTES_MAX: Final = 5 * 1024 * 1024
"""Longest packet, without its length prefix; BookKeeper's default."""

_RunT = TypeVar("_RunT")

_PREFIX_BYTES: Final = 4
_BUFFER_BYTES: Final = 256 * 1024  # the best of 64 KiB to 4 MiB; 1,000 connections still take only 256 MiB
_LENGTH: Final = struct.Struct(">I")


def frame(packet: bytes) -> bytes:
    """Put the length in front of a packet.

    Raises:
        RemoteProtocolError: The packet is over `FRAME_BYTES_MAX`; the peer would end the connection.

    """
    if len(packet) > FRAME_BYTES_MAX:
        raise RemoteProtocolError(f"a packet of {len(packet)} bytes is over the limit of {FRAME_BYTES_MAX}")
    return _LENGTH.pack(len(packet)) + packet


def frame_bounds(
    data: bytes | bytearray | memoryview, end: int, position: int = 0
) -> tuple[list[tuple[int, int]], int]:
    """Find the whole frames in `data[position:end]`.

    Returns:
        Start and end of each packet (without the prefix), and the end of the last whole frame.

    Raises:
        RemoteProtocolError: A length is 0 or over `FRAME_BYTES_MAX`.

    """
    bounds: list[tuple[int, int]] = []
    append = bounds.append
    unpack = _LENGTH.unpack_from
    while end - position >= _PREFIX_BYTES:
        (length,) = unpack(data, position)
        if not 0 < length <= FRAME_BYTES_MAX:
            raise RemoteProtocolError(
                f"a frame announces {length} bytes; 1 to {FRAME_BYTES_MAX} are allowed: this is not BookKeeper's "
                "protocol, or the stream is damaged"
            )
        start = position + _PREFIX_BYTES
        stop = start + length
        if stop > end:
            break
        append((start, stop))
        position = stop
    return bounds, position


class FrameBuffer:
    """Bytes received and not yet taken.

    Invariants: `_filled <= len(_buffer)`; after `take` the buffer holds less than one whole frame and has room
    for the rest of it.
    """

    __slots__ = ("_buffer", "_filled", "_view", "damage")

    def __init__(self) -> None:
        self.damage: RemoteProtocolError | None = None
        """Reason why the stream cannot go on behind the frames that `take_after_run` returned."""
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the protocol's signature
        """Return where the transport writes next; never empty."""
        return self._view[self._filled :]

    def take(self, nbytes: int) -> list[memoryview]:
        """Account for `nbytes` just written and return all packets that are whole now.

        The packets are slices of one immutable copy of the chunk: they stay valid for as long as they are kept,
        and keep that whole chunk alive.

        Raises:
            RemoteProtocolError: A length is 0 or over `FRAME_BYTES_MAX`; the stream cannot go on.

        """
        chunk, bounds = self.take_chunk(nbytes)
        view = memoryview(chunk)
        return [view[start:stop] for start, stop in bounds]

    def take_chunk(self, nbytes: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Do as `take`, but return the chunk and the bounds of its packets; a bookie journals the chunk as it is.

        Raises:
            RemoteProtocolError: A length is 0 or over `FRAME_BYTES_MAX`; the stream cannot go on.

        """
        self._filled += nbytes
        bounds, taken = frame_bounds(self._buffer, self._filled)
        chunk = bytes(self._view[:taken])
        self._keep_rest(taken)
        return chunk, bounds

    def take_after_run(
        self, nbytes: int, run: Callable[[bytearray, int], tuple[list[_RunT], int]]
    ) -> tuple[list[_RunT], list[memoryview]]:
        """Do as `take`, but let `run` have the frames at the front that it knows.

        Args:
            nbytes: Just written.
            run: (buffer, end) -> what it made of its frames, and their end.

        A length behind the run that is 0 or over `FRAME_BYTES_MAX` is kept as `damage`: what the run made of its
        frames counts all the same.

        """
        self._filled += nbytes
        known, start = run(self._buffer, self._filled)
        if start == self._filled:  # nearly always
            self._filled = 0
            return known, []
        try:
            bounds, taken = frame_bounds(self._buffer, self._filled, start)
        except RemoteProtocolError as error:
            self.damage = error
            return known, []
        view = memoryview(bytes(self._view[start:taken]))
        self._keep_rest(taken)
        return known, [view[first - start : stop - start] for first, stop in bounds]

    def _keep_rest(self, taken: int) -> None:
        """Move what is left to the front, of a buffer that has room for the whole frame it begins."""
        rest = self._filled - taken
        needed = _BUFFER_BYTES
        if rest >= _PREFIX_BYTES:
            (length,) = _LENGTH.unpack_from(self._buffer, taken)
            needed = max(needed, _PREFIX_BYTES + length)
        if needed == len(self._buffer):
            if taken and rest:
                self._buffer[:rest] = self._buffer[taken : self._filled]
        else:
            grown = bytearray(needed)
            grown[:rest] = self._view[taken : self._filled]
            self._buffer = grown
            self._view = memoryview(grown)
        self._filled = rest
