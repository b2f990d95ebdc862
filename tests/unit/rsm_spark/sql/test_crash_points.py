"""Crashes between log and file: nothing unconfirmed is kept, nothing is folded twice, no id is given again."""

import random
import shutil
from pathlib import Path

import pytest

from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import ReplicatedState
from rsm_spark.sql.engine.reader import SqlReader
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.messages import SqlQuery
from rsm_spark.sql.records import SqlRecord
from tests.unit.rsm_spark.sql.drawn_sql import DrawnSql
from tests.unit.rsm_spark.sql.plain_sqlite import PlainSqlite
from tests.unit.rsm_spark.sql.planted_sql import BUGS
from tests.unit.rsm_spark.sql.sql_pair import LOG_ID, SqlPair, contents, contents_of, transaction

FRAME_BYTES = 4096 + 24
WAL_HEAD_BYTES = 32


def killed(path: Path, folder: Path, rng: random.Random, *, power_is_lost: bool) -> Path:
    """Return a copy of a file as a crash leaves it; without power, the last of what was not synced is missing."""
    copy = folder / f"killed-{rng.getrandbits(32):08x}.db"
    shutil.copyfile(path, copy)
    wal = path.with_name(path.name + "-wal")
    if wal.exists():
        text = wal.read_bytes()
        frames = max(0, len(text) - WAL_HEAD_BYTES) // FRAME_BYTES
        if power_is_lost and frames > 1:
            text = text[: WAL_HEAD_BYTES + FRAME_BYTES * rng.randint(frames // 2, frames)]
        copy.with_name(copy.name + "-wal").write_bytes(text)
    return copy


def revived(copy: Path, machine: type[SqlMachine], payloads: list[bytes], plain: list[dict]) -> None:
    """Boot from what a crash left: the file at its mark, then the log behind it; compare all on the way."""
    made = machine(copy)
    state = ReplicatedState(made, LOG_ID)
    mark = made.resume()
    done = 0
    if mark is not None:
        state.resume(mark)
        done = mark.entry_id
        assert contents(copy) == plain[done], "the file is not what its mark says"
        state.validate()
    for number in range(done, len(payloads)):
        state.apply_entry(payloads[number])
        state.keep(LogPosition(1, number + 1))
        assert contents(copy) == plain[number + 1], "the log brought the file elsewhere"
    state.validate()
    made.close()


def judge(folder: Path, machine: type[SqlMachine], seed: int) -> None:
    """Run transactions, crash now and then, and raise AssertionError for what is not as it has to be."""
    rng = random.Random(seed)
    drawn, sqlite = DrawnSql(rng), PlainSqlite()
    pair = SqlPair(folder, machine=machine)
    reader = SqlReader(pair.leader.path, SqlSettings(), lambda: 0.0)
    plain = [contents_of(sqlite.connection)]
    for _ in range(14):
        drawn.learn(sqlite.tables())
        batch = [drawn.transaction() for _ in range(rng.choice((1, 2, 3)))]
        pair.submit(*(transaction(*statements) for statements in batch))
        composed = pair.compose()
        seen = reader.read(SqlQuery("SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE '\\_rsm%' ESCAPE '\\'"))
        assert seen.reply.results[0].rows == ((len(plain[-1]["schema"]),),), "a reader saw what is not confirmed"
        for path in (pair.leader.path, pair.follower.path):  # Confirmed or not, the log may have the entry.
            copy = killed(path, folder, rng, power_is_lost=rng.random() < 0.5)
            revived(copy, machine, pair.payloads, plain)
        before, follower = len(pair.payloads), pair.follower.path
        pair.confirm(composed)
        for statements in batch:
            sqlite.run(statements)
        plain.append(contents_of(sqlite.connection))
        assert contents(pair.leader.path) == plain[-1]
        copy = killed(follower, folder, rng, power_is_lost=rng.random() < 0.5)
        revived(copy, machine, pair.payloads, plain)
        assert len(pair.payloads) == before + 1
    reader.close()
    pair.close()


@pytest.mark.parametrize("seed", range(8))
def test_crashes_lose_nothing_and_do_nothing_twice(tmp_path, seed):
    judge(tmp_path, SqlMachine, seed)


def test_a_leader_that_is_deposed_goes_back_to_what_is_confirmed(tmp_path):
    pair = SqlPair(tmp_path)
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v)", "INSERT INTO t (v) VALUES ('kept')")
    before = contents(pair.leader.path)
    digest = pair.state.digest
    pair.submit(transaction("INSERT INTO t (v) VALUES ('lost')"), transaction("CREATE TABLE lost (a)"))
    pair.compose()
    mark = pair.leader.resume()
    state = ReplicatedState(pair.leader, LOG_ID)
    state.resume(mark)
    assert contents(pair.leader.path) == before
    assert state.digest == digest
    state.validate()
    assert mark.position == LogPosition(1, 1)
    assert state.sessions.get(bytes(16)).last_sequence == 1
    decision = pair.leader.decide(transaction("INSERT INTO t (v) VALUES ('next') RETURNING id"), 50, 0)
    assert (SqlRecord.ROW_CHANGED, (2, b"\x91\x02", b"\x91\xa4next", None)) in list(decision.records)
    pair.close()


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(tmp_path, bug):
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            judge(folder, bug, seed)
        except Exception:
            return
    pytest.fail(f"{bug.__name__} was not found")


def test_a_copy_of_another_kind_of_file_is_refused_by_name(tmp_path):
    path = tmp_path / "tables.db"
    path.write_bytes(b"no database at all" * 300)
    with pytest.raises(Exception, match="move it away"):
        SqlMachine(path)
