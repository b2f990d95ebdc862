"""Batch reads: entries of a ledger in one answer, consecutive ones or such as are equally far apart.

An answer holds entries in order from the one asked for, out of memory and from disk, as many as were asked for, as fit,
and as are there: it ends before the first that is missing or cannot be read. So nobody can have a bookie look for more
entries than it finds. The first comes however long it is. What counts as size is what BookKeeper counts: the whole
frame, prefix and lengths included.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from ledger.bookie.responder import Responder
from ledger.core.metadata import NO_ENTRY
from ledger.storage.bookie_ledger import BookieLedger
from ledger.storage.disk import Buffer
from ledger.storage.entry_store import EntryStore
from ledger.storage.read_queue import EntryRun
from ledger.storage.tail import JournalPlace
from ledger.wire.codes import Status
from ledger.wire.frames import FRAME_BYTES_MAX
from ledger.wire.packets import BatchReadRequest
from ledger.wire.v2 import encode_batch_head

Answer = Callable[[list[Buffer] | Status | None], None]
"""Gets the parts of the frame; None if the first entry is not held; or why it cannot be told."""

_pack_length = struct.Struct(">I").pack
_HEAD_BYTES: Final = 36
_PREFIX_BYTES: Final = 4
_LENGTH_BYTES: Final = 4


class BatchReads:
    """All batch reads of a bookie.

    Args:
        store: Where the entries are.
        byte_count_max: What those that read from disk may gather together; others wait for their turn.

    Attributes:
        room_bytes: What is left of it.

    """

    def __init__(self, store: EntryStore, *, byte_count_max: int) -> None:
        assert byte_count_max >= FRAME_BYTES_MAX
        self.store = store
        self.room_bytes = byte_count_max
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def read(self, connection: Responder, ledger: BookieLedger, request: BatchReadRequest, answer: Answer) -> None:
        """Answer one request: now if all is in memory, else when a disk was read."""
        batch = _BatchRead(self, connection, ledger, request, answer)
        if batch.is_in_memory():
            batch.finish(None)
        else:
            # What was found pins memory and is not kept: it may be long until it is this one's turn.
            connection.run_cold(_BatchRead(self, connection, ledger, request, answer).start)

    def claim(self, byte_count: int, begin: Callable[[], None]) -> None:
        """Call `begin` when there is room for a batch of this size; `release` gives it back."""
        self._waiting.append((byte_count, begin))
        self._begin_next()

    def release(self, byte_count: int) -> None:
        """Let the next begin."""
        self.room_bytes += byte_count
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.room_bytes:
            byte_count, begin = self._waiting.popleft()
            self.room_bytes -= byte_count
            begin()


class _BatchRead:
    """One request under way: `_parts` holds the entries before `_next_id`, lengths included."""

    __slots__ = (
        "_answer",
        "_batches",
        "_connection",
        "_done",
        "_frame_bytes",
        "_ledger",
        "_left",
        "_max_bytes",
        "_next_id",
        "_parts",
        "_request",
    )

    def __init__(
        self,
        batches: BatchReads,
        connection: Responder,
        ledger: BookieLedger,
        request: BatchReadRequest,
        answer: Answer,
    ) -> None:
        self._batches = batches
        self._connection = connection
        self._ledger = ledger
        self._request = request
        self._answer = answer
        self._done: Callable[[], None] = _nothing
        self._parts: list[Buffer] = []
        self._frame_bytes = _HEAD_BYTES
        self._max_bytes = max(0, min(request.max_bytes, FRAME_BYTES_MAX))
        self._next_id = request.entry_id
        self._left = request.max_count if request.max_count > 0 else ledger.last_entry_id + 1
        if request.entry_id == NO_ENTRY:
            self._next_id, self._left = ledger.last_entry_id, 1

    def is_in_memory(self) -> bool:
        """Take entries as long as they are in memory; return whether that is all."""
        find, ledger_id, last = self._batches.store.find, self._ledger.ledger_id, self._ledger.last_entry_id
        while self._left > 0 and 0 <= self._next_id <= last:
            found = find(ledger_id, self._next_id)
            if found is None or isinstance(found, JournalPlace):
                return False
            frame_bytes = self._frame_bytes + _LENGTH_BYTES + len(found)
            if frame_bytes > self._max_bytes and self._parts:
                return True
            self._parts += (_pack_length(len(found)), found)
            self._add(1, frame_bytes)
        return True

    def _add(self, entry_count: int, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._next_id += entry_count * self._request.stride
        self._left -= entry_count

    def start(self, done: Callable[[], None]) -> None:
        """Read from disk what is not in memory, when there is room for it; then answer and call `done`."""
        self._done = done
        self._batches.claim(self._max_bytes, self._read_on)

    def _read_on(self) -> None:
        left_bytes = self._max_bytes - self._frame_bytes
        has_room = not self._parts or left_bytes > 0
        if self._left <= 0 or not 0 <= self._next_id <= self._ledger.last_entry_id or not has_room:
            self._end(None)
            return
        run = self._batches.store.read_run(
            self._ledger.ledger_id,
            self._next_id,
            count_max=self._left,
            byte_count_max=left_bytes,
            stride=self._request.stride,
        )
        run.add_done_callback(self._on_run)

    def _on_run(self, future: asyncio.Future[EntryRun]) -> None:
        if future.cancelled() or future.exception() is not None:
            self._end(Status.EIO)
            return
        run = future.result()
        frame_bytes = self._frame_bytes + run.byte_count
        if not run.entry_count or (self._parts and frame_bytes > self._max_bytes):
            self._end(None if run.error is None else Status.EIO)
            return
        self._parts += run.pieces
        self._add(run.entry_count, frame_bytes)
        self._read_on()

    def _end(self, failure: Status | None) -> None:
        self._batches.release(self._max_bytes)
        self.finish(failure)
        self._done()

    def finish(self, failure: Status | None) -> None:
        """Answer with what was found; with `failure`, or that the entry is not held, if that is nothing."""
        if not self._parts:
            self._answer(failure)
            return
        request, length = self._request, self._frame_bytes - _PREFIX_BYTES
        head = encode_batch_head(0, request.ledger_id, request.entry_id, request.txn_id, request.stride)
        self._answer([_pack_length(length), head, *self._parts])


def _nothing() -> None:
    """Stand in for `done` before there is one."""
