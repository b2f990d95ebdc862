"""Bugs planted into replicas: the simulation must find each within a recorded number of seeds, else it proves nothing.

The eighteen of the model (`tests.model`), and where they are planted in the code:

    again_at_once             proposes_again_before_the_end_is_known
    failed_is_not_applied     calls_a_failed_add_not_applied
    fresh_version             writes_the_chain_from_a_fresh_version
    no_claim                  takes_over_without_a_claim
    entry_first               writes_entries_though_the_chain_write_failed
    read_at_once              read_is_answered_at_once
    read_joins_what_was_sent  read_joins_the_batch_already_sent
    no_at_once                negative_reply_is_not_logged: its answer waits for the entry, so this is the whole of it
    replies_lost              replies_are_forgotten_by_snapshots
    above_lac                 follower_applies_above_confirmed, empty_entry_vouches_for_itself
    successor_ends            follower_takes_the_successor_for_the_end
    not_rebuilt               state_is_not_rebuilt_after_a_deposition
    orphan_own                deletes_its_own_ledger_when_the_chain_write_fails
    orphan_early              deletes_orphans_by_a_chain_from_before_its_claim
    no_fence                  does_not_recover_the_last_ledger
    late_ack                  confirms_without_an_acknowledgement
    reply_early               replies_before_confirmation
    one_copy                  trims_with_one_copy

Those of the model's fence checks are in `test_read_checks`, which plays them move by move, and partly here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ledger.testing.metadata import MetadataRates
from rsm_spark.log.commit_log import LogReader
from tests.sim import read_plants
from tests.sim import replica_plants as plants
from tests.sim import replica_state_plants as state_plants
from tests.sim.planted_bugs import find
from tests.sim.replica_scenario import run_seed

_TROUBLE_S = 25.0

_LATE = MetadataRates(lost_request_rate=0.1, lost_reply_rate=0.1, late_rate=1.0, lag_rate=0.0)

_TRIMMING = {"retention_ms": 1_000, "trim_s": 0.5, "snapshot_s": 2.0, "roll_s": 2.0}

_OLD_STATES: dict[str, Any] = {
    "skew": 4.0,
    "expire_leader": 4.0,
    "ambush": 4.0,
    "pause_s": 4.0,
    "kill": 2.0,
    "cut_bookies": 2.0,
    "interval_s": 0.6,
    "heal_s": 4.0,
}

_TWO_LEADERS: dict[str, Any] = {"elect_wrongly": 8.0, "interval_s": 0.6}

Plant = Callable[[pytest.MonkeyPatch], None]


class _Hunt(NamedTuple):
    """How a bug is looked for.

    Attributes:
        budget: Seeds within which it must be found.
        faults: What of the trouble is not as drawn: what the bug needs to show.
        settings: The same of the replicas.
        is_slow: It takes too long for every run.
        name: The invariant by which it must be found; "" = any.
        known: The seed that has found it before.
        leases: Whether leaders take leases for reads.

    """

    budget: int
    faults: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    is_slow: bool = False
    name: str = ""
    known: int = 0
    leases: bool = False


HUNTS: dict[Plant, _Hunt] = {
    plants.proposes_again_before_the_end_is_known: _Hunt(40),
    plants.calls_a_failed_add_not_applied: _Hunt(40, known=4),
    plants.writes_the_chain_from_a_fresh_version: _Hunt(40, known=4),
    plants.takes_over_without_a_claim: _Hunt(40),
    plants.writes_entries_though_the_chain_write_failed: _Hunt(40, known=4),
    plants.does_not_recover_the_last_ledger: _Hunt(40, known=8),
    plants.replies_before_confirmation: _Hunt(40),
    plants.follower_applies_above_confirmed: _Hunt(40),
    plants.empty_entry_vouches_for_itself: _Hunt(40, known=8),
    plants.follower_takes_the_successor_for_the_end: _Hunt(40, known=2),
    plants.negative_reply_is_not_logged: _Hunt(40),
    plants.what_is_given_up_stays_answered: _Hunt(40),
    plants.read_joins_the_batch_already_sent: _Hunt(40),
    plants.read_is_answered_at_once: _Hunt(40),
    plants.state_is_not_rebuilt_after_a_deposition: _Hunt(40, known=1),
    plants.replies_are_forgotten_by_snapshots: _Hunt(40),
    plants.confirms_without_an_acknowledgement: _Hunt(40, known=1),
    plants.deletes_its_own_ledger_when_the_chain_write_fails: _Hunt(
        60, {"metadata": _LATE}, {"retry_s": 0.01, "roll_s": 0.5}, known=1
    ),
    plants.deletes_orphans_by_a_chain_from_before_its_claim: _Hunt(
        100, {"ambush": 6.0, "elect_wrongly": 4.0, "pause_s": 2.0}, {"roll_s": 0.5}, known=15
    ),
    plants.tells_readers_what_was_only_sent: _Hunt(20, name="lac-monotonic", known=4),
    plants.takes_what_one_bookie_says: _Hunt(20, name="lac-monotonic"),
    read_plants.answers_whatever_the_bookies_say: _Hunt(
        40, _TWO_LEADERS, {"idle_entry_s": 5.0}, name="stale", known=13
    ),
    state_plants.trims_with_one_copy: _Hunt(60, settings=_TRIMMING),
    state_plants.keeps_the_last_three_snapshots_whatever_is_verified: _Hunt(
        60, settings=_TRIMMING | {"verify_s": 8.0}, known=8
    ),
    state_plants.keeps_verdicts_in_the_leader_s_memory: _Hunt(40, settings=_TRIMMING),
    state_plants.believes_a_writer_s_manifest: _Hunt(60, {"rot_snapshot": 5.0}, _TRIMMING),
    state_plants.takes_late_entries_for_new_ones: _Hunt(
        60, _OLD_STATES, {"snapshot_s": 0.0, "snapshot_bytes": 0, "roll_s": 20.0}, name="stale", known=14
    ),
    state_plants.asks_the_wall_clock_in_apply: _Hunt(40),
    state_plants.counts_deadlines_without_the_promotion: _Hunt(
        40, {"skew": 3.0, "kill_leader": 3.0}, {"session_ttl_ms": 60_000}
    ),
}


def _parameters() -> list[Any]:
    return [
        pytest.param(plant, id=plant.__name__, marks=[pytest.mark.slow] if hunt.is_slow else [])
        for plant, hunt in HUNTS.items()
    ]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", _parameters())
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt = HUNTS[plant]
    plant(monkeypatch)
    find(
        lambda seed: run_seed(
            seed, _TROUBLE_S, faults=hunt.faults, settings=hunt.settings, beats=False, told=False, leases=hunt.leases
        ),
        hunt.budget,
        known=hunt.known,
        name=hunt.name,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_bookie_that_lags_does_no_harm_while_readers_keep_the_highest_lac(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plants.one_bookie_lags(monkeypatch)
    outcome = run_seed(seed, _TROUBLE_S)
    assert outcome.broken is None, outcome.report()


@pytest.mark.parametrize("seed", range(3))
def test_reading_beyond_the_lac_does_no_harm_while_envelopes_decide(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogReader, "_read_some", plants.peek)
    outcome = run_seed(seed, _TROUBLE_S)
    assert outcome.broken is None, outcome.report()
