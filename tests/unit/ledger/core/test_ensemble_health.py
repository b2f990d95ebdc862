"""Who fails, who is doubted, and what each bookie may lack."""

from __future__ import annotations

from ledger.core.ensemble_health import EnsembleHealth
from ledger.core.quorum import QuorumConfig


def health_of(*quorum: int) -> EnsembleHealth:
    return EnsembleHealth(QuorumConfig(*(quorum or (3, 3, 2))))


def fail(health: EnsembleHealth, position: int, now: float = 0.0, *, is_refusal: bool = False) -> None:
    health.fail(position, "gone", now, 10, is_refusal=is_refusal)
    health.validate()


def test_what_the_slowest_has_not_answered_for_is_kept() -> None:
    health = health_of()
    for position, entry_id in enumerate((9, 4, 7)):
        health.answer(position, entry_id)
    assert health.keep_from(confirmed=7) == 5
    assert health.keep_from(confirmed=2) == 3
    assert health.missed(1, confirmed=7) == [5, 6, 7]
    assert health.missed(0, confirmed=7) == []


def test_an_earlier_answer_takes_nothing_back() -> None:
    health = health_of()
    health.answer(0, 9)
    health.answer(0, 4)
    assert health.missed(0, confirmed=9) == []


def test_a_striped_position_misses_its_share_only() -> None:
    assert health_of(4, 2, 2).missed(1, confirmed=9) == [0, 1, 4, 5, 8, 9]


def test_what_is_missed_is_bounded() -> None:
    assert health_of().missed(0, confirmed=1_000_000)[0] == 1_000_001 - 65_536


def test_nothing_is_kept_for_who_is_lost_and_nothing_sent_when_it_is_back() -> None:
    health = health_of()
    health.answer(0, 9)
    health.answer(1, 9)
    fail(health, 2)
    assert health.keep_from(confirmed=9) == 0
    health.lose()
    assert health.keep_from(confirmed=9) == 10
    health.restore(2, confirmed=9)
    assert health.missed(2, confirmed=9) == []
    assert health.missed(2, confirmed=11) == [10, 11]


def test_a_bookie_is_overdue_when_it_refused_or_missed_something_for_long() -> None:
    health = health_of()
    fail(health, 0, now=1.0)
    fail(health, 1, is_refusal=True)
    assert health.overdue(1.5, 1.0, 11, is_pending=False) == [1]
    assert health.overdue(2.0, 1.0, 11, is_pending=False) == [0, 1]
    assert health.overdue(2.0, 1.0, 10, is_pending=False) == [1]
    assert health.overdue(2.0, 1.0, 10, is_pending=True) == [0, 1]
    assert health.has_refused()
    assert health.has_refused(1)
    assert not health.has_refused(0)


def test_doubt_ends_with_an_entry_stored_once_it_can_be_sent_to() -> None:
    health = health_of()
    fail(health, 0)
    health.answer(0, 3)  # what it stored before it failed
    assert health.has_doubts
    health.restore(0, confirmed=3)
    assert health.has_doubts
    health.answer(0, 4)
    assert not health.has_doubts


def test_reasons_are_given_for_all_that_fail() -> None:
    health = health_of()
    fail(health, 2)
    fail(health, 0)
    health.restore(0, confirmed=-1)
    assert health.reasons([0]) == {0: "gone", 2: "gone"}
    assert health.failed_mask == 0b100


def test_a_replaced_position_begins_anew() -> None:
    health = health_of()
    fail(health, 0, is_refusal=True)
    health.replace([0], confirmed=5)
    assert not health.has_doubts
    assert health.failed == {}
    assert health.missed(0, confirmed=6) == [6]
