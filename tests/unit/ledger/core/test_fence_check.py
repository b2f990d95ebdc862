"""Fence checks: what counts as proof that nobody has recovered a ledger, in any order of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from ledger.core.fence_check import FenceCheck, FenceChecks, FenceVerdict
from ledger.core.quorum import QuorumConfig
from ledger.core.writer import LedgerWriter
from ledger.errors import LedgerClosedError
from tests.sets import hunt_order
from tests.unit.ledger.core.ensemble_world import BrokenPromiseError
from tests.unit.ledger.core.fence_world import FenceWorld

E3 = QuorumConfig(3, 3, 2)
STRIPED = QuorumConfig(4, 3, 2)
QUORUMS = (E3, QuorumConfig(2, 2, 2), STRIPED, QuorumConfig(3, 2, 2), QuorumConfig(5, 3, 2), QuorumConfig(3, 3, 1))
OPEN, UNPROVEN = FenceVerdict.OPEN, FenceVerdict.UNPROVEN


def writer_of(quorum: QuorumConfig = E3) -> LedgerWriter:
    writer = LedgerWriter(7, quorum, [f"b{i}:1" for i in range(quorum.ensemble_size)])
    writer.change_after_s = 1.0
    return writer


def begin_change(writer: LedgerWriter, position: int) -> None:
    writer.on_position_failed(position, "EIO", 0.0, is_refusal=True)
    writer.append([1])
    writer.hold([position])


def test_an_ack_quorum_of_noes_proves_it() -> None:
    check = FenceCheck(E3)
    check.answer(2, is_open=True)
    assert check.verdict is None
    check.answer(0, is_open=True)
    assert check.verdict is OPEN
    check.answer(1, is_open=False)
    check.void()
    assert check.verdict is OPEN


def test_the_same_bookie_twice_is_one() -> None:
    check = FenceCheck(E3)
    check.answer(2, is_open=True)
    check.answer(2, is_open=True)
    assert check.verdict is None


def test_it_ends_when_too_few_noes_can_come() -> None:
    check = FenceCheck(E3)
    check.answer(2, is_open=False)
    assert check.verdict is None
    check.answer(0, is_open=False)
    assert check.verdict is UNPROVEN
    assert FenceCheck(E3, [0, 1]).verdict is UNPROVEN
    assert FenceCheck(E3, [0]).verdict is None


def test_each_write_set_needs_its_own_ack_quorum() -> None:
    check = FenceCheck(STRIPED)
    check.answer(0, is_open=True)
    check.answer(1, is_open=True)
    assert check.verdict is None  # positions 2, 3, 0 have one
    check.answer(2, is_open=True)
    assert check.verdict is OPEN


def test_as_few_are_asked_as_can_prove_it() -> None:
    check = FenceCheck(E3)
    assert check.take([2, 0, 1]) == [2, 0]
    assert check.take([2, 0, 1]) == []
    check.answer(2, is_open=True)
    assert (check.is_awaited(2), check.is_awaited(0), check.is_awaited(1)) == (False, True, False)
    assert check.take([2, 0, 1]) == []
    check.answer(0, is_open=True)
    assert check.verdict is OPEN
    assert check.take_rest([2, 0, 1]) == []
    assert FenceCheck(STRIPED).take([3, 0, 1, 2]) == [3, 0, 1]
    assert FenceCheck(QuorumConfig(2, 2, 2)).take([1, 0]) == [1, 0]
    assert FenceCheck(QuorumConfig(3, 3, 1)).take([1, 0, 2]) == [1]


def test_others_are_asked_in_place_of_who_does_not_say_no_and_of_who_is_late() -> None:
    check = FenceCheck(E3)
    check.take([0, 1, 2])
    check.answer(1, is_open=False)
    assert check.take([0, 1, 2]) == [2]
    check.answer(0, is_open=False)
    assert check.verdict is UNPROVEN
    late = FenceCheck(QuorumConfig(5, 3, 2))
    assert late.take(range(5)) == [0, 1, 2, 3]
    assert late.take_rest(range(5)) == [4]
    assert late.take_rest(range(5)) == []


def test_who_leaves_is_not_asked_and_others_are_asked_in_its_place() -> None:
    check = FenceCheck(E3, [0])
    assert check.take([0, 1, 2]) == [1, 2]
    other = FenceCheck(E3)
    assert other.take([0, 1, 2]) == [0, 1]
    other.exclude([1])
    assert other.take([0, 1, 2]) == [2]
    assert FenceCheck(E3, [0]).take_rest([0, 1, 2]) == [1, 2]


def test_what_is_about_to_leave_counts_no_more_before_or_after() -> None:
    writer = writer_of()
    check = writer.begin_check()
    check.answer(0, is_open=True)
    begin_change(writer, 0)
    check.answer(1, is_open=True)
    assert check.verdict is None
    late = writer.begin_check()
    late.answer(0, is_open=True)
    late.answer(1, is_open=True)
    assert late.verdict is None
    check.answer(2, is_open=True)
    assert check.verdict is OPEN


def test_a_change_of_the_ensemble_voids_the_checks_under_way() -> None:
    writer = writer_of()
    check = writer.begin_check()
    begin_change(writer, 0)
    writer.on_ensemble_changed(["b9:1", "b1:1", "b2:1"])
    assert check.verdict is UNPROVEN
    after = writer.begin_check()
    after.answer(0, is_open=True)
    after.answer(1, is_open=True)
    assert after.verdict is OPEN


def test_a_writer_that_has_ended_proves_nothing() -> None:
    writer = writer_of()
    check = writer.begin_check()
    writer.freeze(LedgerClosedError("closed"))
    assert check.verdict is writer.begin_check().verdict is UNPROVEN


def test_checks_of_one_writer_are_decided_one_by_one() -> None:
    checks = FenceChecks(E3)
    first, second = checks.begin(()), checks.begin(())
    for position in (0, 1):
        first.answer(position, is_open=True)
    assert (first.verdict, second.verdict) == (OPEN, None)


# --- in any order of events


def play(
    seeds: Iterable[int], change: Callable[[FenceWorld], None] = lambda _: None, steps: int = 250
) -> tuple[int, int, int]:
    """Return how many checks were proven, how many not, and how many bookies those did not need."""
    proven = unproven = spared = 0
    for seed in seeds:
        rng = random.Random(seed)
        world = FenceWorld(QUORUMS[seed % len(QUORUMS)], rng)
        change(world)
        recovery_at = rng.randrange(2 * steps)
        for number in range(steps):
            if number == recovery_at:
                world.recover()
            world.step()
        proven += world.proven
        unproven += world.unproven
        spared += world.spared
    return proven, unproven, spared


def test_what_is_proven_was_so_when_the_check_began() -> None:
    proven, unproven, spared = play(range(120))
    assert proven > 200
    assert unproven > 30
    assert spared > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_is_proven_was_so_when_the_check_began_for_long() -> None:
    play(range(1_000, 16_000))


def _count_who_leaves(_world: FenceWorld) -> None:
    """Planted with the patch of `begin_check` below."""


def _ask_the_first_ensemble(world: FenceWorld) -> None:
    """A change of the ensemble is not noticed."""
    first = world.core.bookies
    world.members = lambda: first  # type: ignore[method-assign]


def _let_limbo_say_open(world: FenceWorld) -> None:
    world.limbo_says_open = True


def _count_early_answers(world: FenceWorld) -> None:
    world.counts_early = True


def _keep_noes_of_before(world: FenceWorld) -> None:
    world.keeps_noes = True


@pytest.mark.parametrize(
    ("plant", "known"),
    [
        (_keep_noes_of_before, 11),
        (_count_who_leaves, 505),
        (_ask_the_first_ensemble, 11),
        (_let_limbo_say_open, 47),
        (_count_early_answers, 47),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[FenceWorld], None], known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plant is _count_who_leaves:
        begin = LedgerWriter.begin_check

        def begin_with_all(self: LedgerWriter, mute: tuple[int, ...] = ()) -> FenceCheck:
            change, self._change = self._change, None
            check = begin(self, mute)
            self._change = change
            return check

        monkeypatch.setattr(LedgerWriter, "begin_check", begin_with_all)
        monkeypatch.setattr(FenceCheck, "exclude", lambda _self, _positions: None)
    with pytest.raises(BrokenPromiseError, match="somebody had"):
        play(hunt_order(3_000, known), plant)


def test_counting_who_was_not_asked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = FenceCheck._judge

    def judge_asked(self: FenceCheck) -> None:
        denied = self._denied
        self._denied |= ~self._asked if denied else 0
        judge(self)
        self._denied = denied

    monkeypatch.setattr(FenceCheck, "_judge", judge_asked)
    with pytest.raises(BrokenPromiseError, match="somebody had"):
        play(hunt_order(3_000, 60))


@pytest.mark.parametrize("method", ["ack_quorum", "one_no"])
def test_counting_less_is_found(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_quorum(self: FenceCheck, positions: int) -> bool:
        needed = 1 if method == "one_no" else self._quorum.ack_quorum - 1
        return (positions & (1 << self._quorum.ensemble_size) - 1).bit_count() >= needed

    monkeypatch.setattr(FenceCheck, "_is_quorum", is_quorum)
    with pytest.raises(BrokenPromiseError, match="somebody had"):
        play(range(3_000))
