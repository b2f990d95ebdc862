"""Maintenance of a log by its leader: it trims, deletes what was left behind, and obeys operators.

Background tasks look, ask and delete. Whatever changes the chain is an event that the leader takes when nothing is in
flight (`take_event`): the chain has one writer, one write at a time.
"""

# Longer than 400 lines: one writer of the chain carries out what trims, raises and re-keys it, one at a time.

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from ledger.errors import LedgerError
from rsm_spark.core.batching import Composer
from rsm_spark.core.chain import LogChain, check_chain_size, encode_chain
from rsm_spark.core.commands import ASKED
from rsm_spark.core.detaching import LedgerCopy, with_copies
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import DetachDue, Event, FormatRaiseDue, LedgersDeleted, RollDue, TrimDue
from rsm_spark.core.orphans import is_orphan
from rsm_spark.core.records import KernelRecord
from rsm_spark.core.trimming import TrimPlan, TrimRules, plan_trim
from rsm_spark.errors import NotLeaderError, RsmError
from rsm_spark.log.admin_requests import (
    AdminAnswer,
    AdminRequests,
    AdoptKeyRequest,
    DetachRequest,
    ForgetWriterRequest,
    GrowRequest,
    HandOverWriterRequest,
    Order,
    PlacedOrder,
    RaiseFormatRequest,
    RaiseVersionRequest,
    RollRequest,
    WritersRequest,
)
from rsm_spark.log.consumers import LogConsumers
from rsm_spark.log.detachment import checked_copies
from rsm_spark.log.sharing import SharedLedgers
from rsm_spark.log.trim_notice import agreed_trim
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.held_snapshots import HeldSnapshots
from rsm_spark.runtime.key_rotation import KeyRotation
from rsm_spark.runtime.lake_service import LAKE_PLACE
from rsm_spark.runtime.leader_notes import LeaderNotes
from rsm_spark.runtime.machine_version import MachineVersion
from rsm_spark.runtime.writer_upkeep import WriterUpkeep
from rsm_spark.snapshots.manifest import SnapshotManifest

_LOGGER = logging.getLogger(__name__)
_CHAIN_ALARM_SHARE = 0.7
_SLICE = 100
_SLICE_PAUSE_S = 0.05
_ORDERS_POLLS = 5
_LEVEL_PAUSE_S = 5.0
"""A format level that could not be raised is not tried again before."""
_LAPSED_NAMED_MAX = 10


class _Trim:
    """A trim that is wanted: by the period, or by an operator who waits for `done`."""

    def __init__(self, rules: TrimRules, *, is_dry_run: bool) -> None:
        self.rules = rules
        self.is_dry_run = is_dry_run
        self.done: asyncio.Future[TrimPlan] = asyncio.get_running_loop().create_future()


class LogMaintenance:
    """Upkeep of one log during one leadership.

    Args:
        context: Of the replica.
        protocol: The leadership; asked for the held chain.
        logged_now: Logged time.
        wake: Makes the leader call `take_event` soon.

    Attributes:
        has_work: `take_event` may have something.
        deleted_ledgers: Taken out of the chain, by this leader or the one before, and deleted.
        notes: What operators did, for the audit.
        machine_version: The version of the machine that the log is of.
        writers: Those of the log.

    """

    def __init__(
        self,
        context: ReplicaContext,
        protocol: LeaderProtocol,
        logged_now: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self.has_work = False
        self.deleted_ledgers = 0
        self._context = context
        self._protocol = protocol
        self._logged_now = logged_now
        self._wake = wake
        self._composer: Composer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Place -> revision of the verified snapshot that was found to be there.
        self._held: dict[str, int] = {}
        self._consumers = LogConsumers(context.client.store, context.log_id, context.settings.rsm_root)
        # From what consumers are told until it is trimmed: the next notice takes this one back.
        self._agreeing = asyncio.Lock()
        self._trims: deque[_Trim] = deque()
        self._trimming: _Trim | None = None  # Its chain write is under way.
        self._plan = TrimPlan()
        self._deleted: list[int] = []
        self._raises: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._raising: tuple[int, asyncio.Future[int]] | None = None  # Its record is on its way.
        self._level_wanted = 0  # Being raised because a command needs it.
        self._rolls: deque[tuple[int, asyncio.Future[int]]] = deque()  # With the ledger that is to be closed.
        self._detaches: deque[tuple[tuple[LedgerCopy, ...], asyncio.Future[int]]] = deque()
        self._keys = KeyRotation(context, protocol, self._want)
        self.machine_version = MachineVersion(context, self._want, self.raise_format)
        self.notes = LeaderNotes(context, protocol, wake)
        self.writers = WriterUpkeep(context, wake)
        self._shared = SharedLedgers(context.client, context.log_id, context.settings.rsm_root)
        self._desk = AdminRequests(context.client.store, context.log, context.settings.rsm_root)

    # ---- life

    def begin(self, composer: Composer) -> None:
        """Start; the leadership has begun."""
        self._composer = self.notes.composer = self.writers.composer = composer
        self._spawn(self._trim_rounds())
        self._spawn(self._sweep_orphans())
        self._spawn(self._serve_orders())
        self._spawn(self._keys.rounds())
        self._spawn(self.machine_version.rounds())

    def seal_with_the_key(self, composer: Composer) -> list[tuple[int, tuple[object, ...]]]:
        """Have a composer seal its entries, if the log has a key; return the records that tell of it."""
        return self._keys.seal(composer)

    def stop(self) -> None:
        """Stop; who still waits hears that this replica does not lead."""
        for task in self._tasks:
            task.cancel()
        self._keys.stop()
        self._context.trim = None
        for name in ("trim", "chain"):
            self._context.alarms.pop(name, None)
        trims = [trim.done for trim in (*self._trims, self._trimming) if trim is not None]
        asked = (*self._raises, self._raising, *self._rolls, *self._detaches)
        raising = [one[1] for one in asked if one is not None]
        waiting: tuple[asyncio.Future[Any], ...] = (*trims, *raising)
        for future in waiting:
            if not future.done():
                future.set_exception(NotLeaderError(f"log {self._context.log}: this replica stepped down"))
                future.exception()  # Who asked may have gone.

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOGGER.error("upkeep failed", exc_info=task.exception(), extra=self._context.log_extra)

    def _want(self) -> None:
        self.has_work = True
        self._wake()

    # ---- for the leader

    @property
    def is_chain_full(self) -> bool:
        """True if the chain is so long that only a ledger that is needed may be added."""
        return self._protocol.chain_bytes > _CHAIN_ALARM_SHARE * self._context.settings.chain_bytes_max

    def take_event(self) -> Event | None:
        """Return the next change of the chain that is due; nothing is in flight, the metadata store answers."""
        if self._deleted:
            deleted, self._deleted = tuple(self._deleted), []
            return LedgersDeleted(deleted)
        while self._trims:
            event = self._trim(self._trims.popleft())
            if event is not None:
                return event
        while self._rolls:
            ledger_id, done = self._rolls[0]
            if self._protocol.ledger_id == ledger_id and not self.is_chain_full:
                return RollDue()
            self._rolls.popleft()
            _resolve(done, ledger_id)
        while self._detaches:
            copies, detached = self._detaches[0]
            if self._detached(copies) is not self._protocol.chain:
                return DetachDue(copies)
            self._detaches.popleft()
            _resolve(detached, len(copies))
        if self._keys.has_work:
            event = self._keys.take_event()
            if event is not None:
                return event
        if self.machine_version.has_work:
            return self.machine_version.take_event()
        event = self._raise()
        self.has_work = bool(self._raising or self._raises or self._keys.has_work)
        return event

    def delete(self, ledger_ids: tuple[int, ...]) -> None:
        """Delete ledgers that the chain names as being deleted; in the background."""
        if self._trimming is not None:
            trim, self._trimming = self._trimming, None
            _resolve(trim.done, self._plan)
        self._spawn(self._delete_all(ledger_ids))

    # ---- trimming

    async def trim(self, *, accept_unverified: bool = False, is_dry_run: bool = False) -> TrimPlan:
        """Trim what may go, now.

        Returns:
            What went, or would go; and why the rest stays.

        Raises:
            NotLeaderError: This replica has stepped down; what it did may stand.
            MetadataError: Nobody knows which replicas are live.

        """
        return await self._trim_agreed(accept_unverified=accept_unverified, is_dry_run=is_dry_run)

    async def _trim_rounds(self) -> None:
        settings = self._context.settings
        while True:
            try:
                await self._trim_agreed()
            except (LedgerError, RsmError) as error:
                _LOGGER.info("trimming has to wait: %s", error, extra=self._context.log_extra)
            await asyncio.sleep(settings.trim_s)

    async def _trim_agreed(self, *, accept_unverified: bool = False, is_dry_run: bool = False) -> TrimPlan:
        """Trim what places and consumers let go of, once it is told to the consumers."""
        async with self._agreeing:
            unverified = await self._own_snapshot_revision() if accept_unverified else None
            await self._look_what_is_held()
            rules = self._rules(unverified)
            if is_dry_run:
                holds, told = tuple(one.hold for one in await self._consumers.present()), None
            else:
                holds, told = await agreed_trim(
                    self._consumers,
                    self._protocol.epoch,
                    lambda holds: self._planned(msgspec.structs.replace(rules, holds=holds)).last_revision,
                )
            trim = _Trim(msgspec.structs.replace(rules, holds=holds, told_revision=told), is_dry_run=is_dry_run)
            self._trims.append(trim)
            self._want()
            return await trim.done

    def _rules(self, unverified_revision: int | None) -> TrimRules:
        settings = self._context.settings
        return TrimRules(
            settings.retention_ms,
            is_single_copy_allowed=settings.single_copy,
            wanted_place=LAKE_PLACE if self._context.lake is not None else "",
            unverified_revision=unverified_revision,
            hold_ms_max=settings.consumer_hold_ms,
            hold_bytes_max=settings.consumer_hold_bytes,
        )

    async def _look_what_is_held(self) -> None:
        """Ask every place for what is verified there: it may be away, or the finding came after the snapshot went."""
        held = HeldSnapshots(self._context)
        self._held = await held.look(dict(self._context.state.verified))

    async def _own_snapshot_revision(self) -> int:
        context = self._context
        manifests: list[SnapshotManifest] = await context.run_blocking(context.snapshots.manifests)
        return max((found.revision for found in manifests if found.log_id == context.log_id), default=0)

    def _planned(self, rules: TrimRules) -> TrimPlan:
        chain, verified = self._protocol.chain, self._context.state.verified
        assert chain is not None
        absent = [place for place, proof in sorted(verified.items()) if self._held.get(place) != proof.revision]
        return plan_trim(chain, verified, rules, now_ms=self._logged_now(), absent=absent)

    def _trim(self, trim: _Trim) -> Event | None:
        context, chain = self._context, self._protocol.chain
        assert chain is not None
        plan = self._planned(trim.rules)
        context.trim = self._plan = plan
        self._alarm("trim", plan.alarm)
        self._alarm(
            "chain",
            f"the chain has {len(chain.ledgers)} ledgers and {self._protocol.chain_bytes:,} bytes, the metadata store "
            f"takes {context.settings.chain_bytes_max:,}: ledgers are not rolled any more until some are trimmed"
            if self.is_chain_full
            else "",
        )
        if trim.is_dry_run or not plan.ledger_ids:
            _resolve(trim.done, plan)
            return None
        self._trimming = trim
        _LOGGER.info("trimming up to revision %d", plan.last_revision, extra=context.log_extra)
        if plan.lapsed:
            context.lapsed_consumers += len(plan.lapsed)
            _LOGGER.warning(
                "what goes was not read yet by %d consumers, which have reached their limits: %s",
                len(plan.lapsed),
                ", ".join(plan.lapsed[:_LAPSED_NAMED_MAX]),
                extra=context.log_extra,
            )
        return TrimDue(plan.ledger_ids)

    def _alarm(self, name: str, text: str) -> None:
        alarms = self._context.alarms
        if text and name not in alarms:
            _LOGGER.error("%s", text, extra=self._context.log_extra)
        if text:
            alarms[name] = text
        else:
            alarms.pop(name, None)

    async def _delete_all(self, ledger_ids: tuple[int, ...]) -> None:
        """Delete what nobody uses any more, however often it takes; then the chain may forget all of it."""
        context = self._context
        while True:
            try:
                done = await self._shared.delete(ledger_ids)
                break
            except LedgerError as error:
                _LOGGER.info("ledgers not deleted yet: %s", error, extra=context.log_extra)
            await asyncio.sleep(context.settings.retry_s * context.rng.uniform(0.5, 1.0))
        self.deleted_ledgers += len(ledger_ids) - len(done.kept)
        self._deleted += ledger_ids
        self._want()

    # ---- orphans

    async def _sweep_orphans(self) -> None:
        """Look once through all ledgers of the cluster, in slices; there may be many, of many applications."""
        context = self._context
        while True:
            try:
                ledger_ids = await context.client.list()
                break
            except LedgerError as error:
                _LOGGER.info("looking for orphans has to wait: %s", error, extra=context.log_extra)
            await asyncio.sleep(context.settings.trim_s)
        for first in range(0, len(ledger_ids), _SLICE):
            for ledger_id in ledger_ids[first : first + _SLICE]:
                with contextlib.suppress(LedgerError):  # The next leader looks again.
                    await self._sweep(ledger_id)
            await asyncio.sleep(_SLICE_PAUSE_S)

    async def _sweep(self, ledger_id: int) -> None:
        chain = self._protocol.chain
        assert chain is not None
        if any(ledger.ledger_id == ledger_id for ledger in chain.ledgers):
            return
        metadata = await self._context.client.metadata(ledger_id)
        chain = self._protocol.chain
        assert chain is not None
        if is_orphan(ledger_id, metadata.custom, chain, self._protocol.epoch):
            if await self._shared.is_used(ledger_id):
                return  # It was in the chain, and others use it still.
            _LOGGER.info("deleting ledger %d: it was never chained", ledger_id, extra=self._context.log_extra)
            await self._context.client.delete(ledger_id)

    # ---- format level

    async def raise_format(self, level: int | None = None) -> int:
        """Raise the format level of the log, to what this version knows unless told otherwise; return it.

        Raises:
            RsmError: A live replica does not know it, or neither does this one.
            NotLeaderError: This replica has stepped down.
            MetadataError: Nobody knows which replicas are live.

        """
        own = self._protocol.format_level
        wanted = own if level is None else level
        members = await self._context.discovery.members()
        behind = [f"{m.replica_id} (level {m.format_level})" for m in members if m.format_level < wanted]
        if wanted > own or behind:
            raise RsmError(
                f"log {self._context.log}: not every live replica knows format level {wanted}: "
                f"{', '.join(behind) or f'the leader knows up to {own}'}. Upgrade them first"
            )
        assert self._protocol.chain is not None
        if self._protocol.chain.format_level >= wanted:
            return self._protocol.chain.format_level
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._raises.append((wanted, done))
        self._want()
        return await done

    def want_level(self, level: int) -> None:
        """Raise the format level in the background: a command needs it; unless a live replica does not know it."""
        if self._level_wanted < level:
            self._level_wanted = level
            self._spawn(self._raise_wanted())

    async def _raise_wanted(self) -> None:
        try:
            raised = await self.raise_format(self._level_wanted)
            _LOGGER.info("format level %d: a writer needs it", raised, extra=self._context.log_extra)
        except (RsmError, LedgerError) as error:
            _LOGGER.warning("a writer has to wait: %s", error, extra=self._context.log_extra)
            await asyncio.sleep(_LEVEL_PAUSE_S)
        finally:
            self._level_wanted = 0

    def _raise(self) -> Event | None:
        """Log FORMAT_RAISED; when that is confirmed, raise the chain's level; when that is done, tell."""
        assert self._composer is not None
        assert self._protocol.chain is not None
        if self._raising is None and self._raises:
            self._raising = self._raises.popleft()
            self._composer.wanted.append((KernelRecord.FORMAT_RAISED, (self._raising[0],)))
            return None
        if self._raising is None or self._composer.wanted:
            return None
        level, done = self._raising
        if self._protocol.chain.format_level < level:
            return FormatRaiseDue(level)
        self._raising = None
        _resolve(done, level)
        return None

    # ---- rolls

    async def roll(self) -> int:
        """Go on in another ledger, unless nothing is in this one or the chain has no room; return what was the ledger.

        Raises:
            NotLeaderError: This replica has stepped down; the ledger may be closed.

        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._rolls.append((self._protocol.ledger_id if self._protocol.acked >= 0 else -1, done))
        self._want()
        return await done

    # ---- shared ledgers

    async def detach(self, copies: tuple[LedgerCopy, ...]) -> int:
        """Put copies into the places of shared ledgers; return how many did, but for those that were trimmed.

        Raises:
            LogError: One of them is no copy; the chain has no room for what it says of them.
            LedgerError: The metadata store cannot be asked.
            NotLeaderError: This replica has stepped down; the chain may name them.

        """
        chain = self._protocol.chain
        assert chain is not None
        wanted = tuple(await checked_copies(self._context.client, chain, copies))
        size_max, changed = self._context.settings.chain_bytes_max, self._detached(wanted)
        check_chain_size(encode_chain(changed), len(changed.ledgers), size_max, log_name=self._context.log)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._detaches.append((wanted, done))
        self._want()
        return await done

    def _detached(self, copies: tuple[LedgerCopy, ...]) -> LogChain:
        assert self._protocol.chain is not None
        return with_copies(self._protocol.chain, copies)

    # ---- operators

    async def _serve_orders(self) -> None:
        changed = asyncio.Event()
        while True:
            changed.clear()
            try:
                for placed in await self._desk.pending(watch=changed.set):
                    await self._desk.answer(placed, await self._audited(placed))
            except LedgerError as error:
                _LOGGER.info("orders have to wait: %s", error, extra=self._context.log_extra)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._context.settings.poll_s * _ORDERS_POLLS):
                    await changed.wait()

    async def _audited(self, placed: PlacedOrder) -> AdminAnswer:
        """Obey an order; what was asked, and what came of it, stand in the entries that come next."""
        self.notes.order(placed, ASKED)
        answer = await self._obey(placed.order)
        self.notes.order(placed, f"refused: {answer.refusal}" if answer.refusal else "done")
        return answer

    async def _obey(self, order: Order) -> AdminAnswer:
        by = self._context.me.replica_id
        try:
            if isinstance(order, WritersRequest):
                return AdminAnswer(by, outcome=self.writers.described(order.writer, order.after))
            if isinstance(order, ForgetWriterRequest):
                return AdminAnswer(by, outcome={"writer": await self.writers.forget(order.writer)})
            if isinstance(order, HandOverWriterRequest):
                given = await self.writers.hand_over(order.writer, order.checkpoint)
                return AdminAnswer(by, outcome={"writer": given})
            if isinstance(order, RaiseFormatRequest):
                return AdminAnswer(by, outcome={"format_level": await self.raise_format(order.level)})
            if isinstance(order, RaiseVersionRequest):
                return AdminAnswer(by, outcome={"version": await self.machine_version.raise_version(force=order.force)})
            if isinstance(order, AdoptKeyRequest):
                return AdminAnswer(by, outcome={"key_id": await self._keys.adopt()})
            if isinstance(order, RollRequest):
                return AdminAnswer(by, outcome={"ledger_id": await self.roll()})
            if isinstance(order, DetachRequest):
                return AdminAnswer(by, outcome={"copies": await self.detach(order.copies)})
            if isinstance(order, GrowRequest):
                return AdminAnswer(by, refusal="the log of a state machine has no partitions")
            plan = await self.trim(accept_unverified=order.accept_unverified, is_dry_run=order.is_dry_run)
            return AdminAnswer(by, outcome={"dry_run": order.is_dry_run, **msgspec.to_builtins(plan)})
        except RsmError as error:
            return AdminAnswer(by, refusal=str(error))


def _resolve(future: asyncio.Future[Any] | None, value: object) -> None:
    if future is not None and not future.done():
        future.set_result(value)
