"""Reads on the event loop: which are, what they see, and that nobody keeps the loop with them."""

import asyncio
from pathlib import Path

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Query
from rsm_spark.core.freshness import LINEARIZABLE
from rsm_spark.sql.engine.quick_reader import QuickReader, StoredRowsGuard
from rsm_spark.sql.engine.reader import SqlReader
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlQuery, SqlRowsQuery, decode_reply, decode_slice, encode
from rsm_spark.sql.quick_reads import QuickReads
from rsm_spark.sql.reader_pool import ReaderPool
from rsm_spark.sql.reads import SqlReads
from rsm_spark.sql.row_desk import RowDesk
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, transaction

POINT = "SELECT id, v FROM t WHERE id = ?1"
RANGE = "SELECT id FROM t WHERE id > ?1 AND v = 'x'"
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000)"


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    pair.do(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
        f"INSERT INTO t SELECT i, printf('%0100d', i) FROM ({NUMBERS} SELECT i FROM n)",
        "CREATE TABLE big (id INTEGER PRIMARY KEY, v TEXT)",
        "INSERT INTO big SELECT 1, printf('%0100000d', 1)",
        "CREATE VIEW named AS SELECT id, v FROM t",
        "CREATE VIEW likes AS SELECT id FROM t WHERE v LIKE '%1%2%3%'",
    )
    yield pair
    pair.close()


class Quick:
    """Quick reads of a leader's file, by a clock that the test sets."""

    def __init__(self, pair: SqlPair, step_s: float = 0.0) -> None:
        self.now_s, self._step_s = 0.0, step_s
        self.reads = QuickReads(pair.leader.path, SqlSettings(), self._clock_s)

    def _clock_s(self) -> float:
        self.now_s += self._step_s
        return self.now_s

    def read(self, sql: str, *values: object, owner: str = "a"):
        return self.reads.read(SqlQuery(sql, values), owner)


def test_a_row_by_its_key_is_read_and_is_what_a_thread_reads(pair):
    quick, reader = Quick(pair), SqlReader(pair.leader.path, SqlSettings(), lambda: 0.0)
    for sql, values in [
        (POINT, (7,)), (POINT, ("8",)), (POINT, (-1,)), ("SELECT v AS w, 1, NULL FROM named WHERE id = 9", ()),
        ("SELECT * FROM t WHERE id BETWEEN 3 AND 5 ORDER BY id DESC LIMIT 2", ()),
    ]:  # fmt: skip
        found = quick.read(sql, *values)
        assert found == reader.open_rows(SqlQuery(sql, values)), sql
        assert (found.slice.is_last, found.revision) == (True, pair.state.revision)
    before = quick.read(POINT, 1)
    pair.submit(transaction("UPDATE t SET v = 'new' WHERE id = 1"))
    batch = pair.compose()
    assert quick.read(POINT, 1) == before, "it is not confirmed"
    pair.confirm(batch)
    assert quick.read(POINT, 1).slice.rows == ((1, "new"),)
    assert quick.read(POINT, 1).revision == pair.state.revision > before.revision
    quick.reads.close()
    reader.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM t",
        "SELECT * FROM t WHERE v LIKE '%a%b%c%'",
        "SELECT * FROM likes",
        "SELECT randomblob(1000000)",
        f"{NUMBERS} SELECT i FROM n",
        "SELECT value FROM json_each('[1]')",
        "SELECT name FROM pragma_table_list",
        "SELECT revision FROM _rsm_mark",
        "DELETE FROM t WHERE id = 1",
        "DROP TABLE t",
        "SELECT 1; SELECT 2",
        "SELECT id FROM t",
        "SELECT a.id FROM t AS a, t AS b WHERE a.v = b.v || 'x'",
        "SELECT v FROM big WHERE id = 1",
        "SELECT * FROM rsm_nodes",
        f"SELECT {' + '.join('1' * 600)}",
    ],
)
def test_what_is_not_quick_goes_to_a_thread(pair, sql):
    quick = Quick(pair)
    assert quick.read(sql) is None
    assert quick.read(sql) is None
    assert quick.read(POINT, 1, owner="b").slice.rows[0][0] == 1
    quick.reads.close()


class _Lenient(StoredRowsGuard):
    """A planted bug: a function may be called."""

    def _reason(self, action, one, two):
        return ""


def test_a_function_on_the_event_loop_would_be_found(pair, monkeypatch):
    monkeypatch.setattr("rsm_spark.sql.engine.quick_reader.StoredRowsGuard", _Lenient)
    assert QuickReader(pair.leader.path, 1, lambda: 0.0).read(SqlQuery("SELECT count(*) FROM t")) is not None


def test_what_becomes_slow_with_the_schema_is_given_up(pair):
    quick = Quick(pair)
    assert quick.read("SELECT * FROM named WHERE id = 1").slice.rows
    pair.do("DROP VIEW named", "CREATE VIEW named AS SELECT id, upper(v) FROM t")
    assert quick.read("SELECT * FROM named WHERE id = 1") is None
    assert quick.read("SELECT * FROM missing") is None
    pair.do("CREATE TABLE missing (a)")
    assert quick.read("SELECT * FROM missing").slice.rows == (), "an error is remembered by nobody"
    quick.reads.close()


def test_a_text_is_tried_again_after_a_minute_and_many_runs_are_none_long(pair):
    quick = Quick(pair)
    assert quick.read(RANGE, 0) is None
    assert quick.read(RANGE, 1_990) is None
    quick.now_s += 61
    assert quick.read(RANGE, 1_990).slice.rows == ()
    for number in range(500):  # SQLite counts the steps of all of them.
        assert quick.read(RANGE, 1_990) is not None, number
    quick.reads.close()


def test_who_looks_for_slow_texts_has_the_loop_seldom_and_others_as_before(pair):
    quick = Quick(pair, step_s=0.002)
    assert quick.read(RANGE, 0) is None
    assert quick.read(POINT, 1) is None, "all reads of this owner are for threads now"
    assert quick.read(POINT, 1, owner="victim").slice.rows[0][0] == 1
    given_up, began_s = 0, quick.now_s
    for number in range(20_000):
        looked_s = quick.now_s
        given_up += quick.read(f"{RANGE} AND id <> {number}", 0) is None and quick.now_s - looked_s > 0.003
    assert 1 <= given_up
    assert given_up * 0.006 < 0.03 * (quick.now_s - began_s)
    quick.reads.close()


class _Confirms:
    """A kernel that has confirmed a revision."""

    leader_address = None

    def __init__(self, revision: int) -> None:
        self.revision = revision

    def submit(self, requests, *, freshness=LINEARIZABLE, owner=""):
        future = asyncio.get_running_loop().create_future()
        future.set_result([Answer(AnswerStatus.OK, self.revision, b"") for _ in requests])
        return future


def test_all_doors_read_quickly_and_never_what_is_older_than_confirmed(pair):
    async def _test() -> None:
        settings = SqlSettings()
        pool = ReaderPool(pair.leader.path, settings)
        desk, quick = RowDesk(pool, lambda: 0, settings), QuickReads(pair.leader.path, settings)
        reads = SqlReads(_Confirms(pair.state.revision), pool, None, desk, None, quick)
        pool.close()  # No thread is needed.
        asked = SqlQuery(POINT, (7,))
        whole, sliced = await reads.submit(
            [Query(encode(asked)), Query(encode(SqlRowsQuery(bytes(16), POINT, (7,))))]
        )  # fmt: skip
        own = await reads.rows(asked, LINEARIZABLE, "a")
        assert decode_reply(whole.payload).results[0].rows == decode_slice(sliced.payload).rows == own.slice.rows
        assert whole.revision == sliced.revision == own.revision == pair.state.revision
        ahead = SqlReads(_Confirms(pair.state.revision + 1), pool, None, desk, None, quick)
        assert ahead._read_quickly(asked, pair.state.revision + 1, "a", None) is None
        quick.close()

    asyncio.run(_test())
