"""Who is suspected, and for how long."""

from __future__ import annotations

from ledger.client.quarantine import Quarantine


def test_a_failure_counts_for_its_time() -> None:
    quarantine = Quarantine(10.0)
    quarantine.fail("b", 100.0)
    assert quarantine.suspects(109.9) == {"b"}
    assert quarantine.suspects(110.0) == frozenset()


def test_a_further_failure_begins_the_time_anew() -> None:
    quarantine = Quarantine(10.0)
    quarantine.fail("b", 100.0)
    quarantine.fail("b", 105.0)
    assert quarantine.suspects(114.0) == {"b"}


def test_three_strikes_in_a_row_are_a_failure() -> None:
    quarantine = Quarantine(10.0)
    for now in (1.0, 5.0):
        quarantine.strike("b", now)
        assert quarantine.suspects(now) == frozenset()
    quarantine.strike("b", 9.0)
    assert quarantine.suspects(18.9) == {"b"}
    assert quarantine.suspects(19.0) == frozenset()


def test_strikes_of_one_moment_are_one_strike() -> None:
    quarantine = Quarantine(10.0)
    for _ in range(100):
        quarantine.strike("b", 1.0)
    assert quarantine.suspects(1.0) == frozenset()


def test_strikes_far_apart_do_not_add_up() -> None:
    quarantine = Quarantine(10.0)
    for now in (0.0, 10.0, 20.0, 30.0):
        quarantine.strike("b", now)
    assert quarantine.suspects(30.0) == frozenset()


def test_no_quarantine_is_none() -> None:
    quarantine = Quarantine(0.0)
    quarantine.fail("b", 1.0)
    assert quarantine.suspects(1.0) == frozenset()
