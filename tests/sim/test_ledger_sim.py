"""Real bookies and real clients on a simulated network, disks and metadata store, seed by seed."""

from __future__ import annotations

from unittest.mock import MagicMock, patch

import pytest

from ledger.bookie import handlers
from ledger.client.write_handle import WriteHandle
from ledger.storage.bookie_ledger import NO_LIMBO
from ledger.testing import Simulation
from ledger.wire.codes import Status
from ledger.wire.packets import ReadRequest
from tests.sim.judged_seeds import FAR, SEEDS_OF_ALL, assert_kept, assert_replayed, unless_counted, wanted_seeds
from tests.sim.ledger_history import BrokenInvariantError, History
from tests.sim.ledger_scenario import run_seed
from tests.sim.ledger_seeds import first_seed, hunt
from tests.sim.ledger_witness import witnessed

_SEEDS_AT_EFFORT_1 = 30


@pytest.mark.alone
@pytest.mark.timeout(24 * 3600)
def test_every_promise_is_kept_whatever_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert_kept(hunt(first_seed(), wanted_seeds(_SEEDS_AT_EFFORT_1)), capsys)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@unless_counted
def test_every_promise_is_kept_in_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert_kept(hunt(FAR + first_seed(), SEEDS_OF_ALL), capsys)


def test_without_faults_every_append_is_acknowledged() -> None:
    outcome = run_seed(1, has_faults=False)
    assert outcome.broken is None, outcome.report()
    assert outcome.counts["acked"] > 100
    assert outcome.counts["reads"] > outcome.counts["acked"]


def test_a_seed_in_which_entries_behind_the_end_of_a_closed_ledger_are_denied() -> None:
    """Nobody owes them: a recovery that lost the race for the end may still ask for them, of a bookie out of limbo."""
    outcome = run_seed(179434719)
    assert outcome.broken is None, outcome.report()


def test_a_seed_in_which_an_old_copy_comes_back_after_the_cookie_was_taken() -> None:
    """A bookie's disk was lost, its cookie deleted, and then a copy of the disk was put back: it is used, in limbo."""
    outcome = run_seed(228956848)
    assert outcome.broken is None, outcome.report()


@pytest.mark.parametrize(("end", "is_broken"), [(0, False), (1, True), (None, True)])
def test_what_was_acknowledged_may_be_denied_only_behind_the_end(end: int | None, is_broken: bool) -> None:
    failures: list[BrokenInvariantError] = []
    history = History(lambda: 0.0, failures.append)
    history.created(11, 2, b"", "w0")
    if end is not None:
        history.ends[11] = end
    simulation = Simulation(1)

    async def deny() -> None:
        writer = MagicMock(spec=WriteHandle, ledger_id=11)
        WriteHandle.on_stored(writer, "b4:3181", [1])
        vars(handlers)["failed_read"](ReadRequest(1, 11, 1, None), Status.ENOENTRY)

    async def main() -> None:
        await simulation.host("b4").spawn(deny())

    with patch.object(WriteHandle, "on_stored", lambda *_: None), witnessed(history):
        simulation.run(main())
    assert bool(failures) is is_broken


@pytest.mark.parametrize("seed_count", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_seeds_replay_step_by_step_whatever_the_hash_seed_and_whatever_ran_before(seed_count: int) -> None:
    assert_replayed("ledger_scenario", seed_count)


def test_a_failure_says_what_happened_and_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: damage without limbo, so that a loss looks like "never had it"."""
    for name in ("missing_entry_status", "missing_ledger_status"):
        honest = getattr(handlers, name)
        monkeypatch.setattr(handlers, name, lambda ledger_id, _limbo, honest=honest: honest(ledger_id, NO_LIMBO))
    broken = next(outcome for outcome in map(run_seed, range(60)) if outcome.broken)
    report = broken.report()
    assert f"seed {broken.seed} breaks unknown-is-not-absent" in report
    assert "FAULT" in report
    assert f"tests.sim.ledger_scenario {broken.seed}" in report
