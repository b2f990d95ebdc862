"""A take-over gets somewhere while it comes further, a leader while its log moves; who goes round does not."""

from __future__ import annotations

from typing import Any, NamedTuple

from rsm_spark.core.leadership_progress import LeadershipProgress
from rsm_spark.core.leadership_table import Phase
from rsm_spark.core.state import StateTip

_TIP = StateTip(5, b"h", 2, 1_000, is_sealed=False)


class At(NamedTuple):
    """A protocol, as far as progress looks at it."""

    phase: Phase
    has_recovered: bool = False


def still(*looks: tuple[float, Any, StateTip]) -> list[float]:
    """Return how long it had not moved, at each look: (time, where it stands, tip)."""
    progress = LeadershipProgress(_TIP, 0.0)
    found = []
    for now_s, at, tip in looks:
        progress.look(tip, at, now_s)
        found.append(progress.still_s)
    return found


def test_each_step_of_a_take_over_has_its_own_time() -> None:
    assert still(
        (4.0, At(Phase.CLAIM), _TIP),
        (8.0, At(Phase.RECOVER), _TIP),
        (12.0, At(Phase.RECOVER), _TIP),
        (16.0, At(Phase.RECOVER, has_recovered=True), _TIP),
        (20.0, At(Phase.CREATE, has_recovered=True), _TIP),
        (24.0, At(Phase.CHAIN, has_recovered=True), _TIP),
        (28.0, At(Phase.SENT, has_recovered=True), _TIP),
        (32.0, At(Phase.SENT, has_recovered=True), _TIP),
    ) == [4.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 4.0]


def test_who_makes_one_ledger_after_the_other_gets_nowhere() -> None:
    round_and_round = [Phase.CLOSE, Phase.CREATE, Phase.CHAIN, Phase.SENT] * 3
    looks = [(float(n), At(phase), _TIP) for n, phase in enumerate([Phase.SENT, *round_and_round], 1)]
    assert still(*looks) == [0.0, *map(float, range(1, 13))]


def test_a_log_that_moves_begins_the_time_anew() -> None:
    moved = StateTip(6, b"i", 3, 1_500, is_sealed=False)
    assert still((5.0, At(Phase.LEAD), moved), (9.0, At(Phase.SENT), moved), (12.0, At(Phase.CREATE), moved)) == [
        0.0,
        4.0,
        7.0,
    ]
