"""Results that are read in slices: one commit each, whose they are, what bounds them, when they end."""

import asyncio
from pathlib import Path

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Query
from rsm_spark.core.freshness import LINEARIZABLE, STALE
from rsm_spark.errors import InvalidCommandError, NotReadyError
from rsm_spark.sql.engine.reader import SqlReader
from rsm_spark.sql.limits import RESULT_WAL_PAGES_MAX, SqlSettings
from rsm_spark.sql.messages import SqlQuery, SqlRowsEnd, SqlRowsQuery, SqlSliceRequest, decode_slice, encode
from rsm_spark.sql.reader_pool import ReaderPool
from rsm_spark.sql.reads import SqlReads
from rsm_spark.sql.row_desk import RowDesk
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, transaction

NAME, OTHER = bytes(16), bytes(15) + b"1"
ALL = "SELECT id, v FROM t ORDER BY id"
COUNT = 2_000
BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {COUNT})"
    fill = f"INSERT INTO t SELECT i, printf('%01000d', i) FROM ({numbers} SELECT i FROM n)"
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)", fill)
    yield pair
    pair.close()


class Desk:
    """A desk over the file of a leader."""

    def __init__(self, pair: SqlPair, wal_pages: int = 0, **settings) -> None:
        self.settings = SqlSettings(**settings)
        self.pool = ReaderPool(pair.leader.path, self.settings, lambda: 0.0)
        self.desk = RowDesk(self.pool, lambda: wal_pages, self.settings)

    async def numbers(self, name: bytes = NAME, owner: str = "a", first: int = 1) -> list[int]:
        found = []
        for number in range(first, 1_000):
            reply = await self.desk.next(SqlSliceRequest(name, number), owner)
            assert reply.fault is None, reply.fault
            found += [row[0] for row in reply.rows]
            if reply.is_last:
                return found
        raise AssertionError("it has no end")

    async def __aenter__(self) -> RowDesk:
        return self.desk

    async def __aexit__(self, *_: object) -> None:
        self.desk.close()
        await asyncio.sleep(0)
        self.pool.close()


def ids(reply) -> list[int]:
    return [row[0] for row in reply.rows]


def test_all_slices_show_one_commit(pair):
    async def _test() -> None:
        held = Desk(pair)
        async with held as desk:
            first = await desk.open(SqlRowsQuery(NAME, ALL), "a")
            assert first.slice.columns == (("id", "INTEGER"), ("v", "TEXT"))
            assert (first.slice.is_last, first.revision) == (False, pair.state.revision)
            assert 100 < len(first.slice.rows) < COUNT / 2
            pair.do("DELETE FROM t WHERE id > 1000", "UPDATE t SET v = 'new'", "INSERT INTO t VALUES (5000, 'late')")
            second = await desk.next(SqlSliceRequest(NAME, 1), "a")
            assert second == await desk.next(SqlSliceRequest(NAME, 1), "a"), "the same one again is the same"
            rest = await held.numbers(first=2)
            assert [*ids(first.slice), *ids(second), *rest] == list(range(1, COUNT + 1))
            assert all(len(row[1]) == 1_000 for row in second.rows)
            assert desk.open_count == 0
            after = await desk.open(SqlRowsQuery(NAME, "SELECT count(*) FROM t"), "a")
            assert (after.slice.rows, after.slice.is_last) == (((1_001,),), True)

    asyncio.run(_test())


class _Forgetful(SqlReader):
    """A planted bug: a slice shows what is committed by then."""

    def next_rows(self):
        self.close_rows()
        return self.open_rows(SqlQuery(f"{ALL} LIMIT -1 OFFSET 300")).slice


@pytest.mark.parametrize("kind", [SqlReader, _Forgetful])
def test_a_slice_of_another_commit_would_be_found(pair, kind):
    reader = kind(pair.leader.path, SqlSettings(), lambda: 0.0)
    assert not reader.open_rows(SqlQuery(ALL)).slice.is_last
    pair.do("UPDATE t SET v = 'new'")
    lengths = {len(row[1]) for row in reader.next_rows().rows}
    assert (lengths == {1_000}) is (kind is SqlReader)
    reader.close_rows()
    reader.close()


def test_a_result_is_its_owners_and_ends_when_it_is_to(pair):
    async def _test() -> None:
        async with Desk(pair) as desk:
            first = await desk.open(SqlRowsQuery(NAME, ALL), "a")
            assert await desk.open(SqlRowsQuery(NAME, ALL), "a") == first, "it was sent again"
            with pytest.raises(InvalidCommandError, match="open already"):
                await desk.open(SqlRowsQuery(NAME, ALL), "b")
            with pytest.raises(InvalidCommandError, match="16 bytes"):
                await desk.open(SqlRowsQuery(b"short", ALL), "a")
            stolen = await desk.next(SqlSliceRequest(NAME, 1), "b")
            assert (stolen.fault.kind, stolen.rows) == ("aborted", ())
            desk.close_result(SqlRowsEnd(NAME), "b")
            assert desk.open_count == 1
            skipped = await desk.next(SqlSliceRequest(NAME, 2), "a")
            assert "slice 2 was asked for after 0" in skipped.fault.text
            assert (await desk.next(SqlSliceRequest(NAME, 1), "a")).fault == skipped.fault
            await desk.open(SqlRowsQuery(OTHER, ALL), "a")
            desk.close_result(SqlRowsEnd(OTHER), "a")
            assert "its client has ended it" in (await desk.next(SqlSliceRequest(OTHER, 1), "a")).fault.text
            assert desk.open_count == 0

    asyncio.run(_test())


def test_one_client_has_a_quarter_of_the_results_and_others_go_on(pair):
    async def _test() -> None:
        held = Desk(pair, results_max=8)
        async with held as desk:
            for number in range(2):
                assert (await desk.open(SqlRowsQuery(bytes([number] * 16), ALL), "a")).slice.fault is None
            third = await desk.open(SqlRowsQuery(OTHER, ALL), "a")
            assert (third.slice.fault.kind, "2 results of this client" in third.slice.fault.text) == ("limit", True)
            small = await desk.open(SqlRowsQuery(OTHER, "SELECT 1"), "a")
            assert small.slice.rows == ((1,),), "what is one slice needs no place"
            assert (await desk.open(SqlRowsQuery(OTHER, ALL), "b")).slice.fault is None
            assert len(await held.numbers(OTHER, "b")) > COUNT / 2

    asyncio.run(_test())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"result_idle_ms": 1}, "waited for its client"),
        ({"result_ms_max": 1}, "read for longer"),
        ({"wal_pages": RESULT_WAL_PAGES_MAX}, "WAL has grown"),
    ],
)
def test_a_result_that_nobody_reads_on_ends(pair, settings, words):
    async def _test() -> None:
        async with Desk(pair, **settings) as desk:
            await desk.open(SqlRowsQuery(NAME, ALL), "a")
            while desk.open_count:
                await asyncio.sleep(0.05)
            ended = (await desk.next(SqlSliceRequest(NAME, 1), "a")).fault
            assert (ended.kind, words in ended.text) == ("aborted", True), ended

    asyncio.run(_test())


def test_faults_and_bounds_of_slices(pair):
    async def _test() -> None:
        async with Desk(pair) as desk:
            wrong = await desk.open(SqlRowsQuery(NAME, "SELECT nothing"), "a")
            assert (wrong.slice.fault.kind, desk.open_count) == ("sql", 0)
            writes = await desk.open(SqlRowsQuery(NAME, "DELETE FROM t"), "a")
            assert writes.slice.fault.kind == "refused"
            two = await desk.open(SqlRowsQuery(NAME, "SELECT 1; SELECT 2"), "a")
            assert "more than one" in two.slice.fault.text
            wide = "SELECT " + ", ".join("hex(zeroblob(500000))" for _ in range(3))
            assert "a row has more" in (await desk.open(SqlRowsQuery(NAME, wide), "a")).slice.fault.text
            late = "SELECT id, CASE WHEN id = 1500 THEN abs(-9223372036854775808) END, v FROM t"
            assert (await desk.open(SqlRowsQuery(NAME, late), "a")).slice.fault is None
            number, fault = 1, None
            while fault is None:
                fault = (await desk.next(SqlSliceRequest(NAME, number), "a")).fault
                number += 1
            assert ("overflow" in fault.text, desk.open_count) == (True, 0)

    asyncio.run(_test())


def test_a_read_that_is_given_up_leaves_its_thread_and_no_result(pair):
    async def _test() -> None:
        held = Desk(pair)
        async with held as desk:
            for _ in range(6):
                given_up = asyncio.create_task(desk.read(SqlQuery(BOMB), "a"))
                await asyncio.sleep(0.02)
                given_up.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await given_up
            for pause_s in (0.0, 0.001, 0.005, 0.02):
                given_up = asyncio.create_task(desk.read(SqlQuery(ALL), "a"))
                await asyncio.sleep(pause_s)
                given_up.cancel()
                await asyncio.gather(given_up, return_exceptions=True)
            assert desk.open_count <= 4, "those that were read before they were given up"
            found = await asyncio.wait_for(desk.read(SqlQuery("SELECT 1"), "a"), 60)
            assert found.slice.rows == ((1,),)

    asyncio.run(_test())


class Confirms:
    """Stands where the kernel does."""

    leader_address = None

    def __init__(self, revision: int, status: AnswerStatus = AnswerStatus.OK) -> None:
        self.answer = Answer(status, revision, b"")
        self.asked: list = []

    def submit(self, requests, *, freshness=LINEARIZABLE, owner=""):
        self.asked.append(freshness)
        future = asyncio.get_running_loop().create_future()
        future.set_result([self.answer for _ in requests])
        return future


def test_slices_are_asked_for_over_the_service(pair):
    async def _test() -> None:
        held = Desk(pair)
        async with held as desk:
            kernel = Confirms(pair.state.revision)
            reads = SqlReads(kernel, held.pool, None, desk)

            async def ask(message, **how) -> Answer:
                return (await reads.submit([Query(encode(message))], owner="a", **how))[0]

            opened = await ask(SqlRowsQuery(NAME, ALL), freshness=STALE)
            assert (opened.status, opened.revision, kernel.asked) == (AnswerStatus.OK, pair.state.revision, [STALE])
            found = decode_slice(opened.payload)
            more = decode_slice((await ask(SqlSliceRequest(NAME, 1))).payload)
            assert ids(more)[0] == ids(found)[-1] + 1
            assert decode_slice((await ask(SqlRowsEnd(NAME))).payload).fault is None
            assert (desk.open_count, len(kernel.asked)) == (0, 1)
            elsewhere = SqlReads(Confirms(0, AnswerStatus.NOT_LEADER), held.pool, None, desk)
            (answer,) = await elsewhere.submit([Query(encode(SqlRowsQuery(NAME, ALL)))], owner="a")
            assert answer.status is AnswerStatus.NOT_LEADER
            ahead = SqlReads(Confirms(pair.state.revision + 1), held.pool, None, desk)
            (answer,) = await ahead.submit([Query(encode(SqlRowsQuery(NAME, ALL)))], owner="a")
            assert (answer.status, desk.open_count) == (AnswerStatus.NOT_READY, 0)
            with pytest.raises(NotReadyError):
                await ahead.rows(SqlQuery(ALL), LINEARIZABLE, "a")
            assert desk.open_count == 0

    asyncio.run(_test())


def test_writes_go_on_beside_a_result_that_waits(pair):
    async def _test() -> None:
        held = Desk(pair)
        async with held as desk:
            await desk.open(SqlRowsQuery(NAME, ALL), "slow")
            for number in range(20):
                pair.submit(transaction(f"INSERT INTO t VALUES ({10_000 + number}, 'x')"))
                pair.confirm(pair.compose())
                found = await desk.read(SqlQuery("SELECT max(id) FROM t"), "victim")
                assert found.slice.rows == ((10_000 + number,),)
            assert len(await held.numbers(NAME, "slow")) < COUNT

    asyncio.run(_test())
