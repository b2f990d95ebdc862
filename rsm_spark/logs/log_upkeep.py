"""Upkeep of a plain log by its writer: it trims what the log need not keep, deletes that, and obeys operators.

Background tasks look, ask and delete. Whatever changes the chain is an event that the writer takes when nothing is in
flight: the chain has one writer, one write at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import msgspec

from ledger.errors import LedgerError
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import Event, LedgersDeleted, TrimDue
from rsm_spark.core.trimming import TrimPlan, TrimRules, plan_trim
from rsm_spark.errors import NotLeaderError, RsmError
from rsm_spark.log.admin_requests import (
    AdminAnswer,
    AdminRequests,
    ForgetWriterRequest,
    HandOverWriterRequest,
    Order,
    RollRequest,
    TrimRequest,
    WritersRequest,
)
from rsm_spark.log.consumers import LogConsumers
from rsm_spark.log.log_policy import read_policy
from rsm_spark.log.sharing import SharedLedgers
from rsm_spark.log.trim_notice import agreed_trim
from rsm_spark.logs.context import LogContext

_LOGGER = logging.getLogger(__name__)
_CHAIN_FULL_SHARE = 0.7
_ORDERS_LOOK_S = 5.0


class WriterKeeper(Protocol):
    """Keeper of writers of batches: `rsm_spark.logs.marked_writing.MarkedWriting`."""

    def described(self, name: str, after: str) -> dict[str, Any]:
        """Return a writer, or all behind a name."""
        ...

    async def forget(self, name: str) -> dict[str, Any]:
        """Have the log forget a writer; return it as it was."""
        ...

    async def hand_over(self, name: str, checkpoint: str) -> dict[str, Any]:
        """Give a writer to another checkpoint; return it as it was."""
        ...


class _WantedTrim:
    """A trim that is wanted, and who waits for it."""

    def __init__(self, rules: TrimRules) -> None:
        self.rules = rules
        self.done: asyncio.Future[TrimPlan] = asyncio.get_running_loop().create_future()


class LogUpkeep:
    """Upkeep of one plain log during the life of one writer.

    Args:
        context: Of the log.
        protocol: Asked for the held chain.
        logged_now: Logged time.
        wake: Makes the writer call `take_event` soon.

    Attributes:
        has_work: `take_event` may have something.
        marked: Asked for writers of batches, once the log's writer has it.

    """

    def __init__(
        self,
        context: LogContext,
        protocol: LeaderProtocol,
        logged_now: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self.has_work = False
        self.marked: WriterKeeper | None = None
        self._context = context
        self._protocol = protocol
        self._logged_now = logged_now
        self._wake = wake
        store, root = context.client.store, context.settings.rsm_root
        self._consumers = LogConsumers(store, context.log_id, root)
        self._shared = SharedLedgers(context.client, context.log_id, root)
        self._desk = AdminRequests(store, context.log, root)
        self._tasks: set[asyncio.Task[None]] = set()
        # From what consumers are told until it is trimmed: the next notice takes this one back.
        self._agreeing = asyncio.Lock()
        self._trims: deque[_WantedTrim] = deque()
        self._trimming: tuple[_WantedTrim, TrimPlan] | None = None  # Its chain write is under way.
        self._deleted: list[int] = []
        self._rolls: list[tuple[int, asyncio.Future[int]]] = []  # With the ledger that is to be closed.
        self._changed = asyncio.Event()  # The policy.

    # ---- life

    def begin(self) -> None:
        """Start; the writer has begun."""
        self._spawn(self._trim_rounds)
        self._spawn(self._serve_orders)

    def stop(self) -> None:
        """Stop; who still waits hears that this writer is over."""
        for task in self._tasks:
            task.cancel()
        trimming = [self._trimming[0]] if self._trimming is not None else []
        waiting: list[asyncio.Future[Any]] = [trim.done for trim in (*self._trims, *trimming)]
        waiting += [done for _, done in self._rolls]
        for future in waiting:
            if not future.done():
                future.set_exception(NotLeaderError(f"log {self._context.log}: its writer is over"))
                future.exception()  # Who asked may have gone.

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._said(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _said(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception:
            _LOGGER.exception("upkeep failed", extra=self._context.log_extra)

    def _want(self) -> None:
        self.has_work = True
        self._wake()

    # ---- for the writer

    @property
    def is_chain_full(self) -> bool:
        """True if the chain is so long that only a ledger that is needed may be added."""
        return self._protocol.chain_bytes > _CHAIN_FULL_SHARE * self._context.settings.chain_bytes_max

    @property
    def is_roll_wanted(self) -> bool:
        """True if an operator wants the present ledger closed."""
        while self._rolls:
            ledger_id, done = self._rolls[0]
            if ledger_id == self._protocol.ledger_id:
                return True
            self._rolls.pop(0)
            if not done.done():
                done.set_result(ledger_id)
        return False

    def take_event(self) -> Event | None:
        """Return the next change of the chain that is due; nothing is in flight, the metadata store answers."""
        if self._deleted:
            deleted, self._deleted = tuple(self._deleted), []
            return LedgersDeleted(deleted)
        while self._trims:
            trim = self._trims.popleft()
            plan = self._planned(trim.rules)
            if plan.ledger_ids:
                self._trimming = trim, plan
                _LOGGER.info("trimming up to position %d", plan.last_revision, extra=self._context.log_extra)
                return TrimDue(plan.ledger_ids)
            trim.done.set_result(plan)
        self.has_work = False
        return None

    def delete(self, ledger_ids: tuple[int, ...]) -> None:
        """Delete ledgers that the chain names as being deleted; in the background."""
        if self._trimming is not None:
            (trim, plan), self._trimming = self._trimming, None
            trim.done.set_result(plan)
        self._spawn(partial(self._delete_all, ledger_ids))

    async def _delete_all(self, ledger_ids: tuple[int, ...]) -> None:
        context = self._context
        while True:
            try:
                await self._shared.delete(ledger_ids)
                break
            except LedgerError as error:
                _LOGGER.info("ledgers not deleted yet: %s", error, extra=context.log_extra)
            await asyncio.sleep(context.settings.retry_s * context.rng.uniform(0.5, 1.0))
        self._deleted += ledger_ids
        self._want()

    # ---- trimming

    async def trim(self, *, is_dry_run: bool = False) -> TrimPlan:
        """Trim what may go, now; return what went, or would go, and why the rest stays.

        Raises:
            NotLeaderError: This writer is over; what it did may stand.
            MetadataError: Nobody knows what the log has to keep.

        """
        store, settings = self._context.client.store, self._context.settings
        limits = {"hold_ms_max": settings.consumer_hold_ms, "hold_bytes_max": settings.consumer_hold_bytes}
        async with self._agreeing:
            self._changed.clear()
            log_id, root = self._context.log_id, settings.rsm_root
            policy, _ = await read_policy(store, log_id, root, watch=self._changed.set)
            if is_dry_run:
                holds = tuple(one.hold for one in await self._consumers.present())
                return self._planned(policy.rules(holds, **limits))
            holds, told = await agreed_trim(
                self._consumers,
                self._protocol.epoch,
                lambda holds: self._planned(policy.rules(holds, **limits)).last_revision,
            )
            trim = _WantedTrim(policy.rules(holds, told, **limits))
            self._trims.append(trim)
            self._want()
            return await trim.done

    def _planned(self, rules: TrimRules) -> TrimPlan:
        chain = self._protocol.chain
        assert chain is not None
        return plan_trim(chain, {}, rules, now_ms=self._logged_now())

    async def _trim_rounds(self) -> None:
        while True:
            try:
                await self.trim()
            except (LedgerError, RsmError) as error:
                _LOGGER.info("trimming has to wait: %s", error, extra=self._context.log_extra)
            await _any(self._changed, self._context.settings.trim_s)

    # ---- operators

    async def roll(self) -> int:
        """Go on in another ledger, unless nothing is in this one; return what was the ledger."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._rolls.append((self._protocol.ledger_id, done))
        self._want()
        return await done

    async def _serve_orders(self) -> None:
        changed = asyncio.Event()
        while True:
            changed.clear()
            try:
                for placed in await self._desk.pending(watch=changed.set):
                    await self._desk.answer(placed, await self._obey(placed.order))
            except LedgerError as error:
                _LOGGER.info("orders have to wait: %s", error, extra=self._context.log_extra)
            await _any(changed, _ORDERS_LOOK_S)

    async def _obey(self, order: Order) -> AdminAnswer:
        by = self._context.me.replica_id
        try:
            if isinstance(order, RollRequest):
                return AdminAnswer(by, outcome={"ledger_id": await self.roll()})
            if isinstance(order, TrimRequest):
                plan = await self.trim(is_dry_run=order.is_dry_run)
                return AdminAnswer(by, outcome={"dry_run": order.is_dry_run, **msgspec.to_builtins(plan)})
            if self.marked is not None and isinstance(order, WritersRequest):
                return AdminAnswer(by, outcome=self.marked.described(order.writer, order.after))
            if self.marked is not None and isinstance(order, ForgetWriterRequest):
                return AdminAnswer(by, outcome={"writer": await self.marked.forget(order.writer)})
            if self.marked is not None and isinstance(order, HandOverWriterRequest):
                given = await self.marked.hand_over(order.writer, order.checkpoint)
                return AdminAnswer(by, outcome={"writer": given})
        except RsmError as error:
            return AdminAnswer(by, refusal=str(error))
        return AdminAnswer(
            by, refusal="this log has no state machine: its writer rolls and trims it, knows writers, no more"
        )


async def _any(changed: asyncio.Event, timeout_s: float) -> None:
    """Wait until something has changed, or the time has passed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await changed.wait()
