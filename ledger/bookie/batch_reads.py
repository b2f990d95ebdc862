"""Batch reads: consecutive entries of a ledger in one answer, from memory and from disk.

An answer holds entries in order from the one asked for, as many as were asked for, as fit, and as are there: it ends
before the first that is missing or cannot be read. The first comes however long it is. What counts as size is what
BookKeeper counts: the whole frame, prefix and lengths included.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from ledger.bookie.responder import ConnectionGoneError, Responder
from ledger.core.bookie_ledger import BookieLedger
from ledger.core.metadata import NO_ENTRY
from ledger.store.cold_reads import Lookup
from ledger.store.disk import Buffer
from ledger.store.entry_store import EntryStore
from ledger.store.tail import JournalPlace
from ledger.wire.codes import V2_PROTOCOL_VERSION, Status, V2Opcode
from ledger.wire.packets import BatchReadRequest

__all__ = ["Answer", "BatchReads"]

Answer = Callable[[list[Buffer] | Status | None], None]
"""Gets the parts of the frame; None if the first entry is not held; or why it cannot be told."""

_HEAD: Final = struct.Struct(">IIIqqq")
_pack_length = struct.Struct(">I").pack
_HEADER: Final = V2_PROTOCOL_VERSION << 24 | V2Opcode.BATCH_READ_ENTRY << 16
_PREFIX_BYTES: Final = 4
_FRAME_BYTES_MAX: Final = 5 << 20
_COLD_FIRST: Final = 16
_COLD_MAX: Final = 1024


class BatchReads:
    """All batch reads of a bookie.

    Args:
        store: Where the entries are.
        byte_count_max: What those that wait for a disk may gather together; one more is refused.

    """

    def __init__(self, store: EntryStore, *, byte_count_max: int) -> None:
        self.store = store
        self.room_bytes = byte_count_max

    def read(self, connection: Responder, ledger: BookieLedger, request: BatchReadRequest, answer: Answer) -> None:
        """Answer one request, now or when a disk was read."""
        _BatchRead(self, connection, ledger, request, answer).go_on()


class _BatchRead:
    """One request under way: `parts` holds the entries before `_next_id`."""

    __slots__ = (
        "_answer",
        "_batches",
        "_connection",
        "_found",
        "_frame_bytes",
        "_is_waiting",
        "_ledger",
        "_left",
        "_max_bytes",
        "_next_id",
        "_parts",
        "_request",
        "_wanted",
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
        self._parts: list[Buffer] = []
        self._frame_bytes = _HEAD.size
        self._max_bytes = min(request.max_bytes, _FRAME_BYTES_MAX)
        self._next_id = request.entry_id
        self._left = request.max_count if request.max_count > 0 else ledger.last_entry_id + 1
        if request.entry_id == NO_ENTRY:
            self._next_id, self._left = ledger.last_entry_id, 1
        self._is_waiting = False
        self._found: list[Any] = []
        self._wanted = 0

    def go_on(self) -> None:
        """Take what is in memory; read on from disk, or answer."""
        store, ledger = self._batches.store, self._ledger
        while self._left > 0 and 0 <= self._next_id <= ledger.last_entry_id:
            found = store.find(ledger.ledger_id, self._next_id)
            if found is None or isinstance(found, JournalPlace):
                self._read_cold()
                return
            if not self._take(found):
                break
        self._finish(self._frame() if self._parts else None)

    def _take(self, entry: Buffer) -> bool:
        """Add the next entry if it fits."""
        frame_bytes = self._frame_bytes + 4 + len(entry)
        if frame_bytes > self._max_bytes and self._parts:
            return False
        self._frame_bytes = frame_bytes
        self._parts += (_pack_length(len(entry)), entry)
        self._next_id += 1
        self._left -= 1
        return True

    def _read_cold(self) -> None:
        """Read the next entries that are not in memory, as many as will fit as far as those taken tell."""
        if not self._is_waiting:
            if self._batches.room_bytes < self._max_bytes:
                self._finish(Status.ETOOMANYREQUESTS)
                return
            self._is_waiting = True
            self._batches.room_bytes -= max(0, self._max_bytes)
        taken = len(self._parts) // 2
        fitting = _COLD_FIRST
        if taken:
            fitting = max(0, self._max_bytes - self._frame_bytes) * taken // (self._frame_bytes - _HEAD.size) + 1
        count = min(fitting, _COLD_MAX, self._left, self._ledger.last_entry_id - self._next_id + 1)
        ledger_id, store = self._ledger.ledger_id, self._batches.store
        lookups: list[Lookup] = []
        for entry_id in range(self._next_id, self._next_id + count):
            found = store.find(ledger_id, entry_id)
            if found is not None and not isinstance(found, JournalPlace):
                break
            lookups.append(Lookup(ledger_id, entry_id, found))
        self._found, self._wanted = [], len(lookups)
        for lookup in lookups:
            self._connection.read_cold(lookup, self._on_found)

    def _on_found(self, entry: Any) -> None:
        self._found.append(entry)
        if len(self._found) < self._wanted:
            return
        for found in self._found:
            if isinstance(found, bytes):
                if self._take(found):
                    continue
                self._finish(self._frame())
            elif self._parts:
                self._finish(self._frame())
            elif found is None:
                self._finish(None)
            else:
                self._finish(None if isinstance(found, ConnectionGoneError) else Status.EIO)
            return
        self.go_on()

    def _frame(self) -> list[Buffer]:
        request = self._request
        length = self._frame_bytes - _PREFIX_BYTES
        head = _HEAD.pack(length, _HEADER, 0, request.ledger_id, request.entry_id, request.txn_id)
        return [head, *self._parts]

    def _finish(self, result: list[Buffer] | Status | None) -> None:
        if self._is_waiting:
            self._batches.room_bytes += max(0, self._max_bytes)
        self._answer(result)
