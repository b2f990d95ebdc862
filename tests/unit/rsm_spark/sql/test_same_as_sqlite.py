"""Random statements: leader, follower, a restored replica and plain SQLite hold the same, at every revision."""

import random
from pathlib import Path

import pytest

from rsm_spark.core.state import ReplicatedState
from rsm_spark.sql.machine import SqlMachine
from tests.unit.rsm_spark.sql.drawn_sql import DrawnSql
from tests.unit.rsm_spark.sql.plain_sqlite import PlainSqlite
from tests.unit.rsm_spark.sql.sql_pair import LOG_ID, SqlPair, contents, contents_of, transaction


def restored(pair: SqlPair, folder: Path) -> SqlMachine:
    """Return a machine that has the leader's snapshot."""
    machine = SqlMachine(folder / "restored.db")
    state = ReplicatedState(machine, LOG_ID)
    state.restore(pair.state.rows(), pair.state.tip, pair.state.description)
    state.keep(None)
    assert state.digest == pair.state.digest
    state.validate()
    return machine


@pytest.mark.parametrize("seed", range(12))
def test_random_statements_are_the_same_everywhere(tmp_path, seed):
    rng = random.Random(seed)
    drawn = DrawnSql(rng)
    pair, plain = SqlPair(tmp_path), PlainSqlite()
    done = 0
    for _ in range(60):
        drawn.learn(plain.tables())
        batch = [drawn.transaction() for _ in range(rng.choice((1, 1, 2, 4)))]
        answers = pair.run(*(transaction(*statements) for statements in batch))
        for statements, answer in zip(batch, answers, strict=True):
            failed = plain.run(statements)
            assert bool(failed) == (answer.fault is not None), (statements, failed, answer.fault)
            done += not failed
        assert contents(pair.leader.path) == contents_of(plain.connection)
    assert done > 20
    machine = restored(pair, tmp_path)
    assert contents(machine.path) == contents(pair.leader.path)
    machine.close()
    pair.close()
