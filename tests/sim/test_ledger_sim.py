"""Real bookies and real clients on a simulated network, disks and metadata store, seed by seed.

A seed that fails is replayed by `RSM_SIM_FIRST_SEED=<seed> RSM_SIM_SEEDS=1 pytest tests/sim/test_ledger_sim.py`, on
the same commit.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.ledger_scenario import run_seed
from tests.sim.seeds import first_seed, seed_count

SEEDS = 250
"""About a minute of one slow core."""
REPLAYED_SEEDS = 12
COUNTED_SHARE_MIN = 0.5
_ROOT = Path(__file__).parents[2]
_PRINT_SIGNATURES = """
import json, logging, sys
from tests.sim.ledger_scenario import run_seed
logging.disable(logging.CRITICAL)
print(json.dumps([run_seed(seed).signature for seed in map(int, sys.argv[1:])]))
"""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """Bookies that are killed all the time have much to say."""
    logging.getLogger("ledger").setLevel(logging.CRITICAL + 1)


@pytest.mark.timeout(0)
def test_every_promise_is_kept_whatever_fails() -> None:
    first, count = first_seed(), seed_count(SEEDS)
    totals: Counter[str] = Counter()
    failed: list[str] = []
    counted = 0
    for seed in range(first, first + count):
        outcome = run_seed(seed)
        totals += outcome.counts
        counted += outcome.is_worth_counting
        if outcome.broken is not None:
            failed.append(f"RSM_SIM_FIRST_SEED={seed}: {outcome.broken}")
    print(json.dumps({"seeds": count, "first": first, "counted": counted, **totals}))
    assert not failed, f"{len(failed)} of {count} seeds:\n" + "\n".join(failed[:20])
    assert counted >= COUNTED_SHARE_MIN * count or count == 1, f"only {counted} of {count} seeds did enough"


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    """Under other hash seeds, in another order: nothing but the seed may decide."""
    seeds = [str(first_seed() + number) for number in range(REPLAYED_SEEDS)]
    signatures = []
    for hash_seed, order in (("1", seeds), ("2", seeds[::-1])):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        call = [sys.executable, "-c", _PRINT_SIGNATURES, *order]
        done = subprocess.run(call, cwd=_ROOT, env=environment, capture_output=True, text=True, check=True)
        signatures.append(dict(zip(order, json.loads(done.stdout), strict=True)))
    assert signatures[0] == signatures[1]
    assert len(set(signatures[0].values())) == REPLAYED_SEEDS


def test_without_faults_everything_written_is_read() -> None:
    outcome = run_seed(first_seed(), has_faults=False)
    assert outcome.broken is None
    assert outcome.counts["acked"] > 100
    assert outcome.counts["exits"] == 3  # the power loss at the end
