"""SQL tables, one entry after the other: what leader and follower hold, and what is refused."""

from pathlib import Path

import pytest

from rsm_spark.core.durable import DurableMachine
from rsm_spark.sql.limits import SqlSettings
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, contents, transaction


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    yield pair
    pair.close()


def rows(pair: SqlPair, table: str):
    return [row[1:] for row in contents(pair.follower.path)[table]]


def test_the_kernel_knows_it_as_durable(pair):
    assert isinstance(pair.leader, DurableMachine)


def test_results_tell_columns_rows_counts_and_ids(pair):
    pair.do("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL)")
    reply = pair.do(
        ("INSERT INTO item (name, price) VALUES (?, ?), (?, ?)", ("pen", 1.5, "ink", 3)),
        ("SELECT name, price, price * 2 AS twice FROM item WHERE name = :name", {"name": "ink"}),
        "UPDATE item SET price = price + 1 RETURNING id",
    )
    assert reply.fault is None
    inserted, selected, updated = reply.results
    assert (inserted.row_count, inserted.last_rowid, inserted.columns) == (2, 2, ())
    assert selected.columns == (("name", "TEXT"), ("price", "REAL"), ("twice", ""))
    assert selected.rows == (("ink", 3.0, 6.0),)
    assert (selected.row_count, selected.last_rowid) == (0, None)
    assert updated.rows == ((1,), (2,))


def test_what_is_drawn_or_read_of_the_clock_is_the_leaders(pair):
    pair.do("CREATE TABLE drawn (a, b, c)")
    pair.do("INSERT INTO drawn VALUES (random(), CURRENT_TIMESTAMP, hex(randomblob(8)))")
    ((a, b, c),) = rows(pair, "drawn")
    assert isinstance(a, int)
    assert len(b) == 19
    assert len(c) == 16


def test_triggers_and_cascades_fire_once(pair):
    pair.do(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
        "CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parent ON DELETE CASCADE)",
        "CREATE TABLE told (what TEXT, at TEXT DEFAULT CURRENT_TIMESTAMP)",
        "CREATE TRIGGER gone AFTER DELETE ON child BEGIN INSERT INTO told (what) VALUES ('child ' || old.id); END",
    )
    pair.do("INSERT INTO parent VALUES (1), (2)", "INSERT INTO child VALUES (10, 1), (11, 1), (12, 2)")
    pair.do("DELETE FROM parent WHERE id = 1")
    assert rows(pair, "child") == [(12, 2)]
    assert sorted(what for what, _ in rows(pair, "told")) == ["child 10", "child 11"]


def test_a_transaction_is_done_whole_or_not_at_all(pair):
    pair.do("CREATE TABLE account (name TEXT PRIMARY KEY, cents INTEGER CHECK (cents >= 0))")
    pair.do("INSERT INTO account VALUES ('ann', 100), ('bob', 0)")
    reply = pair.do(
        "UPDATE account SET cents = cents + 150 WHERE name = 'bob'",
        "UPDATE account SET cents = cents - 150 WHERE name = 'ann'",
    )
    assert reply.results == ()
    assert (reply.fault.kind, reply.fault.statement) == ("constraint", 1)
    assert "cents >= 0" in reply.fault.text
    assert rows(pair, "account") == [("ann", 100), ("bob", 0)]


def test_an_expected_number_of_rows_is_a_condition(pair):
    pair.do("CREATE TABLE doc (id INTEGER PRIMARY KEY, version INTEGER)", "INSERT INTO doc VALUES (1, 7)")
    swap = ("UPDATE doc SET version = version + 1 WHERE id = 1 AND version = ?", (7,), 1)
    assert pair.do(swap).fault is None
    fault = pair.do(swap).fault
    assert (fault.kind, fault.text) == ("expected", "1 rows were expected, it has 0")
    assert pair.do(("SELECT 1 FROM doc WHERE version = 8", (), 1)).fault is None
    assert contents(pair.follower.path)["doc"] == [(1, 1, 8)]


def test_unique_values_change_places(pair):
    pair.do("CREATE TABLE seat (id INTEGER PRIMARY KEY, who TEXT UNIQUE)", "INSERT INTO seat VALUES (1, 'a'), (2, 'b')")
    pair.do(
        "UPDATE seat SET who = NULL WHERE id = 1",
        "UPDATE seat SET who = 'a' WHERE id = 2",
        "UPDATE seat SET who = 'b' WHERE id = 1",
    )
    assert rows(pair, "seat") == [(1, "b"), (2, "a")]


def test_ids_of_autoincrement_are_never_given_again(pair):
    pair.do("CREATE TABLE task (id INTEGER PRIMARY KEY AUTOINCREMENT, what)")
    pair.do("INSERT INTO task (what) VALUES ('a'), ('b')", "DELETE FROM task WHERE id = 2")
    pair.do("DELETE FROM task")
    pair.leader.close()
    pair.lead(pair.followed)  # The follower leads.
    reply = pair.composer.state.machine.decide(transaction("INSERT INTO task (what) VALUES ('c') RETURNING id"), 99, 0)
    assert b"\x03" in reply.reply
    assert any(fields[1:3] == (b"\x91\x03", b"\x91\xa1c") for record, fields in reply.records if record == 23)


def test_columns_are_added_renamed_and_dropped(pair):
    pair.do("CREATE TABLE t (a, b)", "INSERT INTO t VALUES (1, 2), (3, NULL)")
    digest = pair.state.digest
    before = pair.state.row_count
    assert pair.do("ALTER TABLE t ADD COLUMN c INTEGER NOT NULL DEFAULT 5").fault is None
    assert pair.do("ALTER TABLE t ADD COLUMN d TEXT").fault is None
    assert pair.state.row_count == before
    assert pair.state.digest != digest  # The catalog has changed, the rows have not.
    pair.do("INSERT INTO t VALUES (5, 6, 5, NULL), (7, 8, 9, 'x')", "ALTER TABLE t RENAME COLUMN a TO z")
    pair.do("ALTER TABLE t RENAME TO u", "CREATE INDEX by_z ON u (z)")
    pair.do("UPDATE u SET c = c + 1 WHERE z < 6", "ALTER TABLE u DROP COLUMN b", "INSERT INTO u VALUES (0, 0, 0)")
    assert sorted(rows(pair, "u"), key=repr) == [(0, 0, "0"), (1, 6, None), (3, 6, None), (5, 6, None), (7, 9, "x")]


def test_generated_columns_without_rowid_and_collations(pair):
    pair.do(
        "CREATE TABLE g (id INTEGER PRIMARY KEY, a INTEGER, twice AS (a * 2), thrice INTEGER AS (a * 3) STORED UNIQUE)",
        "CREATE TABLE w (k TEXT COLLATE NOCASE, n INTEGER, v, PRIMARY KEY (n, k)) WITHOUT ROWID",
    )
    pair.do("INSERT INTO g (a) VALUES (1), (2), (9)", "INSERT INTO w VALUES ('k', 1, 'x')")
    pair.do("UPDATE g SET a = a + 100 WHERE a < 5", "UPDATE w SET k = 'K'", "UPDATE g SET id = id + 50 WHERE id = 3")
    assert rows(pair, "g") == [(1, 101, 202, 303), (2, 102, 204, 306), (53, 9, 18, 27)]
    assert contents(pair.follower.path)["w"] == [("K", 1, "x")]


def test_tables_are_dropped_with_their_rows(pair):
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a)", "INSERT INTO t (a) VALUES (1), (2), (3)")
    pair.do("DROP TABLE t")
    assert list(pair.follower.rows()) == []
    pair.do("CREATE TABLE t (a)", "INSERT INTO t VALUES ('again')")
    assert rows(pair, "t") == [("again",)]


REFUSED = [
    ("ATTACH 'other.db' AS other", "ATTACH"),
    ("BEGIN", "send the statements of a transaction together"),
    ("SAVEPOINT s", "are for interactive transactions"),
    ("PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys"),
    ("PRAGMA writable_schema = ON", "PRAGMA writable_schema"),
    ("CREATE TEMP TABLE t2 (a)", "temporary tables"),
    ("CREATE TABLE t2 AS SELECT * FROM t", "INSERT INTO t2 SELECT"),
    ("CREATE VIRTUAL TABLE f USING fts5(a)", "virtual tables"),
    ("ANALYZE", "ANALYZE"),
    ("REINDEX", "REINDEX"),
    ("SELECT load_extension('x')", "load_extension"),
    ("SELECT * FROM _rsm_kernel", "the replica's own"),
    ("CREATE TABLE _rsm_x (a)", "the replica's own"),
    ("DELETE FROM sqlite_sequence", "AUTOINCREMENT alone"),
    ("UPDATE sqlite_schema SET sql = 'x'", "may not be modified"),
    ("SELECT * FROM dbstat", "dbstat"),
    ("VACUUM", "VACUUM"),
    ("VACUUM INTO 'copy.db'", "VACUUM"),
    ("SELECT 1; SELECT 2", "more than one statement"),
    ("CREATE TABLE t2 (rowid, oid, _rowid_)", "declare a key"),
    ("CREATE TABLE t2 (a PRIMARY KEY, b AS (a)) WITHOUT ROWID", "not replicated"),
    ('SELECT "no such column" FROM t', "no such column"),
]


@pytest.mark.parametrize(("sql", "words"), REFUSED)
def test_what_cannot_be_replicated_is_refused_in_words(pair, sql, words):
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a)", "INSERT INTO t VALUES (1, 2)")
    before = contents(pair.leader.path)
    fault = pair.do(sql).fault
    assert fault is not None
    assert fault.kind in ("refused", "sql")
    assert words in fault.text
    assert contents(pair.leader.path) == before
    assert pair.do("INSERT INTO t (a) VALUES (3)").fault is None


def test_a_statement_of_the_replica_is_not_in_the_cache_of_clients(pair):
    """The cache of prepared statements is by text: none that was prepared without the guard may come out of it."""
    pair.do("CREATE TABLE t (a)")
    for sql in ("SELECT mark FROM _rsm_mark", "COMMIT", "ROLLBACK TO command", "RELEASE command", "BEGIN IMMEDIATE"):
        assert pair.do(sql).fault.kind == "refused"


def test_other_commands_of_an_entry_survive_one_that_rolls_back_all(pair):
    pair.do(
        "CREATE TABLE t (a UNIQUE ON CONFLICT ROLLBACK, b)", "CREATE TABLE log (id INTEGER PRIMARY KEY AUTOINCREMENT)"
    )
    first, failed, second, last = pair.run(
        transaction("INSERT INTO t VALUES (1, 'first')", "INSERT INTO log DEFAULT VALUES"),
        transaction("INSERT INTO log DEFAULT VALUES", "INSERT INTO t VALUES (1, 'twice')"),
        transaction("INSERT OR ROLLBACK INTO log VALUES (1)"),
        transaction("INSERT INTO t VALUES (2, 'second')", "INSERT INTO log DEFAULT VALUES"),
    )
    assert (first.fault, last.fault) == (None, None)
    assert (failed.fault.kind, second.fault.kind) == ("constraint", "constraint")
    assert rows(pair, "t") == [(1, "first"), (2, "second")]
    assert rows(pair, "log") == [(1,), (2,)]


def test_deferred_foreign_keys_are_checked_at_the_end_of_the_transaction(pair):
    pair.do(
        "CREATE TABLE p (id INTEGER PRIMARY KEY)",
        "CREATE TABLE c (p INTEGER REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
    )
    assert pair.do("INSERT INTO c VALUES (1)", "INSERT INTO p VALUES (1)").fault is None
    fault = pair.do("INSERT INTO c VALUES (2)").fault
    assert fault.kind == "constraint"
    assert pair.do("INSERT INTO p VALUES (3)").fault is None


def test_a_decision_that_does_not_fit_its_entry_is_made_again(tmp_path):
    pair = SqlPair(tmp_path, entry_bytes_max=40_000)
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v)")
    some = transaction(("INSERT INTO t (v) VALUES (?)", (b"x" * 30_000,)))
    answers = pair.run(some, some, some)
    assert [reply.results[0].last_rowid for reply in answers] == [1, 2, 3]
    assert len(pair.payloads) >= 4
    pair.close()


def test_more_rows_than_an_entry_holds_are_refused(pair):
    pair.do("CREATE TABLE t (a)")
    many = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000) INSERT INTO t SELECT i FROM n"
    )
    fault = pair.do(many).fault
    assert (fault.kind, "20000 rows" in fault.text) == ("limit", True)
    pair.do("INSERT INTO t VALUES (1)")
    assert rows(pair, "t") == [(1,)]


def test_a_table_with_many_rows_is_not_dropped_at_once(pair):
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
    pair.do("CREATE TABLE t (a, b)", f"{numbers} INSERT INTO t SELECT i, i FROM n")
    for sql in ("DROP TABLE t", "ALTER TABLE t DROP COLUMN b"):
        fault = pair.do(sql).fault
        assert (fault.kind, "delete rows first" in fault.text) == ("limit", True)
    assert pair.do("ALTER TABLE t ADD COLUMN c DEFAULT 'x'").fault is None
    assert pair.do("ALTER TABLE t RENAME TO u").fault is None
    assert pair.do("DELETE FROM u").fault is None
    assert pair.do("DROP TABLE u").fault is None


def test_a_file_has_a_limit_and_rows_can_still_go(tmp_path):
    pair = SqlPair(tmp_path, SqlSettings(file_mib_max=1))
    pair.do("CREATE TABLE t (a)")
    faults = [pair.do(("INSERT INTO t VALUES (?)", (b"x" * 300_000,))).fault for _ in range(5)]
    assert faults[0] is None
    assert faults[-1].kind == "limit"
    assert "1 MiB" in faults[-1].text
    assert pair.do("DELETE FROM t").fault is None
    assert pair.do(("INSERT INTO t VALUES (?)", (b"x" * 300_000,))).fault is None
    pair.close()


LARGE = [
    ("INSERT INTO t VALUES (zeroblob(2000000))", "too big"),
    ("INSERT INTO t SELECT hex(zeroblob(600000))", "too big"),
    (f"CREATE TABLE wide ({', '.join(f'c{n}' for n in range(600))})", "too many columns"),
    (f"INSERT INTO t VALUES ({' + '.join('1' * 400)})", "depth"),
    (f"INSERT INTO t VALUES ('{'x' * 300_000}')", "too big"),
    (f"INSERT INTO t VALUES {', '.join('(1)' for _ in range(25_000))}", "20000 rows"),
]


@pytest.mark.parametrize(("sql", "words"), LARGE)
def test_what_is_too_large_is_refused_and_the_entry_goes_on(pair, sql, words):
    pair.do("CREATE TABLE t (a)")
    before, failed, after = pair.run(
        transaction("INSERT INTO t VALUES ('before')"), transaction(sql), transaction("INSERT INTO t VALUES ('after')")
    )
    assert (before.fault, after.fault) == (None, None)
    assert failed.fault is not None
    assert words in failed.fault.text
    assert rows(pair, "t") == [("before",), ("after",)]


def test_triggers_that_fire_each_other_end(pair):
    pair.do("CREATE TABLE a (n)", "CREATE TABLE b (n)")
    pair.do("CREATE TRIGGER ab AFTER INSERT ON a BEGIN INSERT INTO b VALUES (new.n + 1); END")
    pair.do("CREATE TRIGGER ba AFTER INSERT ON b BEGIN INSERT INTO a VALUES (new.n + 1); END")
    assert pair.do("INSERT INTO a VALUES (1)").fault is None
    assert (rows(pair, "a"), rows(pair, "b")) == ([(1,), (3,)], [(2,)])


def test_rows_that_do_not_fit_the_reply_undo_the_transaction_and_say_what_to_do(tmp_path):
    pair = SqlPair(tmp_path)
    try:
        pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
        many = "WITH RECURSIVE n(i) AS (SELECT {} UNION ALL SELECT i + 1 FROM n LIMIT {}) SELECT i, 'some text' FROM n"
        (reply,) = pair.run(
            transaction("INSERT INTO t VALUES (0, 0)", f"INSERT INTO t {many.format(1, 1_000)} RETURNING *")
        )
        assert (reply.fault.kind, reply.fault.statement) == ("limit", 1)
        words = reply.fault.text
        assert "most of them by its statement 2: 1000 rows" in words
        assert "nothing was written" in words
        assert contents(pair.leader.path)["t"] == contents(pair.follower.path)["t"] == []
        # As many rows as it names do fit.
        fewer = int(words.partition("here about ")[2].partition(")")[0])
        assert fewer > 50
        (reply,) = pair.run(transaction(f"INSERT INTO t {many.format(1, fewer)} RETURNING *"))
        assert reply.fault is None
        assert len(contents(pair.leader.path)["t"]) == fewer
    finally:
        pair.close()
