"""Forks, renamings, trimming, sweeps and deletions at once, by processes that die: nothing is missed, nothing is left.

Bugs planted into the three places that delete ledgers, and into the fork itself, must be found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ledger.client.client import LedgerClient
from ledger.errors import NoSuchLedgerError
from rsm_spark.backup import detaching
from rsm_spark.backup.detaching import LogDetachment
from rsm_spark.backup.forking import LogFork
from rsm_spark.core.chain import LogChain
from rsm_spark.core.detaching import with_copies
from rsm_spark.core.orphans import custom_metadata
from rsm_spark.log import commit_log, deletion, renaming, sharing
from rsm_spark.log.detachment import DetachMark
from rsm_spark.log.sharing import SharedLedgers, UnsharedLedgers
from rsm_spark.runtime.log_maintenance import LogMaintenance
from tests.sets import hunt_order
from tests.sim import forked_logs
from tests.sim.forked_logs import ForkedLogs

_SEEDS = 150


def _broken(seed: int, *, detaches: bool = False) -> str:
    logs = ForkedLogs(seed, detaches=detaches)
    logs.run()
    return logs.broken


def test_no_ledger_goes_that_a_log_needs_and_none_stays_that_no_log_needs() -> None:
    forks = renamed = 0
    for seed in range(_SEEDS):
        logs = ForkedLogs(seed)
        logs.run()
        assert not logs.broken, f"seed {seed}: {logs.broken}"
        forks += logs.forks
        renamed += logs.renamed
    assert forks > _SEEDS // 4
    assert renamed > _SEEDS // 4


def test_forks_that_are_detached_lose_nothing_nor_do_their_readers() -> None:
    detached = 0
    for seed in range(_SEEDS // 2):
        logs = ForkedLogs(seed, detaches=True)
        logs.run()
        assert not logs.broken, f"seed {seed}: {logs.broken}"
        detached += logs.detached
    assert detached > _SEEDS // 20


def test_a_fork_whose_name_was_given_away_leaves_the_other_log_alone() -> None:
    for seed in range(5):
        logs = ForkedLogs(seed)
        logs.run(ForkedLogs.lose_the_name)
        assert not logs.broken, f"seed {seed}: {logs.broken}"


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_detachment_that_is_cut_off_at_any_request_is_finished_by_the_next(is_sent: bool) -> None:
    for left in range(1, 400):
        logs = ForkedLogs(left)
        is_whole = logs.run(lambda logs, left=left: logs.die_detaching(left, is_sent=is_sent))
        assert not logs.broken, f"request {left}: {logs.broken}"
        if is_whole:
            assert left > 40, "it asks for less than there is to ask"
            return
    pytest.fail("no process lived to the end")


def test_who_goes_on_with_a_detachment_and_whoever_had_begun_it_do_not_harm_each_other() -> None:
    for seed in range(60):
        logs = ForkedLogs(seed)
        logs.run(ForkedLogs.detach_twice)
        assert not logs.broken, f"seed {seed}: {logs.broken}"


def _shares_a_trimmed_ledger(patch: pytest.MonkeyPatch) -> None:
    async def _share(self: LogFork, _chain: Any) -> None:
        owners: dict[str, list[int]] = {}
        for ledger in self._shared:
            owners.setdefault(ledger.log_id, []).append(ledger.ledger_id)
        await self._sharing.use(self._target.name, owners)

    patch.setattr(LogFork, "_share", _share)


def _notes_what_it_shares_too_late(patch: pytest.MonkeyPatch) -> None:
    share, make = LogFork._share, LogFork.make
    chains: list[Any] = []

    async def _nothing(_self: LogFork, chain: Any) -> None:
        chains.append(chain)

    async def _make(self: LogFork) -> Any:
        made = await make(self)
        await share(self, chains[-1])
        return made

    patch.setattr(LogFork, "_share", _nothing)
    patch.setattr(LogFork, "make", _make)


def _trims_what_a_fork_uses(patch: pytest.MonkeyPatch) -> None:
    delete = SharedLedgers.delete

    async def _delete_all(self: Any, ledger_ids: tuple[int, ...]) -> None:
        for ledger_id in ledger_ids:
            with contextlib.suppress(NoSuchLedgerError):
                await self._context.client.delete(ledger_id)
        await delete(self._shared, ledger_ids)

    patch.setattr(LogMaintenance, "_delete_all", _delete_all)


def _deletes_what_a_fork_uses(patch: pytest.MonkeyPatch) -> None:
    class Careless(SharedLedgers):
        async def delete(self, ledger_ids: Any, *_: Any) -> UnsharedLedgers:
            client: LedgerClient = self._client
            for ledger_id in ledger_ids:
                with contextlib.suppress(NoSuchLedgerError):
                    await client.delete(ledger_id)
            return UnsharedLedgers(list(ledger_ids), [])

    patch.setattr(deletion, "SharedLedgers", Careless)


def _sweeps_what_a_fork_uses(patch: pytest.MonkeyPatch) -> None:
    async def is_used(_self: SharedLedgers, _ledger_id: int) -> bool:
        return False

    patch.setattr(SharedLedgers, "is_used", is_used)


def _takes_another_logs_ledger_for_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sharing, "maker_of", lambda _custom: "")


def _trims_what_its_origin_uses(patch: pytest.MonkeyPatch) -> None:
    async def _not_last(self: SharedLedgers, owner: str, ledger_ids: set[int]) -> set[int]:
        return ledger_ids & await self._used_by_others(owner)

    patch.setattr(SharedLedgers, "_not_last", _not_last)


def _never_says_that_it_let_go(patch: pytest.MonkeyPatch) -> None:
    async def _hand_over(self: SharedLedgers, ledger_ids: set[int]) -> set[int]:
        return ledger_ids & await self._used_by_others(self._log_id)

    patch.setattr(SharedLedgers, "_hand_over", _hand_over)


def _looks_before_it_says(patch: pytest.MonkeyPatch) -> None:
    hand_over = SharedLedgers._hand_over

    async def _hand_over(self: SharedLedgers, ledger_ids: set[int]) -> set[int]:
        used = ledger_ids & await self._used_by_others(self._log_id)
        await hand_over(self, ledger_ids)
        return used

    patch.setattr(SharedLedgers, "_hand_over", _hand_over)


def _forgets_who_is_leaving(patch: pytest.MonkeyPatch) -> None:
    left = sharing._left
    patch.setattr(sharing, "_left", lambda note, going: sharing._forgotten(left(note, going), going))


def _renames_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    class InSteps:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def change(self, changes: Any) -> None:
            for gone in changes:
                await self._store.change([gone])

    rename = forked_logs.rename_log
    patch.setattr(forked_logs, "rename_log", lambda store, *rest, **how: rename(InSteps(store), *rest, **how))


def _leaves_what_it_noted_under_the_former_name(patch: pytest.MonkeyPatch) -> None:
    async def _none(*_: Any) -> dict[str, Any]:
        return {}

    patch.setattr(renaming, "notes_of", _none)


async def _unchecked(_client: Any, _chain: Any, copies: Any) -> Any:
    return copies


def _copies_are_swept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(detaching, "copy_metadata", lambda log, log_id, key_id: custom_metadata(log, log_id, 1, -1, key_id))
    patch.setattr(detaching, "checked_copies", _unchecked)


def _readers_in_a_shared_ledger_are_lost(patch: pytest.MonkeyPatch) -> None:
    def _with_copies(chain: LogChain, copies: Any) -> LogChain:
        changed = with_copies(chain, copies)
        ledgers = tuple(msgspec.structs.replace(ledger, copy_of=()) for ledger in changed.ledgers)
        return msgspec.structs.replace(changed, ledgers=ledgers)

    patch.setattr(detaching, "with_copies", _with_copies)


def _never_lets_go_of_what_was_shared(patch: pytest.MonkeyPatch) -> None:
    def _with_copies(chain: LogChain, copies: Any) -> LogChain:
        return msgspec.structs.replace(with_copies(chain, copies), deleting=chain.deleting)

    patch.setattr(detaching, "with_copies", _with_copies)


def _lets_go_before_the_chain_says_so(patch: pytest.MonkeyPatch) -> None:
    write = LogDetachment._write_chain

    async def _write_chain(self: Any, chain: LogChain, version: int, copies: Any) -> None:
        going = [copy.shared_id for copy in copies]
        await SharedLedgers(self._client, chain.log_id, "/rsm").delete(going)
        await write(self, chain, version, copies)

    patch.setattr(LogDetachment, "_write_chain", _write_chain)


def _reads_on_behind_its_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit_log, "last_entry_of", lambda _ledger, closed_at: closed_at)


@pytest.mark.parametrize(("plant", "budget", "known"), [
    (_shares_a_trimmed_ledger, 1500, 809),
    (_notes_what_it_shares_too_late, 1500, 151),
    (_trims_what_a_fork_uses, 100, 4),
    (_deletes_what_a_fork_uses, 100, 4),
    (_sweeps_what_a_fork_uses, 400, 147),
    (_takes_another_logs_ledger_for_its_own, 100, 4),
    (_trims_what_its_origin_uses, 100, 6),
    (_never_says_that_it_let_go, 100, 4),
    (_looks_before_it_says, 1500, 1122),
    (_forgets_who_is_leaving, 1500, 391),
    (_renames_in_two_steps, 400, 7),
    (_leaves_what_it_noted_under_the_former_name, 400, 4),
    (_reads_on_behind_its_end, 100, 4),
])  # fmt: skip
def test_planted_bugs_of_sharing_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], budget: int, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(_broken(seed) for seed in hunt_order(budget, known)), f"not found in {budget} seeds"


@pytest.mark.parametrize(("plant", "known"), [
    (_copies_are_swept, 358),
    (_readers_in_a_shared_ledger_are_lost, 199),
    (_never_lets_go_of_what_was_shared, 13),
    (_lets_go_before_the_chain_says_so, 13),
])  # fmt: skip
def test_planted_bugs_of_detaching_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(_broken(seed, detaches=True) for seed in hunt_order(600, known)), "not found in 600 seeds"


def _notes_over_what_another_one_noted(patch: pytest.MonkeyPatch) -> None:
    write = DetachMark._write

    async def _write(self: Any, copies: Any) -> None:
        _, self._version = await self._store.get(self._path)
        await write(self, copies)

    patch.setattr(DetachMark, "_write", _write)
    patch.setattr(detaching, "checked_copies", _unchecked)


def test_a_detachment_that_does_not_look_who_has_taken_it_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _notes_over_what_another_one_noted(monkeypatch)

    def _taken_over(seed: int) -> str:
        logs = ForkedLogs(seed)
        logs.run(ForkedLogs.detach_twice)
        return logs.broken

    assert any(_taken_over(seed) for seed in range(300)), "not found in 300 seeds"
