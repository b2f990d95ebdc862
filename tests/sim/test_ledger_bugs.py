"""Bugs planted into bookie and client: the simulation must find each within a budget of seeds.

Each is a mistake that a real system has made. If one is not found any more, the simulation has lost an eye. Two
others need a race that random trouble meets too rarely; they have games of their own: reads of a recovery that do not
fence (`test_lost_fence`), and a fence that is answered before it is durable (`tests/unit/bookie/test_answers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ledger.bookie.handlers import Handlers
from ledger.client import answers
from ledger.client import recovery as client_recovery
from ledger.core.bookie_ledger import BookieLedger
from ledger.core.entry import Miss, MissKind
from ledger.core.quorum import QuorumConfig
from ledger.core.recovery import Recovery, WriteBack
from ledger.core.writer import LedgerWriter
from ledger.ports import ANY_VERSION
from ledger.store.journal import Journal
from ledger.testing import SimDisk
from ledger.wire.codes import Status
from ledger.zk.ledgers import LedgerStore
from tests.sim.ledger_scenario import run_seed

Plant = Callable[[pytest.MonkeyPatch], None]


def _ack_before_sync(patch: pytest.MonkeyPatch) -> None:
    write = Journal._write

    def write_without_sync(self: Journal, generation: Any, sealed: Any, items: Any) -> int:
        disk, self._disk = self._disk, _NoSync(self._disk)
        try:
            return write(self, generation, sealed, items)
        finally:
            self._disk = disk

    patch.setattr(Journal, "_write", write_without_sync)


class _NoSync:
    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def fdatasync(self, handle: int) -> None:
        pass


def _ignore_fences(patch: pytest.MonkeyPatch) -> None:
    def refuse_add(self: BookieLedger, master_key: bytes, *, is_recovery: bool) -> Status | None:
        return None if self.has_key(master_key) else Status.EUA

    patch.setattr(BookieLedger, "refuse_add", refuse_add)


def _ack_at_one(patch: pytest.MonkeyPatch) -> None:
    init = LedgerWriter.__init__

    def init_with_one(self: LedgerWriter, ledger_id: int, quorum: QuorumConfig, bookies: Any) -> None:
        init(self, ledger_id, QuorumConfig(quorum.ensemble_size, quorum.write_quorum, 1), bookies)

    patch.setattr(LedgerWriter, "__init__", init_with_one)


def _end_at_one_miss(patch: pytest.MonkeyPatch) -> None:
    decide = Recovery._decide

    def decide_quickly(self: Recovery, entry_id: int) -> Any:
        quorum = self._quorum
        self._quorum = QuorumConfig(quorum.ensemble_size, quorum.write_quorum, quorum.write_quorum)
        try:
            return decide(self, entry_id)
        finally:
            self._quorum = quorum

    patch.setattr(Recovery, "_decide", decide_quickly)


def _keep_fences_in_memory(patch: pytest.MonkeyPatch) -> None:
    fence = Handlers._fence

    def fence_without_record(self: Handlers, request: Any) -> Any:
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None:
            return fence(self, request)
        refused = ledger.refuse_fence(request.master_key)
        if refused is None:
            ledger.is_fenced = ledger.is_fence_durable = True
            self.polls.wake(ledger, all_of_them=True)
        return refused

    patch.setattr(Handlers, "_fence", fence_without_record)


def _skip_write_back(patch: pytest.MonkeyPatch) -> None:
    send = client_recovery._Run.send

    def send_reads_only(self: Any, effect: Any) -> None:
        if isinstance(effect, WriteBack):
            self._answers.on_stored(effect.bookie_id, [(False, effect.entry.entry_id)])
        else:
            send(self, effect)

    patch.setattr(client_recovery._Run, "send", send_reads_only)


def _close_over_anything(patch: pytest.MonkeyPatch) -> None:
    write = LedgerStore.write

    async def write_any_version(self: LedgerStore, ledger_id: int, metadata: Any, version: int) -> int:
        return await write(self, ledger_id, metadata, ANY_VERSION)

    patch.setattr(LedgerStore, "write", write_any_version)


def _take_unknown_for_absent(patch: pytest.MonkeyPatch) -> None:
    class _AllAbsent(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            return MissKind.ABSENT

    patch.setattr(answers, "_MISSES", _AllAbsent())


def _take_silence_for_absent(patch: pytest.MonkeyPatch) -> None:
    """A bookie that does not answer counts as one that never had the entry."""
    read_answer = client_recovery.read_answer

    def credulous(*arguments: Any) -> Any:
        answer = read_answer(*arguments)
        is_unknown = isinstance(answer, Miss) and answer.kind is MissKind.UNKNOWN
        return Miss(MissKind.ABSENT, answer.reason) if is_unknown else answer

    patch.setattr(client_recovery, "read_answer", credulous)


def _expose_lac_while_recovering(patch: pytest.MonkeyPatch) -> None:
    def write_back(self: Recovery, bookie_id: str, entry_id: int) -> WriteBack:
        return WriteBack(bookie_id, self._held[entry_id], entry_id)

    patch.setattr(Recovery, "_write_back", write_back)


def _confirm_what_is_pushed(patch: pytest.MonkeyPatch) -> None:
    """A LAC in the header of an entry that is not confirmed yet."""
    append = LedgerWriter.append

    def append_with_own_id(self: LedgerWriter, payload_bytes: Any) -> Any:
        effects = append(self, payload_bytes)
        import msgspec

        last = self._window.pushed
        return [msgspec.structs.replace(effects[0], last_add_confirmed=last), *effects[1:]]

    patch.setattr(LedgerWriter, "append", append_with_own_id)


def _go_on_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """What PostgreSQL did until 2018: a second sync of dropped pages succeeds."""
    sync = SimDisk.fdatasync

    def sync_again(self: SimDisk, handle: int) -> None:
        try:
            sync(self, handle)
        except OSError:
            sync_again(self, handle)

    patch.setattr(SimDisk, "fdatasync", sync_again)


BUDGETS: dict[Plant, int] = {
    _ack_before_sync: 40,
    _ignore_fences: 40,
    _ack_at_one: 40,
    _end_at_one_miss: 100,
    _keep_fences_in_memory: 150,
    _skip_write_back: 40,
    _close_over_anything: 100,
    _take_unknown_for_absent: 600,
    _take_silence_for_absent: 40,
    _expose_lac_while_recovering: 40,
    _confirm_what_is_pushed: 40,
    _go_on_after_a_failed_sync: 150,
}
"""Seeds within which each must be found: five times and more what it took (0, 1, 0, 7, 16, 0, 3, 64, 3, 3, 17)."""


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", BUDGETS, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(BUDGETS[plant]):
        outcome = run_seed(seed)
        if outcome.broken is not None:
            print(f"found by seed {seed}: {outcome.broken}")
            return
    pytest.fail(f"{BUDGETS[plant]} seeds found nothing")
