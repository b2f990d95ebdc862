"""Messages between a worker and its child processes: msgpack arrays, each after its length in four bytes."""

from __future__ import annotations

import struct

import msgspec

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.worker_messages import AssignedRun

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Above every message: a payload or a result has 1 MiB at most. Who says more is no child of ours."""

_LENGTH = struct.Struct(">I")
_ENCODER = msgspec.msgpack.Encoder()


class SetUp(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The first message to a child.

    Attributes:
        tasks: What `load_registry` takes; "" = functions are named by each run's mode, and lie in `folder`.
        folder: Of a code pool, to be imported from; "" = none.
        memory_bytes_max: Address space of the child; 0 = no bound.
        giver: "module:function" that gives functions more than context and payload: see `CodeSupport`; "" = none.

    """

    tasks: str
    folder: str = ""
    memory_bytes_max: int = 0
    giver: str = ""


class RunMade(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Run this now; a child has one run at a time."""

    run: AssignedRun


class StopRun(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Tell the function that it is to end."""

    assignment_id: int
    reason: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The set-up is done.

    Attributes:
        types: Task types with a function.
        error: Why it failed; "" = it did not.

    """

    types: list[str] = []
    error: str = ""


class FunctionLoaded(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The function of a run is imported: it is about to be called."""

    assignment_id: int


class RunEnded(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The run has ended.

    Attributes:
        end: Of the run.
        cpu_s: Seconds of processor that this process has used since it began.

    """

    end: EndedRun
    cpu_s: float = 0.0


class RunProgress(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A sign of life."""

    progress: ProgressOf


ParentMessage = SetUp | RunMade | StopRun
ChildMessage = Ready | FunctionLoaded | RunEnded | RunProgress


def encode_frame(message: ParentMessage | ChildMessage) -> bytes:
    """Return a message with its length."""
    text = _ENCODER.encode(message)
    return _LENGTH.pack(len(text)) + text


class FrameReader:
    """Takes bytes as they come and gives whole messages back, without their lengths."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the messages that are whole now.

        Raises:
            ValueError: One says that it is too long.

        """
        buffer = self._buffer
        buffer += chunk
        texts: list[bytes] = []
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a message of {length} bytes; {FRAME_BYTES_MAX} are allowed")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            texts.append(bytes(buffer[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]
        return texts
