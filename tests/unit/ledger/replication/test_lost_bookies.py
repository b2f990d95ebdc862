"""A bookie is lost when it has been missing for the delay, not before."""

from __future__ import annotations

from ledger.replication.core.lost_bookies import LostBookies


def test_a_missing_bookie_is_lost_after_the_delay() -> None:
    bookies = LostBookies()
    bookies.observe(["a", "b"], ["a", "b"], 0.0)
    bookies.observe(["a", "b"], ["a"], 10.0)
    assert bookies.lost(39.9, 30.0) == []
    assert bookies.next_loss_s(20.0, 30.0) == 20.0
    assert bookies.lost(40.0, 30.0) == ["b"]
    assert bookies.next_loss_s(40.0, 30.0) is None
    bookies.validate()


def test_a_bookie_that_is_back_in_time_was_never_lost() -> None:
    bookies = LostBookies()
    bookies.observe(["a"], [], 0.0)
    assert bookies.observe(["a"], ["a"], 29.0) == ["a"]
    assert bookies.lost(100.0, 30.0) == []
    bookies.observe(["a"], [], 200.0)
    assert bookies.lost(229.0, 30.0) == []


def test_a_bookie_that_only_ledgers_name_counts_from_when_it_was_first_missed() -> None:
    bookies = LostBookies()
    bookies.observe(["gone"], ["a"], 5.0)
    bookies.observe([], ["a"], 6.0)
    assert bookies.lost(35.0, 30.0) == ["gone"]


def test_a_bookie_that_registers_unknown_and_goes_is_missed() -> None:
    bookies = LostBookies()
    bookies.observe([], ["new"], 0.0)
    bookies.observe([], [], 1.0)
    assert bookies.lost(31.0, 30.0) == ["new"]


def test_a_missing_bookie_that_nothing_names_any_more_is_forgotten() -> None:
    bookies = LostBookies()
    bookies.observe(["a"], [], 0.0)
    bookies.forget(["b"])
    assert bookies.lost(100.0, 30.0) == []


def test_without_a_delay_a_missing_bookie_is_lost_at_once() -> None:
    bookies = LostBookies()
    bookies.observe(["a"], [], 0.0)
    assert bookies.lost(0.0, 0.0) == ["a"]
