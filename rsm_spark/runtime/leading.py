"""Carries out what leadership wants done: the asyncio shell around `rsm_spark.core.leadership`.

The shell decides nothing about who may write. It waits out what may succeed later (no bookies, metadata store away),
and leaves at once when the session with the metadata store is lost.
"""

# Longer than 400 lines: one leadership: what it does next, and how, in the order in which it happens.

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from ledger.errors import LedgerError
from ledger.ports import SessionState
from ledger.telemetry.tracing import tracer
from rsm_spark.core.batching import BatchLimits, Composer
from rsm_spark.core.freshness import LeaderClock
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_ends import ElectionFinding, described_end, finding_metadata
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
    ReadChain,
    RecoverLedger,
    ReplayLog,
    Resigned,
    RollDue,
    StepDown,
    WriteChain,
)
from rsm_spark.core.leadership_progress import LeadershipProgress
from rsm_spark.core.leadership_table import Phase
from rsm_spark.core.machine import AdvisedMachine, encode_description
from rsm_spark.core.records import KernelRecord
from rsm_spark.core.reports import CONTRADICTIONS_MAX
from rsm_spark.core.submissions import RequestQueue
from rsm_spark.errors import CorruptLogError, NoRoomError, StateDivergedError
from rsm_spark.runtime.context import ReplicaContext, resolve
from rsm_spark.runtime.entry_telling import EntryTelling
from rsm_spark.runtime.log_maintenance import LogMaintenance
from rsm_spark.runtime.logged_clock import LoggedClock
from rsm_spark.runtime.own_ledger import OwnLedger
from rsm_spark.runtime.read_checks import ReadChecks
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.runtime.taking_over import TakeOver
from rsm_spark.runtime.traced_entries import begin_entry

_LOGGER = logging.getLogger(__name__)
_FAILED_ADD_PAUSE_S_MAX = 5.0
_LOOKS = 4  # How often it is looked whether a leadership gets anywhere, while it may get nowhere.


class LeaderDriver:
    """One attempt to lead.

    Args:
        context: Of the replica.
        queue: Requests; filled by the replica while `accepts` is true.
        finding: What became of the one before in the election; its ledgers tell it.

    Attributes:
        accepts: Requests are taken.
        protocol: The decisions.
        upkeep: What is done for the log beside entries.
        telling: What followers are told; None before the first entry.

    """

    def __init__(self, context: ReplicaContext, queue: RequestQueue, finding: ElectionFinding | None = None) -> None:
        self.accepts = False
        self.protocol = LeaderProtocol(
            context.me,
            context.log,
            context.tip,
            context.position,
            log_id=context.log_id,
            format_level=context.format_level,
            level_needed=context.level_needed,
            password_mark=context.password_mark,
            key_ids=() if context.settings.log_keys is None else context.settings.log_keys.ids,
            chain_bytes_max=context.settings.chain_bytes_max,
        )
        self.upkeep = LogMaintenance(context, self.protocol, self._logged_now, self.wake)
        self._context = context
        self._queue = queue
        self._advised = context.machine if isinstance(context.machine, AdvisedMachine) else None
        self._take_over = TakeOver(context, self.protocol, self.resign)
        self._finding = finding
        self._ledger = OwnLedger(context, finding_metadata(finding))
        self._reads = ReadChecks(context, queue, self._ledger, self.wake)
        self.telling: EntryTelling | None = None
        self._composer: Composer | None = None
        self._clock: LoggedClock | None = None
        self._wake: asyncio.Future[None] | None = None
        self._resigned: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._outcome: StepDown | None = None
        self._failed_add_count = 0  # In a row, each in a ledger of its own.
        self._idle: asyncio.Future[None] | None = None
        # (due at, revision) of an entry that had nothing due after all: asked again when either is another.
        self._fruitless: tuple[int | None, int] | None = None

    # ---- life

    async def run(self) -> StepDown:
        """Lead until deposed, resigned or without a session; return how it ended. All requests are answered.

        Raises:
            RsmError: The log is damaged: the replica must stop.

        """
        context = self._context
        unsubscribe = context.client.store.on_session_state(self._on_session_state)
        drive = asyncio.get_running_loop().create_task(self._drive())
        try:
            await self._until_over(drive)
            if not drive.done():
                drive.cancel()
                await asyncio.wait([drive])
            if self.protocol.phase is not Phase.FOLLOW:
                why = self._resigned.result() if self._resigned.done() else "the replica failed"
                await self._carry_out_all(deque(self.protocol.handle(Resigned(why))))
                await self._ledger.publish_last()
            if not drive.cancelled():
                drive.result()
        finally:
            unsubscribe()
            drive.cancel()
            self.upkeep.stop()
            self._reads.stop()
            if self.telling is not None:
                self.telling.end()
            self._ledger.abandon()
            self._deny_queued()
            context.set_role(ReplicaRole.FOLLOWER, Phase.FOLLOW)
        assert self._outcome is not None
        return self._outcome

    async def _until_over(self, drive: asyncio.Task[None]) -> None:
        """Wait until this leadership ends; one that gets nowhere is given up: others may reach more bookies."""
        either: list[asyncio.Future[Any]] = [drive, self._resigned]
        loop, give_up_s = asyncio.get_running_loop(), self._context.settings.give_up_s
        progress = LeadershipProgress(self._context.tip, loop.time())
        while True:
            await asyncio.wait(either, timeout=give_up_s / _LOOKS, return_when=asyncio.FIRST_COMPLETED)
            if drive.done() or self._resigned.done():
                return
            progress.look(self._context.tip, self.protocol, loop.time())
            if progress.still_s >= give_up_s:
                self.resign(f"nothing was confirmed for {give_up_s:g} s: another replica may reach more bookies")

    def resign(self, reason: str) -> None:
        """Stop leading, wherever it stands."""
        if not self._resigned.done():
            self._resigned.set_result(reason)

    async def finish(self, timeout_s: float) -> None:
        """Take no more requests; return when those that were taken are answered, or the time has passed."""
        self.accepts = False
        self._idle = asyncio.get_running_loop().create_future()
        self.wake()
        await asyncio.wait([self._idle], timeout=timeout_s)

    def wake(self) -> None:
        """Look at the queue now."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def want_checkpoint(self) -> None:
        """Log a state digest at the next batch."""
        if self._composer is not None:
            self._composer.checkpoint_wanted = True
            self.wake()

    def _on_session_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.resign("the session with the metadata store is lost")

    async def _drive(self) -> None:
        protocol = self.protocol
        self._context.set_role(ReplicaRole.CANDIDATE, Phase.CLAIM)
        await self._carry_out_all(deque(protocol.handle(ElectionWon())))
        while protocol.phase is not Phase.FOLLOW:
            event = await self._next_event()
            await self._carry_out_all(deque(protocol.handle(event)))

    async def _carry_out_all(self, effects: deque[Effect]) -> None:
        while effects:
            event = await self._carry_out(effects.popleft())
            if event is not None:
                effects.extend(self.protocol.handle(event))
            self._context.phase = self.protocol.phase

    async def _carry_out(self, effect: Effect) -> Event | None:
        """Do one thing; return its outcome, if it has one."""
        match effect:
            case AppendEntry(payload=payload):
                return await self._append(payload)
            case AnswerBatch():
                self._answer(effect)
            case ReadChain():
                return await self._take_over.read_chain()
            case WriteChain(value=value, held_version=version):
                return await self._take_over.write_chain(value, version)
            case RecoverLedger(ledger_id=ledger_id):
                await self._take_over.compare_clock()
                return await self._take_over.recover(ledger_id)
            case ReplayLog():
                await self._take_over.compare_clock()
                return await self._take_over.replay(effect)
            case CreateLedger():
                await self._spare_the_metadata_store()
                if self._composer is not None:
                    self._composer.describe_wanted = True  # The ledgers before it may be trimmed one day.
                return LedgerCreated(await self._ledger.create(effect), self._context.clock_ms())
            case DeleteLedgers(ledger_ids=ledger_ids):
                self.upkeep.delete(ledger_ids)
            case BeginLeadership(leader_epoch=epoch):
                return self._begin(epoch)
            case CloseOwnLedger(ledger_id=ledger_id):
                return await self._ledger.learn_end(ledger_id)
            case DropBatch(batch=batch, applied_never=applied_never):
                for submission in batch.submissions:
                    revision = self._context.tip.revision
                    resolve(submission.ticket, submission.give_up(revision, applied_never=applied_never))
            case StepDown():
                self.accepts = False
                self._outcome = effect
                _LOGGER.warning("stepping down: %s", effect.reason, extra=self._context.log_extra)
            case Halt(reason=reason):
                raise CorruptLogError(reason)
        return None

    def _begin(self, leader_epoch: int) -> Event:
        """Compose the first entry of this leadership."""
        context, settings = self._context, self._context.settings
        now = asyncio.get_running_loop().time()
        self.telling = EntryTelling(leader_epoch, context.position)
        self._clock = LoggedClock(context.tip.logged_ms, context.clock_ms(), now)
        self._composer = Composer(
            context.state,
            BatchLimits(settings.entry_bytes_max, settings.entry_commands_max, settings.sessions_max),
            leader_epoch=leader_epoch,
            promoted_ms=self._clock.base_ms,
            session_ttl_ms=settings.session_ttl_ms,
            checkpoint_records=settings.checkpoint_records,
        )
        self.upkeep.machine_version.begin(self._composer, self.protocol.chain)
        records: list[tuple[int, tuple[object, ...]]] = [
            (KernelRecord.MACHINE_DESCRIBED, (encode_description(self._composer.description),)),
            (KernelRecord.LEADER_STARTED, (context.me.replica_id, context.me.incarnation)),
        ]
        records += self.upkeep.seal_with_the_key(self._composer)
        records += self.upkeep.notes.of_quarantine()
        context.state_is_confirmed = False
        return BatchComposed(self._composer.compose_start(records, self._clock.base_ms))

    # ---- leading

    @property
    def clock(self) -> LeaderClock | None:
        """Logged time now; None unless it leads."""
        if not self.accepts or self._clock is None or self._composer is None:
            return None
        return LeaderClock(self._composer.leader_epoch, self._logged_now())

    def _logged_now(self) -> int:
        """Return logged time; only while leading."""
        assert self._clock is not None
        return self._clock.read(self._context.state.logged_ms, asyncio.get_running_loop().time())

    async def _next_event(self) -> Event:
        """Wait until there is something to propose; compose it."""
        loop = asyncio.get_running_loop()
        ledger, upkeep, settings = self._ledger, self.upkeep, self._context.settings
        composer, queue, reads = self._composer, self._queue, self._reads
        assert composer is not None
        while True:
            if len(composer.contradictions) >= CONTRADICTIONS_MAX:
                raise self._contradicted(composer)
            now = loop.time()
            is_roll_due = ledger.is_due_for_roll(now) and not upkeep.is_chain_full
            if (is_roll_due or upkeep.has_work) and self._may_write_chain():
                event = RollDue() if is_roll_due else upkeep.take_event()
                if event is not None:
                    return event
            idle_at = ledger.appended_at + settings.idle_entry_s
            if not reads.is_proven and self._wants_entry(composer, now >= idle_at):
                return self._compose()
            due_in_s = self._due_in_s()
            if due_in_s <= 0:
                return self._compose_due()
            if reads.is_proven:
                has_more = reads.answer()
                if queue.has_writes:  # They wait for one turn of reads at most.
                    return self._compose()
                if has_more:
                    await asyncio.sleep(0)
                continue
            if queue.request_count:
                if not reads.begin():
                    continue
            elif self._idle is not None and not self._idle.done():
                self._idle.set_result(None)
            wake = self._wake = loop.create_future()
            timer = loop.call_at(min(idle_at, now + due_in_s), self.wake)
            try:
                await wake
            finally:
                timer.cancel()
                self._wake = None

    def _wants_entry(self, composer: Composer, is_idle: bool) -> bool:
        """Return whether anything but time wants an entry."""
        has_requests = self._queue.has_writes or self._reads.needs_entry
        return bool(has_requests or is_idle or composer.checkpoint_wanted or composer.wanted)

    def _contradicted(self, composer: Composer) -> StateDivergedError:
        """Return why this leader stops, its state and files as they are: more than one replica says it is wrong."""
        said = ", ".join(
            f"{name} has digest {report.digest.hex()} at revision {report.revision}"
            for name, report in sorted(composer.contradictions.items())
        )
        return StateDivergedError(
            f"log {self._context.log}: the state of this leader is contradicted: {said}. Keep its data directory for "
            "inspection, start the replica from a snapshot of another one"
        )

    def _may_write_chain(self) -> bool:
        """Return whether the chain can be written; adds go on without the metadata store, rolls and trims do not."""
        return self._context.client.store.session_state is SessionState.CONNECTED

    def _due_in_s(self) -> float:
        """Return how long it takes until the machine has something due."""
        assert self._composer is not None
        due_ms = self._composer.next_due_ms()
        if due_ms is None or (due_ms, self._context.tip.revision) == self._fruitless:
            return float("inf")
        return (due_ms - self._logged_now()) / 1000

    def _compose_due(self) -> Event:
        """Compose for what is due; a machine that then has nothing is not asked again for the same time."""
        assert self._composer is not None
        due_ms = self._composer.next_due_ms()
        composed = self._compose()
        if not composed.batch.envelope.record_count:
            self._fruitless = due_ms, self._context.tip.revision
        return composed

    def _tell_machine(self) -> None:
        """Let the machine decide nothing that a replica of the log's format level does not know, or has no room for."""
        if self._advised is not None and self.protocol.chain is not None:
            self._advised.format_level = self.protocol.chain.format_level
            self._advised.is_full = self._context.memory.is_full

    def _compose(self) -> BatchComposed:
        assert self._composer is not None
        self._tell_machine()
        # From here on the live state is ahead of what is confirmed: nobody may read it before the entry is.
        self._context.state_is_confirmed = False
        assert self.protocol.chain is not None
        self._composer.format_level = self.protocol.chain.format_level
        composed = BatchComposed(self._composer.compose(self._queue, self._logged_now()))
        self._reads.entry_composed()
        self._context.reads_by_entry += self._composer.query_count
        self._composer.query_count = 0
        if self._composer.failures:
            self._context.machine_failed(self._composer.failures)
        if self._composer.level_wanted:
            self.upkeep.want_level(self._composer.level_wanted)
            self._composer.level_wanted = 0
        return composed

    async def _append(self, payload: bytes) -> Event:
        assert self.protocol.batch is not None
        span = None if tracer() is None else begin_entry(self.protocol.batch, self._context.log)
        try:
            added = self._ledger.append(payload, self.protocol.batch.envelope.record_count, span)
            await asyncio.sleep(0)  # The ledger sends at the end of this turn of the loop.
            self._context.state.settle()  # While the entry is on its way.
            entry_id = await asyncio.shield(added)
            self._failed_add_count = 0
            if span is not None:
                span.end()
            return EntryConfirmed(entry_id)
        except LedgerError as error:
            if span is not None:
                span.end(str(error))
            self._failed_add_count += 1
            _LOGGER.warning("an add failed: %s", error, extra=self._context.log_extra)
            return AddFailed()
        finally:
            if span is not None:
                span.end("given up")

    def _answer(self, effect: AnswerBatch) -> None:
        context = self._context
        batch = effect.batch
        try:
            context.confirm(effect.tip, effect.position, batch.payload)
        except NoRoomError:
            # It is in the log: whoever leads next has the answers, and clients that ask again get them.
            for submission in batch.submissions:
                resolve(submission.ticket, submission.give_up(effect.tip.revision, applied_never=False))
            raise
        if self.telling is not None:
            self.telling.add(effect.position, batch.payload)
        for submission in batch.confirm():
            resolve(submission.ticket, submission.answers)
        if self._context.role is not ReplicaRole.LEADER and not self._resigned.done():
            self.accepts = self._idle is None
            context.leader = context.me
            context.set_role(ReplicaRole.LEADER, Phase.LEAD)
            if self._finding is not None:
                why = described_end(self._finding.end, self._finding.said)
                extra = {**context.log_extra, "epoch": self.protocol.epoch}
                _LOGGER.info("leading in epoch %d: %s", self.protocol.epoch, why, extra=extra)
            assert self._composer is not None
            self.upkeep.begin(self._composer)
        self._ledger.publish_soon()  # After an entry without records too: it shows followers that they are fresh.

    async def _spare_the_metadata_store(self) -> None:
        """Wait before the next ledger if the last ones failed at once: each costs the chain a place."""
        if self._failed_add_count > 1:
            retry_s = self._context.settings.retry_s
            delay_s = min(retry_s * 2 ** (self._failed_add_count - 2), _FAILED_ADD_PAUSE_S_MAX)
            await asyncio.sleep(delay_s * self._context.rng.uniform(0.5, 1.0))

    # ---- leaving

    def _deny_queued(self) -> None:
        """Answer what was never decided: certainly not applied."""
        self.accepts = False
        for submission in self._queue.take_all():
            if not submission.ticket.done():
                resolve(submission.ticket, submission.give_up(self._context.tip.revision, applied_never=True))
