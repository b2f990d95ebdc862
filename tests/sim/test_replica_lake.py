"""Replicas that keep a lake: what is trimmed, it holds; with every disk gone they come back from it and from the log.

After the trouble and the calm of each seed every disk is lost at once. Then the newest snapshot of the lake is damaged
and all disks are lost again: there is one before it that the log continues, or everybody refuses and says from where
to where revisions are missing.

`python -m tests.sim.test_replica_lake SEED` replays one seed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rsm_spark.core.commands import Report, ReportWithdrawn
from rsm_spark.errors import MissingLogError
from rsm_spark.runtime.lake_service import LAKE_PLACE, LakeService
from rsm_spark.runtime.log_maintenance import LogMaintenance
from rsm_spark.testing.snapshots import MemorySnapshots, digest_of
from tests.sim.ledger_seeds import first_seed
from tests.sim.replica_judge import CALM_S_MAX
from tests.sim.replica_scenario import Outcome, Scenario, run_scenario

_TROUBLE_S = 20.0
_SEEDS = 12
_TABLES_S = (0.0, 5.0)
_SETTINGS: dict[str, Any] = {
    "roll_s": 1.0,
    "snapshot_s": 2.0,
    "snapshot_bytes": 0,
    "verify_s": 0.5,
    "lake_s": 2.0,
    "trim_s": 0.5,
    "retention_ms": 2_000,
    "checkpoint_records": 20,
}


class _Lake(MemorySnapshots):
    """Snapshots that outlive all disks."""


class _Resurrection(Scenario):
    """One seed's world; it ends with every disk lost, twice. What follows a snapshot in the lake may take its time."""

    def __init__(self, seed: int) -> None:
        self.lake = _Lake()
        super().__init__(seed, on_bookies=False, trouble_s=_TROUBLE_S, faults={}, settings=_SETTINGS, lake=self.lake)
        self.ends: Counter[str] = Counter()
        self._disks = self.simulation.random("disks")
        self.cluster.listeners.append(self._watch)

    def _watch(self, name: str, who: str, what: Any) -> None:
        """Have a replica take its time for the lake; and nothing verified is withdrawn that the lake has."""
        if name != "made":
            return
        context, verifier = what._context, what._care.verifier
        tell = verifier.tell

        async def _take_time(work: Callable[[], Any]) -> Any:
            await asyncio.sleep(0.002)
            before = self.lake.manifests()
            found = work()
            if self.lake.manifests() != before:
                await asyncio.sleep(self._disks.choice(_TABLES_S))
            return found

        async def _tell(report: Report) -> None:
            # What has rotted stands there, too, and is withdrawn with what is wrong with it.
            gone = f"{report.place}: {report.reason}" if isinstance(report, ReportWithdrawn) else ""
            verified = context.state.verified.get(LAKE_PLACE)
            if gone.startswith(f"{LAKE_PLACE}: ") and gone.endswith("is gone or damaged") and verified is not None:
                if any(one.revision == verified.revision for one in self.lake.manifests()):
                    self.cluster.ghosts.fail("what-is-there-counts", f"{who} withdraws {gone}")
            await tell(report)

        context.run_blocking, verifier.tell = _take_time, _tell

    async def main(self) -> None:
        """Work, trouble, calm; then every disk is lost."""
        await super().main()
        if not self.lake.manifests():
            return
        self._lose_all("every disk is lost")
        await self.judge._until(self.judge._all_are_there, "all come back from the lake and the log")
        self.judge._compare()
        self.lake.rot(self.rng)
        self._lose_all("every disk is lost, and the newest snapshot of the lake is damaged")
        if self._is_recoverable():
            self.ends["came back without the newest"] += 1
            await self.judge._until(self.judge._all_are_there, "all come back from an older snapshot of the lake")
            self.judge._compare()
        else:
            self.ends["refused"] += 1
            await self._refuses()

    def _lose_all(self, what: str) -> None:
        self.tell(f"FAULT {what}")
        for host in self.cluster.hosts:
            host.kill()
        for host in self.cluster.hosts:
            self.cluster.wipe(host)

    def _is_recoverable(self) -> bool:
        chain = self.chain.chain
        assert chain is not None
        if chain.ledgers[0].ledger_id == chain.first_ledger_id:
            return True
        present = [ledger.ledger_id for ledger in chain.ledgers]
        return any(kept.ledger_id in present and digest_of(rows) == kept.digest for kept, rows in self.lake._kept)

    async def _refuses(self) -> None:
        """Everybody says what is missing, up to where the log begins; nobody begins with less."""
        cluster, chain = self.cluster, self.chain.chain
        assert chain is not None
        seen = len(cluster.stopped)
        await asyncio.sleep(CALM_S_MAX / 4)
        reasons = [reason for _, reason in cluster.stopped[seen:]]
        if cluster.replicas or not reasons:
            cluster.ghosts.fail("acked-is-durable", f"{sorted(cluster.replicas)} run without what has been trimmed")
        for reason in reasons:
            last = chain.ledgers[0].first_revision - 1
            if not isinstance(reason, MissingLogError) or reason.last_revision != last:
                cluster.ghosts.fail("no-crash", f"{reason!r} does not name the revisions up to {last}")


def _run(seed: int) -> tuple[Outcome, _Resurrection]:
    scenario = _Resurrection(seed)
    return run_scenario(scenario, limit_s=_TROUBLE_S + 9 * CALM_S_MAX, command="tests.sim.test_replica_lake"), scenario


@pytest.mark.parametrize("seed_count", [_SEEDS, pytest.param(400, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_with_every_disk_gone_the_lake_and_the_log_give_the_same_state(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome, scenario = _run(first_seed() + number)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts + scenario.ends)
    print(dict(counts))
    assert counts["trimmed"] > 2 * seed_count
    if seed_count > _SEEDS:
        assert counts["came back without the newest"] > 0
        assert counts["refused"] > 0


def _two_disks_are_enough(patch: pytest.MonkeyPatch) -> None:
    """A lake is kept, and not waited for."""
    rules = LogMaintenance._rules
    patch.setattr(
        LogMaintenance,
        "_rules",
        lambda self, unverified: msgspec.structs.replace(rules(self, unverified), wanted_place=""),
    )


def _reads_nothing_back(patch: pytest.MonkeyPatch) -> None:
    """What the manifest says is in the lake is taken for what is there; half of what is written is not."""

    def write_badly(self: _Lake, manifest: Any, rows: Any) -> Any:
        held = list(rows)
        return MemorySnapshots.write(self, manifest, held[:-1] if manifest.revision % 2 else held)

    async def believe(_self: LakeService, _manifest: Any) -> None:
        await asyncio.sleep(0)

    patch.setattr(_Lake, "write", write_badly)
    patch.setattr(LakeService, "_read_back", believe)


@pytest.mark.parametrize(("plant", "budget"), [(_two_disks_are_enough, 10), (_reads_nothing_back, 20)])
def test_planted_bugs_of_the_lake_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = (outcome.broken for outcome, _ in map(_run, range(budget)) if outcome.broken)
    broken = next(found, None)
    print(broken)
    assert broken is not None, f"not found in {budget} seeds"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    replayed, _ = _run(int(sys.argv[1]))
    print(replayed.report() if replayed.broken else f"seed {replayed.seed} holds: {dict(replayed.counts)}")
