"""One seed of replicas with a key, with a forger, a foreign fencer and an operator among those who reach the ledger.

`python -m tests.sim.replica_forger SEED` replays one seed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rsm_spark.core.chain import LogChain
from rsm_spark.core.envelope import body_of, decode_envelope
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.forger import Forger, simulated_keys
from rsm_spark.testing.ledger_twin import TwinClient
from tests.sim.replica_judge import CALM_S_MAX
from tests.sim.replica_scenario import Outcome, Scenario, run_scenario

__all__ = ["run_forged_seed"]

_TROUBLE_S = 25.0


class _Forged(Scenario):
    """The world of one seed."""

    def __init__(self, seed: int, faults: Mapping[str, Any]) -> None:
        super().__init__(
            seed, on_bookies=False, trouble_s=_TROUBLE_S, faults=faults, settings={"log_keys": simulated_keys()}
        )
        self.forger: Forger | None = None

    async def main(self) -> None:
        """As any seed; the forger strikes while anything else fails."""
        assert self.world is not None
        store = await self.simulation.metadata.connect(session_timeout_ms=30_000)
        self.forger = Forger(self.cluster, self.world, TwinClient(self.world, store), self.simulation.random("forger"))
        self.judge.excuses = self.forger.is_excused
        striking = asyncio.get_running_loop().create_task(self._strike())
        await super().main()
        await striking
        chain, _ = await ChainStore(store, LOG).read()
        self._check_audit(chain)

    def _check_audit(self, chain: LogChain) -> None:
        """Find who set each entry aside exactly once in the log, however often leaders died meanwhile."""
        assert self.world is not None
        assert self.forger is not None
        # At the end of an open ledger may lie one that no replica has met yet.
        foreign = self.forger.forged | {(one.ledger_id, one.entry_id) for one in chain.quarantined}
        told: Counter[str] = Counter()
        last_epoch = 0
        for one in chain.ledgers:
            twin = self.world.ledgers[one.ledger_id]
            end = len(twin.entries) if one.closed is None else one.closed.last_entry_id + 1
            for entry_id, entry in enumerate(twin.entries[:end]):
                if (one.ledger_id, entry_id) not in foreign:
                    last_epoch = max(last_epoch, decode_envelope(entry.payload).leader_epoch)
                    told.update(
                        record.fields[4]
                        for record in decode_records(body_of(entry.payload))
                        if record.type == KernelRecord.AUDITED
                    )
        for found in chain.quarantined:
            target = f"log {LOG}: ledger {found.ledger_id} entry {found.entry_id}: named by a replica"
            if told[target] != int(last_epoch > found.epoch):  # Else no leader has begun since.
                self.cluster.ghosts.fail("audited-once", f"{target} is told {told[target]} times")

    async def _strike(self) -> None:
        assert self.forger is not None
        while self.cluster.leader is None:
            await asyncio.sleep(0.1)
        await self.forger.run(self.trouble_s)


def run_forged_seed(seed: int, faults: Mapping[str, Any] | None = None) -> Outcome:
    """Run one seed."""
    quiet = {"kill": 1.0, "pause": 1.0, "lose_disk": 0.0, "rot_snapshot": 0.0, "metadata_down": 0.0}
    scenario = _Forged(seed, quiet if faults is None else faults)
    outcome = run_scenario(scenario, limit_s=_TROUBLE_S + 6 * CALM_S_MAX, command="tests.sim.replica_forger")
    if scenario.forger is not None:
        outcome.counts += scenario.forger.counts
    return outcome


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for one in map(int, sys.argv[1:]):
        found = run_forged_seed(one)
        print(found.report() if found.broken else f"seed {one} holds: {dict(found.counts)}")
