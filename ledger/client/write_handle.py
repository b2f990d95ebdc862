"""The writing end of one ledger: carries out what `LedgerWriter` decides, by the batch.

All that is appended during one turn of the loop is sealed in one loop and leaves in one write per bookie.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Final

from ledger.client.append_futures import confirm_appends, fail_append, wake_all
from ledger.client.connection import Operation
from ledger.client.explicit_lac import send_lac
from ledger.client.pool import ConnectionPool
from ledger.core.metadata import NO_ENTRY, LedgerMetadata
from ledger.core.quorum import write_set
from ledger.core.writer import ConfirmEntries, Effect, FailPending, LedgerWriter, ResendEntries, SendEntries
from ledger.errors import FencedError, LedgerError, UsageError, WrongPasswordError
from ledger.wire.add_batch import AddEncoder
from ledger.wire.codes import Status
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import check_payload, seal_lac
from ledger.wire.packets import Response, WriteLacRequest

__all__ = ["CloseLedger", "WriteHandle"]

_PAYLOAD_TYPES: Final = frozenset({bytes})
_OVERRUN: Final = 4
"""Appends beyond this many times `in_flight_bytes_max` are refused: the caller never waits for `drain`."""

CloseLedger = Callable[[LedgerMetadata, int, int], Awaitable[LedgerMetadata]]
"""(metadata, last entry, length) -> the CLOSED metadata; given by the client."""


class WriteHandle:
    """The only writer of one ledger.

    The first failure freezes the handle: its `last_add_confirmed` stands still, pending appends fail with the
    reason, and so does every later one. What was appended above it is unknown until `close` tells the end.

    Attributes:
        ledger_id: The ledger.
        metadata: As this handle last wrote it.

    """

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        pool: ConnectionPool,
        rng: random.Random,
        close_ledger: CloseLedger,
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self._pool = pool
        self._rng = rng
        self._close_ledger = close_ledger
        self._loop = asyncio.get_running_loop()
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        self._encoder = AddEncoder(ledger_id, self._master_key, self._digest)
        bookies = metadata.segments[-1].bookies
        self._core = LedgerWriter(ledger_id, metadata.quorum, bookies)
        self._is_striped = metadata.quorum.write_quorum < metadata.quorum.ensemble_size
        # Appended in this turn of the loop, not yet given ids.
        self._queue: list[tuple[Sequence[bytes], asyncio.Future[int]]] = []
        self._queued_bytes = 0
        self._pump_planned = False
        # (request head, payload) of exactly the pending entries of the core, oldest first, while not frozen.
        self._sent: deque[tuple[bytes, bytes]] = deque()
        # (last entry of the call, its future), ascending.
        self._futures: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._drains: list[asyncio.Future[None]] = []
        self._lac_written = NO_ENTRY
        self._progress_at = self._loop.time()
        self._closing: asyncio.Task[int] | None = None
        self._connections = [pool.get(bookie_id) for bookie_id in bookies]
        self._positions = {bookie_id: position for position, bookie_id in enumerate(bookies)}
        # Positions that get new entries at once; the others get what they missed when they are restored.
        self._is_live = [connection.is_connected for connection in self._connections]
        self._retry_delay_s = [0.0] * len(bookies)
        for connection in self._connections:
            connection.watch(self)
        pool.add_sweep(self)

    @property
    def last_add_confirmed(self) -> int:
        """Highest entry that was acknowledged; -1 before the first."""
        return self._core.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """Highest entry that got an id; -1 before the first."""
        return self._core.last_add_pushed

    @property
    def failure(self) -> LedgerError | None:
        """Why the handle is frozen; None while it is not."""
        return self._core.failure

    @property
    def in_flight_bytes(self) -> int:
        """Payload bytes appended and not confirmed."""
        return self._queued_bytes + (0 if self._core.failure else self._core.pending_bytes)

    def append(self, payload: bytes) -> asyncio.Future[int]:
        """Append one entry; the future gives its id when it is confirmed, in order.

        Raises:
            EntryTooLargeError: The payload does not fit an entry; nothing was changed.
            UsageError: Far more is in flight than `in_flight_bytes_max`: `await drain()` between appends.

        """
        return self.append_many((payload,))

    def append_many(self, payloads: Sequence[bytes]) -> asyncio.Future[int]:
        """Append one entry per payload; the future gives the id of the last when all are confirmed.

        The future fails with `FencedError`, `QuorumLostError`, `LedgerClosedError` or `WrongPasswordError`.

        Raises:
            EntryTooLargeError: A payload does not fit an entry; nothing was changed.
            UsageError: There are none, or far more is in flight than `in_flight_bytes_max`: `await drain()`.

        """
        if not payloads:
            raise UsageError("append_many needs at least one payload", ledger_id=self.ledger_id)
        if not set(map(type, payloads)) <= _PAYLOAD_TYPES:
            raise UsageError(f"ledger {self.ledger_id}: a payload must be bytes", ledger_id=self.ledger_id)
        check_payload(max(payloads, key=len), self.ledger_id)
        size = sum(map(len, payloads))
        limit = _OVERRUN * self._pool.settings.in_flight_bytes_max
        if self.in_flight_bytes > limit:
            raise UsageError(
                f"{self.in_flight_bytes} bytes of ledger {self.ledger_id} are in flight, over {limit}: wait with "
                "`await handle.drain()` between appends",
                ledger_id=self.ledger_id,
            )
        future: asyncio.Future[int] = self._loop.create_future()
        if self._core.failure is not None:
            fail_append(future, self._core.failure)
            return future
        self._queue.append((payloads, future))
        self._queued_bytes += size
        if not self._pump_planned:
            self._pump_planned = True
            self._loop.call_soon(self._pump)
        return future

    async def drain(self) -> None:
        """Wait until at most `in_flight_bytes_max` are in flight.

        Raises:
            LedgerError: The handle is frozen; this is why.

        """
        while self.in_flight_bytes > self._pool.settings.in_flight_bytes_max:
            if self._core.failure is not None:
                raise self._core.failure
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._drains.append(waiter)
            await waiter
        if self._core.failure is not None:
            raise self._core.failure

    async def write_lac(self) -> None:
        """Tell the bookies the LAC (explicit LAC), so that readers see the last entry; only if it has moved.

        Raises:
            QuorumLostError: Fewer bookies than an ack quorum took it.

        """
        last_add_confirmed = self.last_add_confirmed
        if last_add_confirmed <= self._lac_written:
            return
        body = seal_lac(self.ledger_id, last_add_confirmed, self._digest)
        request = WriteLacRequest(0, self.ledger_id, last_add_confirmed, self._master_key, body)
        await send_lac(self._pool, request, self._core.bookies, self.metadata.quorum.ack_quorum)
        self._lac_written = max(self._lac_written, last_add_confirmed)

    async def flush(self) -> None:
        """Wait until everything appended so far is confirmed.

        Raises:
            LedgerError: The handle is frozen; this is why.

        """
        if self._queue:
            await asyncio.shield(self._queue[-1][1])
        elif self._futures:
            await asyncio.shield(self._futures[-1][1])
        elif self._core.failure is not None:
            raise self._core.failure

    async def close(self) -> int:
        """Close the ledger and return its last entry id.

        Waits for what is in flight first. If the handle is frozen, or freezes meanwhile, the ledger is closed at the
        end that its metadata then has: the own `last_add_confirmed`; or, if somebody else has begun to recover it,
        the end that recovery finds. So the returned id may be above or at, never below, what was acknowledged.

        Raises:
            MetadataError: The metadata store did not answer; the ledger's end is not known. Call it again.
            QuorumLostError: It had to be recovered and too few bookies answer. Call it again.

        """
        if self._closing is None or (self._closing.done() and _has_failed(self._closing)):
            self._closing = self._loop.create_task(self._close())
        return await asyncio.shield(self._closing)

    def abandon(self) -> None:
        """Stop writing and leave the ledger open, for somebody else to recover or to claim."""
        self._carry_out(self._core.close())
        self._detach()

    async def _close(self) -> int:
        if not self.metadata.is_closed:
            if self._core.failure is None:
                with suppress(LedgerError):  # frozen: the end that is confirmed still stands
                    await self.flush()
            self._carry_out(self._core.close())
            self._detach()
            self.metadata = await self._close_ledger(
                self.metadata, self._core.last_add_confirmed, self._core.confirmed_length
            )
        return self.metadata.last_entry_id

    # --- answers of bookies, as asker

    def on_stored(self, bookie_id: str, tokens: list[Any]) -> None:
        """Count entries stored."""
        self._carry_out(self._core.on_stored(self._positions[bookie_id], tokens))

    def on_responses(self, bookie_id: str, responses: list[tuple[Any, Response]]) -> None:
        """Take adds that were refused."""
        status = responses[0][1].status
        for _, response in responses:
            if response.status in (Status.EFENCED, Status.EUA):
                status = response.status
        what = f"ledger {self.ledger_id}: {bookie_id} answers {status.name}"
        if status == Status.EFENCED:
            message = f"{what}: another client recovers the ledger; stop writing, close it to learn its end"
            self._carry_out(self._core.freeze(FencedError(message, ledger_id=self.ledger_id)))
        elif status == Status.EUA:
            error = WrongPasswordError(f"{what}: the password is not the ledger's", ledger_id=self.ledger_id)
            self._carry_out(self._core.freeze(error))
        else:
            self._suspend(bookie_id, status.name)

    def on_unanswered(self, bookie_id: str, tokens: list[Any], reason: str) -> None:  # noqa: ARG002
        """Suspend a bookie that is connected and does not answer; one that is not has been reported otherwise."""
        position = self._positions[bookie_id]
        if self._connections[position].is_connected:
            self._suspend(bookie_id, reason)

    # --- state of connections, as watcher

    def on_connected(self, bookie_id: str) -> None:
        """Send what the bookie has missed."""
        position = self._positions[bookie_id]
        self._is_live[position] = True
        self._carry_out(self._core.on_position_restored(position))

    def on_disconnected(self, bookie_id: str) -> None:
        """Keep entries back until the bookie is connected again."""
        self._is_live[self._positions[bookie_id]] = False

    def on_unreachable(self, bookie_id: str, reason: str) -> None:
        """Go on without the bookie, if the quorum holds."""
        position = self._positions[bookie_id]
        self._is_live[position] = False
        self._carry_out(self._core.on_position_failed(position, reason))

    def sweep(self, now: float) -> None:
        """Give up when the oldest entry has waited too long, whatever the bookies say."""
        limit_s = self._pool.settings.quorum_timeout_s
        if self._core.pending_count and self._core.failure is None and now - self._progress_at >= limit_s:
            self._carry_out(self._core.time_out(limit_s))

    # --- carrying out

    def _pump(self) -> None:
        """Give ids to all that was appended in this turn, and send it."""
        self._pump_planned = False
        queue, self._queue = self._queue, []
        self._queued_bytes = 0
        if self._core.failure is not None:
            for _, future in queue:
                fail_append(future, self._core.failure)
            return
        if self._core.pending_count == 0:
            self._progress_at = self._loop.time()
        payloads = [payload for batch, _ in queue for payload in batch]
        sizes = [len(payload) for payload in payloads]
        last = self._core.last_add_pushed
        for batch, future in queue:
            last += len(batch)
            self._futures.append((last, future))
        for effect in self._core.append(sizes):
            if isinstance(effect, SendEntries):
                self._send(effect, payloads)
            else:
                self._carry_out([effect])

    def _send(self, effect: SendEntries, payloads: list[bytes]) -> None:
        first = effect.first_entry_id
        first_txn = self._pool.take_txns(len(payloads))
        heads, txns = self._encoder.heads(first_txn, first, effect.last_add_confirmed, effect.lengths, payloads)
        entry_ids = range(first, first + len(payloads))
        self._sent.extend(zip(heads, payloads, strict=True))
        if not self._is_striped:
            data = b"".join([part for pair in zip(heads, payloads, strict=True) for part in pair])
            operations: dict[bytes, Operation] = dict(zip(txns, zip(repeat(self), entry_ids), strict=False))
            for position, connection in enumerate(self._connections):
                if self._is_live[position]:
                    connection.send(data, operations)
            return
        by_position: list[tuple[list[bytes], dict[bytes, Operation]]] = [([], {}) for _ in self._connections]
        for entry_id, txn, head, payload in zip(entry_ids, txns, heads, payloads, strict=True):
            for position in write_set(entry_id, self.metadata.quorum):
                parts, position_operations = by_position[position]
                parts += (head, payload)
                position_operations[txn] = (self, entry_id)
        for position, (parts, operations) in enumerate(by_position):
            if operations and self._is_live[position]:
                self._connections[position].send(b"".join(parts), operations)

    def _resend(self, effect: ResendEntries) -> None:
        first_txn = self._pool.take_txns(len(effect.entry_ids))
        parts: list[bytes] = []
        operations: dict[bytes, Operation] = {}
        sent, first = list(self._sent), self._core.last_add_confirmed + 1
        for number, entry_id in enumerate(effect.entry_ids, first_txn):
            sealed_head, payload = sent[entry_id - first]
            head, txn = self._encoder.again(number, entry_id, sealed_head, payload)
            parts += (head, payload)
            operations[txn] = (self, entry_id)
        self._connections[effect.position].send(b"".join(parts), operations)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ConfirmEntries):
                self._confirm(effect.last_entry_id)
            elif isinstance(effect, FailPending):
                self._fail_pending(effect.error)
            elif isinstance(effect, ResendEntries) and self._is_live[effect.position]:
                self._resend(effect)

    def _confirm(self, last_entry_id: int) -> None:
        self._progress_at = self._loop.time()
        forget = self._sent.popleft
        for _ in range(len(self._sent) - self._core.pending_count):
            forget()
        confirm_appends(self._futures, last_entry_id)
        if self._drains and self.in_flight_bytes <= self._pool.settings.in_flight_bytes_max:
            wake_all(self._drains)

    def _fail_pending(self, error: LedgerError) -> None:
        futures = [future for _, future in self._futures] + [future for _, future in self._queue]
        self._futures.clear()
        self._queue.clear()
        self._sent.clear()
        self._queued_bytes = 0
        self._detach()
        for future in futures:
            fail_append(future, error)
        wake_all(self._drains)

    def _suspend(self, bookie_id: str, reason: str) -> None:
        """Count a connected bookie as failed for a while, then send again what it lacks."""
        position = self._positions[bookie_id]
        if not self._is_live[position]:
            return
        self._is_live[position] = False
        settings = self._pool.settings
        delay_s = max(settings.reconnect_delay_s_min, 2 * self._retry_delay_s[position])
        self._retry_delay_s[position] = min(delay_s, settings.reconnect_delay_s_max)
        self._loop.call_later(self._retry_delay_s[position] * self._rng.uniform(0.5, 1.0), self._restore, bookie_id)
        if reason != Status.ETOOMANYREQUESTS.name:  # overload passes; `sweep` bounds how long we wait
            self._carry_out(self._core.on_position_failed(position, reason))

    def _restore(self, bookie_id: str) -> None:
        if self._core.failure is None and self._connections[self._positions[bookie_id]].is_connected:
            self.on_connected(bookie_id)

    def _detach(self) -> None:
        for connection in self._connections:
            connection.unwatch(self)
        self._pool.remove_sweep(self)


def _has_failed(task: asyncio.Task[int]) -> bool:
    return task.cancelled() or task.exception() is not None
