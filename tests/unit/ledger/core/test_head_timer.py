"""Time for which one entry has been the oldest one, as told by looks that may come late."""

from __future__ import annotations

from ledger.core.head_timer import HeadTimer


def test_the_time_of_the_oldest_entry_begins_anew_with_the_next_one_and_after_a_pause() -> None:
    timer = HeadTimer()
    assert not timer.has_stood(None, 1.0, 1.0)
    assert not timer.has_stood(1, 1.4, 1.0)
    assert not timer.has_stood(1, 1.9, 1.0)
    assert timer.has_stood(1, 2.4, 1.0)
    assert not timer.has_stood(2, 2.5, 1.0)
    assert not timer.has_stood(2, 3.1, 1.0)  # Late.
    assert not timer.has_stood(2, 3.6, 1.0)
    timer.reset()
    assert not timer.has_stood(2, 4.1, 1.0)
