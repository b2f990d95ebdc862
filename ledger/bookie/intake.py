"""The hot path: runs of ordinary adds in canonical layout, from received bytes to journal item in one loop.

Per entry: one regular expression, one unpack, a few compares, one place in the tail, two numbers in the table of
contents, the bytes of the answer. No object per entry. Ledger, key and fence are judged once per run and ledger,
which is enough: nothing else runs on the event loop meanwhile (safety 22). Whatever is not ordinary ends the run
and goes through `ledger.bookie.handlers`.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable
from typing import Final

from ledger.core.bookie_ledger import BookieLedger, is_in_limbo
from ledger.store.entry_store import EntryStore
from ledger.store.journal import JournalItem
from ledger.store.records import ENTRY_HEADER_BYTES
from ledger.store.tail import LENGTH_BITS, Generation
from ledger.wire.varint import decode_varint

__all__ = ["AddIntake"]

_V: Final = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_ANY: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
# header {version 3, operation ADD, txnId}, addRequest {ledgerId, entryId, masterKey, body up to the end}.
# The two lengths that frame these fields are not compared: the body's own length and ids are.
_ADD: Final = re.compile(
    rb"\x0a.\x08\x03\x10\x02\x18"
    + _V
    + rb"\xaa\x06"
    + _ANY
    + rb"\x08"
    + _V
    + rb"\x10"
    + _V
    + rb"\x1a\x14(.{20})\x22"
    + _V,
    re.DOTALL,
)
_HEAD: Final = struct.Struct(">qqq")
_LENGTH: Final = struct.Struct(">I")
_FRAME_EXTRA_BYTES: Final = 64
"""What an entry may add to the journal beside the received bytes: its TOC pair, the record of a new ledger."""


class AddIntake:
    """Takes runs of adds into the store.

    Args:
        store: Where they go.
        answer: Called when an item is durable; its `context` is the connection, its `answer` the frames.
        wake: Called with a ledger whose LAC moved and that has waiters.

    """

    def __init__(
        self,
        store: EntryStore,
        answer: Callable[[JournalItem], None],
        wake: Callable[[BookieLedger], None],
        *,
        run_bytes_max: int,
    ) -> None:
        self._store = store
        self._answer = answer
        self._wake = wake
        self._run_bytes_max = run_bytes_max
        self.taken_count = 0

    def take(self, connection: object, chunk: bytes, bounds: list[tuple[int, int]], start: int) -> int:
        """Take the ordinary adds at the head of `bounds[start:]`.

        Returns:
            Number of the first frame not taken: it is not ordinary, its ledger is not in memory, or there is no
            room; `len(bounds)` if all were taken.

        """
        stop = self._stop(bounds, start)
        store = self._store
        if store.is_read_only or _ADD.match(chunk, *bounds[start]) is None:
            return start
        byte_count = bounds[stop - 1][1] - bounds[start][0] + _FRAME_EXTRA_BYTES * (stop - start)
        generation = store.claim(byte_count)
        if generation is None:
            return start
        run = _Run(store, generation, self._wake)
        end = run.take(chunk, bounds, start, stop)
        if run.answers:
            assert run.body_end > run.body_start
            self.taken_count += len(run.answers)
            chunks: list[bytes | bytearray | memoryview] = [memoryview(chunk)[run.body_start : run.body_end]]
            if run.records:
                chunks.append(b"".join(run.records))
                run.toc.extend(n for record in run.records for n in (0, len(record)))
            count = len(run.answers) + len(run.records)
            item = JournalItem(chunks, run.toc, count, self._answer, connection, b"".join(run.answers))
            store.journal.append(generation, item)
            run.wake_waiters()
        return end

    def _stop(self, bounds: list[tuple[int, int]], start: int) -> int:
        """Bound a run, so that it always fits a journal file."""
        stop, first = len(bounds), bounds[start][0]
        while stop - start > 1 and bounds[stop - 1][1] - first > self._run_bytes_max:
            stop = start + (stop - start) // 2
        return stop


class _Run:
    """One run of adds while it is taken."""

    __slots__ = (
        "_generation",
        "_moved",
        "_store",
        "_wake",
        "answers",
        "body_end",
        "body_start",
        "records",
        "toc",
    )

    def __init__(self, store: EntryStore, generation: Generation, wake: Callable[[BookieLedger], None]) -> None:
        self._store = store
        self._generation = generation
        self._wake = wake
        self._moved: list[BookieLedger] = []
        self.answers: list[bytes] = []
        self.records: list[bytes] = []
        self.toc: array[int] = array("I")
        self.body_start = 0
        self.body_end = 0

    def take(self, chunk: bytes, bounds: list[tuple[int, int]], start: int, stop: int) -> int:
        """Take adds until one is not ordinary; return its number, or `stop`."""
        match, unpack = _ADD.match, _HEAD.unpack_from
        append_toc, append_answer = self.toc.append, self.answers.append
        ledger: BookieLedger | None = None
        tail: dict[int, int] = {}
        ledger_raw = key = b""
        sizes = (-1, -1)
        size_raw_seen, size_seen = b"", -1
        head = middle = b""
        last = lac_max = current_id = -1
        previous_end, base = -1, 0
        index = start
        while index < stop:
            begin, end = bounds[index]
            found = match(chunk, begin, end)
            if found is None:
                break
            txn, raw, entry_raw, master_key, size_raw = found.groups()
            body = found.end()
            size = end - body
            if size < ENTRY_HEADER_BYTES:
                break
            ledger_id, entry_id, lac = unpack(chunk, body)
            if size_raw != size_raw_seen:
                size_raw_seen, size_seen = size_raw, decode_varint(size_raw)
            width = len(entry_raw)
            if size != size_seen or entry_id < 0 or entry_id != decode_varint(entry_raw):
                break
            if raw != ledger_raw or master_key != key:
                self._leave(ledger, last, lac_max)
                ledger = self._admit(raw, ledger_id, master_key)
                if ledger is None:
                    break
                ledger_raw, key, current_id = raw, master_key, ledger_id
                tail = self._store.tail_of(ledger, self._generation)
                last, lac_max, sizes = ledger.last_entry_id, ledger.last_add_confirmed, (-1, -1)
            elif ledger_id != current_id:
                break
            if previous_end < 0:
                self.body_start = previous_end = body
                base = self._generation.virtual_bytes - body
            append_toc(body - previous_end)
            append_toc(size)
            previous_end = end
            tail[entry_id] = base + body << LENGTH_BITS | size
            if entry_id > last:  # noqa: PLR1730 - max() costs a call per entry
                last = entry_id
            if lac > lac_max:  # noqa: PLR1730
                lac_max = lac
            if sizes != (len(txn), width):
                sizes = (len(txn), width)
                head, middle = _answer_template(ledger_raw, *sizes)
            append_answer(head + txn + middle + entry_raw)
            index += 1
        self._leave(ledger, last, lac_max)
        self.body_end = previous_end
        return index

    def _admit(self, raw: bytes, ledger_id: int, master_key: bytes) -> BookieLedger | None:
        """Return the ledger if an ordinary add of it may be taken now; None leaves it to the handlers."""
        store = self._store
        if ledger_id < 0 or decode_varint(raw) != ledger_id:
            return None
        ledger = store.ledgers.get(ledger_id)
        if ledger is None:
            if not store.is_known_absent(ledger_id) or is_in_limbo(ledger_id, store.limbo.ledger_id_max):
                return None
            ledger, record = store.create(ledger_id, master_key)
            self.records.append(record)
            return ledger
        return ledger if ledger.refuse_add(master_key, is_recovery=False) is None else None

    def _leave(self, ledger: BookieLedger | None, last: int, lac_max: int) -> None:
        if ledger is not None and ledger.take_add(last, lac_max) and ledger.waiters:
            self._moved.append(ledger)

    def wake_waiters(self) -> None:
        """Answer the long polls of ledgers whose LAC moved; the entries are in the tail by now."""
        for ledger in self._moved:
            self._wake(ledger)


def _answer_template(ledger_raw: bytes, txn_bytes: int, entry_bytes: int) -> tuple[bytes, bytes]:
    """Return what stands before and behind the transaction in a frame that answers an add with EOK."""
    inner = 4 + len(ledger_raw) + entry_bytes
    length = 12 + txn_bytes + inner
    head = _LENGTH.pack(length) + b"\x0a%c\x08\x03\x10\x02\x18" % (5 + txn_bytes)
    return head, b"\x10\x00\xaa\x06%c\x08\x00\x10%b\x18" % (inner, ledger_raw)
