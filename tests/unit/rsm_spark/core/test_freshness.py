"""How old a state is, and which reads it may answer."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.core.freshness import (
    END_KNOWN_MS,
    LINEARIZABLE,
    STALE,
    Freshness,
    LeaderClock,
    LoggedTimeGauge,
    ReadKind,
    ReadVerdict,
    at_least,
    bounded,
    judge_read,
)
from rsm_spark.errors import InvalidCommandError

HOUR_MS = 3_600_000


def told(*entry: int) -> LoggedTimeGauge:
    """Return a gauge whose leader told its clock when that entry came."""
    gauge = LoggedTimeGauge()
    tell(gauge, *entry)
    return gauge


def tell(gauge: LoggedTimeGauge, leader_epoch: int, logged_ms: int, monotonic_ms: int) -> None:
    gauge.on_entry(leader_epoch, logged_ms, monotonic_ms)
    gauge.on_clock(LeaderClock(leader_epoch, logged_ms), monotonic_ms)


def test_an_entry_alone_tells_no_age() -> None:
    """It may have been confirmed long after it was logged, and told long after that."""
    gauge = LoggedTimeGauge()
    gauge.on_entry(1, 50_000, 100)
    assert not gauge.is_known
    assert gauge.lag_ms(50_000, 100) is None
    gauge.on_clock(LeaderClock(2, 90_000), 110)  # A leader whose entries have not come yet.
    assert gauge.lag_ms(50_000, 110) is None
    gauge.on_clock(LeaderClock(1, 52_300), 120)
    assert gauge.lag_ms(40_000, 120) == 2_300


def test_a_state_is_as_old_as_the_time_since_its_newest_entry() -> None:
    gauge = told(1, 50_000, 100)
    assert gauge.lag_ms(50_000, 100) == 0
    assert gauge.lag_ms(50_700, 800) == 700


def test_a_state_far_behind_is_old_although_its_entries_come_now() -> None:
    gauge = told(1, 50_000, 100)
    assert gauge.lag_ms(50_000 + HOUR_MS, 100) == HOUR_MS


def test_a_clock_that_is_behind_does_not_make_a_cut_off_replica_look_fresh() -> None:
    gauge = told(1, 50_000, 100)
    wall_ms = 50_000 - HOUR_MS
    assert gauge.lag_ms(wall_ms, 100) == 0
    assert gauge.lag_ms(wall_ms + 5_000, 5_100) == 5_000


def test_old_entries_do_not_look_new_to_a_clock_that_is_behind() -> None:
    gauge = told(1, 50_000, 100)
    gauge.on_entry(1, 52_000, 9_100)  # Logged 2 s after the first, here 9 s after it: 7 s late.
    assert gauge.lag_ms(50_000 - HOUR_MS, 9_100) == 7_000


def test_logged_time_ahead_of_every_clock_is_followed_and_forgotten_with_its_epoch() -> None:
    gauge = told(1, 50_000 + HOUR_MS, 0)
    assert gauge.lag_ms(50_300, 300) == 300
    # Nobody led for a minute: the next leader goes on where the log stood.
    tell(gauge, 2, 50_001 + HOUR_MS, 60_000)
    assert gauge.lag_ms(110_000, 60_010) == 10


def test_a_state_that_was_booted_again_from_before_the_present_epoch_is_of_unknown_age() -> None:
    """Nobody led for a minute, in which logged time stood still; then the state was thrown away."""
    gauge = told(1, 50_000 + HOUR_MS, 0)
    tell(gauge, 2, 50_001 + HOUR_MS, 60_000)
    gauge.on_entry(2, 51_001 + HOUR_MS, 61_000)
    gauge.logged_ms = 50_000 + HOUR_MS
    assert gauge.lag_ms(111_000, 61_000) is None
    gauge.logged_ms = 50_001 + HOUR_MS  # What it has is of the present epoch.
    assert gauge.lag_ms(111_000, 61_000) == 1_000


@pytest.mark.parametrize(
    ("freshness", "revision", "known", "lag_ms", "verdict"),
    [
        (STALE, 0, 90, None, ReadVerdict.SERVE),
        (at_least(7), 7, 7, HOUR_MS, ReadVerdict.SERVE),
        (at_least(7), 6, 7, 0, ReadVerdict.WAIT),
        (at_least(), 0, 7, None, ReadVerdict.SERVE),
        (bounded(max_lag_ms=500), 5, 90, 500, ReadVerdict.SERVE),
        (bounded(max_lag_ms=500), 90, 90, 501, ReadVerdict.TOO_STALE),
        (bounded(max_lag_ms=500), 0, 0, None, ReadVerdict.TOO_STALE),
        (bounded(max_lag_revisions=10), 80, 90, END_KNOWN_MS, ReadVerdict.SERVE),
        (bounded(max_lag_revisions=10), 79, 90, 0, ReadVerdict.TOO_STALE),
        (bounded(max_lag_revisions=10), 90, 90, END_KNOWN_MS + 1, ReadVerdict.TOO_STALE),
        (bounded(max_lag_ms=9_000, max_lag_revisions=10), 90, 90, 9_000, ReadVerdict.SERVE),
        (bounded(max_lag_ms=0), 90, 90, 0, ReadVerdict.SERVE),
        (LINEARIZABLE, 90, 90, 0, ReadVerdict.TOO_STALE),
    ],
)
def test_a_read_is_served_by_a_state_that_is_new_enough(
    freshness: Freshness, revision: int, known: int, lag_ms: int | None, verdict: ReadVerdict
) -> None:
    assert judge_read(freshness, revision, known, lag_ms) is verdict


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": ReadKind.BOUNDED},
        {"kind": ReadKind.BOUNDED, "max_lag_ms": -1},
        {"kind": ReadKind.SESSION, "min_revision": -1},
        {"kind": ReadKind.SESSION, "max_lag_ms": 1},
        {"kind": ReadKind.STALE, "min_revision": 1},
        {"kind": ReadKind.LINEARIZABLE, "max_lag_revisions": 0},
    ],
)
def test_a_freshness_that_means_nothing_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidCommandError):
        Freshness(**fields)
