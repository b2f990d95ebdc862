"""The writing end of one ledger: carries out what `LedgerWriter` decides, by the batch.

All that is appended during one turn of the loop is sealed in one loop and leaves in one write per bookie.
"""

# Longer than 400 lines: what callers append, what bookies answer and what the core decides meet in one handle.

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from ledger.client.add_sender import AddSender
from ledger.client.ensemble_changer import EnsembleChanger
from ledger.client.ensemble_links import EnsembleLinks
from ledger.client.explicit_lac import ExplicitLac
from ledger.client.fence_questions import FenceQuestions
from ledger.client.pool import ConnectionPool
from ledger.core import writer_effects
from ledger.core.metadata import LedgerMetadata
from ledger.core.writer import LedgerWriter
from ledger.core.writer_effects import Effect
from ledger.errors import FencedError, LedgerError, UsageError, WrongPasswordError
from ledger.telemetry.tracing import Span
from ledger.wire.codes import Status
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import check_payload
from ledger.wire.packets import Response

CloseLedger = Callable[[LedgerMetadata, int, int], Awaitable[LedgerMetadata]]
"""(metadata, last entry, length) -> the CLOSED metadata; given by the client."""

_PAYLOAD_TYPES: Final = frozenset({bytes})
_OVERRUN: Final = 4
"""Appends beyond this many times `in_flight_bytes_max` are refused: the caller never waits for `drain`."""


class WriteHandle:
    """The only writer of one ledger.

    A bookie that fails gives its place to another one (see `ledger.core.ensemble_change`), unnoticed by the caller. A
    failure that this does not mend freezes the handle: its `last_add_confirmed` stands still, pending appends fail with
    the reason, and so does every later one. What was appended above it is unknown until `close` tells the end.

    Every coroutine may be cancelled, and so may the futures of `append`: that gives up waiting, not the entry, which
    keeps its id and its place.

    Attributes:
        ledger_id: The ledger.
        metadata: As this handle last wrote it.

    """

    _core: LedgerWriter
    _core_type: ClassVar[type[LedgerWriter]] = LedgerWriter
    _write_flags: ClassVar[int] = 0

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        pool: ConnectionPool,
        rng: random.Random,
        close_ledger: CloseLedger,
        changer: EnsembleChanger | None = None,
        on_over: Callable[[WriteHandle], None] = lambda _: None,
        *,
        rolls: bool = False,
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self._pool = pool
        self._close_ledger = close_ledger
        self._changer = changer
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        bookies = metadata.segments[-1].bookies
        self._core = self._core_type(ledger_id, metadata.quorum, bookies)
        if changer is not None and self._core.may_change_ensemble:
            self._core.change_after_s = changer.change_after_s
            self._core.silence_s, self._core.rolls = pool.settings.silence_s, rolls
        # Appended in this turn of the loop, not yet given ids.
        self._queue: list[tuple[Sequence[bytes], asyncio.Future[int]]] = []
        self._queued_bytes = 0
        # The ids of the queued entries, in order, if the application gives them.
        self._queued_ids: dict[int, None] = {}
        self._pump_planned = False
        # Of what was appended in this turn of the loop; and of entries that are on their way, by id.
        self._span: Span | None = None
        self._spans: dict[int, Span] = {}
        # (last entry of the call, its future), ascending.
        self._futures: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._drains: list[asyncio.Future[None]] = []
        self._progress_at = self._loop.time()
        self._closing: asyncio.Task[int] | None = None
        self._changing: asyncio.Task[None] | None = None
        self._links = EnsembleLinks(pool, rng, self, bookies, self._write_flags)
        digest, key = Digest(metadata.digest_type, metadata.password), master_key(metadata.password)
        encoder = pool.add_encoder(ledger_id, key, digest, self._write_flags)
        self._sender = AddSender(self, ledger_id, pool, self._links, metadata.quorum, encoder)
        self._questions = FenceQuestions(pool, self._core, key)
        self._lac = ExplicitLac(pool, ledger_id, digest, key, metadata.quorum.ack_quorum)
        if pool.settings.explicit_lac_interval_s is not None:
            self._lac.start(pool.settings.explicit_lac_interval_s, self.write_lac)
        pool.add_sweep(self.sweep)

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
        """Error that froze the handle; None while it is not frozen."""
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

    def append_traced(self, payload: bytes, span: Span) -> asyncio.Future[int]:
        """Do the same, and tell in a span what becomes of it: the entry, and which bookie has stored it when.

        Raises:
            EntryTooLargeError, UsageError: See `append`.

        """
        added = self.append(payload)
        self._span = span
        return added

    def append_many(self, payloads: Sequence[bytes]) -> asyncio.Future[int]:
        """Append one entry per payload; the future gives the id of the last when all are confirmed.

        The future fails with `FencedError`, `QuorumLostError`, `LedgerClosedError`, `WrongPasswordError`, or
        `NoSuchLedgerError` if the ledger was deleted meanwhile.

        Raises:
            EntryTooLargeError: A payload does not fit an entry; nothing was changed.
            UsageError: There are none, or far more is in flight than `in_flight_bytes_max`: `await drain()`.

        """
        self._check(payloads)
        return self._enqueue(payloads)

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
        await self._lac.write(self.last_add_confirmed, self._core.bookies)

    def check_fence(self, lease_ms: int = 0) -> asyncio.Future[bool]:
        """Ask the bookies whether the ledger is fenced; the future says if it is proven that nobody had recovered it.

        True: when this call was made, no recovery of the ledger had come to its end, so nobody had closed it. No entry
        is written for that. False says nothing: bookies are silent, have taken a fence, have lost data, do not know the
        question (BookKeeper's own do not), or the ensemble changed meanwhile. Appending an entry tells then.

        Args:
            lease_ms: What the bookies are asked to promise, too, for `holds_lease`; they give 250 ms at most. A
                recovery of the ledger waits for so long. 0 = nothing.

        """
        return self._questions.ask(lease_ms)

    def holds_lease(self) -> bool:
        """Return whether it is proven, by what bookies have promised, that nobody has recovered the ledger until now.

        True says what a `check_fence` that begins now would say, without a message. Promises come with `check_fence`.
        """
        return self._questions.holds_lease()

    async def flush(self) -> None:
        """Wait until everything appended so far is confirmed.

        Raises:
            LedgerError: The handle is frozen; this is why.

        """
        if self._queue:
            self._pump()
        if self._core.failure is not None:
            raise self._core.failure
        if self._core.last_confirmable > self._core.last_stored:
            waiter: asyncio.Future[int] = self._loop.create_future()
            self._insert(self._core.last_confirmable, waiter)
            await waiter

    async def force(self) -> int:
        """Wait until everything appended so far is confirmed and durable, and return the last entry id.

        Confirmed entries are durable anyway, unless the ledger was created with `deferred_sync`.

        Raises:
            LedgerError: The handle is frozen; this is why.

        """
        await self.flush()
        return self.last_add_confirmed

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
            # Its error is no news if whoever waited for it was cancelled.
            self._closing.add_done_callback(_has_failed)
        return await asyncio.shield(self._closing)

    def abandon(self) -> None:
        """Stop writing and leave the ledger open, for somebody else to recover or to claim."""
        self._carry_out(self._core.close())
        self._detach()

    async def _close(self) -> int:
        if not self.metadata.is_closed:
            if self._core.failure is None:
                with suppress(LedgerError):  # frozen: the end that is confirmed still stands
                    await self.force()
            self._carry_out(self._core.close())
            self._detach()
            self.metadata = await self._close_ledger(
                self.metadata, self._core.last_add_confirmed, self._core.confirmed_length
            )
        return self.metadata.last_entry_id

    # --- answers of bookies, as asker; those of bookies that have left the ensemble do not count

    def on_stored(self, bookie_id: str, tokens: Sequence[Any]) -> None:
        """Count entries stored."""
        position = self._links.position(bookie_id)
        if position is not None:
            if self._spans:
                self._note_stored(bookie_id, tokens)
            self._carry_out(self._core.on_stored(position, tokens))

    def on_responses(self, bookie_id: str, responses: list[tuple[Any, Response]]) -> None:
        """Take adds that were refused."""
        position = self._links.position(bookie_id)
        if position is None:
            return
        status, error = _judge_refusals(self.ledger_id, bookie_id, responses)
        if error is not None:
            self._carry_out(self._core.freeze(error))
        elif self._links.pause(position, self._restore) and status != Status.ETOOMANYREQUESTS:
            # Overload passes: then the pause is all there is, and `sweep` bounds how long we wait.
            self._fail_position(position, status.name, is_refusal=True)

    def on_unanswered(self, bookie_id: str, tokens: Sequence[Any], reason: str) -> None:  # noqa: ARG002
        """Pause a bookie that is connected and does not answer; one that is not has been reported otherwise."""
        position = self._links.position(bookie_id)
        if position is None:
            return
        if not self._links.is_connected(position):
            self._links.set_live(position, is_live=False)
        elif self._links.pause(position, self._restore):
            self._fail_position(position, reason)

    # --- state of connections, as watcher

    def on_connected(self, bookie_id: str) -> None:
        """Send what the bookie has missed."""
        position = self._links.position(bookie_id)
        self._questions.forget(bookie_id)
        if position is not None and not self._links.is_live(position):
            self._links.set_live(position, is_live=True)
            self._carry_out(self._core.on_position_restored(position))

    def on_disconnected(self, bookie_id: str) -> None:
        """Keep entries back until the bookie is connected again."""
        position = self._links.position(bookie_id)
        if position is not None:
            self._links.set_live(position, is_live=False)

    def on_unreachable(self, bookie_id: str, reason: str) -> None:
        """Go on without the bookie, if the quorum holds."""
        position = self._links.position(bookie_id)
        if position is not None:
            self._links.set_live(position, is_live=False)
            self._fail_position(position, reason)

    def sweep(self, now: float) -> None:
        """Replace who has been away for too long; give up when the oldest entry has waited too long."""
        if self._core.failure is not None:
            return
        self._sender.trim(self._core.stored_length, self._core.keep_from, self._core.last_stored)
        limit_s = self._pool.settings.quorum_timeout_s
        if self._core.is_waiting and now - self._progress_at >= limit_s:
            self._carry_out(self._core.time_out(limit_s))
        else:
            self._carry_out(self._core.on_tick(now))

    # --- carrying out

    def _check(self, payloads: Sequence[bytes]) -> None:
        """Refuse, before anything is changed, what cannot be appended, and more from a caller who never waits.

        Raises:
            EntryTooLargeError: A payload does not fit an entry.
            UsageError: There are none, one is not bytes, or far more is in flight than the settings allow.

        """
        if not payloads:
            raise UsageError("append_many needs at least one payload", ledger_id=self.ledger_id)
        is_one = len(payloads) == 1  # nearly always, and then a third of the time
        if type(payloads[0]) is not bytes or not (is_one or set(map(type, payloads)) <= _PAYLOAD_TYPES):
            raise UsageError(f"ledger {self.ledger_id}: a payload must be bytes", ledger_id=self.ledger_id)
        check_payload(payloads[0] if is_one else max(payloads, key=len), self.ledger_id)
        in_flight_bytes, limit = self.in_flight_bytes, _OVERRUN * self._pool.settings.in_flight_bytes_max
        if in_flight_bytes > limit:
            raise UsageError(
                f"{in_flight_bytes} bytes of ledger {self.ledger_id} are in flight, over {limit}: wait with "
                "`await handle.drain()` between appends",
                ledger_id=self.ledger_id,
            )

    def _enqueue(self, payloads: Sequence[bytes]) -> asyncio.Future[int]:
        """Take checked payloads; they get their ids, and leave, at the end of this turn of the loop."""
        future: asyncio.Future[int] = self._loop.create_future()
        if self._core.failure is not None:
            _fail_append(future, self._core.failure)
            return future
        self._queue.append((payloads, future))
        self._queued_bytes += sum(map(len, payloads))
        if not self._pump_planned:
            self._pump_planned = True
            # Appends of one turn of the loop leave together: one write to each bookie, not one per append.
            self._loop.call_soon(self._pump)
        return future

    def _pump(self) -> None:
        """Give ids to all that was appended in this turn, and send it."""
        self._pump_planned = False
        queue, self._queue = self._queue, []
        self._queued_bytes = 0
        if self._core.failure is not None:
            for _, future in queue:
                _fail_append(future, self._core.failure)
        elif queue:
            was_waiting = self._core.is_waiting
            self._push(queue)
            if not was_waiting:
                self._progress_at = self._loop.time()

    def _push(self, queue: list[tuple[Sequence[bytes], asyncio.Future[int]]]) -> None:
        payloads = [payload for batch, _ in queue for payload in batch]
        sizes = [len(payload) for payload in payloads]
        last = self._core.last_add_pushed
        for batch, future in queue:
            last += len(batch)
            self._futures.append((last, future))
        span, self._span = self._span, None
        # The futures are there by now: an effect may fail them at once.
        for effect in self._core.append(sizes):
            if isinstance(effect, writer_effects.SendEntries):
                if span is not None:
                    span.set(ledger=self.ledger_id, entry=last)
                    self._spans[last] = span
                self._sender.send(effect, payloads, None if span is None else span.context)
            else:
                self._carry_out([effect])

    def _note_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        """Tell in the spans of entries that a bookie has stored them."""
        for entry_id in entry_ids:
            if entry_id in self._spans:
                self._spans[entry_id].event("stored", bookie=bookie_id)

    def _insert(self, last_entry_id: int, future: asyncio.Future[int]) -> None:
        """Put a future among the others, which are in the order of their entries; most belong to the end."""
        futures = self._futures
        if not futures or futures[-1][0] <= last_entry_id:
            futures.append((last_entry_id, future))
        else:
            futures.insert(bisect_right(futures, last_entry_id, key=_entry_of), (last_entry_id, future))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, writer_effects.ConfirmEntries):
                self._confirm(effect.last_entry_id)
            elif isinstance(effect, writer_effects.FailPending):
                self._fail_pending(effect.error)
            elif isinstance(effect, writer_effects.ResendEntries):
                if self._links.is_live(effect.position):
                    self._sender.resend(effect)
            elif isinstance(effect, writer_effects.ChangeEnsemble):
                self._begin_change()
            elif isinstance(effect, writer_effects.UseEnsemble):
                self._use_ensemble(effect)

    def _confirm(self, last_entry_id: int) -> None:
        self._progress_at = self._loop.time()
        self._sender.trim(self._core.stored_length, self._core.keep_from, last_entry_id)
        if self._spans:
            self._spans = {entry_id: span for entry_id, span in self._spans.items() if entry_id > last_entry_id}
        futures = self._futures
        while futures and futures[0][0] <= last_entry_id:
            entry_id, future = futures.popleft()
            if not future.done():
                future.set_result(entry_id)
        if self._drains and self.in_flight_bytes <= self._pool.settings.in_flight_bytes_max:
            self._wake_drains()

    def _fail_pending(self, error: LedgerError) -> None:
        futures = [future for _, future in self._futures] + [future for _, future in self._queue]
        self._futures.clear()
        self._queue.clear()
        self._queued_ids.clear()
        self._queued_bytes = 0
        self._spans.clear()
        self._sender.clear()
        self._questions.settle()
        self._detach()
        for future in futures:
            _fail_append(future, error)
        self._wake_drains()

    def _wake_drains(self) -> None:
        """Wake those that wait for room: who has to wait on adds itself again."""
        woken, self._drains = self._drains, []
        for waiter in woken:
            if not waiter.done():
                waiter.set_result(None)

    def _fail_position(self, position: int, reason: str, *, is_refusal: bool = False) -> None:
        self._carry_out(self._core.on_position_failed(position, reason, self._loop.time(), is_refusal=is_refusal))

    def _restore(self, bookie_id: str) -> None:
        """Send to a paused bookie again."""
        position = self._links.position(bookie_id)
        if self._core.failure is None and position is not None and self._links.is_connected(position):
            self.on_connected(bookie_id)

    def _begin_change(self) -> None:
        assert self._changer is not None
        self._changing = self._loop.create_task(self._changer.change(self._core, self._carry_out))
        self._changing.add_done_callback(self._on_change_over)

    def _on_change_over(self, task: asyncio.Task[None]) -> None:
        """Freeze if the change ended in a way that nobody foresaw: half of one must not go unnoticed."""
        if not task.cancelled() and task.exception() is not None:
            error = LedgerError(f"ledger {self.ledger_id}: {task.exception()!r}", ledger_id=self.ledger_id)
            self._carry_out(self._core.freeze(error))

    def _use_ensemble(self, effect: writer_effects.UseEnsemble) -> None:
        assert self._changer is not None
        self.metadata = self._changer.metadata
        self._questions.settle()
        for position in effect.positions:
            self._links.replace(position, effect.bookies[position])

    def _detach(self) -> None:
        self._links.detach()
        self._pool.remove_sweep(self.sweep)
        self._lac.stop()
        self._on_over(self)
        if self._changing is not None and self._changing is not asyncio.current_task():
            self._changing.cancel()


def _entry_of(append: tuple[int, asyncio.Future[int]]) -> int:
    return append[0]


def _fail_append(future: asyncio.Future[int], error: LedgerError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # the handle keeps the failure: a future that nobody awaits is no news


def _has_failed(task: asyncio.Task[int]) -> bool:
    """Return whether a finished task failed. Its error counts as told from then on."""
    return task.cancelled() or task.exception() is not None


def _judge_refusals(
    ledger_id: int, bookie_id: str, responses: Sequence[tuple[Any, Response]]
) -> tuple[Status, LedgerError | None]:
    """Return the status that counts most among one wake-up's refusals, and the error if it ends the writer."""
    status = responses[0][1].status
    for _, response in responses:
        if response.status in (Status.EFENCED, Status.EUA):
            status = response.status
    what = f"ledger {ledger_id}: {bookie_id} answers {status.name}"
    if status == Status.EFENCED:
        message = f"{what}: another client recovers the ledger; stop writing, close it to learn its end"
        return status, FencedError(message, ledger_id=ledger_id)
    if status == Status.EUA:
        return status, WrongPasswordError(
            f"{what}: the password is not the ledger's, or the bookie demands TLS or a log-in", ledger_id=ledger_id
        )
    return status, None
