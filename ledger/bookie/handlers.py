"""Handlers of each kind of request. Ordinary adds never come here (`intake`).

A handler runs in one step of the event loop, with the request's ledger in memory if there is one. It answers
through the connection, now or when the journal or a reader is done. False means that there is no room: nothing was
changed, and the request is given again later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ledger.bookie.batch_reads import BatchReads
from ledger.bookie.fence_waits import FenceWaits
from ledger.bookie.long_poll import LongPolls, Waiter
from ledger.bookie.reports import DiskBytes, ReportHandlers
from ledger.bookie.responder import Responder, failed_read
from ledger.bookie.writes import RECORD_BYTES, WriteLimits, Writes
from ledger.core.lease_promises import LeasePromises
from ledger.core.metadata import NO_ENTRY
from ledger.storage.bookie_ledger import BookieLedger, missing_entry_status, missing_ledger_status
from ledger.storage.disk import Buffer
from ledger.storage.entry_store import EntryStore
from ledger.storage.journal import JournalItem
from ledger.storage.read_queue import Lookup
from ledger.storage.records import fence_record
from ledger.storage.tail import JournalPlace
from ledger.wire import packets as p
from ledger.wire.codes import FenceState, OperationType, Status
from ledger.wire.digests import MASTER_KEY_BYTES

_NO_ROOM = Status.ETOOMANYREQUESTS


class HandlerLimits(msgspec.Struct, frozen=True):
    """Bounds on what may be asked at a time.

    Attributes:
        polls_max: Long polls that may wait.
        fence_waits_max: Fencing reads that may wait for what was promised to writers: more than a bookie takes from its
            sockets while a promise lasts, so that nobody can fill the room with fences of ledgers of his own.
        cold_reads_max: Reads of one connection that may wait for a disk.
        batch_bytes_max: What batch reads under way may gather together.
        writes: Of what waits for the journal.

    """

    polls_max: int = 10_000
    fence_waits_max: int = 100_000
    cold_reads_max: int = 10_000
    batch_bytes_max: int = 128 << 20
    writes: WriteLimits = WriteLimits()


class Handlers:
    """The operations of both protocols on one store.

    Args:
        store: The storage.
        limits: How much may be asked at a time.
        disk_bytes: Returns (total, free) of the ledger disk.
        clock: Seconds by which promises to writers end; it never goes back.

    Attributes:
        on_foreign_fence: Told who fences a ledger with another password than its own.
        counts: Requests that were handled, by type.
        fence_waits: Fencing reads whose answers wait.
        promise_count: Promises that were given to writers.

    """

    def __init__(
        self, store: EntryStore, limits: HandlerLimits, disk_bytes: DiskBytes, clock: Callable[[], float]
    ) -> None:
        self.on_foreign_fence: Callable[[Responder, int], object] = _nobody_counts
        self._store = store
        self._cold_reads_max = limits.cold_reads_max
        self.polls = LongPolls(self._answer_poll, count_max=limits.polls_max)
        self.fence_waits = FenceWaits(LeasePromises(clock()), clock, count_max=limits.fence_waits_max)
        self.promise_count = 0
        self.writes = Writes(store, self.polls, limits.writes)
        self._batches = BatchReads(store, byte_count_max=limits.batch_bytes_max)
        reports = ReportHandlers(store, disk_bytes)
        self._by_type: dict[type, Callable[[Responder, Any], bool]] = {
            p.AddRequest: self.writes.add,
            p.ReadRequest: self._read,
            p.BatchReadRequest: self._read,
            p.ReadLacRequest: self._read_lac,
            p.FenceCheckRequest: self._check_fence,
            p.WriteLacRequest: self.writes.write_lac,
            p.ForceRequest: self.writes.force,
            p.InfoRequest: reports.info,
            p.ListRequest: reports.list_entries,
            p.AuthRequest: self._auth,
            p.StartTlsRequest: self._start_tls,
            p.UnsupportedRequest: self._unsupported,
            p.RefusedRequest: self._refused,
        }
        self.counts = dict.fromkeys(self._by_type, 0)

    def handle(self, connection: Responder, request: p.Request) -> bool:
        """Do what a request asks for; False if it must be given again when there is room."""
        kind = type(request)
        is_done = self._by_type[kind](connection, request)
        self.counts[kind] += is_done
        return is_done

    @property
    def _limbo(self) -> int:
        return self._store.limbo.ledger_id_max

    # -- reads ---------------------------------------------------------------------------------------------

    def _read(self, connection: Responder, request: p.ReadRequest | p.BatchReadRequest) -> bool:
        if request.is_fencing:
            if not self.writes.has_room_for_barrier():
                return False
            refused = self._fence(request)
            if refused is _NO_ROOM:
                return False
            if refused is not None:
                if refused is Status.EUA:
                    self.on_foreign_fence(connection, request.ledger_id)
                connection.answer(failed_read(request, refused))
                return True
        ledger = self._store.ledgers.get(request.ledger_id)
        if not request.is_fencing or self.fence_waits.is_over(request.ledger_id):
            self._read_held(connection, ledger, request)
        elif not self.fence_waits.wait(
            request.ledger_id, partial(self._answer_fencing_read, connection, ledger, request)
        ):
            connection.answer(failed_read(request, Status.ETOOMANYREQUESTS))
        return True

    def _answer_fencing_read(
        self, connection: Responder, ledger: BookieLedger | None, request: p.ReadRequest | p.BatchReadRequest
    ) -> None:
        """Answer what has waited for the writer's promise to be over."""
        self._read_held(connection, ledger, request)
        connection.flush()

    def _read_held(
        self, connection: Responder, ledger: BookieLedger | None, request: p.ReadRequest | p.BatchReadRequest
    ) -> None:
        if ledger is None or ledger.is_deleted:
            connection.answer(failed_read(request, missing_ledger_status(request.ledger_id, self._limbo)))
        elif isinstance(request, p.BatchReadRequest):
            self._read_batch(connection, ledger, request)
        elif request.previous_lac is not None and not request.is_fencing:
            self._poll(connection, ledger, request)
        else:
            self._read_entry(connection, ledger, request)

    def _fence(self, request: p.ReadRequest | p.BatchReadRequest) -> Status | None:
        """Fence; return None if it is done, or why it is refused; `_NO_ROOM` to be asked again."""
        ledger = self._store.ledgers.get(request.ledger_id)
        if request.ledger_id < 0:
            return Status.EBADREQ
        if ledger is not None:
            refused = ledger.refuse_fence(request.master_key)
            if refused is not None or ledger.is_fenced or ledger.is_deleted:
                return refused
        elif request.master_key is None or len(request.master_key) != MASTER_KEY_BYTES:
            return Status.EUA
        generation = self._store.claim(RECORD_BYTES, is_privileged=True)
        if generation is None:
            return _NO_ROOM
        ledger, records = self.writes.ledger_of(request.ledger_id, request.master_key or b"")
        ledger.take_fence()
        records.append(fence_record(request.ledger_id))
        self._store.append_record(ledger, generation, records, partial(self._fenced, ledger))
        self.polls.wake(ledger, all_of_them=True)
        return None

    def _fenced(self, ledger: BookieLedger, _item: JournalItem) -> None:
        ledger.is_fence_durable = True

    def _read_entry(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest) -> None:
        """Answer with an entry, from memory or disk, but not before the fence that came with it is durable."""
        entry_id = ledger.last_entry_id if request.entry_id == NO_ENTRY else request.entry_id
        found = None if entry_id < 0 else self._store.find(ledger.ledger_id, entry_id)
        if entry_id < 0 or (found is None and entry_id > ledger.last_entry_id):
            self._answer_read(connection, ledger, request, None)
        elif found is None or isinstance(found, JournalPlace):
            if connection.pending_count >= self._cold_reads_max:
                connection.answer(failed_read(request, Status.ETOOMANYREQUESTS))
                return
            lookup = Lookup(ledger.ledger_id, entry_id, found)
            connection.read_cold(lookup, partial(self._answer_read, connection, ledger, request))
        else:
            self._answer_read(connection, ledger, request, found)

    def _answer_read(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest, found: Any) -> None:
        if found is None:
            missing = failed_read(request, missing_entry_status(ledger.ledger_id, self._limbo))
            frames: list[Buffer] = [connection.protocol.encode_response(missing)]
        elif isinstance(found, Exception):
            frames = [connection.protocol.encode_response(failed_read(request, Status.EIO))]
        else:
            frames = connection.protocol.entry_frame(request, found, ledger.last_add_confirmed)
        self._send_fenced(connection, ledger, request, frames)

    def _send_fenced(
        self,
        connection: Responder,
        ledger: BookieLedger,
        request: p.ReadRequest | p.BatchReadRequest,
        frames: list[Buffer],
    ) -> None:
        """Send an answer, but not before the fence that came with its request is durable."""
        if request.is_fencing and not ledger.is_fence_durable:
            self.writes.barrier(connection, b"".join(frames))
        else:
            connection.send_all(frames)

    def _read_batch(self, connection: Responder, ledger: BookieLedger, request: p.BatchReadRequest) -> None:
        def answer(frames: list[Buffer] | Status | None) -> None:
            if not isinstance(frames, list):
                status = missing_entry_status(ledger.ledger_id, self._limbo) if frames is None else frames
                frames = [connection.protocol.encode_response(failed_read(request, status))]
            self._send_fenced(connection, ledger, request, frames)

        if connection.pending_count >= self._cold_reads_max:
            connection.answer(failed_read(request, Status.ETOOMANYREQUESTS))
        else:
            self._batches.read(connection, ledger, request, answer)

    # -- long polls and LACs -------------------------------------------------------------------------------

    def _poll(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest) -> None:
        assert request.previous_lac is not None
        if request.is_piggyback and request.entry_id != NO_ENTRY:
            connection.answer(failed_read(request, Status.EBADREQ))
        elif ledger.last_add_confirmed > request.previous_lac or request.timeout_ms is None:
            self._answer_poll_now(connection, ledger, request)
        elif self.polls.has_room():
            self.polls.wait(connection, ledger, request)
        else:
            connection.answer(failed_read(request, Status.ETOOMANYREQUESTS))

    def _answer_poll(self, waiter: Waiter, _has_moved: bool) -> None:
        self._answer_poll_now(waiter.connection, waiter.ledger, waiter.request)
        waiter.connection.flush()

    def _answer_poll_now(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest) -> None:
        """Answer a long poll: with the entry behind the LAC that the reader knew, if the LAC is beyond it by now."""
        assert request.previous_lac is not None
        if not request.is_piggyback:
            self._read_entry(connection, ledger, request)
        elif ledger.last_add_confirmed <= request.previous_lac:
            self._answer_lac(connection, ledger, request)
        else:
            entry_id = request.previous_lac + 1
            found = self._store.find(ledger.ledger_id, entry_id)
            answer = partial(self._answer_piggyback, connection, ledger, request, entry_id)
            if found is None or isinstance(found, JournalPlace):
                connection.read_cold(Lookup(ledger.ledger_id, entry_id, found), answer)
            else:
                answer(found)

    def _answer_piggyback(
        self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest, entry_id: int, found: Any
    ) -> None:
        """Send the entry; without it if other bookies hold it, for this is no more than a service."""
        if found is None:
            self._answer_lac(connection, ledger, request)
        elif isinstance(found, Exception):
            connection.answer(failed_read(request, Status.EIO))
        else:
            lac = ledger.last_add_confirmed
            response = p.ReadResponse(request.txn_id, Status.EOK, request.ledger_id, entry_id, bytes(found), lac)
            connection.answer(response)

    def _answer_lac(self, connection: Responder, ledger: BookieLedger, request: p.ReadRequest) -> None:
        lac = ledger.last_add_confirmed
        connection.answer(p.ReadResponse(request.txn_id, Status.EOK, request.ledger_id, NO_ENTRY, None, lac))

    def _read_lac(self, connection: Responder, request: p.ReadLacRequest) -> bool:
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None or ledger.is_deleted or (ledger.last_entry_id < 0 and not ledger.explicit_lac):
            status = missing_entry_status(request.ledger_id, self._limbo)
            connection.answer(p.ReadLacResponse(request.txn_id, status, request.ledger_id))
            return True
        found = None if ledger.last_entry_id < 0 else self._store.find(ledger.ledger_id, ledger.last_entry_id)
        answer = partial(self._answer_read_lac, connection, ledger, request)
        if ledger.last_entry_id < 0 or not (found is None or isinstance(found, JournalPlace)):
            answer(found)
        elif connection.pending_count < self._cold_reads_max:
            connection.read_cold(Lookup(ledger.ledger_id, ledger.last_entry_id, found), answer)
        else:
            connection.answer(p.ReadLacResponse(request.txn_id, Status.ETOOMANYREQUESTS, request.ledger_id))
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
        connection.answer(p.ReadLacResponse(request.txn_id, status, request.ledger_id, lac_body, body))

    def _check_fence(self, connection: Responder, request: p.FenceCheckRequest) -> bool:
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None:
            status, state = missing_ledger_status(request.ledger_id, self._limbo), FenceState.UNKNOWN
        else:
            status, state = ledger.tell_fence(request.master_key, self._limbo)
        lease_ms = 0
        if state is FenceState.OPEN and request.lease_ms > 0:
            waits = self.fence_waits
            lease_ms = waits.promises.promise(request.ledger_id, request.lease_ms, waits.clock())
            self.promise_count += lease_ms > 0
        connection.answer(p.FenceCheckResponse(request.txn_id, status, request.ledger_id, state, lease_ms))
        return True

    # -- the rest ------------------------------------------------------------------------------------------

    def _auth(self, connection: Responder, request: p.AuthRequest) -> bool:
        connection.log_in(request)
        return True

    def _start_tls(self, connection: Responder, request: p.StartTlsRequest) -> bool:
        connection.start_tls(request)
        return True

    def _unsupported(self, connection: Responder, request: p.UnsupportedRequest) -> bool:
        operation = OperationType(request.operation)
        connection.answer(p.UnsupportedResponse(request.txn_id, Status.EBADREQ, operation))
        return True

    def _refused(self, connection: Responder, request: p.RefusedRequest) -> bool:
        connection.send(request.answer)
        return True


def _nobody_counts(_connection: Responder, _ledger_id: int) -> None:
    """Nobody counts refusals here."""
