"""Carries out what the writer of a plain log decides: the asyncio shell around `rsm_spark.core.pipelined_leadership`.

The shell decides nothing about who may write. It waits out what may succeed later (no bookies, metadata store away).
What is appended in one turn of the event loop travels in one entry; the task of the writer wakes once for all of it.
"""

# Longer than 400 lines: one shell, that carries out what the protocol asks for and tells it what became of that.

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from ledger.errors import LedgerError
from ledger.ports import SessionState
from rsm_spark.core.append_queue import AppendBatch, AppendComposer, AppendQueue, PendingRecords
from rsm_spark.core.batching import Batch
from rsm_spark.core.envelope import record_count_of
from rsm_spark.core.leadership_events import (
    AddFailed,
    AnswerBatch,
    AppendEntry,
    BatchComposed,
    BeginLeadership,
    CloseOwnLedger,
    CreateLedger,
    DeleteLedgers,
    DropBatch,
    Effect,
    ElectionWon,
    EntryConfirmed,
    Event,
    Halt,
    LedgerCreated,
    LedgerRecovered,
    ReadChain,
    RecoverLedger,
    Replayed,
    ReplayLog,
    Resigned,
    RollDue,
    StepDown,
    WriteChain,
)
from rsm_spark.core.leadership_table import Phase
from rsm_spark.core.pipelined_leadership import PipelinedProtocol
from rsm_spark.core.plain_log import RECORD_BYTES_MAX, LogEndedError, WrittenEnd, first_records, ledger_records
from rsm_spark.core.producer_intake import ProducerIntake
from rsm_spark.core.producers import ProducerTable
from rsm_spark.core.records import PRODUCERS_LEVEL, TYPES_LEVEL, KernelRecord
from rsm_spark.core.seal import EntryKey
from rsm_spark.core.state import StateTip
from rsm_spark.core.writers import WriterTable
from rsm_spark.errors import CorruptLogError, MissingLogError, NotLeaderError, OutcomeUnknownError, RsmError
from rsm_spark.logs.context import LogContext
from rsm_spark.logs.log_end import read_log_end
from rsm_spark.logs.log_upkeep import LogUpkeep
from rsm_spark.logs.producers_end import read_producers
from rsm_spark.runtime.chain_requests import ChainRequests, pause
from rsm_spark.runtime.logged_clock import LoggedClock
from rsm_spark.runtime.own_ledger import OwnLedger

_LOGGER = logging.getLogger(__name__)
_ENTRIES_MAX = 16
"""Entries in flight; what comes meanwhile travels together in the next one."""
_BYTES_MAX = 16 * 1024 * 1024
_GATHERED_ENTRIES_MAX, _GATHERED_BYTES = 8, 256 * 1024
"""While so few entries are on their way, the next one takes so many bytes: it is stored while those after it are made.
Beyond, an entry takes what fits: they take long, so fewer and larger ones cost less."""
_FAILED_ADD_PAUSE_S_MAX = 5.0
_CLOSE_S = 5.0
_LEVEL = TYPES_LEVEL
"""Format level of a new log without producers: whoever knows plain logs knows it."""


class WriterDriver:
    """One attempt to write a plain log, from the claim to the end.

    Args:
        context: Of the log.
        password_mark: Of the ledger password; see `rsm_spark.core.admission`.
        is_upkeep: It is opened to be trimmed: also where the log has its end mark.
        has_producers: The log takes records of producers from now on, if it did not before.

    Attributes:
        protocol: The decisions.
        queue: What waits to be appended; None until the log is open.
        intake: What producers have on their way; None until then, and in a log without producers.
        opened: Done when appends are taken; fails with the reason why they never are.
        refusal: Why nothing is appended any more; None = it is.

    """

    def __init__(
        self, context: LogContext, password_mark: str, *, is_upkeep: bool = False, has_producers: bool = False
    ) -> None:
        self._is_upkeep = is_upkeep
        keys = context.settings.log_keys
        self.protocol = PipelinedProtocol(
            context.me,
            context.log,
            StateTip(0, b"", 0, 0),
            None,
            log_id=context.log_id,
            level_needed=_LEVEL,
            level_claimed=PRODUCERS_LEVEL if has_producers else 1,
            password_mark=password_mark,
            key_ids=() if keys is None else keys.ids,
            chain_bytes_max=context.settings.chain_bytes_max,
        )
        loop = asyncio.get_running_loop()
        self.queue: AppendQueue | None = None
        self.intake: ProducerIntake | None = None
        self.opened: asyncio.Future[None] = loop.create_future()
        self.refusal: RsmError | LedgerError | None = None
        self.upkeep = LogUpkeep(context, self.protocol, self.logged_now, self.wake)
        self._context = context
        self._steps = ChainRequests(context, self.protocol)
        self._ledger = OwnLedger(context)
        self._composer: AppendComposer | None = None
        self._clock: LoggedClock | None = None
        self._end = WrittenEnd()
        self._producers: ProducerTable | None = None
        self._recovered_entry_id = -1
        self._wake: asyncio.Future[None] | None = None
        # What became of entries, in order: (ledger, entry id), or why an add failed.
        self._outcomes: deque[tuple[int, int | LedgerError]] = deque()
        self._unsaid: list[tuple[object, ...]] = []  # Records of the writer's own that the next entry begins with.
        self._failed_add_count = 0  # In a row, each in a ledger of its own.
        self._roll_at = 0.0
        self._has_appends = False  # In the present ledger.
        self._is_closing = False
        self._is_closed = False  # Nothing is on its way, and nothing comes.
        self._sent: list[asyncio.Future[None]] = []
        self._next_check: asyncio.Task[None] | None = None  # It has not begun to look.
        self._looking = asyncio.Lock()

    # ---- life

    async def run(self) -> None:
        """Write until closed or deposed; every append has an outcome then.

        Raises:
            RsmError, LedgerError: The log is damaged, or cannot be written by this process.

        """
        try:
            await self._carry_out_all(deque(self.protocol.handle(ElectionWon())))
            while self.protocol.phase is not Phase.FOLLOW:
                event = await self._next_event()
                await self._carry_out_all(deque(self.protocol.handle(event)))
                if isinstance(event, BatchComposed) and self.queue is not None and len(self.queue):
                    await asyncio.sleep(0)  # The entry leaves before the next one is made.
        except (RsmError, LedgerError) as error:
            self._refuse(error)
            raise
        finally:
            self.upkeep.stop()
            self._refuse(NotLeaderError(f"log {self._context.log}: its writer has stopped"))
            self._drop_the_rest()
            await self._end_ledger()

    def _refuse(self, error: RsmError | LedgerError) -> None:
        if self.refusal is None:
            self.refusal = error
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # Whoever opens may have gone.

    def _drop_the_rest(self) -> None:
        """Give every append that has no outcome yet one."""
        for batch in self.protocol.in_flight:
            self._drop(batch, applied_never=False)
        for append in self.queue.take_all() if self.queue is not None else ():
            self._fail(append, self._never())
        self._tell_sent()

    async def _end_ledger(self) -> None:
        """Close the ledger in good order, so that readers see all of it; whoever comes next does it otherwise."""
        try:
            if self._is_closed and self.protocol.ledger_id >= 0:
                async with asyncio.timeout(_CLOSE_S):
                    await self._ledger.close()
        except (LedgerError, TimeoutError) as error:
            _LOGGER.info("the ledger is left to the next writer: %s", error, extra=self._context.log_extra)
        finally:
            self._ledger.abandon()

    def close(self) -> None:
        """Take no more; end when all that was appended has an outcome."""
        self._is_closing = True
        self.wake()

    def wake(self) -> None:
        """Look now at what is to be done."""
        wake = self._wake
        if wake is not None:
            self._wake = None  # Whoever appends next in this turn has nothing to do.
            if not wake.done():
                wake.set_result(None)

    async def progress(self) -> None:
        """Return when another entry was sent, or the writer is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent.append(waiter)
        await waiter

    def _tell_sent(self) -> None:
        waiters, self._sent = self._sent, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # ---- effects

    async def _carry_out_all(self, effects: deque[Effect]) -> None:
        while effects:
            event = await self._carry_out(effects.popleft())
            if event is not None:
                effects.extend(self.protocol.handle(event))

    async def _carry_out(self, effect: Effect) -> Event | None:
        """Do one thing; return its outcome, if it has one at once."""
        match effect:
            case AppendEntry(ledger_id=ledger_id, payload=payload):
                self._append(ledger_id, payload)
            case AnswerBatch(batch=batch):
                self._answer(batch)
            case ReadChain():
                return await self._steps.read_chain()
            case WriteChain(value=value, held_version=version):
                return await self._steps.write_chain(value, version)
            case RecoverLedger(ledger_id=ledger_id):
                event = await self._steps.recover(ledger_id)
                if isinstance(event, LedgerRecovered):
                    self._recovered_entry_id = event.last_entry_id
                return event
            case ReplayLog():
                return await self._replay(effect)
            case CreateLedger():
                return await self._create(effect)
            case DeleteLedgers(ledger_ids=ledger_ids):
                self.upkeep.delete(ledger_ids)
            case BeginLeadership(leader_epoch=epoch):
                return self._begin(epoch)
            case CloseOwnLedger(ledger_id=ledger_id):
                return await self._ledger.learn_end(ledger_id)
            case DropBatch(batch=batch, applied_never=applied_never):
                self._drop(batch, applied_never=applied_never)
            case StepDown(reason=reason, deposed=deposed):
                if deposed:
                    self._refuse(self._never())
                _LOGGER.info("the writer ends: %s", reason, extra=self._context.log_extra)
            case Halt(reason=reason):
                raise CorruptLogError(reason)
        return None

    async def _replay(self, effect: ReplayLog) -> Event:
        """Learn where the log ends.

        Raises:
            LogEndedError: It has its end mark.
            CorruptLogError: What lies at its end is not the log's.

        """
        context = self._context
        while True:
            try:
                end = await read_log_end(context, effect.chain, self._recovered_entry_id)
                if effect.chain.format_level >= PRODUCERS_LEVEL:
                    self._producers = await read_producers(context, effect.chain, self._recovered_entry_id)
                break
            except MissingLogError as error:
                return Resigned(str(error))
            except LedgerError as error:
                await pause(context, "reading the end of the log", error)
        if end.epoch != effect.chain.leader_epoch:
            return self._resign(f"epoch {end.epoch} was claimed while the end of the log was read")
        if end.written.is_ended and not self._is_upkeep:
            raise LogEndedError(f"log {context.log}: it has its end mark: nothing can be appended any more")
        self._end = end.written
        keys = context.settings.log_keys
        if keys is not None and effect.chain.key_id:
            self.protocol.key_id = keys.newest.key_id
        return Replayed(end.tip, end.position)

    def _resign(self, reason: str) -> Event:
        self._refuse(self._never())
        return Resigned(reason)

    async def _create(self, effect: CreateLedger) -> Event:
        """Create the next ledger; it is to be described before anything of it can be trimmed."""
        if self._failed_add_count > 1:  # Each ledger that failed at once costs the chain a place.
            retry_s = self._context.settings.retry_s
            delay_s = min(retry_s * 2 ** (self._failed_add_count - 2), _FAILED_ADD_PAUSE_S_MAX)
            await asyncio.sleep(delay_s * self._context.rng.uniform(0.5, 1.0))
        ledger_id = await self._ledger.create(effect)
        self._outcomes.clear()  # Those of the ledger before are known from its end.
        self._has_appends = bool(self.protocol.in_flight)
        self._roll_at = asyncio.get_running_loop().time() + self._context.settings.roll_s
        if self._composer is not None:
            self._unsaid = ledger_records(self._composer.end, self._note()) + self._composer.writer_records()
        return LedgerCreated(ledger_id, self._context.clock_ms())

    def _begin(self, epoch: int) -> Event:
        """Compose the first entry of this writer."""
        context, protocol = self._context, self.protocol
        chain, tip = protocol.chain, protocol.tip
        assert chain is not None
        self._clock = LoggedClock(tip.logged_ms, context.clock_ms(), asyncio.get_running_loop().time())
        entry_key, told = self._key(chain.key_id)
        self.queue = AppendQueue(context.log, self._end)
        producers = self._producers
        self._composer = AppendComposer(bytes.fromhex(chain.log_id), epoch, tip, self._end, entry_key, producers)
        self.intake = None if producers is None else ProducerIntake(context.log, producers)
        self._unsaid = []
        records = first_records(context.me.replica_id, context.me.incarnation, self._end, self._note()) + told
        records += self._composer.writer_records()
        return self._composed(records, [])

    def _note(self) -> bytes | None:
        """Return the producers as of what was composed, to be noted in the next entry; None = the log has none."""
        assert self._composer is not None
        return self._composer.note(self.logged_now(), self._context.settings.producer_ttl_ms)

    def _key(self, chain_key_id: str) -> tuple[EntryKey | None, list[tuple[object, ...]]]:
        """Return what seals the entries, if the log has a key, and the record that tells of it."""
        if not chain_key_id:
            return None, []
        keys, key_id = self._context.settings.log_keys, self.protocol.key_id
        assert keys is not None, "a writer without the key was not admitted"
        key = keys.get(key_id)
        entry_key = keys.entry_key(bytes.fromhex(key_id), bytes.fromhex(self._context.log_id))
        if key is None or entry_key is None:
            raise RsmError(f"log {self._context.log}: its entries are sealed with key {key_id}, {keys.lacking()}")
        return entry_key, [(int(KernelRecord.KEY_ADOPTED), None, (bytes.fromhex(key_id), key.public))]

    def _append(self, ledger_id: int, payload: bytes) -> None:
        added = self._ledger.append(payload, record_count_of(payload))
        added.add_done_callback(partial(self._added, ledger_id))

    def _added(self, ledger_id: int, added: asyncio.Future[int]) -> None:
        """Note what became of an entry."""
        if added.cancelled() or ledger_id != self.protocol.ledger_id:
            return
        error = added.exception()
        if error is not None and not isinstance(error, LedgerError):
            error = LedgerError(f"ledger {ledger_id}: {error!r}", ledger_id=ledger_id)
        self._outcomes.append((ledger_id, added.result() if error is None else error))
        self.wake()

    def _answer(self, batch: Batch) -> None:
        """Tell those whose records are in the log where they are."""
        assert isinstance(batch, AppendBatch)
        for append in batch.appends:
            if append.source is not None and self.intake is not None:
                self.intake.confirm(append.source)
            ticket = append.ticket
            if ticket is not None and not ticket.done():
                ticket.set_result(append.last_position)
        self._ledger.publish_soon()
        if not self.opened.done():
            self.opened.set_result(None)
            self.upkeep.begin()

    def _drop(self, batch: Batch, *, applied_never: bool) -> None:
        assert isinstance(batch, AppendBatch)
        error = self._never() if applied_never else self._unknown()
        for append in batch.appends:
            self._fail(append, error)

    def _fail(self, append: PendingRecords, error: RsmError) -> None:
        if append.ticket is not None and not append.ticket.done():
            append.ticket.set_exception(error)
            append.ticket.exception()  # A future that nobody awaits is no news.

    def _never(self) -> RsmError:
        return NotLeaderError(
            f"log {self._context.log}: this writer is over, another one has opened the log or it was closed: the "
            "record is certainly not in the log. Open a writer again, if no other one should write"
        )

    def _unknown(self) -> RsmError:
        return OutcomeUnknownError(
            f"log {self._context.log}: this writer ended before it learned whether the record is in the log: read the "
            "log from the last known position on before you append it again"
        )

    # ---- producers, writers of batches

    @property
    def writers(self) -> WriterTable | None:
        """Writers of batches, as of what was composed; None = the log has none, by its format level."""
        return None if self._producers is None else self._producers.writers

    def forget_idle(self) -> None:
        """Note the producers soon, if somebody is to be left out."""
        composer, ttl_ms = self._composer, self._context.settings.producer_ttl_ms
        assert composer is not None
        assert composer.producers is not None
        if not self._unsaid and composer.producers.has_idle(self.logged_now(), ttl_ms):
            composer.is_note_wanted = True
            self.wake()

    async def check(self) -> None:
        """Return if no other writer can have appended anything before this call.

        Raises:
            NotLeaderError: Another one has claimed the log.
            RsmError, MetadataError: Nobody can say; the same call may succeed later.

        """
        if self._next_check is None:
            self._next_check = asyncio.get_running_loop().create_task(self._look())
            self._next_check.add_done_callback(_look_at)
        await asyncio.shield(self._next_check)

    async def _look(self) -> None:
        async with self._looking:
            self._next_check = None  # Who asks from now on needs a later look.
            chain, _ = await self._context.chains.read()
        if chain.leader_epoch != self.protocol.epoch:
            raise self._never()

    # ---- events

    def logged_now(self) -> int:
        """Return logged time; only once the log is open."""
        assert self._clock is not None
        assert self._composer is not None
        return self._clock.read(self._composer.tip.logged_ms, asyncio.get_running_loop().time())

    async def _next_event(self) -> Event:
        """Wait until something has become of an entry, or there is something to append or to do."""
        loop = asyncio.get_running_loop()
        while True:
            event = self._outcome() or self._chain_event(loop.time()) or self._compose()
            if event is not None:
                return event
            if self._is_closing and not self.protocol.in_flight and not (self.queue is not None and len(self.queue)):
                self._is_closed = True
                return Resigned("it was closed")
            wake = self._wake = loop.create_future()
            timer = loop.call_at(self._roll_at, self.wake) if self._roll_at > loop.time() else None
            try:
                await wake
            finally:
                if timer is not None:
                    timer.cancel()
                self._wake = None

    def _outcome(self) -> Event | None:
        """Return what became of the oldest entry, if that is known."""
        if not self._outcomes:
            return None
        _, outcome = self._outcomes.popleft()
        if isinstance(outcome, LedgerError):
            self._failed_add_count += 1
            self._outcomes.clear()
            _LOGGER.warning("an add failed: %s", outcome, extra=self._context.log_extra)
            return AddFailed()
        self._failed_add_count = 0
        return EntryConfirmed(outcome)

    def _chain_event(self, now: float) -> Event | None:
        """Return the next change of the chain, once nothing is in flight."""
        if self.protocol.in_flight or not self._is_chain_due(now):
            return None
        if self._is_roll_due(now):
            return RollDue()
        return self.upkeep.take_event()

    def _is_chain_due(self, now: float) -> bool:
        """Return whether the chain is to be written: then no entry is sent, until nothing is in flight."""
        if self._context.client.store.session_state is not SessionState.CONNECTED or self._unsaid:
            return False  # A ledger says what it is before anything else is done.
        return self._is_roll_due(now) or self.upkeep.has_work

    def _is_roll_due(self, now: float) -> bool:
        """Return whether the ledger is big or old enough; one without appends stays, however old."""
        if self.upkeep.is_chain_full or not self._has_appends:
            return False
        return self.upkeep.is_roll_wanted or self._ledger.is_due_for_roll(now)

    def _compose(self) -> Event | None:
        """Compose the next entry, if there is something for it and not too much is in flight."""
        queue, composer, in_flight = self.queue, self._composer, self.protocol.in_flight
        if queue is None or composer is None or len(in_flight) >= _ENTRIES_MAX:
            return None
        if not (len(queue) or self._unsaid or composer.is_note_wanted):
            return None
        if sum(len(batch.payload) for batch in in_flight) >= _BYTES_MAX:
            return None
        if self._is_chain_due(asyncio.get_running_loop().time()):
            return None
        own, self._unsaid = self._unsaid, []
        if not own and composer.is_note_due:
            own = ledger_records(composer.end, self._note()) + composer.writer_records()
        bytes_max = _GATHERED_BYTES if len(in_flight) < _GATHERED_ENTRIES_MAX else RECORD_BYTES_MAX
        appends = queue.take(composer.noted_bytes if own else 0, bytes_max)
        self._has_appends = self._has_appends or bool(appends)
        self._tell_sent()
        return self._composed(own, appends)

    def _composed(self, own: Sequence[tuple[Any, ...]], appends: Sequence[PendingRecords]) -> Event:
        assert self._composer is not None
        return BatchComposed(
            self._composer.compose(
                own,
                appends,
                confirmed_revision=self.protocol.tip.revision,
                logged_ms=self.logged_now(),
            )
        )


def _look_at(task: asyncio.Task[None]) -> None:
    """Look at how a check ended: who waited for it may have gone."""
    if not task.cancelled():
        task.exception()
