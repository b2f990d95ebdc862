"""What the log tells of tables: a copy that is fed by it holds the same, and is told each change once."""

import random
from pathlib import Path

import pytest

from rsm_spark.core.envelope import decode_envelope
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.records import DESCRIPTION, FIRST_DESCRIPTION
from rsm_spark.sql.table_rights import TableRights
from tests.unit.rsm_spark.sql.drawn_sql import DrawnSql
from tests.unit.rsm_spark.sql.fed_copy import FedCopy, feed_of, without_sequences
from tests.unit.rsm_spark.sql.plain_sqlite import PlainSqlite
from tests.unit.rsm_spark.sql.planted_sql import ForgetsToRollBack, TellsWhatWasRolledBack, TellsWrongOldValues
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, contents, transaction


def run_feed_seed(folder: Path, seed: int, machine: type[SqlMachine] = SqlMachine) -> None:
    folder.mkdir()
    rng = random.Random(seed)
    drawn, plain = DrawnSql(rng), PlainSqlite()
    pair = SqlPair(folder, machine=machine, description=FIRST_DESCRIPTION if seed % 4 == 3 else DESCRIPTION)
    copy, told = FedCopy(), 0
    try:
        for round_ in range(40):
            drawn.learn(plain.tables())
            batch = [drawn.transaction() for _ in range(rng.choice((1, 1, 2, 4)))]
            answers = pair.run(*(transaction(*statements) for statements in batch))
            for statements in batch:
                plain.run(statements)
            assert len(answers) == len(batch)
            if round_ == 20:
                pair.follow(DESCRIPTION)
            changes = feed_of(pair.payloads)
            for change in changes[told:]:
                copy.take(change)
            told = len(changes)
            assert copy.contents() == without_sequences(contents(pair.leader.path))
        assert told > 30
        # From any revision on the same is told.
        begin = rng.randint(1, decode_envelope(pair.payloads[-1]).last_revision)
        assert feed_of(pair.payloads, begin) == [change for change in changes if change.revision >= begin]
    finally:
        pair.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_copy_that_is_fed_holds_the_same(tmp_path, seed):
    run_feed_seed(tmp_path / "one", seed)


@pytest.mark.parametrize("bug", [TellsWhatWasRolledBack, TellsWrongOldValues, ForgetsToRollBack])
def test_planted_bugs_are_found(tmp_path, bug):
    for seed in range(20):
        try:
            run_feed_seed(tmp_path / str(seed), seed, bug)
        except Exception:  # noqa: BLE001 - whatever says that something is wrong
            return
    pytest.fail(f"{bug.__name__} was not found")


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    yield pair
    pair.close()


def told(pair, *tables, begin=1):
    return [(one.kind, one.table, one.key, one.old, one.new) for one in feed_of(pair.payloads, begin, tables)]


def test_tables_are_told_by_the_names_that_they_have(pair):
    pair.do("CREATE TABLE a (x, y AS (x + 1))", "INSERT INTO a (x) VALUES (1)", "CREATE INDEX by_x ON a (x)")
    pair.do("ALTER TABLE a RENAME TO b")
    pair.do("UPDATE b SET x = 2", "CREATE TABLE a (z)", "INSERT INTO a VALUES (x'ff')")
    assert told(pair, "A")[1:] == [
        ("insert", "a", {"rowid": 1}, None, {"x": 1}),
        ("schema", "a", {}, None, None),
        ("schema", "a", {}, None, None),
        ("schema", "a", {}, None, None),
        ("insert", "a", {"rowid": 1}, None, {"z": b"\xff"}),
    ]
    assert told(pair, "b")[1:] == [("update", "b", {"rowid": 1}, {"x": 1}, {"x": 2})]
    rename = feed_of(pair.payloads, 1, ("b",))[0]
    assert rename.sql == "ALTER TABLE a RENAME TO b"
    assert ("table", "a", False) in rename.objects
    assert ("table", "b", True) in rename.objects
    assert told(pair, "none") == []


def test_a_transaction_says_which_change_is_its_last(pair):
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY, v)", "CREATE TABLE u (v)")
    pair.run(
        transaction("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT INTO u VALUES (0)", "DELETE FROM t WHERE id = 2"),
        transaction("UPDATE t SET v = v + 1", "UPDATE t SET v = v + 1"),
    )
    changes = feed_of(pair.payloads)[2:]
    assert [one.is_last for one in changes] == [False, True, True]
    assert len({one.transaction for one in changes[:2]}) == 1
    assert (changes[2].old, changes[2].new) == ({"id": 1, "v": 1}, {"id": 1, "v": 3})
    assert changes[2].transaction == pair.state.revision
    assert [one.is_last for one in feed_of(pair.payloads, 1, ("t",))[1:]] == [True, True]
    assert changes[0].shown()["new"] == {"id": 1, "v": 1}


def test_records_of_before_say_that_the_old_row_is_not_known(tmp_path):
    pair = SqlPair(tmp_path, description=FIRST_DESCRIPTION)
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY, v)", "INSERT INTO t VALUES (1, 1)")
    pair.do("UPDATE t SET v = 2")
    pair.do("DELETE FROM t")
    changes = feed_of(pair.payloads)[1:]
    assert [(one.kind, one.old, one.new, one.is_old_known) for one in changes] == [
        ("put", None, {"id": 1, "v": 1}, False),
        ("put", None, {"id": 1, "v": 2}, False),
        ("delete", None, None, False),
    ]
    pair.close()


def test_the_catalog_of_before_is_known(tmp_path):
    pair = SqlPair(tmp_path)
    assert pair.leader.catalog_at(0) == {}
    revisions = []
    for sql in ("CREATE TABLE a (x)", "ALTER TABLE a RENAME TO b", "CREATE INDEX i ON b (x)", "DROP TABLE b"):
        pair.do(sql)
        revisions.append((pair.state.revision, set(pair.leader.catalog_at(pair.state.revision))))
    assert [names for _, names in revisions] == [{"a"}, {"b"}, {"b", "i"}, set()]
    pair.follower.close()
    machine = SqlMachine(tmp_path / "follower.db")
    for revision, names in revisions:
        assert set(machine.catalog_at(revision)) == names
    machine.close()
    restored = SqlMachine(tmp_path / "restored.db")
    restored.restore(pair.leader.rows())
    assert restored.catalog_at(revisions[-1][0]) is None
    restored._writer.history.commit(revisions[-1][0])
    assert restored.catalog_at(revisions[-2][0]) is None
    assert restored.catalog_at(revisions[-1][0]) == {}
    restored.close()
    pair.leader.close()


def test_the_catalog_of_long_ago_is_forgotten(pair):
    history = pair.leader._writer.history
    history._notes_max = 8
    known = {}
    for number in range(20):
        pair.do(f"CREATE TABLE t{number} (x)" if number % 3 else f"DROP TABLE IF EXISTS t{number - 1}")
        known[pair.state.revision] = set(pair.leader._writer.catalog.objects)
    answers = {revision: pair.leader.catalog_at(revision) for revision in known}
    assert answers[min(known)] is None
    assert all(found is None or set(found) == known[revision] for revision, found in answers.items())
    assert sum(found is not None for found in answers.values()) >= 3


def test_who_has_some_tables_is_told_of_these_by_the_names_that_they_have_then(tmp_path):
    pair = SqlPair(tmp_path)
    try:
        pair.do(
            "CREATE TABLE hidden (id INTEGER PRIMARY KEY, v)",
            "CREATE TABLE seen (id INTEGER PRIMARY KEY, v)",
            "CREATE VIEW seen_too AS SELECT v FROM hidden",
            "CREATE TRIGGER moves AFTER INSERT ON hidden BEGIN INSERT INTO seen (v) VALUES (new.id); END",
        )
        pair.do("INSERT INTO hidden VALUES (1, 'first')", "UPDATE seen SET v = 5")
        pair.do("ALTER TABLE hidden RENAME TO seen_now", "INSERT INTO seen_now VALUES (2, 'open')")
        pair.do("DROP VIEW seen_too", "ALTER TABLE seen_now RENAME TO hidden", "DELETE FROM hidden")
        whole = feed_of(pair.payloads)
        found = feed_of(pair.payloads, rights=TableRights(("SEEN*",)))
        assert [(one.kind, one.table, one.new) for one in found if one.kind != "schema"] == [
            ("insert", "seen", {"id": 1, "v": 5}),
            ("insert", "seen_now", {"id": 2, "v": "open"}),
            ("insert", "seen", {"id": 2, "v": 2}),
        ]
        assert [one.sql.split(" (")[0] for one in found if one.kind == "schema"] == [
            "CREATE TABLE seen",
            "CREATE VIEW seen_too AS SELECT v FROM hidden",
            "ALTER TABLE hidden RENAME TO seen_now",
            "DROP VIEW seen_too",
            "ALTER TABLE seen_now RENAME TO hidden",
        ]
        assert "first" not in str(found)
        # Of each transaction the last change that is told says so.
        ends = {one.transaction: one.revision for one in found}
        assert [one.revision for one in found if one.is_last] == list(ends.values())
        assert {one.revision for one in found} < {one.revision for one in whole}
        assert feed_of(pair.payloads, rights=TableRights()) == []
        assert feed_of(pair.payloads, tables=("hidden",), rights=TableRights(("seen*",))) == []
    finally:
        pair.close()
