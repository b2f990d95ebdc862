"""A writer's rows are written once, whoever dies, lingers or is taken over from; planted bugs are found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rsm_spark.errors import CorruptLogError
from tests.sets import examples
from tests.sim.ledger_seeds import first_seed
from tests.sim.writer_plants import (
    BothDriversWrite,
    EndsWithoutItsParts,
    LostReplyIsANewCall,
    LostReplyIsNews,
    MarkerBeforeRows,
    OldBatchesAreNews,
    RowsBeforeMarker,
)
from tests.sim.writer_world import BrokenPromiseError, WriterWorld

_HUNT_SEEDS = 60


@pytest.mark.parametrize("calls", [False, True], ids=["chunks", "calls"])
def test_rows_are_written_once_and_batches_end_whole(*, calls: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first_seed(), first_seed() + examples(20)):
        world = WriterWorld(seed, calls=calls)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        counts.update(world.counts)
    for what in (
        "APPLIED",
        "DONE",
        "REFUSED",
        "drivers",
        "attempts",
        "failovers",
        "trims",
        "entries lost",
        "replies lost",
    ):
        assert counts[what], f"nothing of this kind happened: {what}"


def test_a_seed_takes_the_same_steps_each_time() -> None:
    worlds = [WriterWorld(7), WriterWorld(7)]
    for world in worlds:
        world.run()
    assert worlds[0].counts == worlds[1].counts


@pytest.mark.parametrize(
    "plant",
    [
        {"composer": MarkerBeforeRows},
        {"composer": RowsBeforeMarker},
        {"writers": BothDriversWrite},
        {"writers": LostReplyIsNews},
        {"writers": LostReplyIsANewCall, "calls": True},
        {"writers": OldBatchesAreNews},
        {"writers": EndsWithoutItsParts},
        {"restores_writers": False},
    ],
    ids=lambda plant: str(next(iter(plant.values()))),
)
def test_a_planted_bug_is_found(plant: dict[str, Any]) -> None:
    for seed in range(_HUNT_SEEDS):
        world = WriterWorld(seed, **plant)
        try:
            world.run()
        except (BrokenPromiseError, CorruptLogError):
            return
    pytest.fail(f"no seed of {_HUNT_SEEDS} found it")
