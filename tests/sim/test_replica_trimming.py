"""Trimming under faults: ledgers go soon after they are verified, one disk is lost, and nothing is lost.

Each seed rolls, verifies and trims several times a second while replicas are killed, paused and cut off. The judges of
`tests.sim.replica_witness` see every chain write and every deletion; a replica whose disk was lost has to come back by
what the others hold. Bugs planted into the rules of trimming must be found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rsm_spark.core import trimming
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import TrimDue
from rsm_spark.core.trimming import SnapshotProof, TrimPlan, TrimRules, plan_trim
from rsm_spark.runtime import log_maintenance as upkeep
from tests.sim.replica_scenario import Outcome, Scenario, run_seed

_TROUBLE_S = 25.0
_SEEDS = 12
# No snapshots by bytes: a burst of them outruns the report on the one that was read back.
_SETTINGS: dict[str, Any] = {
    "roll_s": 1.0,
    "snapshot_s": 2.0,
    "snapshot_bytes": 0,
    "verify_s": 0.5,
    "trim_s": 0.5,
    "retention_ms": 2_000,
    "checkpoint_records": 20,
}


def _run(seed: int) -> Outcome:
    """Run one seed: one disk is lost in it, at any time, of any replica."""

    def watch(scenario: Scenario) -> None:
        rng, cluster = scenario.simulation.random("the disk"), scenario.cluster
        host = rng.choice(cluster.hosts)

        def lose() -> None:
            scenario.tell(f"FAULT the disk of {host.name} is lost")
            if host.is_up:
                host.kill()
            cluster.wipe(host)

        def on_ledger(name: str, ledger_id: int, _number: int) -> None:
            if name == "delete":
                scenario.tell(f"ledger {ledger_id} is deleted")
                deleted.append(ledger_id)

        scenario.simulation.after(rng.uniform(8.0, _TROUBLE_S), lose)
        assert scenario.world is not None
        scenario.world.listeners.append(on_ledger)

    deleted: list[int] = []
    faults = {"lose_disk": 0.0, "rot_snapshot": 0.0}
    outcome = run_seed(seed, _TROUBLE_S, settings=_SETTINGS, faults=faults, beats=False, watch=watch)
    outcome.counts["deleted"] = len(deleted)
    return outcome


def test_what_is_trimmed_is_never_missed_whichever_disk_is_lost() -> None:
    outcomes = [_run(seed) for seed in range(_SEEDS)]
    for outcome in outcomes:
        assert outcome.broken is None, outcome.report()
    assert sum(outcome.counts["deleted"] > 0 for outcome in outcomes) > _SEEDS // 2


def _forgets_what_is_being_deleted(patch: pytest.MonkeyPatch) -> None:
    def _on_trim_due(self: LeaderProtocol, event: TrimDue) -> Any:
        assert self.chain is not None
        return self._amend(ledgers=self.chain.ledgers[len(event.ledger_ids) :])

    patch.setattr(LeaderProtocol, "_on_trim_due", _on_trim_due)


def _takes_one_disk_for_two(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trimming, "_DOMAINS_WANTED", 1)


def _trims_without_any_proof(patch: pytest.MonkeyPatch) -> None:
    def _plan(chain: Any, verified: dict[str, SnapshotProof], rules: TrimRules, **where: Any) -> TrimPlan:
        return plan_trim(chain, verified, TrimRules(rules.retention_ms, unverified_revision=1 << 62), **where)

    patch.setattr(upkeep, "plan_trim", _plan)


@pytest.mark.parametrize(("plant", "budget"), [
    (_forgets_what_is_being_deleted, 10),
    (_trims_without_any_proof, 40),
    (_takes_one_disk_for_two, 20),
])  # fmt: skip
def test_planted_bugs_of_trimming_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(_run(seed).broken for seed in range(budget)), f"not found in {budget} seeds"
