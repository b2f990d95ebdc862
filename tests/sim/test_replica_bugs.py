"""Bugs planted into the replica: the simulation must find each within a budget of seeds, else it proves nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ledger.testing.loop import SimulationError
from rsm_spark.core import batching, leadership
from rsm_spark.core.batching import Batch, Composer
from rsm_spark.core.chain import ChainLedger, decode_chain
from rsm_spark.core.chain_write import WriteVerdict
from rsm_spark.core.commands import Answer, AnswerStatus, Command, Query
from rsm_spark.core.leadership import TRANSITIONS, LeaderProtocol, Phase
from rsm_spark.core.leadership_events import (
    AddFailed,
    AppendEntry,
    ChainRead,
    DropBatch,
    Effect,
    LedgerRecovered,
    StepDown,
)
from rsm_spark.core.sessions import SessionTable
from rsm_spark.log.commit_log import LogReader
from rsm_spark.runtime import leading
from rsm_spark.runtime.context import resolve
from rsm_spark.runtime.leading import LeaderDriver
from rsm_spark.runtime.replica import Replica
from rsm_spark.testing.ghosts import BrokenInvariantError
from tests.sim.test_replica_sim import run_seed

SEEDS_MAX = 60

Plant = Callable[[pytest.MonkeyPatch], None]
PLANTS: dict[str, Plant] = {}


def plant(bug: Plant) -> Plant:
    PLANTS[bug.__name__] = bug
    return bug


def _protocol(patch: pytest.MonkeyPatch, **methods: Any) -> None:
    """Give the leader other rules."""
    patch.setattr(leading, "LeaderProtocol", type("BuggyProtocol", (LeaderProtocol,), methods))
    loose = {phase: dict.fromkeys(legal, frozenset(Phase)) for phase, legal in TRANSITIONS.items()}
    patch.setattr(leadership, "TRANSITIONS", loose)


@plant
def proposes_again_before_the_end_is_known(patch: pytest.MonkeyPatch) -> None:
    def on_add_failed(self: LeaderProtocol, _event: AddFailed) -> list[Effect]:
        self._last_end = self._end(self.acked, 0)
        return self._create()

    _protocol(patch, _on_add_failed=on_add_failed)


@plant
def calls_a_failed_add_not_applied(patch: pytest.MonkeyPatch) -> None:
    def step_down(self: LeaderProtocol, reason: str, *, deposed: bool) -> list[Effect]:
        effects = LeaderProtocol._step_down(self, reason, deposed=deposed)
        return [DropBatch(e.batch, applied_never=True) if isinstance(e, DropBatch) else e for e in effects]

    def on_add_failed(self: LeaderProtocol, _event: AddFailed) -> list[Effect]:
        return self._step_down("an add failed", deposed=False)

    _protocol(patch, _step_down=step_down, _on_add_failed=on_add_failed)


@plant
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


@plant
def writes_entries_though_the_chain_write_failed(patch: pytest.MonkeyPatch) -> None:
    def judge(self: LeaderProtocol, event: ChainRead) -> WriteVerdict:
        verdict = LeaderProtocol._judge(self, event)
        return WriteVerdict.ARRIVED if self.phase is Phase.CHAIN else verdict

    def on_chain_read(self: LeaderProtocol, event: ChainRead) -> list[Effect]:
        if self.phase is Phase.CHAIN and self._write is not None:
            return self._chain_arrived(self._write.held_version + 1)
        return LeaderProtocol._on_chain_read(self, event)

    _protocol(patch, _judge=judge, _on_chain_read=on_chain_read)


@plant
def does_not_recover_the_last_ledger(patch: pytest.MonkeyPatch) -> None:
    async def recover(self: LeaderDriver, ledger_id: int) -> Any:
        """Take the end from what is there, without a fence."""
        twin = self._context.client.world.get(ledger_id)  # type: ignore[attr-defined]
        metadata = twin.metadata
        end = metadata.last_entry_id if metadata.is_closed else twin.stored - 1
        twin.close(end + 1)
        twin.is_fenced = False
        twin.metadata = msgspec.structs.replace(twin.metadata, state=twin.metadata.state)
        await asyncio.sleep(0)
        return LedgerRecovered(ledger_id, end, twin.metadata.length)

    patch.setattr(LeaderDriver, "_recover", recover)
    from rsm_spark.testing import ledger_twin

    def store(self: Any, entry: Any) -> bool:
        """A ledger that nobody fenced goes on taking entries, closed or not."""
        self._twin.stored = max(self._twin.stored, entry.entry_id + 1)
        return True

    patch.setattr(ledger_twin.TwinWriter, "_store_unanswered", store)


@plant
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


async def _peek(self: LogReader) -> None:
    """Read whatever lies on any bookie, confirmed or not."""
    handle: Any = self._handle
    if not handle.is_closed:
        handle.last_add_confirmed = self._last_add_confirmed = len(handle._twin.entries) - 1
    await _READ_SOME(self)


_READ_SOME = LogReader._read_some
_EXPOSE = LogReader._expose


@plant
def follower_applies_above_confirmed(patch: pytest.MonkeyPatch) -> None:
    def expose(self: LogReader) -> Any:
        self._explicit_lac = max(self._explicit_lac, self._next_entry_id - 1)
        return _EXPOSE(self)

    patch.setattr(LogReader, "_read_some", _peek)
    patch.setattr(LogReader, "_expose", expose)


@plant
def empty_entry_vouches_for_itself(patch: pytest.MonkeyPatch) -> None:
    def expose(self: LogReader) -> Any:
        handle, pending = self._handle, self._unexposed
        if pending and handle is not None and not handle.is_closed:
            last = pending[-1]
            if last.envelope.last_revision <= last.envelope.confirmed_revision:
                self._explicit_lac = max(self._explicit_lac, last.position.entry_id)
        return _EXPOSE(self)

    patch.setattr(LogReader, "_read_some", _peek)
    patch.setattr(LogReader, "_expose", expose)


@plant
def follower_takes_the_successor_for_the_end(patch: pytest.MonkeyPatch) -> None:
    original = LogReader._read_some

    async def read_some(self: LogReader) -> None:
        await original(self)
        if self.ledgers_ahead > 0:
            self._ledger_at_end = True

    async def refresh(self: LogReader) -> None:
        self._stale = False
        self.chain, _ = await self._chains.read(watch=self._on_watch)
        self._checked_at = self._clock()

    patch.setattr(LogReader, "_read_some", read_some)
    patch.setattr(LogReader, "_refresh", refresh)


@plant
def negative_reply_is_not_logged(patch: pytest.MonkeyPatch) -> None:
    original = Composer._execute

    def execute(self: Composer, command: Command) -> Answer | None:
        verdict, _ = self.state.sessions.judge(command.session, command.sequence, command.answered_up_to)
        if verdict is batching.Verdict.EXECUTE:
            decision = self.state.machine.decide(command.payload, self.state.revision + 1, 0)
            if not decision.records:
                return Answer(AnswerStatus.OK, self.state.revision, decision.reply)
        return original(self, command)

    patch.setattr(Composer, "_execute", execute)


@plant
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


@plant
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


@plant
def state_is_not_rebuilt_after_a_deposition(patch: pytest.MonkeyPatch) -> None:
    original = LeaderDriver.run

    async def run(self: LeaderDriver) -> StepDown:
        outcome = await original(self)
        self._context.state_is_confirmed = True
        self._context.tip = self._context.state.tip
        return StepDown(outcome.reason, outcome.deposed, rebuild=False)

    patch.setattr(LeaderDriver, "run", run)


@plant
def replies_are_forgotten_by_snapshots(patch: pytest.MonkeyPatch) -> None:
    original = SessionTable.restore

    def restore(self: SessionTable, rows: Any) -> None:
        original(self, rows)
        for known in self._sessions.values():
            known.replies.clear()
            known.last_sequence = max(0, known.last_sequence - 2)

    patch.setattr(SessionTable, "restore", restore)


@plant
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


@pytest.mark.parametrize("seed", range(6))
def test_reading_beyond_the_lac_does_no_harm_while_envelopes_decide(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogReader, "_read_some", _peek)
    run_seed(seed, 25.0)


def hunt(name: str, patch: pytest.MonkeyPatch, seeds_max: int = SEEDS_MAX) -> tuple[int, str] | None:
    """Return the first seed that finds the bug, and what it saw."""
    PLANTS[name](patch)
    for seed in range(seeds_max):
        try:
            run_seed(seed, 25.0)
        except (BrokenInvariantError, AssertionError, SimulationError, ValueError) as error:
            return seed, f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("name", list(PLANTS))
def test_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logging.disable(logging.CRITICAL)
    try:
        found = hunt(name, monkeypatch)
    finally:
        logging.disable(logging.NOTSET)
    assert found is not None, f"{name}: not found in {SEEDS_MAX} seeds"
