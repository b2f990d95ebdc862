"""Rights to tables, statement by statement: every way to a table that is not one's own, and what is one's own."""

from pathlib import Path

import pytest

from ledger.rights.principal import CLUSTER, ClientAccess, Principal, Role
from rsm_spark.core.commands import Command, Query
from rsm_spark.core.writer_marks import MarkKind, WriterMark, encode_mark
from rsm_spark.errors import InvalidCommandError
from rsm_spark.files.scopes import FileScopes, path_fault
from rsm_spark.map.scopes import MapScopes
from rsm_spark.sql.engine.quick_reader import QuickReader
from rsm_spark.sql.engine.reader import ColumnsQuery, SqlReader
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlCommit, SqlFault, SqlQuery, SqlStatement, encode, is_of_transaction
from rsm_spark.sql.scopes import SQL_SCOPES
from rsm_spark.sql.table_rights import TableRights, opened, rights_of, within
from rsm_spark.transport.reach import WHOLE_LOG, fault_of, reach_of, watch_fault
from rsm_spark.transport.watch_codec import WatchRequest
from tests.unit.rsm_spark.sql.closed_tables import EVE, READS, SCHEMA, SETUP, WRITES
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, contents, transaction


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    pair.do(*SETUP)
    yield pair
    pair.close()


def run(pair: SqlPair, *statements, rights: TableRights | None = EVE) -> SqlFault | None:
    return pair.run(within(rights, transaction(*statements)))[-1].fault


@pytest.mark.parametrize("sql", READS)
def test_no_query_shows_what_is_not_ones_own(pair, sql):
    reader = SqlReader(pair.leader.path, SqlSettings(), lambda: 0.0)
    quick = QuickReader(pair.leader.path, 1, lambda: 0.0)
    held = pair.leader.hold()
    held.rights = EVE
    try:
        for _ in range(2):
            # Others, who may, have had it prepared on the same connections.
            may = reader.read(SqlQuery(sql)).reply.fault
            assert may is None or "not for clients" in may.text or "replica's own" in may.text, may
            quick.read(SqlQuery(sql))
            fault = reader.read(SqlQuery(sql), rights=EVE).reply.fault
            assert fault is not None
            kind = "sql" if sql.startswith(";") else "denied" if may is None else may.kind
            assert fault.kind == kind, fault
            assert quick.read(SqlQuery(sql), EVE) is None
            sliced = reader.open_rows(SqlQuery(sql), rights=EVE).slice
            assert (sliced.fault, sliced.rows) == (fault, ())
            if not sql.startswith("EXPLAIN"):
                assert reader.read(ColumnsQuery(sql), rights=EVE).reply.fault == fault
            (step,) = held.step([SqlStatement(sql)])
            assert (step.result, step.fault.kind) == (None, fault.kind)
            # As a write: the leader runs it in a transaction.
            assert run(pair, sql) is not None
    finally:
        held.close()
        quick.close()
        reader.close()


@pytest.mark.parametrize("sql", [*WRITES, *SCHEMA])
def test_no_statement_changes_or_copies_what_is_not_ones_own(pair, sql):
    before = contents(pair.leader.path)
    fault = run(pair, "INSERT INTO mine (v) VALUES ('undone')", sql)
    assert fault is not None
    assert fault.kind == "denied", fault
    assert contents(pair.leader.path) == before
    held = pair.leader.hold()
    held.rights = EVE
    (step,) = held.step([SqlStatement("SELECT count(*) FROM mine")])
    assert step.result.rows == ((2,),)
    held.close()
    pair.check()


def test_a_statement_that_is_kept_prepared_gives_nothing_to_others(pair):
    for sql in ("INSERT INTO secret (v) VALUES ('x')", "DELETE FROM secret WHERE id > 2", "UPDATE mine SET v = v"):
        for _ in range(3):
            assert run(pair, sql, rights=None) is None
            fault = run(pair, sql)
            assert (fault.kind if fault else "done") == ("done" if "mine" in sql else "denied")


def test_what_is_ones_own_is_served(pair):
    reader = SqlReader(pair.leader.path, SqlSettings(), lambda: 0.0)
    quick = QuickReader(pair.leader.path, 1, lambda: 0.0)
    for sql in (
        "SELECT m.v FROM mine m NATURAL JOIN mine",
        "SELECT v FROM SHOWN",
        "SELECT v FROM mine JOIN shown USING (id, v)",
        "WITH m AS (SELECT * FROM mine) SELECT count(*) FROM m",
        "SELECT j.value FROM json_each('[1]') j",
        "SELECT name FROM sqlite_schema",
        "SELECT name FROM pragma_table_info('mine')",
        "EXPLAIN QUERY PLAN SELECT * FROM mine",
        "EXPLAIN INSERT INTO box VALUES (1, 2)",
        "PRAGMA table_info(mine)",
    ):
        asked = SqlQuery(sql)
        found = reader.read(asked, rights=EVE).reply
        assert found.fault is None, (sql, found.fault)
        assert found == reader.read(asked).reply
    assert quick.read(SqlQuery("SELECT v FROM shown WHERE id = 1"), EVE).slice.rows == (("open",),)
    quick.close()
    reader.close()
    for statements in (
        ["INSERT INTO box VALUES (1, 'x')", "INSERT INTO box SELECT id + 10, v FROM mine"],
        ["DELETE FROM box"],
        ["REPLACE INTO box VALUES (1, 'y')", "INSERT OR IGNORE INTO box VALUES (1, 'z')"],
        ["INSERT INTO mine (v) VALUES ('a') RETURNING id, v", "UPDATE mine SET v = 'b' WHERE id = 1"],
        ["INSERT INTO mine (id, v) VALUES (1, 'c') ON CONFLICT (id) DO UPDATE SET v = excluded.v"],
        ["CREATE TABLE mine_new (id INTEGER PRIMARY KEY AUTOINCREMENT, v UNIQUE, w AS (v || 'w'))"],
        ["INSERT INTO mine_new (v) VALUES ('a')", "CREATE INDEX mine_by_v ON mine_new (v, upper(v))"],
        ["CREATE TABLE mine_child (id INTEGER REFERENCES mine_new, own REFERENCES mine_child)"],
        ["CREATE VIEW mine_view AS SELECT mine.v FROM mine JOIN shown USING (id)"],
        ["CREATE TRIGGER mine_a AFTER UPDATE OF v ON mine_new BEGIN INSERT INTO box (v) VALUES (new.v); END"],
        ["CREATE TRIGGER mine_b INSTEAD OF INSERT ON mine_view BEGIN INSERT INTO mine (v) VALUES (new.v); END"],
        ["INSERT INTO mine_view VALUES ('by view')", "UPDATE mine_new SET v = 'z'"],
        ["ALTER TABLE mine_new ADD COLUMN x DEFAULT 1", "ALTER TABLE mine_new RENAME COLUMN x TO y"],
        ["ALTER TABLE mine_new DROP COLUMN y", "ALTER TABLE mine_new RENAME TO mine_other"],
        ["DROP TRIGGER mine_b", "DROP VIEW mine_view", "DROP INDEX mine_by_v", "DROP TABLE mine_child"],
        ["DROP TABLE mine_other"],
    ):
        fault = run(pair, *statements)
        assert fault is None, (statements, fault)
    assert ("by view",) in [row[2:] for row in contents(pair.follower.path)["mine"]]
    pair.check()


def test_a_commit_is_within_the_rights_that_hold_then(pair):
    held = pair.leader.hold()
    steps = [SqlStatement("SELECT v FROM secret WHERE id = 1"), SqlStatement("UPDATE secret SET v = 'changed'")]
    outcomes = [held.step([one])[0] for one in steps]
    held.close()
    command = encode(SqlCommit(tuple(steps), tuple(one.told for one in outcomes)))
    fault = pair.run(within(EVE, command))[-1].fault
    assert fault.kind == "conflict"
    assert "changed" not in str(contents(pair.leader.path))
    # What was refused stays refused: the transaction goes on without it.
    held = pair.leader.hold()
    held.rights = EVE
    steps = [*steps, SqlStatement("UPDATE mine SET v = 'kept' WHERE id = 1")]
    outcomes = [held.step([one])[0] for one in steps]
    held.close()
    assert [one.fault.kind if one.fault else "" for one in outcomes] == ["denied", "denied", ""]
    assert pair.run(within(EVE, encode(SqlCommit(tuple(steps), tuple(one.told for one in outcomes)))))[-1].fault is None
    assert "kept" in str(contents(pair.follower.path)["mine"])


def test_a_trigger_of_somebody_else_acts_with_the_rights_of_who_fires_it(pair):
    assert run(pair, "INSERT INTO mine_fired VALUES (1, 'x')", rights=None) is None
    fault = run(pair, "INSERT INTO mine_fired VALUES (2, 'x')")
    assert (fault.kind, "write secret" in fault.text) == ("denied", True)
    wider = TableRights(EVE.read, (*EVE.write, "secret"), EVE.schema)
    assert run(pair, "INSERT INTO mine_fired VALUES (2, 'x')", rights=wider) is None


def test_no_rights_at_all_and_names_that_are_patterns(pair):
    nothing = TableRights()
    for sql in ("SELECT v FROM mine", "SELECT v FROM shown"):
        reader = SqlReader(pair.leader.path, SqlSettings(), lambda: 0.0)
        assert reader.read(SqlQuery(sql), rights=nothing).reply.fault.kind == "denied"
        assert reader.read(SqlQuery("SELECT 1"), rights=nothing).reply.fault is None
        reader.close()
    rights = TableRights(("a.c", "b*", "[x]", "É", "q?"))
    for name, may in (
        ("a.c", True), ("abc", False), ("B", True), ("b\nx", True), ("cb", False), ("x", False), ("[X]", True),
        ("É", True), ("é", False), ("q?", True), ("qq", False), ("", False),
    ):  # fmt: skip
        assert bool(rights.may_read(name)) is may, name
        assert not rights.may_write(name)
    assert TableRights(("*",)).may_read("anything at all")


def client(**scope) -> Principal:
    return Principal(name="eve", role=Role.CLIENT, access=scope.pop("access", ClientAccess.WRITE), **scope)


def test_rights_of_principals():
    assert rights_of(None) is rights_of(CLUSTER) is rights_of(client()) is None
    bounded = client(tables_read=("a",), tables_schema=("b",))
    assert rights_of(bounded) == TableRights(("a",), (), ("b",))
    reader = client(access=ClientAccess.READ, tables_read=("a",), tables_write=("b",))
    assert rights_of(reader) == TableRights(("a",))
    assert rights_of(client(tables_write=())) == TableRights()


def test_tables_bound_a_client_to_logs_of_tables(pair):
    bounded, keyed = client(tables_read=("a",)), client(prefix=b"x/")
    both = client(tables_read=("a",), prefix=b"x/")
    assert [fault_of(one, "shop", SQL_SCOPES) == "" for one in (client(), bounded, keyed, both)] == [
        True, True, False, True,
    ]  # fmt: skip
    assert [fault_of(one, "shop", WHOLE_LOG) == "" for one in (client(), bounded, keyed, both)] == [
        True, False, False, False,
    ]  # fmt: skip
    for keys in (FileScopes(), MapScopes(lambda _lease: ())):
        assert [fault_of(one, "shop", keys) == "" for one in (client(), bounded, keyed, both)] == [
            True, False, True, True,
        ]  # fmt: skip
    assert path_fault(bounded, "/a")
    assert reach_of(client(), SQL_SCOPES) is None
    # Writers are names in the log: a client has those that begin with its own.
    reach = reach_of(bounded, SQL_SCOPES)
    for writer, may in (("eve/job", True), ("ann/job", False)):
        mark = encode_mark(WriterMark(writer, MarkKind.FORGET, "c", "r", 1))
        assert (reach._fault(Command(bytes(16), 1, 0, mark)) == "") is may
    watch = WatchRequest("shop", "rows")
    assert [watch_fault(one, "shop", SQL_SCOPES, watch) == "" for one in (client(), bounded, both)] == [
        True, False, False,
    ]  # fmt: skip


def test_an_envelope_is_opened_once_and_older_replicas_refuse_it():
    payload = within(EVE, b"\x91\x90")
    assert opened(payload) == (EVE, b"\x91\x90")
    assert opened(b"\x91\x90") == (None, b"\x91\x90")
    assert is_of_transaction(payload), "a replica that does not know it takes it for a step, of no kind that it knows"
    for broken in (within(EVE, payload), payload[:-3], b"\x93\x08", b"\x93\x08\x00\x00"):
        with pytest.raises(InvalidCommandError):
            opened(broken)
    assert Query(payload).payload == payload
