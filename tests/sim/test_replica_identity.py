"""The metadata are lost, ledger ids begin again, disks are kept (safety 9): no state goes on in another log.

While every disk holds the log that was there, nobody begins another one under its name. Once an operator has, with one
empty disk, the others say what is wrong and take no part, also those that had stood still and find their ledger's id
in the new chain. With their disks emptied they come to the state of the new log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rsm_spark.core import leadership
from rsm_spark.core.chain import LogChain
from rsm_spark.runtime import boot, following
from tests.sets import some_of
from tests.sim.lost_metadata import Meanwhile, run_disaster

_SEEDS = 15


@pytest.mark.parametrize("meanwhile", list(Meanwhile), ids=lambda meanwhile: meanwhile.name.lower())
def test_no_state_goes_on_in_another_log_of_the_same_name(meanwhile: Meanwhile) -> None:
    for seed in some_of(range(_SEEDS), 5):
        outcome = run_disaster(seed, meanwhile)
        assert outcome.broken is None, outcome.report()
        assert outcome.counts["acked"] > 10


def _goes_on_wherever_its_ledger_is_named(patch: pytest.MonkeyPatch) -> None:
    """A snapshot is of this log because the chain names a ledger of that number."""

    async def present(context: Any, _mark: Any) -> LogChain:
        if not await context.run_blocking(context.snapshots.manifests):
            return await context.chains.ensure(context.rng.randbytes(16).hex())
        return (await context.chains.read())[0]

    def continues(self: Any, manifest: Any, _name: str) -> bool:
        return manifest.entry_id < 0 or manifest.ledger_id in [one.ledger_id for one in self._chain.ledgers]

    patch.setattr(boot, "_chain", present)
    patch.setattr(boot._Search, "_continues", continues)


def _takes_lost_metadata_for_a_new_log(patch: pytest.MonkeyPatch) -> None:
    async def ensure(context: Any, _mark: Any) -> LogChain:
        return await context.chains.ensure(context.rng.randbytes(16).hex())

    patch.setattr(boot, "_chain", ensure)


def _looks_whose_log_it_is_only_when_it_starts(patch: pytest.MonkeyPatch) -> None:
    """What was the right log once is taken for the right one as long as the process lives."""
    patch.setattr(following, "check", lambda _context, _chain: None)
    patch.setattr(leadership, "check_admission", lambda _chain, **_options: None)


@pytest.mark.parametrize(("plant", "meanwhile", "budget"), [
    (_goes_on_wherever_its_ledger_is_named, Meanwhile.DOWN, 5),
    (_takes_lost_metadata_for_a_new_log, Meanwhile.DOWN, 5),
    (_looks_whose_log_it_is_only_when_it_starts, Meanwhile.PAUSED, 20),
])  # fmt: skip
def test_planted_bugs_of_identity_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], meanwhile: Meanwhile, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = (outcome for outcome in (run_disaster(seed, meanwhile) for seed in range(budget)) if outcome.broken)
    broken = next(found, None)
    assert broken is not None, f"not found in {budget} seeds"
    print(f"found by seed {broken.seed}: {broken.broken}")
    assert broken.broken is not None
    assert broken.broken.partition(":")[0] in ("no-gap", "acked-is-durable")
