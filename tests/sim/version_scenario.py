"""One seed of a rolling upgrade: replicas of three versions of a machine on one log, in trouble, then in the calm.

`python -m tests.sim.version_scenario SEED` replays one seed and tells its last events.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rsm_spark.core.commands import Answer, AnswerStatus
from rsm_spark.core.envelope import Envelope
from rsm_spark.core.records import KernelRecord, Record, pack
from rsm_spark.testing.counter_map import DROPPED
from rsm_spark.testing.rolling_upgrade import RollingUpgrade
from rsm_spark.testing.sessions import SessionClient, _Pending
from rsm_spark.testing.version_witness import VersionWitness
from tests.sim.counter_versions import VERSIONS, moves_of
from tests.sim.replica_judge import CALM_S_MAX
from tests.sim.replica_scenario import TROUBLE_S, Outcome, Scenario, run_scenario

__all__ = ["VersionScenario", "run_version_seed"]

_AS_DRAWN: Mapping[str, Any] = {}


class _VersionClient(SessionClient):
    """A client that takes a refusal for an answer: the log's version cannot hold every decision."""

    def _take(self, pending: list[_Pending], answers: Sequence[Answer], floors: dict[str, int]) -> list[_Pending]:
        heard = zip(pending, answers, strict=True)
        taken = [(one, answer) for one, answer in heard if answer.status is not AnswerStatus.REFUSED]
        return super()._take([one for one, _ in taken], [answer for _, answer in taken], floors)


class VersionScenario(Scenario):
    """One seed's world; `Scenario` whose replicas are upgraded meanwhile."""

    def __init__(
        self, seed: int, *, settings: Mapping[str, Any], rates: Mapping[str, float] = _AS_DRAWN, **drawn: Any
    ) -> None:
        is_raising = random.Random(seed).random() < 0.8
        super().__init__(seed, settings={"raise_version": is_raising, **settings}, machine=VERSIONS[0], **drawn)
        metadata, rng = self.simulation.metadata, self.simulation.random("upgrade")
        self.witness = VersionWitness(self.cluster, metadata, self.world)
        self.upgrade = RollingUpgrade(self.cluster, metadata, VERSIONS, rng, self.witness)
        for name, rate in rates.items():
            setattr(self.upgrade, name, rate)
        self._old: set[tuple[str, bytes]] | None = None
        self.cluster.ghosts.on_commit.insert(0, self._note_migration)  # Before the witness folds the entry.

    def make_client(self, rng: random.Random, name: str) -> SessionClient:
        """Return a client."""
        return _VersionClient(self.cluster, rng, name)

    async def main(self) -> None:
        """Work, trouble, calm; in the calm every replica comes to the last version, and so does the log."""
        self._upgrading = asyncio.get_running_loop().create_task(self.upgrade.run(self.trouble_s))
        await super().main()
        self.witness.judge()
        self._judge_migration()

    def _note_migration(self, _envelope: Envelope, records: list[Record]) -> None:
        """Note which rows there were when the migration began; one that was dropped since is no row of before."""
        for record in records:
            if record.type == KernelRecord.MIGRATED and self._old is None:
                self._old = {key for key in self.witness.rows if key[0] == "counters"}
            elif record.type == DROPPED and self._old is not None:
                self._old.discard(("counters", pack(record.fields)))

    def _judge_migration(self) -> None:
        """Look for rows of before that were migrated twice or never, and for new ones that were."""
        for place, row in self.witness.rows.items():
            if place[0] != "counters":
                continue
            wanted, found = int(place in (self._old or ())), moves_of(row)
            if found != wanted:
                self.cluster.ghosts.fail("migrated-once", f"row {place} was migrated {found} times, not {wanted}")

    async def calm(self) -> None:
        """End the upgrade."""
        try:
            async with asyncio.timeout(CALM_S_MAX):
                await self._upgrading
                await self.upgrade.finish()
                while any(replica._context.state.migration for replica in self.cluster.replicas.values()):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self.cluster.ghosts.fail("convergence", f"the log is not raised within {CALM_S_MAX:.0f} s of calm")

    def count(self) -> Counter[str]:
        """Return what was done."""
        return super().count() + self.upgrade.counts


def run_version_seed(
    seed: int,
    trouble_s: float = TROUBLE_S,
    *,
    faults: Mapping[str, Any] | None = _AS_DRAWN,
    settings: Mapping[str, Any] = _AS_DRAWN,
    rates: Mapping[str, float] = _AS_DRAWN,
    on_bookies: bool = False,
) -> Outcome:
    """Run one seed.

    Args:
        seed: Decides everything.
        trouble_s: How long anything fails.
        faults: Attributes of `ReplicaFaults` that are not as the seed draws them; None = nothing fails.
        settings: Attributes of `ReplicaSettings`, likewise.
        rates: Attributes of `RollingUpgrade`, likewise.
        on_bookies: Real bookies and the real client instead of the twin of the ledger.

    """
    scenario = VersionScenario(
        seed, on_bookies=on_bookies, trouble_s=trouble_s, faults=faults, settings=settings, rates=rates
    )
    return run_scenario(scenario, limit_s=trouble_s + 7 * CALM_S_MAX, command="tests.sim.version_scenario")


def _main(arguments: list[str]) -> None:
    """Replay the seeds named; with `--signatures` first, print only each one's signature (the replay gate)."""
    if arguments[0] == "--signatures":
        for seed in map(int, arguments[1:]):
            print(seed, run_version_seed(seed).signature)
        return
    for seed in map(int, arguments):
        outcome = run_version_seed(seed)
        print(outcome.report() if outcome.broken else f"seed {seed} holds: {dict(outcome.counts)}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    _main(sys.argv[1:])
