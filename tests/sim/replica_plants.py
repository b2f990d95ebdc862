"""Bugs to plant into replicas: each a function that patches one rule away."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from ledger.errors import LedgerError
from rsm_spark.core import leadership
from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.batching import Batch, Composer
from rsm_spark.core.chain import ChainLedger, decode_chain
from rsm_spark.core.chain_write import WriteVerdict
from rsm_spark.core.commands import Answer, AnswerStatus, Query
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import (
    AddFailed,
    AppendEntry,
    ChainRead,
    ChainWriteFailed,
    DropBatch,
    Effect,
    LedgerRecovered,
    RecoverLedger,
    ReplayLog,
    Resigned,
    StepDown,
    WriteChain,
)
from rsm_spark.core.leadership_table import TRANSITIONS, Phase
from rsm_spark.core.orphans import is_orphan
from rsm_spark.core.sessions import SessionTable, SessionVerdict
from rsm_spark.log.commit_log import LogReader
from rsm_spark.runtime import leading
from rsm_spark.runtime.context import resolve
from rsm_spark.runtime.leading import LeaderDriver
from rsm_spark.runtime.own_ledger import OwnLedger
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.taking_over import TakeOver
from rsm_spark.testing.ledger_twin import TwinReader, TwinWriter
from rsm_spark.testing.ledger_world import TwinLacInfo

__all__ = [
    "calls_a_failed_add_not_applied",
    "confirms_without_an_acknowledgement",
    "deletes_its_own_ledger_when_the_chain_write_fails",
    "deletes_orphans_by_a_chain_from_before_its_claim",
    "does_not_recover_the_last_ledger",
    "empty_entry_vouches_for_itself",
    "follower_applies_above_confirmed",
    "follower_takes_the_successor_for_the_end",
    "negative_reply_is_not_logged",
    "one_bookie_lags",
    "peek",
    "proposes_again_before_the_end_is_known",
    "read_is_answered_at_once",
    "read_joins_the_batch_already_sent",
    "replies_are_forgotten_by_snapshots",
    "replies_before_confirmation",
    "state_is_not_rebuilt_after_a_deposition",
    "takes_over_without_a_claim",
    "takes_what_one_bookie_says",
    "tells_readers_what_was_only_sent",
    "what_is_given_up_stays_answered",
    "writes_entries_though_the_chain_write_failed",
    "writes_the_chain_from_a_fresh_version",
]


def _protocol(patch: pytest.MonkeyPatch, **methods: Any) -> None:
    """Give the leader other rules."""
    patch.setattr(leading, "LeaderProtocol", type("BuggyProtocol", (LeaderProtocol,), methods))
    loose = {phase: dict.fromkeys(legal, frozenset(Phase)) for phase, legal in TRANSITIONS.items()}
    patch.setattr(leadership, "TRANSITIONS", loose)


def proposes_again_before_the_end_is_known(patch: pytest.MonkeyPatch) -> None:
    def on_add_failed(self: LeaderProtocol, _event: AddFailed) -> list[Effect]:
        self._last_end = self._end(self.acked, 0)
        return self._create()

    _protocol(patch, _on_add_failed=on_add_failed)


def calls_a_failed_add_not_applied(patch: pytest.MonkeyPatch) -> None:
    def step_down(self: LeaderProtocol, reason: str, *, deposed: bool) -> list[Effect]:
        effects = LeaderProtocol._step_down(self, reason, deposed=deposed)
        return [DropBatch(e.batch, applied_never=True) if isinstance(e, DropBatch) else e for e in effects]

    def on_add_failed(self: LeaderProtocol, _event: AddFailed) -> list[Effect]:
        return self._step_down("an add failed", deposed=False)

    _protocol(patch, _step_down=step_down, _on_add_failed=on_add_failed)


def writes_the_chain_from_a_fresh_version(patch: pytest.MonkeyPatch) -> None:
    def on_chain_read(self: LeaderProtocol, event: ChainRead) -> list[Effect]:
        if self.phase is Phase.CHAIN and self._write is not None and self._judge(event) is WriteVerdict.DEPOSED:
            now = decode_chain(event.value, log_name="log")
            added = ChainLedger(self.ledger_id, self.ledger_created_ms, self.epoch, self.tip.revision + 1)
            ledgers = (*now.ledgers, added)
            chain = msgspec.structs.replace(now, leader_epoch=self.epoch, leader=self.me, ledgers=ledgers)
            return self._write_chain(chain, event.version)
        return LeaderProtocol._on_chain_read(self, event)

    _protocol(patch, _on_chain_read=on_chain_read, validate=lambda _self: None)


def writes_entries_though_the_chain_write_failed(patch: pytest.MonkeyPatch) -> None:
    def judge(self: LeaderProtocol, event: ChainRead) -> WriteVerdict:
        verdict = LeaderProtocol._judge(self, event)
        return WriteVerdict.ARRIVED if self.phase is Phase.CHAIN else verdict

    def on_chain_read(self: LeaderProtocol, event: ChainRead) -> list[Effect]:
        if self.phase is Phase.CHAIN and self._write is not None:
            return self._chain_arrived(self._write.held_version + 1)
        return LeaderProtocol._on_chain_read(self, event)

    _protocol(patch, _judge=judge, _on_chain_read=on_chain_read)


def does_not_recover_the_last_ledger(patch: pytest.MonkeyPatch) -> None:
    async def recover(self: TakeOver, ledger_id: int) -> Any:
        """Take the end from what is there, without a fence."""
        twin = self._context.client.world.get(ledger_id)  # type: ignore[attr-defined]
        metadata = twin.metadata
        end = metadata.last_entry_id if metadata.is_closed else twin.stored - 1
        twin.close(end + 1)
        twin.is_fenced = False
        twin.metadata = msgspec.structs.replace(twin.metadata, state=twin.metadata.state)
        await asyncio.sleep(0)
        return LedgerRecovered(ledger_id, end, twin.metadata.length)

    patch.setattr(TakeOver, "recover", recover)
    from rsm_spark.testing import ledger_twin

    def store(self: Any, entry: Any) -> bool:
        """A ledger that nobody fenced goes on taking entries, closed or not."""
        self._twin.stored = max(self._twin.stored, entry.entry_id + 1)
        return True

    patch.setattr(ledger_twin.TwinWriter, "_store_unanswered", store)


def replies_before_confirmation(patch: pytest.MonkeyPatch) -> None:
    original = LeaderDriver._carry_out

    async def carry_out(self: LeaderDriver, effect: Effect) -> Any:
        if isinstance(effect, AppendEntry) and self.protocol.batch is not None:
            for submission, count in zip(
                self.protocol.batch.submissions, self.protocol.batch.answer_counts, strict=True
            ):
                if count == len(submission.requests):
                    resolve(submission.ticket, submission.answers)
        return await original(self, effect)

    patch.setattr(LeaderDriver, "_carry_out", carry_out)


async def peek(self: LogReader) -> None:
    """Read whatever lies on any bookie, confirmed or not."""
    handle: Any = self._handle
    if not handle.is_closed:
        handle.last_add_confirmed = self._last_add_confirmed = len(handle._twin.entries) - 1
    await _READ_SOME(self)


_READ_SOME = LogReader._read_some
_EXPOSE = LogReader._expose


def follower_applies_above_confirmed(patch: pytest.MonkeyPatch) -> None:
    def expose(self: LogReader) -> Any:
        self._explicit_lac = max(self._explicit_lac, self._next_entry_id - 1)
        return _EXPOSE(self)

    patch.setattr(LogReader, "_read_some", peek)
    patch.setattr(LogReader, "_expose", expose)


def empty_entry_vouches_for_itself(patch: pytest.MonkeyPatch) -> None:
    def expose(self: LogReader) -> Any:
        handle, pending = self._handle, self._unexposed
        if pending and handle is not None and not handle.is_closed:
            last = pending[-1]
            if last.envelope.last_revision <= last.envelope.confirmed_revision:
                self._explicit_lac = max(self._explicit_lac, last.position.entry_id)
        return _EXPOSE(self)

    patch.setattr(LogReader, "_read_some", peek)
    patch.setattr(LogReader, "_expose", expose)


def follower_takes_the_successor_for_the_end(patch: pytest.MonkeyPatch) -> None:
    original = LogReader._read_some

    async def read_some(self: LogReader) -> None:
        await original(self)
        if self.ledgers_ahead > 0:
            self._ledger_at_end = True

    async def ask_nobody(self: TwinReader) -> Any:
        await asyncio.sleep(0)
        return self.metadata

    patch.setattr(LogReader, "_read_some", read_some)
    patch.setattr(TwinReader, "refresh", ask_nobody)


def negative_reply_is_not_logged(patch: pytest.MonkeyPatch) -> None:
    original = Composer._execute

    def execute(
        self: Composer, session: bytes, sequence: int, answered_up_to: int, payload: bytes, answers: AnswerColumn
    ) -> bool:
        verdict, _ = self.state.sessions.judge(session, sequence, answered_up_to)
        if verdict is SessionVerdict.EXECUTE:
            decision = self.state.machine.decide(payload, self.state.revision + 1, 0)
            if not decision.records:
                answers.add(self.state.revision, decision.reply)
                return True
        return original(self, session, sequence, answered_up_to, payload, answers)

    patch.setattr(Composer, "_execute", execute)


def what_is_given_up_stays_answered(patch: pytest.MonkeyPatch) -> None:
    def replace(self: AnswerColumn, place: int, answer: Answer) -> None:
        self.revisions[place] = answer.revision  # A column in which all went well has no statuses.

    patch.setattr(AnswerColumn, "replace", replace)


def read_joins_the_batch_already_sent(patch: pytest.MonkeyPatch) -> None:
    original = Replica.submit

    def submit(self: Replica, requests: Any, **options: Any) -> Any:
        driver = self._driver
        batch = driver.protocol.batch if driver is not None and driver.accepts else None
        if batch is None or not batch.submissions or not all(isinstance(r, Query) for r in requests):
            return original(self, requests, **options)
        state = self._context.state
        answers = [
            Answer(AnswerStatus.OK, state.revision, state.machine.query(r.payload, state.revision)) for r in requests
        ]
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        batch.submissions[-1].ticket.add_done_callback(lambda _done: resolve(future, answers))
        return future

    patch.setattr(Replica, "submit", submit)


def read_is_answered_at_once(patch: pytest.MonkeyPatch) -> None:
    original = Replica.submit

    def submit(self: Replica, requests: Any, **options: Any) -> Any:
        if self._driver is not None and self._driver.accepts and all(isinstance(r, Query) for r in requests):
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            query, revision = self._context.machine.query, self.revision
            future.set_result([Answer(AnswerStatus.OK, revision, query(r.payload, revision)) for r in requests])
            return future
        return original(self, requests, **options)

    patch.setattr(Replica, "submit", submit)


def state_is_not_rebuilt_after_a_deposition(patch: pytest.MonkeyPatch) -> None:
    original = LeaderDriver.run

    async def run(self: LeaderDriver) -> StepDown:
        outcome = await original(self)
        self._context.state_is_confirmed = True
        self._context.tip = self._context.state.tip
        return StepDown(outcome.reason, outcome.deposed, rebuild=False)

    patch.setattr(LeaderDriver, "run", run)


def replies_are_forgotten_by_snapshots(patch: pytest.MonkeyPatch) -> None:
    original = SessionTable.restore

    def restore(self: SessionTable, rows: Any) -> None:
        original(self, rows)
        for known in self._sessions.values():
            known.replies.clear()
            known.last_sequence = max(0, known.last_sequence - 2)

    patch.setattr(SessionTable, "restore", restore)


def confirms_without_an_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    """A failed add counts as stored: the end of the ledger is not believed."""

    def on_ledger_end_learned(self: LeaderProtocol, event: Any) -> list[Effect]:
        batch: Batch | None = self.batch
        if batch is None:
            return LeaderProtocol._on_ledger_end_learned(self, event)
        effects = self._confirm()
        self._last_end = self._end(event.last_entry_id, event.length)
        return effects + self._create()

    _protocol(patch, _on_ledger_end_learned=on_ledger_end_learned)


def takes_over_without_a_claim(patch: pytest.MonkeyPatch) -> None:
    """The epoch follows the last one that is known, the chain is not written before there is a ledger."""

    def on_chain_read(self: LeaderProtocol, event: ChainRead) -> list[Effect]:
        if self.phase is Phase.CLAIM:
            LeaderProtocol._on_chain_read(self, event)
            assert self._write is not None
            claimed = decode_chain(self._write.value, log_name="log")
            self.chain, self.version, self._write = claimed, event.version, None
            self.phase = Phase.RECOVER
            last = claimed.ledgers[-1] if claimed.ledgers else None
            if last is None or last.closed is not None:
                return [ReplayLog(decode_chain(event.value, log_name="log"))]
            return [RecoverLedger(last.ledger_id)]
        return LeaderProtocol._on_chain_read(self, event)

    _protocol(patch, _on_chain_read=on_chain_read, validate=lambda _self: None)


def deletes_its_own_ledger_when_the_chain_write_fails(patch: pytest.MonkeyPatch) -> None:
    """No reply is taken for a no; but the write may have arrived, or still arrive."""
    original = LeaderDriver._carry_out

    async def carry_out(self: LeaderDriver, effect: Effect) -> Any:
        outcome = await original(self, effect)
        if isinstance(outcome, ChainWriteFailed) and self.protocol.phase is Phase.CHAIN:
            with contextlib.suppress(LedgerError):
                await self._context.client.delete(self.protocol.ledger_id)
            return Resigned("planted: the new ledger was not chained")
        return outcome

    patch.setattr(LeaderDriver, "_carry_out", carry_out)


def deletes_orphans_by_a_chain_from_before_its_claim(patch: pytest.MonkeyPatch) -> None:
    original = LeaderDriver._carry_out

    async def carry_out(self: LeaderDriver, effect: Effect) -> Any:
        if isinstance(effect, WriteChain) and self.protocol.phase is Phase.CLAIM:
            chain = decode_chain(effect.value, log_name="log")
            client = self._context.client
            with contextlib.suppress(LedgerError):
                for ledger_id in await client.list():
                    metadata = await client.metadata(ledger_id)
                    if is_orphan(ledger_id, metadata.custom, chain, chain.leader_epoch):
                        await client.delete(ledger_id)
        return await original(self, effect)

    patch.setattr(LeaderDriver, "_carry_out", carry_out)


def tells_readers_what_was_only_sent(patch: pytest.MonkeyPatch) -> None:
    """The explicit LAC does not wait for the entry on its way: it names that one."""

    def publish(self: OwnLedger) -> None:
        self._timer = None
        if self._handle is not None:
            self._publishing = asyncio.get_running_loop().create_task(self._write_lac(self._handle))

    async def write_lac(self: TwinWriter) -> None:
        last = self.last_add_pushed
        await self._client.ask()
        self._twin.explicit_lac = max(self._twin.explicit_lac, last)
        self._twin.wake()

    patch.setattr(OwnLedger, "_publish", publish)
    patch.setattr(TwinWriter, "write_lac", write_lac)


def one_bookie_lags(patch: pytest.MonkeyPatch) -> None:
    """Have a reader hear now and then what a bookie knows that has not heard the newest."""
    original = TwinReader._lac

    def lac(self: TwinReader) -> TwinLacInfo:
        told = original(self)
        if self.is_closed or self._client.world.rng.random() < 0.7:
            return told
        return TwinLacInfo(max(-1, told.last_add_confirmed - 1), max(-1, told.explicit_lac - 1))

    patch.setattr(TwinReader, "_lac", lac)


def takes_what_one_bookie_says(patch: pytest.MonkeyPatch) -> None:
    """A reader believes the answer that came last, not the highest that it has ever got."""
    one_bookie_lags(patch)
    original = LogReader._read_some

    async def read_some(self: LogReader) -> None:
        self._explicit_lac = self._last_add_confirmed = -1
        await original(self)

    patch.setattr(LogReader, "_read_some", read_some)
