"""Interactive transactions, statement by statement: what they see, what others see, and what a COMMIT makes of them."""

import random
from pathlib import Path

import apsw
import pytest

from rsm_spark.sql.engine.faults import SqlFaultError
from rsm_spark.sql.engine.held_transaction import HeldTransaction
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlCommit, SqlStatement, StepOutcome, encode
from tests.unit.rsm_spark.sql.drawn_sql import DrawnSql
from tests.unit.rsm_spark.sql.plain_sqlite import PlainSqlite
from tests.unit.rsm_spark.sql.planted_sql import BelievesWhatIsUndone
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, contents, contents_of


class Held:
    """An open transaction, and what its client knows of it."""

    def __init__(self, pair: SqlPair) -> None:
        self.pair = pair
        self.held: HeldTransaction = pair.leader.hold()
        self.statements: list[SqlStatement] = []
        self.told: list[bytes] = []

    def run(self, sql: str, parameters=(), expected=None) -> StepOutcome:
        statement = SqlStatement(sql, parameters, expected)
        (outcome,) = self.held.step([statement])
        if outcome.told:
            self.statements.append(statement)
            self.told.append(outcome.told)
        return outcome

    def rows(self, sql: str, parameters=()):
        outcome = self.run(sql, parameters)
        assert outcome.fault is None, outcome.fault
        return list(outcome.result.rows)

    def command(self) -> bytes:
        return encode(SqlCommit(tuple(self.statements), tuple(self.told)))

    def commit(self):
        """Return the fault of the commit, or None."""
        self.held.close()
        return self.pair.run(self.command())[-1].fault


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE, n INTEGER DEFAULT 0)")
    pair.do("INSERT INTO t (v) VALUES ('a'), ('b')")
    yield pair
    pair.close()


def rows(pair: SqlPair):
    return [row[1:] for row in contents(pair.follower.path)["t"]]


def test_it_sees_what_it_wrote_and_nobody_else_does(pair):
    held = Held(pair)
    assert held.rows("SELECT count(*) FROM t") == [(2,)]
    assert held.run("INSERT INTO t (v) VALUES (?)", ("c",)).result.last_rowid == 3
    assert held.rows("SELECT v FROM t ORDER BY id") == [("a",), ("b",), ("c",)]
    assert held.held.has_written
    assert rows(pair) == [(1, "a", 0), (2, "b", 0)]
    pair.check()
    assert held.commit() is None
    assert rows(pair) == [(1, "a", 0), (2, "b", 0), (3, "c", 0)]


def test_what_others_commit_meanwhile_it_does_not_see_and_what_it_read_must_hold(pair):
    held = Held(pair)
    assert held.rows("SELECT n FROM t WHERE id = 1") == [(0,)]
    pair.do("UPDATE t SET n = 5 WHERE id = 1", "INSERT INTO t (v) VALUES ('x')")
    assert held.rows("SELECT n FROM t WHERE id = 1") == [(0,)]
    held.run("UPDATE t SET n = 1 WHERE id = 2")
    assert held.rows("SELECT n FROM t ORDER BY id") == [(0,), (1,)]
    fault = held.commit()
    assert (fault.kind, "statement 0" in fault.text) == ("conflict", True)
    assert rows(pair) == [(1, "a", 5), (2, "b", 0), (3, "x", 0)]


def test_what_does_not_touch_it_does_not_stop_it(pair):
    held = Held(pair)
    assert held.rows("SELECT n FROM t WHERE id = 1") == [(0,)]
    held.run("UPDATE t SET n = n + 1 WHERE id = 1", (), 1)
    pair.do("UPDATE t SET n = 7 WHERE id = 2")
    assert held.commit() is None
    assert rows(pair) == [(1, "a", 1), (2, "b", 7)]


def test_of_two_that_skew_each_other_one_is_done(pair):
    first, second = Held(pair), Held(pair)
    for held, own in ((first, 1), (second, 2)):
        assert held.rows("SELECT sum(n) FROM t") == [(0,)]
        held.run("UPDATE t SET n = 1 WHERE id = ?", (own,))
    assert first.commit() is None
    assert second.commit().kind == "conflict"
    assert rows(pair) == [(1, "a", 1), (2, "b", 0)]


def test_a_statement_that_fails_is_undone_and_the_transaction_goes_on(pair):
    held = Held(pair)
    held.run("UPDATE t SET n = 1 WHERE id = 1")
    failed = held.run("INSERT INTO t (v) VALUES ('new'), ('a')")
    assert (failed.fault.kind, failed.result) == ("constraint", None)
    assert held.run("SELECT * FROM nothing").fault.kind == "sql"
    assert held.run("PRAGMA journal_mode").fault.kind == "refused"
    assert held.run("COMMIT").fault.kind == "refused"
    assert held.run("UPDATE t SET n = 2 WHERE id = 9", (), 1).fault.kind == "expected"
    assert held.run("INSERT INTO t (v) VALUES ('new')").fault is None
    assert held.commit() is None
    assert rows(pair) == [(1, "a", 1), (2, "b", 0), (3, "new", 0)]


def test_a_failure_that_was_seen_must_happen_again(pair):
    held = Held(pair)
    assert held.run("INSERT INTO t (v) VALUES ('a')").fault.kind == "constraint"
    held.run("INSERT INTO t (v) VALUES ('there was an a')")
    pair.do("DELETE FROM t WHERE v = 'a'")
    assert held.commit().kind == "conflict"
    assert rows(pair) == [(2, "b", 0)]


def test_savepoints(pair):
    held = Held(pair)
    assert held.run("SAVEPOINT outer_one").fault is None
    held.run("INSERT INTO t (v) VALUES ('kept')")
    held.run("SAVEPOINT command")
    held.run("INSERT INTO t (v) VALUES ('gone')")
    held.run('savepoint "inner"')
    held.run("DELETE FROM t")
    assert held.rows("SELECT count(*) FROM t") == [(0,)]
    assert held.run("ROLLBACK TO Command;").fault is None
    assert held.run('RELEASE "inner"').fault.text == "no such savepoint: inner"
    assert held.rows("SELECT v FROM t ORDER BY id") == [("a",), ("b",), ("kept",)]
    held.run("INSERT INTO t (v) VALUES ('also')")
    assert held.run("RELEASE SAVEPOINT outer_one").fault is None
    assert held.commit() is None
    assert [v for _, v, _ in rows(pair)] == ["a", "b", "kept", "also"]


def test_a_schema_change_in_a_savepoint_ends_it(pair):
    held = Held(pair)
    held.run("SAVEPOINT a")
    with pytest.raises(SqlFaultError, match="while a savepoint is open"):
        held.run("CREATE TABLE u (a)")
    held.held.close()


def test_schema_changes_are_seen_by_it_first(pair):
    held = Held(pair)
    assert held.run("CREATE TABLE u (id INTEGER PRIMARY KEY AUTOINCREMENT, a)").fault is None
    assert held.run("INSERT INTO u (a) VALUES (1), (2) RETURNING id").result.rows == ((1,), (2,))
    assert held.run("ALTER TABLE u ADD COLUMN b DEFAULT 7").fault is None
    assert held.rows("SELECT * FROM u") == [(1, 1, 7), (2, 2, 7)]
    assert pair.do("SELECT * FROM u").fault.kind == "sql"
    assert held.commit() is None
    assert contents(pair.follower.path)["u"] == [(1, 1, 1, 7), (2, 2, 2, 7)]


def test_what_depends_on_no_table_need_not_be_the_same_again(pair):
    held = Held(pair)
    assert held.run("SELECT random(), CURRENT_TIMESTAMP").told == b""
    held.run("UPDATE t SET n = 1")
    assert held.run("SELECT random(), CURRENT_TIMESTAMP").told == b""
    assert held.run("SELECT random(), id FROM t").told
    assert held.rows("SELECT changes()") == [(2,)]
    assert held.commit().kind == "conflict"


def test_an_update_tells_the_rowid_of_its_own_transaction(pair):
    held = Held(pair)
    assert held.run("UPDATE t SET n = 1").result.last_rowid == 0
    pair.do("CREATE TABLE u (a)", "INSERT INTO u VALUES (1), (2), (3)")
    assert held.commit() is None


def test_what_rolls_back_the_whole_transaction_ends_it(pair):
    held = Held(pair)
    held.run("UPDATE t SET n = 1")
    with pytest.raises(SqlFaultError, match="UNIQUE"):
        held.run("INSERT OR ROLLBACK INTO t (v) VALUES ('a')")
    held.held.close()


def test_limits(tmp_path):
    now = [0.0]

    def clock_s() -> float:
        now[0] += 0.01
        return now[0]

    pair = SqlPair(tmp_path, SqlSettings(read_ms_max=500, result_bytes_max=2_000), clock_s=clock_s)
    pair.do("CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
    bomb = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    for sql in (
        f"{bomb} SELECT count(*) FROM n",
        f"{bomb} INSERT INTO t SELECT i FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000) SELECT i FROM n",
        "INSERT INTO t VALUES (zeroblob(2000000))",
    ):
        held = Held(pair)
        with pytest.raises(SqlFaultError) as failed:
            held.run(sql)
        assert failed.value.fault.kind == "limit", failed.value.fault
        held.held.close()
    pair.close()


def test_a_stopped_one_ends_soon(pair):
    held = Held(pair)
    held.run("UPDATE t SET n = 1")
    held.held.stop()
    with pytest.raises(SqlFaultError, match="has ended"):
        held.run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n, t")
    held.held.close()


@pytest.mark.parametrize("seed", range(8))
def test_random_transactions_are_those_of_plain_sqlite(tmp_path, seed):
    """Two at a time beside one-shot ones: each that commits does what SQLite alone does at that moment."""
    rng = random.Random(seed)
    drawn, plain = DrawnSql(rng), PlainSqlite()
    pair = SqlPair(tmp_path)
    done = 0
    pair.do("CREATE TABLE first (a, b)")
    plain.run(["CREATE TABLE first (a, b)"])
    for _ in range(25):
        drawn.learn(plain.tables())
        holding = [Held(pair) for _ in range(rng.choice((1, 2)))]
        for held in holding:
            try:
                for _ in range(rng.randint(1, 5)):
                    held.run(drawn.statement())
                    if rng.random() < 0.3:
                        held.run(f"SELECT * FROM {rng.choice(list(plain.tables()))}")
            except SqlFaultError:
                held.statements = []
        for held in holding:
            assert contents(pair.leader.path) == contents_of(plain.connection)
            if not held.statements:
                held.held.close()
                continue
            if held.commit() is None:
                done += 1
                plain.connection.execute("BEGIN")
                for statement in held.statements:
                    plain.connection.execute("SAVEPOINT s")
                    try:
                        plain.connection.execute(statement.sql)
                    except apsw.Error:  # Undone whole, OR FAIL too.
                        plain.connection.execute("ROLLBACK TO s")
                    plain.connection.execute("RELEASE s")
                plain.connection.execute("COMMIT")
        assert contents(pair.leader.path) == contents_of(plain.connection)
    assert done > 10
    pair.close()


def _commit_with_an_undone_statement(pair: SqlPair) -> None:
    pair.do("CREATE TABLE u (id INTEGER PRIMARY KEY, v TEXT UNIQUE)", "INSERT INTO u VALUES (1, 'a'), (2, 'b')")
    held = Held(pair)
    held.run("UPDATE u SET v = 'c' WHERE id = 1")
    # Its first row changes, the second one breaks the constraint: it is undone, and the transaction goes on.
    assert held.run("UPDATE u SET v = 'd'").fault.kind == "constraint"
    assert held.run("DELETE FROM u WHERE id = 2 RETURNING abs(-9223372036854775808)").fault is not None
    assert held.commit() is None
    assert contents(pair.follower.path)["u"] == [(1, 1, "c"), (2, 2, "b")]


def test_rows_of_a_statement_that_was_undone_are_logged_as_they_are(pair, tmp_path):
    _commit_with_an_undone_statement(pair)
    (tmp_path / "planted").mkdir()
    planted = SqlPair(tmp_path / "planted", machine=BelievesWhatIsUndone)
    with pytest.raises(AssertionError):
        _commit_with_an_undone_statement(planted)
    planted.close()
