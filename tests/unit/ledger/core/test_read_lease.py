"""Leases: what a writer may count of promises, and what these hold back meanwhile, in any order of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from ledger.core import read_lease
from ledger.core.lease_promises import LEASE_MS_MAX, LeasePromises
from ledger.core.quorum import QuorumConfig
from ledger.core.read_lease import RATE_RATIO_MAX, ReadLease
from ledger.core.writer import LedgerWriter
from ledger.errors import LedgerClosedError
from tests.unit.ledger.core.ensemble_world import BrokenPromiseError
from tests.unit.ledger.core.lease_world import LeaseWorld
from tests.unit.ledger.core.test_fence_check import E3, QUORUMS, STRIPED, begin_change, writer_of

NEVER = float("-inf")


def usable(lease_ms: int) -> float:
    return lease_ms / 1000 / RATE_RATIO_MAX


# --- the writer


def test_it_ends_with_the_promise_that_the_ack_quorum_needs() -> None:
    lease = ReadLease(E3)
    lease.grant(0, 10.0, 100)
    assert lease.until == NEVER
    lease.grant(2, 10.05, 100)
    assert lease.until == pytest.approx(10.0 + usable(100))
    lease.grant(1, 10.1, 100)
    assert lease.until == pytest.approx(10.05 + usable(100))


def test_a_promise_that_comes_late_takes_nothing_back() -> None:
    lease = ReadLease(E3)
    for position in (0, 1):
        lease.grant(position, 10.0, 100)
    lease.grant(0, 9.0, 100)
    assert lease.until == pytest.approx(10.0 + usable(100))


def test_each_write_set_needs_its_own_ack_quorum() -> None:
    lease = ReadLease(STRIPED)
    for position in (0, 1):
        lease.grant(position, 10.0, 100)
    assert lease.until == NEVER
    lease.grant(2, 9.9, 100)
    assert lease.until == pytest.approx(9.9 + usable(100))


def promise(writer: LedgerWriter, *positions: int, term: int | None = None) -> None:
    for position in positions:
        writer.on_promise(position, writer.lease.term if term is None else term, 10.0, 100)


def test_who_is_about_to_leave_counts_no_more_before_or_after() -> None:
    writer = writer_of()
    promise(writer, 0, 1)
    begin_change(writer, 0)
    assert writer.lease.until == NEVER
    promise(writer, 0)
    assert writer.lease.until == NEVER
    promise(writer, 2)
    assert writer.lease.until > 10.0


def test_the_end_of_a_change_and_of_the_writer_take_all_back_and_what_was_asked_for_before() -> None:
    writer = writer_of()
    before = writer.lease.term
    promise(writer, 1, 2)
    begin_change(writer, 0)
    assert writer.lease.until > 10.0
    writer.on_ensemble_changed(["b9:1", "b1:1", "b2:1"])
    promise(writer, 0, 1, 2, term=before)
    assert writer.lease.until == NEVER
    promise(writer, 0, 1)
    assert writer.lease.until > 10.0
    writer.freeze(LedgerClosedError("closed"))
    promise(writer, 0, 1)
    assert writer.lease.until == NEVER


# --- in any order of events


def play(
    seeds: Iterable[int], change: Callable[[LeaseWorld], None] = lambda _: None, steps: int = 300
) -> tuple[int, int]:
    held = recovered = 0
    for seed in seeds:
        rng = random.Random(seed)
        world = LeaseWorld(QUORUMS[seed % len(QUORUMS)], rng)
        change(world)
        recovery_at = rng.randrange(2 * steps)
        for number in range(steps):
            if number == recovery_at:
                world.recover()
            world.step()
        held += world.held
        recovered += world.recovered_count
    return held, recovered


def test_while_a_lease_holds_nobody_has_recovered_the_ledger() -> None:
    held, recovered = play(range(60))
    assert held > 300
    assert recovered > 5


@pytest.mark.slow
def test_while_a_lease_holds_nobody_has_recovered_the_ledger_for_long() -> None:
    play(range(1_000, 12_000))


def _forget_at_restart(patch: pytest.MonkeyPatch, _world: list[Callable[[LeaseWorld], None]]) -> None:
    begin = LeasePromises.__init__

    def begin_free(self: LeasePromises, now: float) -> None:
        begin(self, now - LEASE_MS_MAX)

    patch.setattr(LeasePromises, "__init__", begin_free)


def _count_from_the_answer(_patch: pytest.MonkeyPatch, world: list[Callable[[LeaseWorld], None]]) -> None:
    world.append(lambda one: setattr(one, "counts_from_answer", True))


def _promise_when_fenced(_patch: pytest.MonkeyPatch, world: list[Callable[[LeaseWorld], None]]) -> None:
    world.append(lambda one: setattr(one, "promises_when_fenced", True))


def _do_not_wait(patch: pytest.MonkeyPatch, _world: list[Callable[[LeaseWorld], None]]) -> None:
    patch.setattr(LeasePromises, "wait_s", lambda *_: 0.0)


def _count_too_few(patch: pytest.MonkeyPatch, _world: list[Callable[[LeaseWorld], None]]) -> None:
    def is_enough(positions: int, quorum: QuorumConfig) -> bool:
        return positions.bit_count() >= quorum.ack_quorum - 1

    patch.setattr(read_lease, "is_quorum_of_each", is_enough)


@pytest.mark.parametrize(
    "plant",
    [
        _forget_at_restart,
        _count_from_the_answer,
        _promise_when_fenced,
        _do_not_wait,
        _count_too_few,
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch, list[Callable[[LeaseWorld], None]]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[Callable[[LeaseWorld], None]] = []
    plant(monkeypatch, changes)
    with pytest.raises(BrokenPromiseError, match="somebody has recovered"):
        play(range(400), changes[0] if changes else lambda _: None)
