"""Bugs planted into brokers and workers: the simulation must find each within a recorded number of seeds.

A simulation that finds nothing proves nothing until it finds what is known to be there. Some of them are what workers
and leaders do to each other when one is paused (the paused leader delivers late), some are Majordodo's (code pools and
modes that snapshots leave out, the wall clock in `apply`, positions of snapshots, batches that ignore what each task
asks for or are sent twice, transactions that are found to be unknown only after their tasks were logged).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from tests.sim import broker_plants as plants
from tests.sim.broker_scenario import BOUND, LOCKED, run_seed
from tests.sim.planted_bugs import find

Plant = Callable[[pytest.MonkeyPatch], None]


class _Hunt(NamedTuple):
    """How a bug is looked for.

    Attributes:
        budget: Seeds within which it must be found.
        name: The invariant by which it must be found; "" = any.
        faults: What of the trouble is not as drawn: what the bug needs to show.
        work: The same of what clients do.
        network: The same of the network.
        known: The seed that has found it before.

    """

    budget: int
    name: str = ""
    faults: dict[str, Any] = {}
    work: Mapping[str, Any] = {}
    network: Mapping[str, Any] = {}
    known: int = 0


_STALLS = {"stall_rate": 0.1}
_FAILOVERS = {"kill_leader": 15.0}
_SCARCE = {"resources": 0.7, "govern": 0.7}

HUNTS: dict[Plant, _Hunt] = {
    plants.sends_assignments_before_they_are_confirmed: _Hunt(5, "confirmed-first"),
    plants.heeds_streams_that_were_given_up_and_lower_epochs: _Hunt(
        40, "", {"break_stream": 15.0, "elect_wrongly": 6.0}, {"at_most_once": 0.7}, _STALLS, known=2
    ),
    plants.believes_a_hello_that_comes_late: _Hunt(60, "", {}, {"at_most_once": 0.7}, _STALLS, known=8),
    plants.counts_what_was_never_delivered_as_lost: _Hunt(10, "given-back"),
    plants.runs_again_what_was_delivered_and_is_lost: _Hunt(10, "at-most-once", known=4),
    plants.gives_leases_no_new_time_at_promotion: _Hunt(10, "lease"),
    plants.matches_results_by_epoch: _Hunt(30, "at-least-once"),
    plants.matches_results_by_task_alone: _Hunt(40, known=3),
    plants.acknowledges_ends_before_they_are_confirmed: _Hunt(5, "acked-ends"),
    plants.repeats_batches_that_have_no_key: _Hunt(15, "", _FAILOVERS, {"keyed": 0.0}),
    plants.forgets_request_keys_at_once: _Hunt(15, known=2),
    plants.gives_the_tasks_of_a_batch_what_the_first_one_asks_for: _Hunt(5, "no-phantom"),
    plants.logs_tasks_of_transactions_that_are_over: _Hunt(20, known=9),
    plants.blocked_task_uses_up_the_place_of_its_type: _Hunt(30, "work-conserving"),
    plants.wakes_only_the_first_that_is_blocked: _Hunt(40, "work-conserving", known=3),
    plants.releases_resources_twice: _Hunt(20, "limits", {}, _SCARCE, known=2),
    plants.does_not_count_what_runs_at_a_rebuild: _Hunt(40, "limits", _FAILOVERS, _SCARCE, known=14),
    plants.releases_slots_when_it_tries_again: _Hunt(10, "slot-exclusive"),
    plants.fires_deadlines_by_another_clock: _Hunt(10, "time-is-data"),
    plants.purges_before_the_end_is_known: _Hunt(15, known=3),
    plants.asks_the_wall_clock_in_apply: _Hunt(5, "same-state"),
    plants.leaves_code_pools_out_of_snapshots: _Hunt(10),
    plants.leaves_modes_out_of_snapshots: _Hunt(10),
    plants.names_a_later_position_in_snapshots: _Hunt(15, known=2),
    plants.lets_payloads_of_dead_letters_go: _Hunt(20, "legal"),
    plants.lets_tenants_lift_an_operators_hold: _Hunt(5, "hold-owner", {}, LOCKED),
    plants.leaves_quotas_unchecked_after_a_failover: _Hunt(20, "quota", _FAILOVERS, LOCKED, known=14),
    plants.forgets_a_workers_tenants_when_it_offers_something_else: _Hunt(10, "worker-scope", {}, BOUND, known=2),
    plants.gives_workers_the_tasks_of_whoever_is_first: _Hunt(5, "worker-scope", {}, BOUND),
    plants.lets_workers_wait_for_tenants_for_ever: _Hunt(20, "work-conserving", {}, BOUND, known=4),
    plants.forgets_holds_at_restore: _Hunt(40, "holds", _FAILOVERS, {"govern": 0.7}, known=14),
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", HUNTS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_into_the_broker_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt = HUNTS[plant]
    plant(monkeypatch)
    find(
        lambda seed: run_seed(seed, faults=hunt.faults, work=hunt.work, network=hunt.network),
        hunt.budget,
        known=hunt.known,
        name=hunt.name,
    )
