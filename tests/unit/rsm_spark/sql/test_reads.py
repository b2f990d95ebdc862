"""Reads of SQL tables on their own connections: what they see, what bounds them, who waits for whom."""

import asyncio
from pathlib import Path

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, OpenSession, Query
from rsm_spark.core.freshness import LINEARIZABLE
from rsm_spark.sql.engine.quick_reader import QuickReader
from rsm_spark.sql.engine.reader import SqlReader
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlQuery, decode_reply, encode
from rsm_spark.sql.reader_pool import ReaderPool
from rsm_spark.sql.reads import SqlReads
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, transaction

BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'one'), (2, NULL)")
    yield pair
    pair.close()


def reader_of(pair: SqlPair, settings: SqlSettings | None = None, clock_s=lambda: 0.0) -> SqlReader:
    return SqlReader(pair.leader.path, settings or SqlSettings(), clock_s)


def test_a_read_sees_what_is_confirmed_and_says_of_which_revision(pair):
    reader = reader_of(pair)
    before = reader.read(SqlQuery("SELECT * FROM t"))
    assert before.reply.results[0].rows == ((1, "one"), (2, None))
    assert before.reply.results[0].columns == (("id", "INTEGER"), ("v", "TEXT"))
    assert before.revision == pair.state.revision
    pair.submit(transaction("DELETE FROM t"))
    batch = pair.compose()
    assert reader.read(SqlQuery("SELECT * FROM t")) == before
    pair.confirm(batch)
    after = reader.read(SqlQuery("SELECT * FROM t"))
    assert after.reply.results[0].rows == ()
    assert after.revision == pair.state.revision > before.revision
    reader.close()


def test_columns_are_those_of_the_rows_at_once_when_the_schema_has_changed(pair):
    reader, quick = reader_of(pair), QuickReader(pair.leader.path, 4, lambda: 0.0)
    asked = SqlQuery("SELECT * FROM t WHERE id = 1")
    for change, columns in (
        ("UPDATE t SET v = v", ["id", "v"]),
        ("ALTER TABLE t ADD COLUMN n DEFAULT 7", ["id", "v", "n"]),
        ("ALTER TABLE t DROP COLUMN v", ["id", "n"]),
        ("ALTER TABLE t RENAME COLUMN n TO m", ["id", "m"]),
    ):
        assert pair.do(change).fault is None
        (told,) = reader.read(asked).reply.results
        at_once = quick.read(asked)
        sliced = reader.open_rows(asked)
        (by_leader,) = pair.do(asked.sql).results
        assert at_once is not None
        for found in (told, at_once.slice, sliced.slice, by_leader):
            assert [name for name, _ in found.columns] == columns
            assert len(found.rows[0]) == len(columns)
    reader.close()
    quick.close()


@pytest.mark.parametrize(
    ("sql", "kind", "words"),
    [
        ("INSERT INTO t VALUES (3, 'x')", "refused", "send it by execute"),
        ("DROP TABLE t", "refused", "send it by execute"),
        ("CREATE TEMP TABLE x (a)", "refused", ""),
        ("ATTACH 'x.db' AS x", "refused", "ATTACH"),
        ("VACUUM INTO 'stolen.db'", "sql", "VACUUM"),
        ("PRAGMA query_only = OFF", "refused", "PRAGMA query_only"),
        ("PRAGMA wal_checkpoint", "refused", "PRAGMA"),
        ("BEGIN", "refused", "together"),
        ("COMMIT", "refused", "together"),
        ("ROLLBACK", "refused", "together"),
        ("SELECT revision FROM _rsm_mark", "refused", "the replica's own"),
        ("SELECT * FROM _rsm_kernel", "refused", "the replica's own"),
        ("SELECT load_extension('x.so')", "refused", "load_extension"),
        ("SELECT 1; SELECT 2", "sql", "more than one"),
        ("SELECT :a", "sql", "no value"),
        ("SELEKT", "sql", "syntax error"),
        ("SELECT zeroblob(2000000)", "limit", "too big"),
        ("SELECT length(hex(zeroblob(900000)))", "limit", "too big"),
        (f"SELECT {' + '.join('1' * 300)}", "sql", "depth"),
        ("SELECT " + ", ".join("1" for _ in range(600)), "sql", "too many columns"),
        (" UNION ALL ".join("SELECT 1" for _ in range(200)), "sql", "compound"),
        (f"SELECT '{'x' * 300_000}'", "limit", "too big"),
        ("SELECT * FROM pragma_database_list", "refused", "PRAGMA"),
    ],
)
def test_reads_are_bounded_and_refused_in_words(pair, tmp_path, sql, kind, words):
    reader = reader_of(pair)
    parameters = {"b": 1} if ":a" in sql else ()
    fault = reader.read(SqlQuery(sql, parameters)).reply.fault
    assert fault is not None
    assert (fault.kind, words in fault.text) == (kind, True), fault
    assert reader.read(SqlQuery("SELECT count(*) FROM t")).reply.results[0].rows == ((2,),)
    assert not list(Path().glob("stolen.db"))
    reader.close()


def test_pragmas_that_tell_of_the_schema_are_answered(pair):
    reader = reader_of(pair)
    for sql in (
        "PRAGMA table_info(t)",
        "SELECT name FROM pragma_table_info('t')",
        "EXPLAIN QUERY PLAN SELECT * FROM t",
        "EXPLAIN QUERY PLAN DELETE FROM t",
        "EXPLAIN UPDATE t SET rowid = 5",
        "EXPLAIN DROP TABLE t",
    ):
        assert reader.read(SqlQuery(sql)).reply.fault is None
    for sql in (
        "EXPLAIN SELECT 1; DELETE FROM t",
        "EXPLAIN ATTACH 'x' AS y",
        "EXPLAIN DELETE FROM _rsm_mark",
        "DROP TABLE t",
    ):
        assert reader.read(SqlQuery(sql)).reply.fault is not None, sql
    reader.close()


def test_a_read_ends_when_its_time_is_over(pair):
    now = [0.0]

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    reader = reader_of(pair, clock_s=clock)
    fault = reader.read(SqlQuery(BOMB)).reply.fault
    assert (fault.kind, "longer than 5 s" in fault.text) == ("limit", True)
    reader.close()


def test_a_command_ends_when_its_time_is_over_and_the_entry_keeps_what_it_has(tmp_path):
    now = [0.0]

    def clock() -> float:
        now[0] += 0.3
        return now[0]

    pair = SqlPair(tmp_path, clock_s=clock)
    pair.do("CREATE TABLE t (a)")
    first, bomb, last = pair.run(
        transaction("INSERT INTO t VALUES ('first')"),
        transaction("INSERT INTO t VALUES ('bomb')", BOMB.replace("SELECT count(*)", "INSERT INTO t SELECT i")),
        transaction("INSERT INTO t VALUES ('last')"),
    )
    assert (first.fault, last.fault) == (None, None)
    assert (bomb.fault.kind, bomb.fault.statement) == ("limit", 1)
    reader = reader_of(pair)
    assert reader.read(SqlQuery("SELECT a FROM t")).reply.results[0].rows == (("first",), ("last",))
    reader.close()
    pair.close()


def test_more_rows_than_a_reply_holds_are_refused(pair):
    reader = reader_of(pair, SqlSettings(result_bytes_max=2_000))
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i FROM n"
    fault = reader.read(SqlQuery(numbers)).reply.fault
    assert (fault.kind, "LIMIT" in fault.text) == ("limit", True)
    assert len(reader.read(SqlQuery(f"{numbers} LIMIT 100")).reply.results[0].rows) == 100
    reader.close()


def test_a_victim_is_answered_while_others_bomb(pair):
    """Two bombs run at most, of four connections; the victim's reads pass them all."""
    settings = SqlSettings(waiting_reads_max=16)

    async def _run() -> None:
        pool = ReaderPool(pair.leader.path, settings, lambda: 0.0)  # Time stands still: a bomb ends by itself never.
        bombs = [pool.read(SqlQuery(BOMB), "attacker") for _ in range(6)]
        await asyncio.sleep(0.05)
        for _ in range(20):
            found = await asyncio.wait_for(pool.read(SqlQuery("SELECT v FROM t WHERE id = 1"), "victim"), 60)
            assert found.reply.results[0].rows == (("one",),)
        assert not any(bomb.done() for bomb in bombs)
        assert pool.waiting_count == 4
        bombs += [pool.read(SqlQuery(BOMB), "attacker") for _ in range(4)]
        with pytest.raises(asyncio.QueueFull):
            pool.read(SqlQuery(BOMB), "attacker")
        assert (await pool.read(SqlQuery("SELECT 1"), "victim")).reply.fault is None
        for bomb in bombs:
            bomb.cancel()
        await asyncio.sleep(0)
        found = await asyncio.wait_for(pool.read(SqlQuery("SELECT 2"), "attacker"), 60)
        assert found.reply.results[0].rows == ((2,),)
        pool.close()

    asyncio.run(_run())


def test_a_pool_that_is_closed_ends_what_it_reads(pair):
    async def _run() -> None:
        pool = ReaderPool(pair.leader.path, SqlSettings(), lambda: 0.0)
        reads = [pool.read(SqlQuery(BOMB), str(number % 2)) for number in range(8)]
        await asyncio.sleep(0.05)
        pool.close()
        done = await asyncio.gather(*reads, return_exceptions=True)
        assert all(isinstance(one, BaseException) or one.reply.fault.text == "it was cancelled" for one in done)

    asyncio.run(_run())


class ConfirmedAtOnce:
    """Stands where the kernel does: the state is as it is, and confirmed."""

    leader_address = None

    def __init__(self, revision: int) -> None:
        self.revision = revision

    def submit(self, requests, *, freshness=LINEARIZABLE, owner=""):
        future = asyncio.get_running_loop().create_future()
        assert all(request.payload == b"" for request in requests if type(request) is Query)
        future.set_result([Answer(AnswerStatus.OK, self.revision, b"") for _ in requests])
        return future


def test_queries_are_read_when_the_kernel_has_answered_and_end_when_they_are_given_up(pair):
    def query(sql: str) -> Query:
        return Query(encode(SqlQuery(sql)))

    async def _run() -> None:
        pool = ReaderPool(pair.leader.path, SqlSettings(), lambda: 0.0)
        reads = SqlReads(ConfirmedAtOnce(pair.state.revision), pool)
        session = OpenSession(bytes(16))
        first, opened, wrong, no_sql = await reads.submit(
            [query("SELECT v FROM t"), session, query("SELECT nothing"), Query(b"junk")]
        )
        assert decode_reply(first.payload).results[0].rows == (("one",), (None,))
        assert (first.revision, opened.payload) == (pair.state.revision, b"")
        assert decode_reply(wrong.payload).fault.kind == "sql"
        assert no_sql.status is AnswerStatus.REFUSED
        ahead = SqlReads(ConfirmedAtOnce(pair.state.revision + 1), pool)
        (answer,) = await ahead.submit([query("SELECT 1")])
        assert answer.status is AnswerStatus.NOT_READY  # Another state has taken the place of this one.
        given_up = [reads.submit([query(BOMB)], owner="a") for _ in range(5)]
        await asyncio.sleep(0.05)
        for future in given_up:
            future.cancel()
        (answer,) = await asyncio.wait_for(reads.submit([query("SELECT 2")], owner="a"), 60)
        assert decode_reply(answer.payload).results[0].rows == ((2,),)
        pool.close()

    asyncio.run(_run())


def test_an_entry_takes_no_further_transaction_when_those_before_took_long(tmp_path):
    now = [0.0]

    def clock() -> float:
        now[0] += 0.02
        return now[0]

    pair = SqlPair(tmp_path, clock_s=clock)
    pair.do("CREATE TABLE t (a)")
    before = len(pair.payloads)
    replies = pair.run(*(transaction("INSERT INTO t VALUES (1)") for _ in range(12)))
    assert all(reply.fault is None for reply in replies)
    assert 2 < len(pair.payloads) - before < 12
    pair.close()
