"""The hot path: runs of ordinary adds, from received bytes to journal item in one loop.

Per entry: one match or unpack, a few compares, one place in the tail, two numbers in the table of contents, the bytes
of the answer. No object per entry: the received chunk is what the journal writes and what readers are given. Ledger,
key and fence are judged once per run and ledger, which is enough: nothing else runs on the event loop meanwhile
(safety 22). Whatever is not ordinary ends the run and goes through `ledger.bookie.handlers`: other operations, other
flags, a ledger that is not in memory or must be vouched for, an entry that may be held already.

The loops are `ledger.bookie.intake_v2` and `ledger.bookie.intake_v3`; here is what they share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from typing import Final

from ledger.bookie.responder import Responder, send_answer
from ledger.storage.bookie_ledger import BookieLedger
from ledger.storage.entry_store import EntryStore
from ledger.storage.journal import JournalItem
from ledger.storage.tail import Generation
from ledger.wire.frames import FRAME_BYTES_MAX

ENTRY_BYTES_MAX: Final = FRAME_BYTES_MAX - 128
"""A longer entry would not fit the frame of the answer to a read; no client could ever read it back."""
_JOURNAL_RATIO: Final = 2
"""The journal takes at most this times the received bytes: besides them, per entry, 8 bytes of TOC and, if its ledger
is new, a record of 48; its frame has 60 at least."""


class AddIntake(ABC):
    """Takes runs of adds of one protocol into the store.

    Args:
        store: Where they go.
        wake: Called with a ledger whose LAC moved and that has waiters.
        run_bytes_max: Bound of a run, so that it always fits a journal file.

    """

    def __init__(self, store: EntryStore, wake: Callable[[BookieLedger], None], *, run_bytes_max: int) -> None:
        self._store = store
        self._wake = wake
        self._run_bytes_max = run_bytes_max
        self.taken_count = 0

    def take(self, connection: Responder, chunk: bytes, start: int, end: int) -> int:
        """Take the ordinary adds at the head of `chunk[start:end]`; what ends it need not be a whole frame.

        Returns:
            Where the first frame begins that was not taken: it is not ordinary or not whole, or there is no room.

        """
        store = self._store
        if store.is_read_only:
            return start
        if end - start > self._run_bytes_max:
            end = start + self._run_bytes_max
        generation = store.claim(_JOURNAL_RATIO * (end - start))
        if generation is None:
            return start
        run = AddRun(store, generation, self._wake, connection.may_begin)
        position = self._scan(run, chunk, start, end)
        if run.entry_count:
            self.taken_count += run.entry_count
            run.append(connection, chunk)
        return position

    @abstractmethod
    def _scan(self, run: AddRun, chunk: bytes, start: int, end: int) -> int:
        """Put adds into `run` until one is not ordinary; return where its frame begins."""


class AddRun:
    """One run of adds while it is taken.

    Attributes:
        generation: Where its entries go.
        toc: Of the bytes from `body_start` to `body_end` of the chunk.
        answers: All answers, joined, in order.
        entry_count: Entries in it.
        records: Births of ledgers.

    """

    __slots__ = (
        "_may_begin",
        "_moved",
        "_store",
        "_wake",
        "answers",
        "body_end",
        "body_start",
        "entry_count",
        "generation",
        "records",
        "toc",
    )

    def __init__(
        self,
        store: EntryStore,
        generation: Generation,
        wake: Callable[[BookieLedger], None],
        may_begin: Callable[[int, bytes], bool],
    ) -> None:
        self._store = store
        self._wake = wake
        self._may_begin = may_begin
        self._moved: list[BookieLedger] = []
        self.generation = generation
        self.toc: array[int] = array("I")
        self.answers = b""
        self.records: list[bytes] = []
        self.entry_count = 0
        self.body_start = 0
        self.body_end = 0

    def admit(self, ledger_id: int, master_key: bytes) -> BookieLedger | None:
        """Return the ledger if an ordinary add of it may be taken now; None leaves it to the handlers."""
        store = self._store
        ledger = store.ledgers.get(ledger_id)
        if ledger is None:
            if ledger_id < 0 or not store.resident.is_known_absent(ledger_id) or store.limbo.is_fencing(ledger_id):
                return None
            if not self._may_begin(ledger_id, master_key):
                return None
            ledger, record = store.create(ledger_id, master_key)
            self.records.append(record)
        elif ledger.refuse_add(master_key, is_recovery=False) is not None:
            return None
        if ledger.generation != self.generation.sequence:
            store.tail_of(ledger, self.generation)
        return ledger

    def leave(self, ledger: BookieLedger | None, last: int, lac_max: int) -> None:
        """Note what a stretch of the run did to a ledger."""
        if ledger is not None and ledger.take_add(last, lac_max) and ledger.waiters:
            self._moved.append(ledger)

    def append(self, connection: Responder, chunk: bytes) -> None:
        """Give the run to the journal; then answer the long polls of ledgers whose LAC moved."""
        chunks: list[bytes | bytearray | memoryview] = [memoryview(chunk)[self.body_start : self.body_end]]
        if self.records:
            chunks.append(b"".join(self.records))
            self.toc.extend(n for record in self.records for n in (0, len(record)))
        count = self.entry_count + len(self.records)
        # The answers are made, and leave only when a sync has covered this item.
        item = JournalItem(chunks, self.toc, count, send_answer, connection, self.answers)
        self._store.journal.append(self.generation, item)
        for ledger in self._moved:
            self._wake(ledger)
