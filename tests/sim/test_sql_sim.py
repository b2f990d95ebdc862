"""SQL tables on simulated replicas, with files that survive crashes, or go back in time, or are lost.

The machine and SQLite's files are the real ones. Replicas are killed, paused and cut off meanwhile. Planted bugs must
be found.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from ledger.testing.loop import SimulationError
from rsm_spark.errors import RsmError
from rsm_spark.sql.engine.reader import SqlReader
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.messages import SqlQuery
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.simulating import _quiet, _Run
from tests.sim.ledger_seeds import first_seed
from tests.sim.sql_disks import drawn_command, with_disks
from tests.unit.rsm_spark.sql.planted_sql import CommitsEarly, FiresTriggersAgain, ForgetsTheMark, GivesIdsAgain

_SEEDS = 6
_READ = SqlQuery("SELECT (SELECT n FROM counter), (SELECT seq FROM sqlite_sequence WHERE name = 'done')")


def invariant(machine: Any) -> None:
    """The trigger has counted each row that ever came, once: every id was given once."""
    reader = SqlReader(machine.path, SqlSettings(), lambda: 0.0)
    try:
        found = reader.read(_READ).reply
    finally:
        reader.close()
    if found.fault is None:
        counted, given = found.results[0].rows[0]
        assert (counted or 0) == (given or 0), f"{given} ids were given, {counted} rows were counted"


def run_sql_seed(
    seed: int, folder: Path, machine: type[SqlMachine] = SqlMachine, trouble_s: float = 8.0
) -> Counter[str]:
    """Run one seed; raise what is broken."""
    folder.mkdir()
    run = _Run(seed, lambda: None, drawn_command, invariant, trouble_s, None)  # type: ignore[arg-type, return-value]
    disks = with_disks(run.cluster, folder, random.Random(seed), machine)
    try:
        with _quiet():
            run.simulation.run(run.main(), limit_s=trouble_s + 500)
    finally:
        for disk in disks:
            disk.close()
    return sum((caller.counts for caller in run.callers), Counter()) + run.nemesis.counts


@pytest.mark.parametrize("seed_count", [_SEEDS, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_tables_are_the_same_whatever_fails(tmp_path: Path, seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        counts += run_sql_seed(first_seed() + number, tmp_path / str(number))
    print(dict(counts))
    assert counts["acknowledged"] > 20 * seed_count
    assert counts["refused"] == 0


@pytest.mark.parametrize("bug", [CommitsEarly, ForgetsTheMark, GivesIdsAgain, FiresTriggersAgain])
def test_planted_bugs_are_found(tmp_path: Path, bug: type[SqlMachine]) -> None:
    for number in range(30):
        try:
            run_sql_seed(first_seed() + number, tmp_path / str(number), bug)
        except (BrokenInvariantError, SimulationError, AssertionError, RsmError, apsw.Error):
            return
    pytest.fail(f"{bug.__name__} was not found")
