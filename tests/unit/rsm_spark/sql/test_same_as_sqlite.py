"""Random statements: leader, follower, a restored replica and plain SQLite hold the same, at every revision."""

import random
from pathlib import Path

import pytest

from rsm_spark.core.records import pack
from rsm_spark.core.state import ReplicatedState
from rsm_spark.sql.engine.touched import read_values
from rsm_spark.sql.machine import SqlMachine
from tests.unit.rsm_spark.sql.drawn_sql import DrawnSql
from tests.unit.rsm_spark.sql.plain_sqlite import PlainSqlite
from tests.unit.rsm_spark.sql.sql_pair import LOG_ID, SqlPair, contents, contents_of, transaction


class ComparesWhatIsTold(SqlMachine):
    """Compares what SQLite's hook tells of rows with what is read of them."""

    compared = 0

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        touched, self.execute = self._writer._runner._touched, self._writer.execute
        self._catalog, self._touched = self._writer.catalog, touched
        self._note, self._take = touched._note_told, touched.take_records
        touched._note_told, touched.take_records = self._noted, self._taken

    def _noted(self, shape, operation, update):
        place = (shape.number, pack((update.rowid,)))
        is_first = operation != "INSERT" and place not in self._touched._before
        was = read_values(self.execute, shape, place[1]) if is_first else None
        self._note(shape, operation, update)
        if is_first and place in self._touched._told_before:
            self._compare(self._touched._told_before[place], was)

    def _taken(self):
        for (number, key), told in self._touched._told_now.items():
            self._compare(told, read_values(self.execute, self._catalog.shape_of(number), key))
        return self._take()

    def _compare(self, told, read):
        assert repr(told) == repr(read)  # Of the same types, too.
        type(self).compared += 1


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
def test_random_statements_are_the_same_everywhere(tmp_path, seed, monkeypatch):
    if seed % 3 == 2:
        monkeypatch.setattr("rsm_spark.sql.engine.touched._TOLD_BYTES_MAX", 300)  # Some rows of a transaction are read.
    rng = random.Random(seed)
    drawn = DrawnSql(rng)
    ComparesWhatIsTold.compared = 0
    pair, plain = SqlPair(tmp_path, machine=ComparesWhatIsTold), PlainSqlite()
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
    assert ComparesWhatIsTold.compared > 20
    machine = restored(pair, tmp_path)
    assert contents(machine.path) == contents(pair.leader.path)
    machine.close()
    pair.close()
