"""Bugs planted into partitioned logs: the simulation must find each within a number of seeds, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.sim import partition_plants as plants
from tests.sim.partition_scenario import (
    run_batched_seed,
    run_finished_seed,
    run_partition_seed,
    run_produced_seed,
    run_shared_seed,
)
from tests.sim.planted_bugs import find

_TROUBLE_S = 15.0

Plant = Callable[[pytest.MonkeyPatch], None]


class _Hunt(NamedTuple):
    """How a bug is looked for.

    Attributes:
        name: The invariant by which it must be found; "" = any.
        known: The seed that has found it before.
        has_producers: Whether producers append, too.
        is_shared: Whether readers share a subscription.
        has_batches: Whether writers write batches.
        has_finished: Whether some read finished batches only, too.

    """

    name: str = ""
    known: int = 0
    has_producers: bool = False
    is_shared: bool = False
    has_batches: bool = False
    has_finished: bool = False


HUNTS: dict[Plant, _Hunt] = {
    plants.crosses_early: _Hunt("key-order"),
    plants.crosses_when_its_own_partition_was_read: _Hunt("key-order"),
    plants.does_not_look_at_the_layout_again: _Hunt("key-order", known=3),
    plants.writes_under_a_stale_layout: _Hunt("key-order", known=1),
    plants.ends_a_generation_before_all_is_confirmed: _Hunt("key-order"),
    plants.goes_on_while_it_grows: _Hunt("key-order", known=4),
    plants.grows_what_another_writer_has_claimed: _Hunt("key-order", known=4),
    plants.does_not_claim_the_layout: _Hunt(),
    plants.does_not_look_whether_its_claim_stands: _Hunt("key-order", known=12),
    plants.says_that_the_log_has_grown_and_does_not_look_what_is_in_it: _Hunt("one-place", has_producers=True, known=1),
    plants.does_not_wait_for_the_other_readers_of_its_subscription: _Hunt("shared-order", known=5, is_shared=True),
    plants.looks_for_pieces_by_the_present_layout_alone: _Hunt(has_batches=True),
    plants.takes_a_chunk_for_appended_when_one_piece_of_it_is: _Hunt(has_batches=True, known=1),
    plants.answers_a_chunk_when_one_step_of_it_is_done: _Hunt(has_batches=True),
    plants.judges_a_chunk_while_its_pieces_are_on_their_way: _Hunt(has_batches=True, known=1),
    plants.refuses_a_batch_by_tables_that_may_be_old: _Hunt("batch-known", has_batches=True, known=2),
    plants.marks_a_batch_and_appends_its_rows_without_a_mark: _Hunt(has_batches=True),
    plants.tells_no_partition_of_an_end: _Hunt("finished-all", has_finished=True, known=1),
    plants.tells_all_partitions_of_an_end_at_once: _Hunt(has_finished=True),
    plants.ends_the_log_and_waits_for_no_batch: _Hunt("finished-all", has_finished=True, known=14),
    plants.hands_out_rows_of_batches_as_they_come: _Hunt("finished-early", has_finished=True),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", [pytest.param(plant, id=plant.__name__) for plant in HUNTS])
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt = HUNTS[plant]
    plant(monkeypatch)
    run = run_produced_seed if hunt.has_producers else run_shared_seed if hunt.is_shared else run_partition_seed
    run = run_batched_seed if hunt.has_batches else run
    run = run_finished_seed if hunt.has_finished else run
    find(lambda seed: run(seed, _TROUBLE_S), 40, known=hunt.known, name=hunt.name)
