"""What the bookie does for each kind of request. Adds in canonical layout never come here (`intake`).

A handler runs in one step of the event loop, with the request's ledger in memory if there is one. It answers
through the connection, now or when the journal or a reader is done. False means that there is no room in the
journal: nothing was changed, and the request is given again later.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

from ledger.bookie.long_poll import LongPolls, Waiter
from ledger.bookie.responder import Responder, failed_read, read_frames
from ledger.core.bookie_entry_list import pack_entry_ids
from ledger.core.bookie_ledger import BookieLedger, is_in_limbo, missing_entry_status, missing_ledger_status
from ledger.core.metadata import NO_ENTRY
from ledger.store.cold_reads import Lookup
from ledger.store.disk import Buffer
from ledger.store.entry_store import EntryStore
from ledger.store.journal import JournalItem
from ledger.store.records import ENTRY_HEADER_BYTES, explicit_lac_record, fence_record
from ledger.store.tail import LENGTH_BITS, JournalPlace
from ledger.wire import packets as p
from ledger.wire.codes import (
    INFO_FLAG_FREE_DISK,
    INFO_FLAG_TOTAL_DISK,
    PRIORITY_RECOVERY,
    Operation,
    Status,
)
from ledger.wire.v3 import encode_response

__all__ = ["Handlers"]

_log = logging.getLogger(__name__)
_RECORD_BYTES = 256
_NO_ROOM = Status.ETOOMANYREQUESTS
_NO_TOC: array[int] = array("I")


class Handlers:
    """The operations of protocol v3 on one store.

    Args:
        store: The storage.
        polls_max: Long polls that may wait at a time.
        cold_reads_max: Reads of one connection that may wait for the disk at a time.
        disk_bytes: Returns (total, free) of the ledger disk; blocking.

    """

    def __init__(
        self,
        store: EntryStore,
        *,
        polls_max: int,
        cold_reads_max: int,
        disk_bytes: Callable[[], asyncio.Future[tuple[int, int]]],
    ) -> None:
        self._store = store
        self._disk_bytes = disk_bytes
        self._cold_reads_max = cold_reads_max
        self.polls = LongPolls(self._answer_poll, count_max=polls_max)
        self._by_type: dict[type, Callable[[Responder, Any], bool]] = {
            p.AddRequest: self._add,
            p.ReadRequest: self._read,
            p.ReadLacRequest: self._read_lac,
            p.WriteLacRequest: self._write_lac,
            p.ForceRequest: self._force,
            p.InfoRequest: self._info,
            p.ListRequest: self._list,
            p.AuthRequest: self._auth,
            p.StartTlsRequest: self._start_tls,
            p.UnsupportedRequest: self._unsupported,
        }

    def handle(self, connection: Responder, request: p.Request) -> bool:
        """Do what a request asks for; False if it must be given again when there is room."""
        return self._by_type[type(request)](connection, request)

    @property
    def _limbo(self) -> int:
        return self._store.limbo.ledger_id_max

    # -- what goes to the journal --------------------------------------------------------------------------

    def _add(self, connection: Responder, request: p.AddRequest) -> bool:
        status = self._refuse_add(request)
        if status is None:
            is_privileged = request.is_recovery or request.priority >= PRIORITY_RECOVERY
            generation = self._store.claim(len(request.body) + _RECORD_BYTES, is_privileged=is_privileged)
            if generation is None and not self._store.is_read_only:
                return False
            status = Status.EREADONLY
            if generation is not None and (is_privileged or not self._store.is_read_only):
                answer = encode_response(p.AddResponse(request.txn_id, Status.EOK, request.ledger_id, request.entry_id))
                self._take_add(connection, request, generation, answer)
                return True
        connection.send(encode_response(p.AddResponse(request.txn_id, status, request.ledger_id, request.entry_id)))
        return True

    def _refuse_add(self, request: p.AddRequest) -> Status | None:
        if request.ledger_id < 0 or request.entry_id < 0 or len(request.body) < ENTRY_HEADER_BYTES:
            return Status.EBADREQ
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is not None:
            return ledger.refuse_add(request.master_key, is_recovery=request.is_recovery)
        if not request.is_recovery and is_in_limbo(request.ledger_id, self._limbo):
            return Status.EUNKNOWNLEDGERSTATE
        return None

    def _take_add(self, connection: Responder, request: p.AddRequest, generation: Any, answer: bytes) -> None:
        ledger, records = self._ledger(request.ledger_id, request.master_key)
        tail = self._store.tail_of(ledger, generation)
        tail[request.entry_id] = generation.virtual_bytes << LENGTH_BITS | len(request.body)
        toc = array("I", (0, len(request.body)))
        for record in records:
            toc.extend((0, len(record)))
        chunks = [bytes(request.body), *records]
        item = JournalItem(list(chunks), toc, len(chunks), self.send_answer, connection, answer)
        self._store.journal.append(generation, item)
        last_add_confirmed = int.from_bytes(request.body[16:24], "big", signed=True)
        if ledger.take_add(request.entry_id, last_add_confirmed):
            self.polls.wake(ledger)

    def _ledger(self, ledger_id: int, master_key: bytes) -> tuple[BookieLedger, list[bytes]]:
        """Return a ledger, born now if need be, and the records that its birth leaves to the journal."""
        ledger = self._store.ledgers.get(ledger_id)
        if ledger is not None:
            return ledger, []
        ledger, record = self._store.create(ledger_id, master_key)
        if is_in_limbo(ledger_id, self._limbo):
            ledger.is_fenced = ledger.is_fence_durable = True  # The limbo state is durable, and says so.
        return ledger, [record]

    def send_answer(self, item: JournalItem) -> None:
        """Answer what has become durable (the journal calls this)."""
        connection = item.context
        assert isinstance(connection, Responder)
        connection.send(item.answer)

    def _barrier(self, connection: Responder, answer: bytes) -> None:
        """Answer when all that was taken so far is durable."""
        self._store.journal.barrier(JournalItem([], _NO_TOC, 0, self.send_answer, connection, answer))

    def _write_lac(self, connection: Responder, request: p.WriteLacRequest) -> bool:
        ledger = self._store.ledgers.get(request.ledger_id)
        body = bytes(request.body)
        names = int.from_bytes(body[:8], "big", signed=True), int.from_bytes(body[8:16], "big", signed=True)
        status = Status.EOK
        if request.ledger_id < 0 or len(body) < 16 or names != (request.ledger_id, request.last_add_confirmed):
            status = Status.EBADREQ
        elif ledger is not None and not ledger.has_key(request.master_key):
            status = Status.EUA
        answer = encode_response(p.WriteLacResponse(request.txn_id, status, request.ledger_id))
        if status != Status.EOK:
            connection.send(answer)
            return True
        generation = self._store.claim(_RECORD_BYTES, is_privileged=True)
        if generation is None:
            return False
        ledger, records = self._ledger(request.ledger_id, request.master_key)
        if ledger.take_explicit_lac(request.last_add_confirmed, body):
            records.append(explicit_lac_record(request.ledger_id, body))
            self.polls.wake(ledger)
        if not records:
            self._barrier(connection, answer)
            return True
        self._store.append_record(ledger, generation, records, lambda _item: connection.send(answer))
        return True

    def _force(self, connection: Responder, request: p.ForceRequest) -> bool:
        known = request.ledger_id in self._store.ledgers
        status = Status.EOK if known else missing_ledger_status(request.ledger_id, self._limbo)
        self._barrier(connection, encode_response(p.ForceResponse(request.txn_id, status, request.ledger_id)))
        return True

    # -- reads ---------------------------------------------------------------------------------------------

    def _read(self, connection: Responder, request: p.ReadRequest) -> bool:
        if request.is_fencing:
            refused = self._fence(request)
            if refused is _NO_ROOM:
                return False
            if refused is not None:
                connection.send(failed_read(request, refused))
                return True
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None or ledger.is_deleted:
            connection.send(failed_read(request, missing_ledger_status(request.ledger_id, self._limbo)))
        elif request.is_piggyback and request.previous_lac is not None:
            self._poll(connection, ledger, request)
        else:
            entry_id = ledger.last_entry_id if request.entry_id == NO_ENTRY else request.entry_id
            self._read_entry(connection, ledger, request, entry_id)
        return True

    def _fence(self, request: p.ReadRequest) -> Status | None:
        """Fence; return None if it is done, or why it is refused; `_NO_ROOM` to be asked again."""
        ledger = self._store.ledgers.get(request.ledger_id)
        if request.ledger_id < 0:
            return Status.EBADREQ
        if ledger is not None:
            refused = ledger.refuse_fence(request.master_key)
            if refused is not None or ledger.is_fenced:
                return refused
        elif request.master_key is None or len(request.master_key) != 20:
            return Status.EUA
        generation = self._store.claim(_RECORD_BYTES, is_privileged=True)
        if generation is None:
            return _NO_ROOM
        ledger, records = self._ledger(request.ledger_id, request.master_key or b"")
        ledger.take_fence()
        records.append(fence_record(request.ledger_id))
        self._store.append_record(ledger, generation, records, partial(self._fenced, ledger))
        self.polls.wake(ledger, all_of_them=True)
        return None

    def _fenced(self, ledger: BookieLedger, _item: JournalItem) -> None:
        ledger.is_fence_durable = True

    def _read_entry(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest, entry_id: int) -> None:
        """Answer with an entry, from memory or disk, but not before the fence that came with it is durable."""
        found = None if entry_id < 0 else self._store.find(ledger.ledger_id, entry_id)
        if entry_id < 0 or (found is None and entry_id > ledger.last_entry_id):
            self._answer_read(connection, ledger, request, None)
        elif found is None or isinstance(found, JournalPlace):
            if connection.cold_read_count >= self._cold_reads_max:
                connection.send(failed_read(request, Status.ETOOMANYREQUESTS))
                return
            lookup = Lookup(ledger.ledger_id, entry_id, found)
            connection.read_cold(lookup, partial(self._answer_read, connection, ledger, request))
        else:
            self._answer_read(connection, ledger, request, found)

    def _answer_read(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest, found: Any) -> None:
        if found is None:
            frames: list[Buffer] = [failed_read(request, missing_entry_status(ledger.ledger_id, self._limbo))]
        elif isinstance(found, Exception):
            frames = [failed_read(request, Status.EIO)]
        else:
            frames = read_frames(request, found, ledger.last_add_confirmed)
        if request.is_fencing and not ledger.is_fence_durable:
            self._barrier(connection, b"".join(frames))
        else:
            connection.send_all(frames)

    def _poll(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest) -> None:
        assert request.previous_lac is not None
        if ledger.last_add_confirmed > request.previous_lac:
            self._answer_moved(connection, ledger, request)
        elif self.polls.has_room():
            self.polls.wait(connection, ledger, request)
        else:
            connection.send(failed_read(request, Status.ETOOMANYREQUESTS))

    def _answer_poll(self, waiter: Waiter, has_moved: bool) -> None:
        connection = waiter.connection
        assert isinstance(connection, Responder)
        if has_moved:
            self._answer_moved(connection, waiter.ledger, waiter.request)
        else:
            self._answer_lac(connection, waiter.ledger, waiter.request)
        connection.flush()

    def _answer_moved(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest) -> None:
        """Answer a long poll with the entry behind the LAC that the reader knew; without it if it is elsewhere."""
        assert request.previous_lac is not None
        entry_id = request.previous_lac + 1
        found = self._store.find(ledger.ledger_id, entry_id)
        if found is None or isinstance(found, JournalPlace):
            lookup = Lookup(ledger.ledger_id, entry_id, found)
            connection.read_cold(lookup, partial(self._answer_piggyback, connection, ledger, request, entry_id))
        else:
            self._answer_piggyback(connection, ledger, request, entry_id, found)

    def _answer_piggyback(
        self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest, entry_id: int, found: Any
    ) -> None:
        if found is None or isinstance(found, Exception):
            self._answer_lac(connection, ledger, request)
        else:
            response = p.ReadResponse(
                request.txn_id, Status.EOK, request.ledger_id, entry_id, bytes(found), ledger.last_add_confirmed
            )
            connection.send(encode_response(response))

    def _answer_lac(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest) -> None:
        lac = ledger.last_add_confirmed
        response = p.ReadResponse(request.txn_id, Status.EOK, request.ledger_id, NO_ENTRY, None, lac)
        connection.send(encode_response(response))

    def _read_lac(self, connection: Responder, request: p.ReadLacRequest) -> bool:
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None or ledger.is_deleted or (ledger.last_entry_id < 0 and not ledger.explicit_lac):
            status = missing_entry_status(request.ledger_id, self._limbo)
            connection.send(encode_response(p.ReadLacResponse(request.txn_id, status, request.ledger_id)))
            return True
        found = None if ledger.last_entry_id < 0 else self._store.find(ledger.ledger_id, ledger.last_entry_id)
        answer = partial(self._answer_read_lac, connection, ledger, request)
        if ledger.last_entry_id >= 0 and (found is None or isinstance(found, JournalPlace)):
            connection.read_cold(Lookup(ledger.ledger_id, ledger.last_entry_id, found), answer)
        else:
            answer(found)
        return True

    def _answer_read_lac(
        self, connection: Responder, ledger: BookieLedger, request: p.ReadLacRequest, found: Any
    ) -> None:
        status, body = Status.EOK, None
        if isinstance(found, Exception):
            status = Status.EIO
        elif found is not None:
            body = bytes(found)
        lac_body = ledger.explicit_lac or None
        connection.send(encode_response(p.ReadLacResponse(request.txn_id, status, request.ledger_id, lac_body, body)))

    # -- the rest ------------------------------------------------------------------------------------------

    def _info(self, connection: Responder, request: p.InfoRequest) -> bool:
        def answer(future: asyncio.Future[tuple[int, int]]) -> None:
            if future.exception() is not None:
                response = p.InfoResponse(request.txn_id, Status.EIO)
            else:
                total, free = future.result()
                asked = request.requested
                response = p.InfoResponse(
                    request.txn_id,
                    Status.EOK,
                    total if asked & INFO_FLAG_TOTAL_DISK else None,
                    free if asked & INFO_FLAG_FREE_DISK else None,
                )
            connection.send(encode_response(response))
            connection.flush()

        self._disk_bytes().add_done_callback(answer)
        return True

    def _list(self, connection: Responder, request: p.ListRequest) -> bool:
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None or ledger.is_deleted:
            status = missing_ledger_status(request.ledger_id, self._limbo)
            connection.send(encode_response(p.ListResponse(request.txn_id, status, request.ledger_id)))
            return True

        def answer(future: asyncio.Future[list[int]]) -> None:
            if future.exception() is not None:
                _log.error("entries of a ledger cannot be listed", extra={"ledger_id": request.ledger_id})
                response = p.ListResponse(request.txn_id, Status.EIO, request.ledger_id)
            else:
                packed = pack_entry_ids(future.result())
                response = p.ListResponse(request.txn_id, Status.EOK, request.ledger_id, packed)
            connection.send(encode_response(response))
            connection.flush()

        self._store.list_entries(request.ledger_id).add_done_callback(answer)
        return True

    def _auth(self, connection: Responder, request: p.AuthRequest) -> bool:
        connection.send(encode_response(p.AuthResponse(request.txn_id, Status.EOK, "AuthDisabledPlugin", b"")))
        return True

    def _start_tls(self, connection: Responder, request: p.StartTlsRequest) -> bool:
        connection.send(encode_response(p.StartTlsResponse(request.txn_id, Status.EBADREQ)))
        return True

    def _unsupported(self, connection: Responder, request: p.UnsupportedRequest) -> bool:
        operation = Operation(request.operation)
        connection.send(encode_response(p.UnsupportedResponse(request.txn_id, Status.EBADREQ, operation)))
        return True
