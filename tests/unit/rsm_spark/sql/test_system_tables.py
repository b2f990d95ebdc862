"""System tables: who is shown what, and that a query has them while nothing else does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ledger.rights.principal import ANYBODY, CLUSTER, Principal, Role
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain
from rsm_spark.sql.engine.reader import ColumnsQuery, SqlReader
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlQuery, SqlStart, SqlStatement, SqlStep
from rsm_spark.sql.system_tables import (
    COLUMNS,
    LEDGERS,
    NODES,
    HeldCommit,
    SystemAsker,
    ledger_rows,
    lock_rows,
    moment,
    node_rows,
    sees_all,
    snapshot_rows,
    system_names,
)
from rsm_spark.sql.transactions import TransactionDesk
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, contents

NODE = ("a", "h:1", "leader", 7, 0, 0, 3, None, None)
ROWS = {NODES: [NODE, ("b", "h:2", "follower", 5, 2, 10, 3, None, None)]}
NAME = bytes(16)


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    pair.do("CREATE TABLE t (name TEXT, v INTEGER)", "INSERT INTO t VALUES ('a', 1), ('b', 2)")
    yield pair
    pair.close()


def reader_of(pair: SqlPair, **settings) -> SqlReader:
    return SqlReader(pair.leader.path, SqlSettings(**settings), lambda: 0.0)


def read(reader: SqlReader, sql: str, rows=ROWS):
    reply = reader.read(SqlQuery(sql), rows).reply
    return reply.fault.text if reply.fault is not None else reply.results[0].rows


def test_a_query_joins_them_with_tables_of_the_log_and_leaves_nothing_behind(pair):
    before = contents(pair.leader.path)
    reader = reader_of(pair)
    joined = "SELECT t.v, n.role FROM t JOIN RSM_Nodes n USING (name) ORDER BY v"
    assert read(reader, joined) == ((1, "leader"), (2, "follower"))
    assert read(reader, 'SELECT name FROM "rsm_nodes" WHERE behind = 0', {NODES: ROWS[NODES][:1]}) == (("a",),)
    assert read(reader, "SELECT count(*) FROM rsm_nodes", {}) == ((0,),), "rows of the query before are gone"
    assert "no such table" in str(read(reader, "SELECT count(*) FROM rsm_nodes", None))
    (session,) = read(reader, "SELECT name, commands, unanswered FROM rsm_sessions", {})
    assert session == ("000000000000", 1, 1)
    for name in COLUMNS:
        assert read(reader, f"SELECT * FROM {name}", {}) is not None
    assert read(reader, "SELECT name FROM temp.sqlite_schema") == ()
    assert contents(pair.leader.path) == before
    found = reader.read(ColumnsQuery("SELECT name, revision FROM rsm_nodes")).reply
    assert found.results[0].columns == (("name", "TEXT"), ("revision", "INTEGER"))
    reader.close()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("INSERT INTO rsm_nodes VALUES (1)", "it writes"),
        ("DELETE FROM rsm_locks", "it writes"),
        ("DROP TABLE rsm_nodes", "it writes"),
        ("CREATE TEMP TABLE x AS SELECT * FROM rsm_nodes", "it writes"),
        ("SELECT * FROM main.rsm_nodes", "system tables are read by queries"),
    ],
)
def test_nobody_writes_them(pair, sql, words):
    reader = reader_of(pair)
    assert words in str(read(reader, sql))
    assert read(reader, "SELECT name FROM rsm_nodes") == (("a",), ("b",))
    reader.close()


def test_a_statement_that_writes_and_a_view_are_told_why_there_are_none(pair):
    for sql in ("INSERT INTO t SELECT name, revision FROM rsm_nodes", "DELETE FROM rsm_locks"):
        fault = pair.do(sql).fault
        assert fault is not None
        assert "system tables are read by queries" in fault.text, fault
    assert pair.do("CREATE VIEW seen AS SELECT * FROM rsm_nodes").fault is None
    reader = reader_of(pair)
    assert "not by views" in str(read(reader, "SELECT * FROM seen, rsm_nodes"))
    reader.close()


def test_a_table_of_the_log_that_has_the_name_hides_them(pair):
    reader = reader_of(pair)
    assert read(reader, "SELECT count(*) FROM rsm_nodes") == ((2,),)
    pair.do("CREATE TABLE Rsm_nodes (mine)", "INSERT INTO rsm_nodes VALUES (9)")
    assert read(reader, "SELECT * FROM rsm_nodes") == ((9,),)
    reader.close()


def test_they_are_read_in_slices_too(pair):
    reader = reader_of(pair, result_bytes_max=1_024)
    many = {NODES: [(f"n{n:04}", *NODE[1:]) for n in range(300)]}
    reader.begin()
    found = reader.open_rows(SqlQuery("SELECT name FROM rsm_nodes ORDER BY name"), many)
    names, piece = [], found.slice
    while True:
        names += [name for (name,) in piece.rows]
        if piece.is_last:
            break
        piece = reader.next_rows()
    assert (piece.fault, names) == (None, [row[0] for row in many[NODES]])
    reader.close()


def test_a_transaction_reads_them_alone_and_its_commit_does_not_look_again(pair):
    async def _test() -> None:
        desk = TransactionDesk(pair.leader.hold, lambda: 0, SqlSettings())
        desk.begin(SqlStart(NAME), "principal ann")
        (hold,) = desk.held_commits()
        assert (hold.kind, hold.owner, hold.waits_for, hold.has_written) == (
            "transaction", "principal ann", "its client", False,
        )  # fmt: skip
        number = 0

        async def step(sql: str, expected: int | None = None):
            nonlocal number
            number += 1
            statement = SqlStatement(sql, (), expected)
            reply = await desk.step(SqlStep(NAME, number, (statement,)), "principal ann", ROWS)
            assert reply.over is None, reply.over
            return reply.outcomes[0]

        for _ in range(2):  # Before and after the first write.
            found = await step("SELECT name FROM rsm_nodes ORDER BY name")
            assert (found.result.rows, found.told) == ((("a",), ("b",)), b"")
            assert (await step("SELECT name FROM rsm_nodes", expected=1)).fault.kind == "expected"
            assert (await step("SELECT count(*) FROM rsm_nodes")).result.rows == ((2,),)
            refused = await step("SELECT * FROM rsm_nodes JOIN t USING (name)")
            assert (refused.fault.kind, refused.told) == ("refused", b"")
            wrong = await step("SELECT * FROM rsm_nodes, missing")
            assert ("no such table: missing" in wrong.fault.text, wrong.told) == (True, b"")
            text = await step("SELECT v FROM t WHERE name = 'a' AND 'rsm_nodes' <> ''")
            assert (text.result.rows, bool(text.told)) == (((1,),), True)
            assert (await step("UPDATE t SET v = v + 0")).fault is None
        assert desk.held_commits()[0].has_written
        desk.close()

    asyncio.run(_test())


def test_names_are_found_in_any_spelling():
    assert system_names('select 1 from "RSM_LOCKS", x.rsm_nodes') == {"rsm_locks", "rsm_nodes"}
    assert system_names("select * from rsm_nodes2, my_rsm_nodes, rsm_imports") == frozenset()


def test_owners_are_told_to_themselves_and_to_who_administers():
    holds = [HeldCommit("transaction", NAME, f"principal {name}", 10.0, 11.0, None, 5, True) for name in ("ann", "bob")]
    now_ms = 1_000_000
    rows = lock_rows(holds, SystemAsker("principal ann", sees_all=False), 12.0, now_ms)
    assert [row[2:4] for row in rows] == [("principal ann", 1), (None, 0)]
    assert rows[0][4:] == (moment(now_ms - 2_000), moment(now_ms - 1_000), None, 5, 1)
    shown = lock_rows(holds, SystemAsker("principal ops", sees_all=True), 12.0, now_ms)
    assert [row[2] for row in shown] == ["principal ann", "principal bob"]
    told = {role: sees_all(Principal(name="x", role=role)) for role in Role}
    assert [role for role, is_told in told.items() if is_told] == [Role.OPERATOR, Role.AUDITOR]
    assert not sees_all(Principal(name="x", role=Role.AUDITOR, tenant="one"))
    assert sees_all(CLUSTER)
    assert sees_all(ANYBODY)


def test_rows_say_what_replicas_and_the_chain_say():
    said = {
        "replica_id": "a", "address": "h:1", "role": "follower", "revision": 5, "lag_ms": 9, "logged_ms": 1,
        "row_count": 3, "alarms": ["one", "two"], "snapshots": [{"revision": 4, "rows": 2, "created_ms": 0}],
        "damaged_snapshots": [{"place": "/x", "reason": "cut"}], "verified": {"lake": 3, "replica-a": 4},
    }  # fmt: skip
    ahead = {**said, "replica_id": "b", "revision": 8, "alarms": [], "snapshots": [], "damaged_snapshots": []}
    gone = {"replica_id": "c", "address": "h:3", "error": "no answer"}
    assert node_rows([said, ahead, gone]) == [
        ("a", "h:1", "follower", 5, 3, 9, 3, "one\ntwo", None),
        ("b", "h:1", "follower", 8, 0, 9, 3, None, None),
        ("c", "h:3", None, None, None, None, None, None, "no answer"),
    ]
    assert snapshot_rows([said, ahead, gone]) == [
        ("a", 4, "whole", 2, "1970-01-01 00:00:00.000+00:00", None),
        ("a", None, "damaged", None, None, "cut"),
        ("lake", 3, "verified", None, None, None),
        ("replica-a", 4, "verified", None, None, None),
    ]
    closed = ChainLedger(3, 0, 1, 1, ClosedEnd(9, 20, 0, 4_000, ""))
    chain = LogChain("0" * 32, 3, 2, None, (closed, ChainLedger(4, 0, 2, 21)))
    begun = "1970-01-01 00:00:00.000+00:00"
    assert ledger_rows(chain, {4: ("b1:3181", "b2:3181")}) == [
        (3, "closed", 1, 20, 4_000, 1, begun, None),
        (4, "open", 21, None, None, 2, begun, '["b1:3181","b2:3181"]'),
    ]
    assert COLUMNS[LEDGERS].count(",") + 1 == len(ledger_rows(chain, {})[0])
