"""A file of tables that is made of a snapshot: in parts, and begun anew where a process ended in the middle of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from rsm_spark.core.machine import Row
from rsm_spark.core.state import ReplicatedState
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.sql.engine import copying
from rsm_spark.sql.machine import SqlMachine
from tests.unit.rsm_spark.sql.sql_pair import LOG_ID, SqlPair, contents

MIB = 1 << 20
_FILL = (
    "INSERT INTO t (k, v) SELECT i, zeroblob(4000) FROM (WITH RECURSIVE n(i) AS "
    "(SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 250) SELECT i FROM n)"
)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[SqlPair]:
    """Tables of some ten MiB."""
    pair = SqlPair(tmp_path)
    pair.do(
        "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, k INTEGER, v BLOB)",
        "CREATE INDEX t_k ON t (k)",
        "CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT)",
        "CREATE TABLE log (n INTEGER)",
        "CREATE TRIGGER told AFTER INSERT ON t BEGIN INSERT INTO log VALUES (NEW.id); END",
    )
    for _ in range(10):
        pair.do(_FILL)
    pair.do("INSERT INTO counted VALUES (7)", "DELETE FROM counted", "DELETE FROM t WHERE id > 2000")
    yield pair
    pair.close()


def _restore(machine: SqlMachine, pair: SqlPair, rows: Iterator[Row]) -> ReplicatedState:
    state = ReplicatedState(machine, LOG_ID)
    state.restore(rows, pair.state.tip, pair.state.description)
    return state


def test_the_wal_stays_small_and_what_was_cut_off_is_begun_anew(
    pair: SqlPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_PART_BYTES", MIB // 2)
    path = tmp_path / "restored.db"
    wal = path.with_name("restored.db-wal")
    machine = SqlMachine(path)
    seen = 0

    def watched() -> Iterator[Row]:
        nonlocal seen
        for row in pair.state.rows():
            yield row
            seen = max(seen, wal.stat().st_size)

    def cut_off() -> Iterator[Row]:
        yield from itertools.islice(pair.state.rows(), 1_500)
        raise OSError("the process has ended")

    with pytest.raises(OSError, match="has ended"):
        _restore(machine, pair, cut_off())
    machine.close()
    assert path.stat().st_size > 3 * MIB, "what came was kept"
    machine = SqlMachine(path)
    assert machine.resume() is None, "and is no state"
    state = _restore(machine, pair, watched())
    assert path.stat().st_size > 6 * MIB
    assert seen < 5 * MIB, "SQLite's own bound of its WAL, and a part"
    state.keep(None)
    assert state.digest == pair.state.digest
    state.validate()
    assert contents(path) == contents(pair.leader.path)
    machine.close()


def test_another_state_takes_the_place_of_one_that_was_kept(
    pair: SqlPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_PART_BYTES", MIB)
    path = tmp_path / "restored.db"
    machine = SqlMachine(path)
    _restore(machine, pair, pair.state.rows()).keep(None)
    assert machine.resume() is not None
    rows = list(pair.state.rows())

    def twice() -> Iterator[Row]:
        yield from rows
        yield next(row for row in rows if row.table == "rows")

    with pytest.raises(CorruptSnapshotError, match="cannot be written"):
        _restore(machine, pair, twice())
    assert machine.resume() is None, "the log did not go on from the state that was there"
    state = _restore(machine, pair, iter(rows))
    state.keep(None)
    assert contents(path) == contents(pair.leader.path)
    machine.close()
