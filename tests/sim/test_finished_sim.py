"""Readers of finished batches under faults: each batch whole, once, in order; and bugs that must be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rsm_spark.core import finished_batches
from rsm_spark.core.finished_batches import BatchWatch, EndedBatch, EntryPiece, PieceKind
from rsm_spark.logs.finished_reader import FinishedReader, ShownRecord
from tests.sim.ledger_seeds import first_seed
from tests.sim.log_scenario import run_log_seed
from tests.sim.planted_bugs import find

_SEEDS = 2


@pytest.mark.parametrize("seed_count", [_SEEDS, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_finished_batches_are_whole_whatever_fails(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = run_log_seed(first_seed() + number, has_finished=True)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts)
    print(dict(counts))
    assert counts["finished"] > 5 * seed_count


def _hands_out_rows_where_they_stand(patch: pytest.MonkeyPatch) -> None:
    true = finished_batches.entry_pieces

    def planted(*args: object) -> list[EntryPiece]:
        found = true(*args)  # type: ignore[arg-type]
        return [one._replace(kind=PieceKind.LOOSE) if one.kind is PieceKind.ROWS else one for one in found]

    patch.setattr(finished_batches, "entry_pieces", planted)


def _leaves_out_batches_that_began_before_it_read(patch: pytest.MonkeyPatch) -> None:
    true = BatchWatch.take

    def take(self: BatchWatch, *args: Any) -> Iterator[tuple[int, int] | EndedBatch]:
        for one in true(self, *args):
            if not isinstance(one, EndedBatch) or one.places is not None:
                yield one

    patch.setattr(BatchWatch, "take", take)


def _begins_a_batch_anew_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    true = FinishedReader._rows

    async def rows(self: FinishedReader, *args: object) -> list[ShownRecord]:
        found = await true(self, *args)  # type: ignore[arg-type]
        if len(found) > 1 and not self._context.rng.randrange(9):
            self._done = 0
        return found

    patch.setattr(FinishedReader, "_rows", rows)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (_hands_out_rows_where_they_stand, "finished-whole"),
        (_leaves_out_batches_that_began_before_it_read, "finished"),
        (_begins_a_batch_anew_after_a_failure, "finished"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    find(lambda seed: run_log_seed(seed, 8.0, has_finished=True), 30, name="" if name == "finished" else name)
