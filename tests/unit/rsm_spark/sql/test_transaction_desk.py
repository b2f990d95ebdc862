"""The desk of open transactions: whose they are, what is answered twice, when they end."""

import asyncio
from pathlib import Path

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Query
from rsm_spark.core.freshness import LINEARIZABLE, STALE
from rsm_spark.sql.limits import WAL_PAGES_MAX, SqlSettings
from rsm_spark.sql.messages import (
    SqlEnd,
    SqlQuery,
    SqlStart,
    SqlStatement,
    SqlStep,
    decode_reply,
    decode_step_reply,
    encode,
)
from rsm_spark.sql.reader_pool import ReaderPool
from rsm_spark.sql.reads import SqlReads
from rsm_spark.sql.transactions import TransactionDesk
from tests.unit.rsm_spark.sql.sql_pair import SqlPair

NAME, OTHER = bytes(16), bytes(15) + b"1"
BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n, t"


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    pair.do("CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
    yield pair
    pair.close()


class Leads:
    """Stands where the kernel does."""

    leader_address = None

    def __init__(self, revision: int, status: AnswerStatus = AnswerStatus.OK) -> None:
        self.answer = Answer(status, revision, b"")
        self.asked: list = []

    def submit(self, requests, *, freshness=LINEARIZABLE, owner=""):
        self.asked.append((len(requests), freshness))
        future = asyncio.get_running_loop().create_future()
        future.set_result([self.answer for _ in requests])
        return future


def desk_of(pair: SqlPair, wal_pages: int = 0, **settings) -> TransactionDesk:
    return TransactionDesk(pair.leader.hold, lambda: wal_pages, SqlSettings(**settings))


def step(number: int, *statements: str, name: bytes = NAME) -> SqlStep:
    return SqlStep(name, number, tuple(map(SqlStatement, statements)))


def run(test) -> None:
    asyncio.run(test)


def test_the_same_step_again_is_answered_the_same_way(pair):
    async def _test() -> None:
        desk = desk_of(pair)
        for _ in range(2):
            assert desk.begin(SqlStart(NAME), "a").over is None
        first = await desk.step(step(1, "INSERT INTO t VALUES (2)", "SELECT count(*) FROM t", "SELECT *"), "a")
        assert [one.fault is None for one in first.outcomes] == [True, True, False]
        assert (first.outcomes[1].result.rows, first.has_written) == (((2,),), True)
        assert await desk.step(step(1, "INSERT INTO t VALUES (2)"), "a") == first
        again = await desk.step(step(2, "SELECT count(*) FROM t"), "a")
        assert again.outcomes[0].result.rows == ((2,),)
        late = await desk.step(step(4, "SELECT 1"), "a")
        assert (late.over.kind, "came after step 2" in late.over.text) == ("aborted", True)
        assert (await desk.step(step(3, "SELECT 1"), "a")).over == late.over
        assert desk.open_count == 0
        desk.close()

    run(_test())


def test_a_transaction_is_its_owners(pair):
    async def _test() -> None:
        desk = desk_of(pair)
        desk.begin(SqlStart(NAME), "a")
        assert desk.begin(SqlStart(NAME), "b").over.kind == "limit"
        assert (await desk.step(step(1, "SELECT 1"), "b")).over.kind == "aborted"
        desk.end(SqlEnd(NAME), "b")
        assert (await desk.step(step(1, "SELECT 1"), "a")).over is None
        desk.end(SqlEnd(NAME), "a")
        assert "ended it" in (await desk.step(step(2, "SELECT 1"), "a")).over.text
        desk.close()

    run(_test())


def test_one_client_has_a_quarter(pair):
    async def _test() -> None:
        desk = desk_of(pair, transactions_max=8)
        answers = [desk.begin(SqlStart(bytes([n]) * 16), "holder") for n in range(3)]
        assert [one.over is None for one in answers] == [True, True, False]
        assert answers[2].over.kind == "limit"
        assert desk.begin(SqlStart(OTHER), "victim").over is None
        desk.close()
        assert desk.open_count == 0

    run(_test())


def test_they_end_in_time_and_while_they_run(pair):
    async def _test() -> None:
        desk = desk_of(pair, transaction_idle_ms=50, transaction_ms_max=400)
        desk.begin(SqlStart(NAME), "a")
        desk.begin(SqlStart(OTHER), "b")
        over = (await desk.step(step(1, BOMB, name=OTHER), "b")).over
        assert (over.kind, "longer than 0.4 s" in over.text) == ("aborted", True)
        assert "waited for its client" in (await desk.step(step(1, "SELECT 1"), "a")).over.text
        assert desk.open_count == 0
        desk.close()

    run(_test())


def test_a_desk_that_is_closed_ends_what_runs(pair):
    async def _test() -> None:
        desk = desk_of(pair)
        desk.begin(SqlStart(NAME), "a")
        running = asyncio.create_task(desk.step(step(1, BOMB), "a"))
        await asyncio.sleep(0.05)
        desk.close()
        assert "stopped" in (await running).over.text

    run(_test())


def test_old_ones_end_when_the_wal_has_grown(pair, monkeypatch):
    async def _test() -> None:
        monkeypatch.setattr("rsm_spark.sql.transactions._YOUNG_S", -1.0)
        desk = desk_of(pair, WAL_PAGES_MAX)
        desk.begin(SqlStart(NAME), "a")
        assert desk.begin(SqlStart(OTHER), "b").over is None
        assert "WAL" in (await desk.step(step(1, "SELECT 1"), "a")).over.text
        assert (await desk.step(step(1, "SELECT 1", name=OTHER), "b")).over is None
        desk.close()

    run(_test())


def test_a_begin_is_confirmed_by_the_leader_and_a_step_asks_nobody(pair):
    async def _test() -> None:
        pool, desk = ReaderPool(pair.leader.path, SqlSettings()), desk_of(pair)
        kernel = Leads(pair.state.revision)
        reads = SqlReads(kernel, pool, desk)
        begun, read = await reads.submit(
            [Query(encode(SqlStart(NAME))), Query(encode(SqlQuery("SELECT a FROM t")))], freshness=STALE
        )
        assert sorted(kernel.asked, key=repr) == sorted([(1, STALE), (1, LINEARIZABLE)], key=repr)
        assert (begun.status, begun.revision) == (AnswerStatus.OK, pair.state.revision)
        assert decode_reply(read.payload).results[0].rows == ((1,),)
        (stepped,) = await reads.submit([Query(encode(step(1, "SELECT a FROM t")))])
        assert decode_step_reply(stepped.payload).outcomes[0].result.rows == ((1,),)
        assert len(kernel.asked) == 2
        (ended,) = await reads.submit([Query(encode(SqlEnd(NAME)))])
        assert ended.status is AnswerStatus.OK
        for payload in (encode(SqlStart(b"short")), b"\x92\x07\x01", b"\x92\x02\xc1"):
            (refused,) = await reads.submit([Query(payload)])
            assert refused.status is AnswerStatus.REFUSED
        follower = SqlReads(Leads(0, AnswerStatus.NOT_LEADER), pool, desk)
        (away,) = await follower.submit([Query(encode(SqlStart(OTHER)))])
        assert away.status is AnswerStatus.NOT_LEADER
        ahead = SqlReads(Leads(pair.state.revision + 1), pool, desk)
        (early,) = await ahead.submit([Query(encode(SqlStart(OTHER)))])
        assert (early.status, desk.open_count) == (AnswerStatus.NOT_READY, 0)
        none = SqlReads(kernel, pool)
        assert (await none.submit([Query(encode(SqlEnd(NAME)))]))[0].status is AnswerStatus.REFUSED
        desk.close()
        pool.close()

    run(_test())
