"""Logged time."""

from __future__ import annotations

from rsm_spark.runtime.leading import LoggedClock


def test_logged_time_goes_on_from_the_log_when_the_wall_clock_is_behind() -> None:
    clock = LoggedClock(logged_ms=5_000, wall_ms=1_000, monotonic_s=10.0)
    assert clock.read(5_000, 10.0) == 5_000
    assert clock.read(5_000, 12.5) == 7_500


def test_logged_time_never_falls() -> None:
    clock = LoggedClock(logged_ms=5_000, wall_ms=6_000, monotonic_s=10.0)
    assert clock.read(9_000, 11.0) == 9_000
