"""Bugs planted into plain logs: the simulation must find each within a number of seeds, else it proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.sim import log_plants as plants
from tests.sim.log_scenario import run_log_seed
from tests.sim.planted_bugs import find

_TROUBLE_S = 15.0

Plant = Callable[[pytest.MonkeyPatch], None]


class _Hunt(NamedTuple):
    """How a bug is looked for.

    Attributes:
        name: The invariant by which it must be found; "" = any.
        known: The seed that has found it before.
        faults: What of the trouble is not as drawn.
        settings: The same of the logs.

    """

    name: str = ""
    known: int = 0
    faults: dict[str, Any] = {}
    settings: dict[str, Any] = {}


HUNTS: dict[Plant, _Hunt] = {
    plants.acknowledges_what_was_only_sent: _Hunt(),
    plants.acknowledges_what_was_fenced: _Hunt(known=1),
    plants.calls_what_is_unknown_not_appended: _Hunt("denied"),
    plants.sends_again_before_the_end_is_known: _Hunt(),
    plants.sends_the_rest_again_in_another_order: _Hunt(),
    plants.leaves_out_what_was_in_flight_behind_the_failed_entry: _Hunt(),
    plants.does_not_claim: _Hunt(),
    plants.shows_what_is_not_confirmed: _Hunt(),
    plants.truncates_what_is_held: _Hunt("held-is-kept", known=59),
    plants.transaction_ids_begin_anew_after_a_failover: _Hunt("txid-rises"),
    plants.takes_any_transaction_id: _Hunt("txid-rises"),
    plants.forgets_the_end_mark: _Hunt("end-is-final"),
    plants.begins_one_too_late: _Hunt("no-gap", known=1),
    plants.answers_what_is_on_its_way: _Hunt(known=21),
    plants.forgets_the_producers_at_a_failover: _Hunt("producer-known"),
    plants.reads_the_note_and_nothing_behind_it: _Hunt("producer-known"),
    plants.notes_the_producers_in_the_first_ledger_alone: _Hunt("", known=8),
    plants.appends_a_repeated_sequence_again: _Hunt(),
    plants.refuses_by_a_table_that_may_be_old: _Hunt("producer-known"),
    plants.folds_the_note_behind_the_appends_of_its_entry: _Hunt(),
    plants.forgets_the_writers_of_batches_at_a_note: _Hunt("batch-known"),
    plants.appends_rows_without_their_mark: _Hunt("batch-known"),
    plants.judges_a_batch_while_its_rows_are_on_their_way: _Hunt("one-log", known=6),
    plants.refuses_a_batch_by_a_table_that_may_be_old: _Hunt("batch-known", known=7),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", [pytest.param(plant, id=plant.__name__) for plant in HUNTS])
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt = HUNTS[plant]
    plant(monkeypatch)
    find(
        lambda seed: run_log_seed(seed, _TROUBLE_S, faults=hunt.faults, settings=hunt.settings),
        100,
        known=hunt.known,
        name=hunt.name,
    )
