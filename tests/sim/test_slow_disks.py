"""All disks slow at once while all replicas restart: somebody is answered, and soon once disks are well.

Seed by seed, on real bookies in virtual time; bugs planted into it must be found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ledger.client import placement
from ledger.core.placement import BookieState, choose_ensemble
from rsm_spark.core import leadership_progress
from rsm_spark.core.leadership_table import Phase
from tests.sets import examples
from tests.sim.slow_disk_world import SLOW, STALLED, SlowAnswerError, SlowDisks, play

_SEEDS = 3
_BUDGET = 8


@pytest.mark.parametrize("disks", [SLOW, STALLED])
def test_a_put_is_answered_while_disks_are_slow_and_soon_when_they_are_well(disks: SlowDisks) -> None:
    worlds = [play(seed, disks) for seed in range(examples(_SEEDS))]
    if disks is SLOW:
        assert all(world.answered_slow_s is not None for world in worlds)


def _counts_only_what_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    """Give every take-over up that takes longer than one of its steps may."""
    patch.setattr(leadership_progress, "_STEPS", dict.fromkeys(Phase, 0))


def _does_without_suspects(patch: pytest.MonkeyPatch) -> None:
    """Make new ledgers on bookies alone that have not failed lately: all of them may have."""

    def choose_trusted(count: int, bookies: Sequence[BookieState], **options: Any) -> Any:
        return choose_ensemble(count, [bookie for bookie in bookies if not bookie.is_suspect], **options)

    patch.setattr(placement, "choose_ensemble", choose_trusted)


@pytest.mark.parametrize(
    ("plant", "disks"), [(_counts_only_what_is_confirmed, SLOW), (_does_without_suspects, STALLED)]
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], disks: SlowDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(_BUDGET):
        try:
            play(seed, disks)
        except SlowAnswerError as error:
            print(f"found by seed {seed}: {error}")
            return
    pytest.fail(f"{_BUDGET} seeds found nothing")
