"""Single writes to the journal: adds that are not ordinary, explicit LACs, forces.

Ordinary adds never come here (`ledger.bookie.intake`). An add of an entry that may be held already is compared with
what is held: it is journalled again, so that a sync of its own covers it (safety 23), but it changes nothing.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from functools import partial
from typing import Any, Final

import msgspec

from ledger.bookie.intake import ENTRY_BYTES_MAX
from ledger.bookie.long_poll import LongPolls
from ledger.bookie.responder import Responder, send_answer
from ledger.bookie.same_entry import is_same_entry
from ledger.bookie.traced_adds import answer_traced, begin_store
from ledger.storage.bookie_ledger import BookieLedger, missing_ledger_status
from ledger.storage.entry_store import EntryStore
from ledger.storage.journal import JournalItem
from ledger.storage.read_queue import Lookup
from ledger.storage.records import ENTRY_HEADER_BYTES, explicit_lac_record
from ledger.storage.tail import LENGTH_BITS, Generation, JournalPlace
from ledger.wire import packets as p
from ledger.wire.codes import Status
from ledger.wire.digests import MASTER_KEY_BYTES

_LOGGER = logging.getLogger(__name__)
RECORD_BYTES: Final = 256
"""More than any record about a ledger takes."""
_EXPLICIT_LAC_BYTES: Final = range(16, 16 + 20 + 1)  # the ids, and the longest digest
_NO_TOC: Final[array[int]] = array("I")


class WriteLimits(msgspec.Struct, frozen=True):
    """Bounds on what may wait for the journal beyond ordinary adds.

    Attributes:
        privileged_bytes_max: Bytes not yet synced above which recovery adds wait too.
        barriers_max: Requests that wait for a sync without bytes of their own.

    """

    privileged_bytes_max: int = 64 << 20
    barriers_max: int = 10_000


class Writes:
    """Takes single writes into a store.

    Args:
        store: The storage.
        polls: Woken when a LAC moves.
        limits: How much may wait.

    Attributes:
        refused_count: Adds that were refused.

    """

    def __init__(self, store: EntryStore, polls: LongPolls, limits: WriteLimits) -> None:
        self._store = store
        self._polls = polls
        self._limits = limits
        self._barrier_count = 0
        self.refused_count = 0
        # Adds that were compared with what is held, and found no room then.
        self._compared: deque[tuple[Responder, p.AddRequest]] = deque()

    @property
    def _limbo(self) -> int:
        return self._store.limbo.ledger_id_max

    # -- adds ----------------------------------------------------------------------------------------------

    def add(self, connection: Responder, request: p.AddRequest) -> bool:
        """Take one add; False if there is no room."""
        status = self._refuse_add(request)
        if status is not None:
            self.refused_count += 1
            if request.trace and (span := begin_store(request)) is not None:
                span.end(status.name)
            connection.answer(p.AddResponse(request.txn_id, status, request.ledger_id, request.entry_id))
            return True
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None or request.entry_id > ledger.last_entry_id:
            return self._take_add(connection, request)
        found = self._store.find(request.ledger_id, request.entry_id)
        if found is None and request.entry_id > ledger.floor_entry_id:
            return self._take_add(connection, request)
        if found is None or isinstance(found, JournalPlace):
            lookup = Lookup(request.ledger_id, request.entry_id, found)
            connection.read_cold(lookup, partial(self._compare, connection, request))
            return True
        if is_same_entry(found, request.body):
            return self._take_add(connection, request)
        self._refuse_change(connection, request)
        return True

    def _refuse_add(self, request: p.AddRequest) -> Status | None:
        if request.ledger_id < 0 or request.entry_id < 0 or len(request.master_key) != MASTER_KEY_BYTES:
            return Status.EBADREQ
        if not ENTRY_HEADER_BYTES <= len(request.body) <= ENTRY_BYTES_MAX:
            return Status.EBADREQ
        if self._store.is_read_only and not _is_privileged(request):
            return Status.EREADONLY
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is not None:
            return ledger.refuse_add(request.master_key, is_recovery=request.is_recovery)
        if not request.is_recovery and self._store.limbo.is_fencing(request.ledger_id):
            return Status.EUNKNOWNLEDGERSTATE
        return None

    def _take_add(self, connection: Responder, request: p.AddRequest) -> bool:
        """Journal an add that nothing speaks against; False if there is no room."""
        store, is_privileged = self._store, _is_privileged(request)
        generation: Generation | None = None
        if store.journal.pending_bytes <= self._limits.privileged_bytes_max:
            generation = store.claim(len(request.body) + RECORD_BYTES, is_privileged=is_privileged)
        if generation is None:
            if not store.is_read_only:
                return False
            response = p.AddResponse(request.txn_id, Status.EREADONLY, request.ledger_id, request.entry_id)
            connection.answer(response)
            return True
        ledger, records = self.ledger_of(request.ledger_id, request.master_key)
        tail = store.tail_of(ledger, generation)
        tail[request.entry_id] = generation.virtual_bytes << LENGTH_BITS | len(request.body)
        toc = array("I", (0, len(request.body)))
        for record in records:
            toc.extend((0, len(record)))
        chunks = [bytes(request.body), *records]
        response = p.AddResponse(request.txn_id, Status.EOK, request.ledger_id, request.entry_id)
        answer = connection.protocol.encode_response(response)
        on_durable = send_answer
        if request.trace and (span := begin_store(request)) is not None:
            on_durable = partial(answer_traced, span)
        store.journal.append(generation, JournalItem(list(chunks), toc, len(chunks), on_durable, connection, answer))
        last_add_confirmed = int.from_bytes(request.body[16:24], "big", signed=True)
        if ledger.take_add(request.entry_id, last_add_confirmed):
            self._polls.wake(ledger)
        return True

    def _compare(self, connection: Responder, request: p.AddRequest, found: Any) -> None:
        """Go on with an add when it is known what is held; an entry that cannot be read may be replaced."""
        if isinstance(found, ConnectionResetError):
            return
        if isinstance(found, bytes) and not is_same_entry(found, request.body):
            self._refuse_change(connection, request)
            return
        status = self._refuse_add(request)  # The ledger may have been fenced meanwhile.
        if status is not None:
            connection.answer(p.AddResponse(request.txn_id, status, request.ledger_id, request.entry_id))
        elif not self._take_add(connection, request):
            self._compared.append((connection, request))

    def on_room(self) -> None:
        """Try again what found no room."""
        for _ in range(len(self._compared)):
            connection, request = self._compared.popleft()
            self._compare(connection, request, None)

    def _refuse_change(self, connection: Responder, request: p.AddRequest) -> None:
        _LOGGER.error(
            "an add would change an entry that is held: refused",
            extra={"ledger": request.ledger_id, "entry": request.entry_id},
        )
        connection.answer(p.AddResponse(request.txn_id, Status.EBADREQ, request.ledger_id, request.entry_id))

    def ledger_of(self, ledger_id: int, master_key: bytes) -> tuple[BookieLedger, list[bytes]]:
        """Return a ledger, born now if need be, and the records that its birth leaves to the journal."""
        ledger = self._store.ledgers.get(ledger_id)
        if ledger is not None:
            return ledger, []
        ledger, record = self._store.create(ledger_id, master_key)
        if self._store.limbo.is_fencing(ledger_id):
            ledger.is_fenced = ledger.is_fence_durable = True  # The limbo state is durable, and says so.
        return ledger, [record]

    # -- explicit LACs and forces --------------------------------------------------------------------------

    def write_lac(self, connection: Responder, request: p.WriteLacRequest) -> bool:
        """Keep an explicit LAC; False if there is no room."""
        status = self._refuse_lac(request)
        if status is not None:
            connection.answer(p.WriteLacResponse(request.txn_id, status, request.ledger_id))
            return True
        generation = self._store.claim(RECORD_BYTES, is_privileged=True)
        if generation is None or not self.has_room_for_barrier():
            return False
        body = bytes(request.body)
        answer = connection.protocol.encode_response(p.WriteLacResponse(request.txn_id, Status.EOK, request.ledger_id))
        ledger, records = self.ledger_of(request.ledger_id, request.master_key)
        if ledger.take_explicit_lac(request.last_add_confirmed, body):
            records.append(explicit_lac_record(request.ledger_id, body))
            self._polls.wake(ledger)
        if not records:
            self.barrier(connection, answer)
            return True
        self._store.append_record(ledger, generation, records, lambda _item: connection.send(answer))
        return True

    def _refuse_lac(self, request: p.WriteLacRequest) -> Status | None:
        body = request.body
        names = int.from_bytes(body[:8], "big", signed=True), int.from_bytes(body[8:16], "big", signed=True)
        if request.ledger_id < 0 or len(body) not in _EXPLICIT_LAC_BYTES:
            return Status.EBADREQ
        if names != (request.ledger_id, request.last_add_confirmed) or len(request.master_key) != MASTER_KEY_BYTES:
            return Status.EBADREQ
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None:
            return None
        if not ledger.has_key(request.master_key):
            return Status.EUA
        return Status.EFENCED if ledger.is_deleted else None

    def force(self, connection: Responder, request: p.ForceRequest) -> bool:
        """Answer when all that was added before is durable; False if too many wait."""
        if not self.has_room_for_barrier():
            return False
        known = request.ledger_id in self._store.ledgers
        status = Status.EOK if known else missing_ledger_status(request.ledger_id, self._limbo)
        response = p.ForceResponse(request.txn_id, status, request.ledger_id)
        self.barrier(connection, connection.protocol.encode_response(response))
        return True

    def has_room_for_barrier(self) -> bool:
        """Return whether one more request may wait for a sync."""
        return self._barrier_count < self._limits.barriers_max

    def barrier(self, connection: Responder, answer: bytes) -> None:
        """Answer when all that was taken so far is durable."""
        self._barrier_count += 1
        self._store.journal.barrier(JournalItem([], _NO_TOC, 0, self._on_barrier, connection, answer))

    def _on_barrier(self, item: JournalItem) -> None:
        self._barrier_count -= 1
        send_answer(item)


def _is_privileged(request: p.AddRequest) -> bool:
    return request.is_recovery or request.priority > 0
