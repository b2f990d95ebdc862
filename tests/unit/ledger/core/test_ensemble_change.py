"""Bookies are replaced while entries are in flight, and nothing confirmed is lost whatever the metadata store does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ledger.core.ack_window import AckWindow
from ledger.core.ensemble_change import ChangeFailed, ChangeSettled, EnsembleChange, Verdict
from ledger.core.metadata import LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.core.writer import LedgerWriter
from ledger.core.writer_effects import (
    ChangeEnsemble,
    ConfirmEntries,
    FailPending,
    ResendEntries,
    SendEntries,
    UseEnsemble,
)
from ledger.errors import FencedError, QuorumLostError
from tests.unit.ledger.core.ensemble_world import BrokenPromiseError, EnsembleWorld, metadata_of

E3 = QuorumConfig(3, 3, 2)
E2 = QuorumConfig(2, 2, 2)
STRIPED = QuorumConfig(4, 3, 2)


def writer_of(quorum: QuorumConfig = E3, change_after_s: float | None = 1.0) -> LedgerWriter:
    writer = LedgerWriter(1, quorum, [f"b{i}" for i in range(quorum.ensemble_size)])
    writer.change_after_s = change_after_s
    return writer


def change_of(metadata: LedgerMetadata | None = None, **spares: str) -> EnsembleChange:
    metadata = metadata or metadata_of(E3)
    return EnsembleChange(1, metadata, 5, {int(name[1:]): spare for name, spare in (spares or {"p0": "b9"}).items()})


# --- when


def test_a_bookie_that_refuses_is_replaced_at_once() -> None:
    writer = writer_of()
    writer.append([1])
    assert writer.on_position_failed(0, "EIO", 0.0, is_refusal=True) == [ChangeEnsemble()]
    assert writer.positions_to_change(0.0) == {0: "EIO"}


def test_a_bookie_that_the_ack_quorum_needs_is_replaced_at_once() -> None:
    writer = writer_of(E2)
    writer.append([1])
    assert writer.on_position_failed(1, "gone", 0.0) == [ChangeEnsemble()]


def test_a_bookie_that_the_ack_quorum_can_do_without_is_replaced_when_it_has_been_away_for_long() -> None:
    writer = writer_of()
    writer.append([1])
    assert writer.on_position_failed(0, "gone", 10.0) == []
    assert writer.on_tick(10.9) == []
    assert writer.on_tick(11.0) == [ChangeEnsemble()]


def test_a_bookie_that_comes_back_but_stores_nothing_is_replaced() -> None:
    writer = writer_of()
    writer.append([1])
    writer.on_position_failed(0, "silent", 10.0)
    assert writer.on_position_restored(0) == [ResendEntries(0, [0])]
    assert writer.on_tick(11.0) == [ChangeEnsemble()]
    assert writer.positions_to_change(11.0) == {0: "silent"}


def test_a_bookie_that_comes_back_and_stores_stays() -> None:
    writer = writer_of()
    writer.append([1])
    writer.on_position_failed(0, "silent", 10.0)
    writer.on_position_restored(0)
    writer.on_stored(0, [0])
    assert writer.on_tick(20.0) == []


def test_a_bookie_that_misses_nothing_may_stay_away() -> None:
    writer = writer_of(E2)
    writer.append([1])
    for position in (0, 1):
        writer.on_stored(position, [0])
    assert writer.on_position_failed(0, "gone", 10.0) == []
    assert writer.on_tick(99.0) == []
    sent, change = writer.append([1])
    assert isinstance(sent, SendEntries)
    assert change == ChangeEnsemble()


def test_bookies_that_fail_together_are_replaced_together() -> None:
    writer = writer_of(QuorumConfig(4, 4, 2))
    writer.append([1])
    writer.on_position_failed(3, "gone", 0.0)
    writer.on_position_failed(1, "EIO", 0.1, is_refusal=True)
    assert writer.positions_to_change(0.1) == {1: "EIO", 3: "gone"}


def test_a_writer_that_must_not_change_fails_when_the_quorum_is_lost() -> None:
    writer = writer_of(E2, change_after_s=None)
    writer.append([1])
    (effect,) = writer.on_position_failed(0, "gone", 0.0, is_refusal=True)
    assert isinstance(effect, FailPending)


# --- what counts meanwhile


def test_answers_of_a_bookie_that_leaves_are_taken_back_even_for_complete_entries() -> None:
    writer = writer_of()
    writer.append([1, 1])
    writer.on_stored(0, [1])
    writer.on_stored(1, [1])  # entry 1 is complete, and waits for entry 0
    writer.on_position_failed(0, "EIO", 0.0, is_refusal=True)
    assert writer.hold([0]) == 0
    assert writer.on_stored(0, [0, 1]) == []
    assert writer.on_stored(1, [0]) == []
    assert writer.on_ensemble_changed(["b9", "b1", "b2"]) == [
        UseEnsemble(("b9", "b1", "b2"), (0,)),
        ResendEntries(0, [0, 1]),
    ]
    assert writer.on_stored(0, [0]) == [ConfirmEntries(0)]
    assert writer.on_stored(2, [1]) == [ConfirmEntries(1)]


def test_the_lac_stands_while_the_store_is_asked_and_moves_at_the_answer() -> None:
    writer = writer_of()
    writer.append([1, 1])
    writer.on_position_failed(0, "EIO", 0.0, is_refusal=True)
    assert writer.hold([0]) == 0
    for position in (1, 2):
        assert writer.on_stored(position, [0]) == []
    assert writer.on_ensemble_changed(["b9", "b1", "b2"]) == [
        UseEnsemble(("b9", "b1", "b2"), (0,)),
        ResendEntries(0, [0, 1]),  # entry 0 too: it belongs to the new segment
        ConfirmEntries(0),
    ]


def test_the_lac_goes_on_by_the_bookies_of_both_ensembles_when_the_store_takes_its_time() -> None:
    writer = writer_of()
    writer.append([1, 1])
    writer.on_position_failed(0, "EIO", 0.0, is_refusal=True)
    writer.hold([0])
    for position in (0, 1, 2):
        writer.on_stored(position, [0])
    assert writer.release() == [ConfirmEntries(0)]
    assert writer.on_stored(0, [1]) + writer.on_stored(1, [1]) == []
    assert writer.on_stored(2, [1]) == [ConfirmEntries(1)]
    assert writer.hold([0]) == 2


def test_a_bookie_that_fails_meanwhile_goes_into_the_next_change() -> None:
    writer = writer_of(E2)
    writer.append([1])
    writer.on_position_failed(0, "gone", 0.0)
    writer.hold([0])
    assert writer.on_position_failed(1, "gone too", 0.0) == []
    assert writer.on_ensemble_changed(["b8", "b1"]) == [
        UseEnsemble(("b8", "b1"), (0,)),
        ResendEntries(0, [0]),
        ChangeEnsemble(),
    ]
    assert writer.positions_to_change(0.0) == {1: "gone too"}


def test_without_a_spare_the_writer_goes_on_while_the_quorum_holds_and_looks_again() -> None:
    writer = writer_of()
    writer.append([1])
    writer.on_position_failed(0, "EIO", 0.0, is_refusal=True)
    assert writer.on_no_spare("nobody is left", 0.0) == []
    writer.on_stored(1, [0])
    assert writer.on_stored(2, [0]) == [ConfirmEntries(0)]
    writer.append([1])
    assert writer.on_tick(4.9) == []
    assert writer.on_tick(5.0) == [ChangeEnsemble()]


def test_without_a_spare_that_the_quorum_needs_the_error_says_who_failed_and_why_nobody_replaces_it() -> None:
    writer = writer_of(E2)
    writer.append([1])
    writer.on_position_failed(0, "connection refused", 0.0)
    (effect,) = writer.on_no_spare("the other bookie is read-only", 0.0)
    assert isinstance(effect, FailPending)
    assert isinstance(effect.error, QuorumLostError)
    for part in ("b0: connection refused", "the other bookie is read-only", "b1: no failure seen"):
        assert part in str(effect.error)


def test_a_quorum_lost_after_a_vain_search_is_searched_for_again_first() -> None:
    writer = writer_of()
    writer.append([1])
    writer.on_position_failed(0, "EIO", 0.0, is_refusal=True)
    writer.on_no_spare("nobody is left", 0.0)
    assert writer.on_position_failed(1, "gone", 0.1) == [ChangeEnsemble()]


def test_a_change_is_dropped_when_the_bookie_stores_before_a_spare_was_found() -> None:
    writer = writer_of()
    writer.append([1])
    writer.on_position_failed(0, "EIO", 0.0, is_refusal=True)
    writer.on_position_restored(0)
    writer.on_stored(0, [0])
    assert writer.positions_to_change(0.0) == {}
    assert writer.on_change_dropped() == []
    assert writer._change is None


def test_a_late_answer_of_a_bookie_that_is_back_in_another_place_counts_only_for_its_write_sets() -> None:
    writer = writer_of(STRIPED)  # entry 0 belongs to positions 0 1 2
    writer.append([1])
    writer.on_stored(3, [0])
    writer.validate()
    writer.on_stored(0, [0])
    assert writer.last_add_confirmed == -1


# --- what is written


def test_a_new_segment_begins_after_the_lac() -> None:
    write = change_of().propose(7)
    assert write.version == 5
    assert write.metadata.segments == (Segment(0, ("b0", "b1", "b2")), Segment(7, ("b9", "b1", "b2")))


def test_a_segment_without_a_confirmed_entry_is_replaced() -> None:
    assert change_of().propose(0).metadata.segments == (Segment(0, ("b9", "b1", "b2")),)


def settled_segments(verdict: Verdict) -> tuple[Segment, ...]:
    assert isinstance(verdict, ChangeSettled)
    return verdict.metadata.segments


def test_an_answered_write_settles_the_change() -> None:
    change = change_of()
    write = change.propose(7)
    assert change.on_written(write, 6, 6) == ChangeSettled(write.metadata, 6)


def test_an_own_write_whose_reply_was_lost_is_recognised() -> None:
    change = change_of()
    write = change.propose(7)
    assert change.on_read(write.metadata, 6, 6) == ChangeSettled(write.metadata, 6)


def test_a_write_that_was_not_applied_is_tried_again_on_what_was_read() -> None:
    change = change_of(metadata_of(E3, Segment(0, ("b0", "b4", "b2")), Segment(3, ("b0", "b1", "b2"))))
    change.propose(7)
    repaired = metadata_of(E3, Segment(0, ("b0", "b5", "b2")), Segment(3, ("b0", "b1", "b2")))
    assert change.on_read(repaired, 9, 7) is None
    again = change.propose(8)
    assert again.version == 9
    assert again.metadata.segments == (*repaired.segments, Segment(8, ("b9", "b1", "b2")))


@pytest.mark.parametrize("first", [0, 7])
def test_the_boundary_moves_when_entries_were_confirmed_meanwhile(first: int) -> None:
    change = change_of()
    write = change.propose(first)
    assert change.on_read(write.metadata, 6, 9) is None
    again = change.propose(10)
    assert again.version == 6
    assert again.metadata.segments == (Segment(0, ("b0", "b1", "b2")), Segment(10, ("b9", "b1", "b2")))
    assert settled_segments(change.on_written(again, 7, 9)) == again.metadata.segments


def test_an_earlier_attempt_that_came_through_after_all_is_recognised() -> None:
    change = change_of()
    early = change.propose(7)
    assert change.on_read(metadata_of(E3), 5, 8) is None
    change.propose(9)
    assert change.on_read(early.metadata, 6, 8) is None
    assert change.propose(9).version == 6


@pytest.mark.parametrize("state", [LedgerState.IN_RECOVERY, LedgerState.CLOSED])
def test_a_ledger_that_somebody_else_recovers_ends_the_writer(state: LedgerState) -> None:
    change = change_of()
    change.propose(7)
    verdict = change.on_read(msgspec.structs.replace(metadata_of(E3), state=state), 6, 6)
    assert isinstance(verdict, ChangeFailed)
    assert isinstance(verdict.error, FencedError)


def test_an_ensemble_that_somebody_else_wrote_ends_the_writer() -> None:
    change = change_of()
    change.propose(7)
    verdict = change.on_read(metadata_of(E3, Segment(0, ("b0", "b1", "b7"))), 6, 6)
    assert isinstance(verdict, ChangeFailed)
    assert "b7" in str(verdict.error)


# --- all of it together

_QUORUMS = [E2, E3, STRIPED, QuorumConfig(3, 3, 1), QuorumConfig(4, 2, 2), QuorumConfig(5, 3, 2)]


def play(seeds: range, step_count: int = 150) -> tuple[int, int, int]:
    changes = moved = confirmed = 0
    for seed in seeds:
        rng = random.Random(seed)
        world = EnsembleWorld(_QUORUMS[seed % len(_QUORUMS)], rng)
        recovery_at = rng.randrange(2 * step_count)
        for number in range(step_count):
            if number == recovery_at:
                world.recover()
            world.step()
        changes += world.changes
        moved += world.moved_boundaries
        confirmed += world.confirmed + 1
    return changes, moved, confirmed


def test_no_confirmed_entry_is_lost_in_any_order_of_events() -> None:
    changes, moved, confirmed = play(range(800))
    assert changes > 300
    assert moved > 10
    assert confirmed > 3000


@pytest.mark.slow
def test_no_confirmed_entry_is_lost_in_any_order_of_events_for_long() -> None:
    play(range(1_000, 31_000))


def _keep_answers(patch: pytest.MonkeyPatch) -> None:
    """Answers of a bookie that leaves go on counting until it has left."""
    patch.setattr(AckWindow, "drop", lambda self, position: None)


def _count_who_leaves(patch: pytest.MonkeyPatch) -> None:
    hold = LedgerWriter.hold

    def forgetful_hold(self: LedgerWriter, positions: Any) -> int:
        first = hold(self, positions)
        leaving = self._change.positions  # type: ignore[union-attr]
        on_ensemble_changed = self.on_ensemble_changed

        def restore(bookies: Any) -> Any:
            self._change.positions = leaving  # type: ignore[union-attr]
            return on_ensemble_changed(bookies)

        self._change.positions = ()  # type: ignore[union-attr]
        self.on_ensemble_changed = restore  # type: ignore[method-assign]
        return first

    patch.setattr(LedgerWriter, "hold", forgetful_hold)


def _write_on_any_version(patch: pytest.MonkeyPatch) -> None:
    """A lost compare-and-set is repeated with the version that was read, whatever was read."""
    on_read = EnsembleChange.on_read

    def blind(self: EnsembleChange, found: LedgerMetadata, version: int, last: int) -> Verdict:
        verdict = on_read(self, found, version, last)
        if isinstance(verdict, ChangeFailed):
            self._version = version
            return None
        return verdict

    patch.setattr(EnsembleChange, "on_read", blind)


def _begin_too_late(patch: pytest.MonkeyPatch) -> None:
    """The metadata leave entries to the old bookies that only the new ones get."""
    propose = EnsembleChange.propose
    patch.setattr(EnsembleChange, "propose", lambda self, first: propose(self, first + 2))
    patch.setattr(EnsembleChange, "_settle", lambda self, held, last: ChangeSettled(held, self._version))


@pytest.mark.parametrize(
    "plant",
    [_keep_answers, _count_who_leaves, _write_on_any_version, _begin_too_late],
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(BrokenPromiseError):
        play(range(800))
