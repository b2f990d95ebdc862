"""Interactive SQL transactions on simulated replicas: strictly serializable whatever fails; planted bugs are found."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from ledger.testing.loop import SimulationError
from rsm_spark.core.machine import Decision
from rsm_spark.errors import RsmError
from rsm_spark.sql.engine.held_transaction import HeldTransaction
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.messages import SqlTransaction, decode_commit, encode, is_of_transaction
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.list_append import AppendOutcome, AppendTransaction, ListRead, check_lists
from rsm_spark.testing.simulating import _Caller, _quiet, _Run
from tests.sim.ledger_seeds import first_seed
from tests.sim.sql_disks import with_disks
from tests.sim.transaction_callers import BeginsUnproven, SendsAnew, TransactionCaller, schema_command
from tests.unit.rsm_spark.sql.planted_sql import CommitsEarly
from tests.unit.rsm_spark.sql.sql_pair import contents

_SEEDS = 5


def run_transactions_seed(
    seed: int,
    folder: Path,
    machine: type[SqlMachine] = SqlMachine,
    caller: type[TransactionCaller] = TransactionCaller,
    trouble_s: float = 8.0,
) -> Counter[str]:
    """Run one seed; raise what is broken."""
    folder.mkdir()
    rng = random.Random(seed)
    run = _Run(seed, lambda: None, schema_command, lambda _machine: None, trouble_s, None)  # type: ignore[arg-type, return-value]
    history: list[AppendTransaction] = []
    callers: list[_Caller] = run.callers[:1]  # It makes the tables, again and again.
    for number in range(4):
        one = caller(run.cluster, random.Random(rng.random()), schema_command)
        one.history = history
        one.name = f"c{number}"
        callers.append(one)
    run.callers = callers
    disks = with_disks(run.cluster, folder, rng, machine)
    try:
        with _quiet():
            run.simulation.run(run.main(), limit_s=trouble_s + 500)
        lists = {row[1]: row[2] for row in contents(_file_of(run)).get("list", [])}
    finally:
        for disk in disks:
            disk.close()
    steps = tuple(ListRead(key, tuple(text.split())) for key, text in lists.items())
    end_s = run.simulation.loop.time() + 1.0
    history.append(AppendTransaction(len(history), steps, end_s, end_s, AppendOutcome.OK))
    faults = check_lists(history)
    assert not faults, f"seed {seed}: {faults[0]}"
    return sum((one.counts for one in callers), Counter()) + run.nemesis.counts


def _file_of(run: _Run) -> Path:
    replica = next(iter(run.cluster.replicas.values()))
    path: Path = replica._context.machine.path  # type: ignore[attr-defined]
    return path


@pytest.mark.parametrize("seed_count", [_SEEDS, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_transactions_are_strictly_serializable_whatever_fails(tmp_path: Path, seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        counts += run_transactions_seed(first_seed() + number, tmp_path / str(number))
    print(dict(counts))
    assert counts[AppendOutcome.OK] > 20 * seed_count
    assert counts[AppendOutcome.FAILED] > seed_count
    assert counts["refused"] == 0


class BelievesItsClient(SqlMachine):
    """Planted: does not ask whether what the client was told still holds."""

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        if is_of_transaction(command):
            statements = decode_commit(command).statements
            kept = tuple(one for one in statements if "SAVEPOINT" not in one.sql and "ROLLBACK" not in one.sql)
            command = encode(SqlTransaction(kept if len(kept) == len(statements) else ()))
        return super().decide(command, revision, now_ms)


class ForgetsToUndo(SqlMachine):
    """Planted: a COMMIT keeps what was rolled back to a savepoint."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        runner = self._writer._runner
        execute = runner._execute
        runner._execute = lambda sql, *rest: execute(sql.replace("ROLLBACK TO _client", "RELEASE _client"), *rest)


class _MovesOn(HeldTransaction):
    def step(self, statements: Any, system: Any = None) -> Any:
        if self._own is None:
            self._reader.release()
            self._reader.hold()
        return super().step(statements, system)


class HoldsNothing(SqlMachine):
    """Planted: each read of a transaction sees the last commit, not the one that stood when it began."""

    def hold(self) -> HeldTransaction:
        return _MovesOn(self.path, self.settings, self._clock_s, self._writer.wal_end or 0)


@pytest.mark.parametrize(
    ("machine", "caller"),
    [
        (CommitsEarly, TransactionCaller),
        (BelievesItsClient, TransactionCaller),
        (ForgetsToUndo, TransactionCaller),
        (HoldsNothing, TransactionCaller),
        (SqlMachine, SendsAnew),
        (SqlMachine, BeginsUnproven),
    ],
)
def test_planted_bugs_are_found(tmp_path: Path, machine: type[SqlMachine], caller: type[TransactionCaller]) -> None:
    for number in range(30):
        try:
            run_transactions_seed(first_seed() + number, tmp_path / str(number), machine, caller)
        except (BrokenInvariantError, SimulationError, AssertionError, RsmError, apsw.Error) as error:
            print(number, error)
            return
    pytest.fail(f"{machine.__name__}, {caller.__name__}: was not found")
