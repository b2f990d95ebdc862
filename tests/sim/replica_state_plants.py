"""Bugs to plant into what replicas make of the log: state, time, snapshots, trimming."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rsm_spark.core import batching
from rsm_spark.core.commands import ReportVerified
from rsm_spark.core.freshness import LoggedTimeGauge
from rsm_spark.core.kernel_tables import VerifiedSnapshot
from rsm_spark.core.reports import Judgement, judge_report
from rsm_spark.core.sessions import SessionTable
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.trimming import TrimRules, plan_trim
from rsm_spark.runtime import log_maintenance as upkeep
from rsm_spark.runtime.log_maintenance import LogMaintenance
from rsm_spark.runtime.verifying import Verifier
from rsm_spark.testing.counter_map import COUNTED, CounterMap
from rsm_spark.testing.peers import SimPeers
from rsm_spark.testing.snapshots import MemorySnapshots

__all__ = [
    "asks_the_wall_clock_in_apply",
    "believes_a_writer_s_manifest",
    "counts_deadlines_without_the_promotion",
    "keeps_the_last_three_snapshots_whatever_is_verified",
    "keeps_verdicts_in_the_leader_s_memory",
    "takes_late_entries_for_new_ones",
    "trims_with_one_copy",
]


def asks_the_wall_clock_in_apply(patch: pytest.MonkeyPatch) -> None:
    """What is applied depends on when: the fold looks at the clock of the simulation."""
    original = CounterMap.apply

    def apply(self: CounterMap, record_type: int, fields: tuple[Any, ...], revision: int) -> Any:
        if record_type == COUNTED and int(asyncio.get_running_loop().time() * 1000) % 1000 < 50:
            fields = (fields[0], fields[1] + 1)
        return original(self, record_type, fields, revision)

    patch.setattr(CounterMap, "apply", apply)


def counts_deadlines_without_the_promotion(patch: pytest.MonkeyPatch) -> None:
    """A new leader whose clock is ahead ends sessions at once (D11)."""
    original = SessionTable.due

    def due(self: SessionTable, now_ms: int, promoted_ms: int, ttl_ms: int, count_max: int) -> Any:
        return original(self, now_ms, 0, ttl_ms, count_max)

    patch.setattr(SessionTable, "due", due)


def takes_late_entries_for_new_ones(patch: pytest.MonkeyPatch) -> None:
    """What a replica reads was logged just now: with its own clock behind, an old state looks fresh."""
    original = LoggedTimeGauge.on_entry

    def on_entry(self: LoggedTimeGauge, leader_epoch: int, logged_ms: int, monotonic_ms: int) -> None:
        original(self, leader_epoch, logged_ms, monotonic_ms)
        self.is_known = True

    patch.setattr(LoggedTimeGauge, "on_entry", on_entry)


def trims_with_one_copy(patch: pytest.MonkeyPatch) -> None:

    def plan(chain: Any, verified: Any, rules: TrimRules, **options: Any) -> Any:
        return plan_trim(chain, verified, msgspec.structs.replace(rules, is_single_copy_allowed=True), **options)

    patch.setattr(upkeep, "plan_trim", plan)


def keeps_the_last_three_snapshots_whatever_is_verified(patch: pytest.MonkeyPatch) -> None:
    """Newer ones push out the one by which ledgers are trimmed (design D9), and the leader does not ask for it."""

    patch.setattr(LogMaintenance, "_look_what_is_held", _ask_nobody)
    patch.setattr(MemorySnapshots, "protect", lambda _self, _revisions: None)
    patch.setattr(MemorySnapshots, "lend", lambda self, manifest: self.read(manifest, is_summed=False))
    patch.setattr(Verifier, "_check_own", _do_nothing)


def keeps_verdicts_in_the_leader_s_memory(patch: pytest.MonkeyPatch) -> None:
    """What was read back is believed by whoever leads, and not logged: no follower protects it, no successor knows.

    Nor does the leader ask the places before it trims: they would say that they protect nothing.
    """
    patch.setattr(LogMaintenance, "_look_what_is_held", _ask_nobody)
    logged = vars(ReplicatedState)["verified"].fget
    assert logged is not None

    def remember(state: ReplicatedState, report: Any) -> Judgement:
        judgement = judge_report(state, report)
        if judgement.record is None or not isinstance(report, ReportVerified):
            return judgement
        vars(state).setdefault("believed", {})[report.place] = VerifiedSnapshot(*judgement.record[1])
        return Judgement()

    def verified(state: ReplicatedState) -> dict[str, VerifiedSnapshot]:
        return {**logged(state), **vars(state).get("believed", {})}

    patch.setattr(batching, "judge_report", remember)
    patch.setattr(ReplicatedState, "verified", property(verified))


async def _ask_nobody(self: LogMaintenance) -> None:
    self._held = {place: proof.revision for place, proof in self._context.state.verified.items()}


async def _do_nothing(_self: Any) -> None:
    await asyncio.sleep(0)


def believes_a_writer_s_manifest(patch: pytest.MonkeyPatch) -> None:
    """A snapshot counts as verified when its manifest is right: nobody has read its files."""

    async def download(self: SimPeers, replica_id: str, manifest: Any, *, read_back: bool) -> Any:
        await self._reach(replica_id, 0.5)
        return manifest

    patch.setattr(SimPeers, "download", download)
